"""sddm: score-based continuous-time diffusion models for categorical data."""

from sddm import data, likelihood, losses, marginals, metrics, processes, samplers, schedules
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.fit import fit
from sddm.noised_classifier import NoisedClassifier
from sddm.samplers import sample, steer

__version__ = "0.1.0"

__all__ = [
    "Condition",
    "Diffusion",
    "NoisedClassifier",
    "data",
    "fit",
    "likelihood",
    "losses",
    "marginals",
    "metrics",
    "processes",
    "sample",
    "samplers",
    "schedules",
    "steer",
]
