"""Where tokens come from."""

from sddm.codecs import (
    CODECS,
    MAX_LENGTH,
    MAX_STATES,
    Characters,
    Codec,
    Columns,
    GrayCode,
    Integers,
    Points,
)
from sddm.data.dataset import Dataset
from sddm.data.load import load
from sddm.data.toys import DENSITIES, Toy
from sddm.token_array import TokenArray

__all__ = [
    "CODECS",
    "DENSITIES",
    "MAX_LENGTH",
    "MAX_STATES",
    "Characters",
    "Codec",
    "Columns",
    "Dataset",
    "GrayCode",
    "Integers",
    "Points",
    "TokenArray",
    "Toy",
    "load",
]
