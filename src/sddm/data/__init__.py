"""Where tokens come from."""

from sddm.data.dataset import Dataset
from sddm.data.load import Reading, load
from sddm.data.objects import dataset_of
from sddm.data.toys import DENSITIES, Toy
from sddm.token_array import TokenArray

__all__ = ["DENSITIES", "Dataset", "Reading", "TokenArray", "Toy", "dataset_of", "load"]
