"""Where tokens come from."""

from sddm.data.arrays import TokenArray
from sddm.data.dataset import MAX_LENGTH, MAX_STATES, Dataset
from sddm.data.decoders import DECODERS, Characters, Columns, Decoder, Integers, Points
from sddm.data.gray import GrayCode
from sddm.data.load import READERS, load
from sddm.data.toys import DENSITIES, Toy

__all__ = [
    "DECODERS",
    "DENSITIES",
    "MAX_LENGTH",
    "MAX_STATES",
    "READERS",
    "Characters",
    "Columns",
    "Dataset",
    "Decoder",
    "GrayCode",
    "Integers",
    "Points",
    "TokenArray",
    "Toy",
    "load",
]
