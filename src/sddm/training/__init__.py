"""Training."""

from sddm.training.ema import EMA
from sddm.training.loop import TrainingConfig, train

__all__ = ["EMA", "TrainingConfig", "train"]
