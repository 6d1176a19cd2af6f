"""How far samples are from data."""

from sddm.metrics.association import cramers_v
from sddm.metrics.mmd import MMD, hamming_mmd

__all__ = ["MMD", "cramers_v", "hamming_mmd"]
