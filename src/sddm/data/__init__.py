"""Where tokens come from."""

from sddm.data.gray import GrayCode
from sddm.data.toys import DENSITIES, Toy

__all__ = ["DENSITIES", "GrayCode", "Toy"]
