"""Where tokens come from."""

from sddm.data.dataset import Dataset
from sddm.data.load import load
from sddm.data.toys import DENSITIES, Toy
from sddm.token_array import TokenArray

__all__ = ["DENSITIES", "Dataset", "TokenArray", "Toy", "load"]
