"""Training."""

from sddm.training.batches import Batches, Epochs
from sddm.training.classifier import ClassifierLearner, train_classifier
from sddm.training.config import RunConfig, TrainingConfig
from sddm.training.descent import Descent
from sddm.training.diffusion import DiffusionLearner, train
from sddm.training.ema import EMA
from sddm.training.learner import Learner
from sddm.training.loop import learn
from sddm.training.report import Callback
from sddm.training.rules import Known, Mask, Mixture, Nothing, OnGrid, Prefix, Scattered, Spans, Stratified, TimeRule

__all__ = [
    "EMA",
    "Batches",
    "Callback",
    "ClassifierLearner",
    "Descent",
    "DiffusionLearner",
    "Epochs",
    "Known",
    "Learner",
    "Mask",
    "Mixture",
    "Nothing",
    "OnGrid",
    "Prefix",
    "RunConfig",
    "Scattered",
    "Spans",
    "Stratified",
    "TimeRule",
    "TrainingConfig",
    "learn",
    "train",
    "train_classifier",
]
