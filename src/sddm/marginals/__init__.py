"""Models of the singleton conditionals. To add one: a small file with a class, and one line in the table below."""

from sddm.marginals.base import MarginalModel, Marginals
from sddm.marginals.classified import Classified
from sddm.marginals.energy import Energy
from sddm.marginals.guided import Guided
from sddm.marginals.hollow import Hollow
from sddm.marginals.leave_one_out import LeaveOneOut
from sddm.marginals.masked import Masked
from sddm.marginals.oracle import Oracle
from sddm.marginals.wrappers import Restricted, Tempered, Within

MODELS: dict[str, type[MarginalModel]] = {
    "energy": Energy,
    "masked": Masked,
    "hollow": Hollow,
    "leave-one-out": LeaveOneOut,
    "oracle": Oracle,
    "restricted": Restricted,
}

__all__ = [
    "MODELS",
    "Classified",
    "Energy",
    "Guided",
    "Hollow",
    "LeaveOneOut",
    "MarginalModel",
    "Marginals",
    "Masked",
    "Oracle",
    "Restricted",
    "Tempered",
    "Within",
]
