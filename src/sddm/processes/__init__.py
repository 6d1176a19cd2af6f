"""Forward processes. To add one: a small file with a class, and one line in the table below."""

from sddm.processes.absorbing import Absorbing
from sddm.processes.base import HORIZON, Process, Undoable
from sddm.processes.dense import CustomRate, DenseProcess
from sddm.processes.ordinal import BirthDeath, DiscretizedGaussian
from sddm.processes.uniform import Uniform

PROCESSES: dict[str, type[Process]] = {
    "uniform": Uniform,
    "absorbing": Absorbing,
    "birth-death": BirthDeath,
    "discretized-gaussian": DiscretizedGaussian,
    "custom-rate": CustomRate,
}

__all__ = [
    "HORIZON",
    "PROCESSES",
    "Absorbing",
    "BirthDeath",
    "CustomRate",
    "DenseProcess",
    "DiscretizedGaussian",
    "Process",
    "Undoable",
    "Uniform",
]
