"""Training."""

from sddm.training.batches import Batches, Epochs
from sddm.training.config import TrainingConfig
from sddm.training.ema import EMA
from sddm.training.loop import Trainer, train

__all__ = ["EMA", "Batches", "Epochs", "Trainer", "TrainingConfig", "train"]
