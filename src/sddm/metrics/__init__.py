"""How far samples are from data."""

from sddm.metrics.association import cramers_v
from sddm.metrics.cells import cell_distance
from sddm.metrics.mmd import MMD, hamming_mmd

__all__ = ["MMD", "cell_distance", "cramers_v", "hamming_mmd"]
