"""Models of the singleton conditionals. To add one: a small file with a class, and one line in the table below."""

from sddm.marginals.base import MarginalModel, Marginals, at_positions
from sddm.marginals.energy import Energy
from sddm.marginals.oracle import Oracle

MODELS: dict[str, type[MarginalModel]] = {
    "energy": Energy,
    "oracle": Oracle,
}

__all__ = ["MODELS", "Energy", "MarginalModel", "Marginals", "Oracle", "at_positions"]
