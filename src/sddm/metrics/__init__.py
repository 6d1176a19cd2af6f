"""How far samples are from data."""

from sddm.metrics.mmd import MMD, hamming_mmd

__all__ = ["MMD", "hamming_mmd"]
