"""The systems that diffusion is compared with, each whole: its training step, its sampler."""

from collections.abc import Callable

from sddm.baselines.aloe import ALOE
from sddm.baselines.autoregressive import Autoregressive, AutoregressiveLearner
from sddm.baselines.base import Baseline, TimelessEnergy
from sddm.baselines.chains import AbsorbingChain, GaussianChain, UniformChain
from sddm.baselines.d3pm import D3PM, D3PMLearner
from sddm.baselines.ebgfn import EBGFN
from sddm.baselines.pcd import PCD

BASELINES: dict[str, Callable[..., Baseline]] = {"PCD": PCD, "ALOE+": ALOE, "EB-GFN": EBGFN}
"""By the names under which results are reported."""

__all__ = [
    "ALOE",
    "BASELINES",
    "D3PM",
    "EBGFN",
    "PCD",
    "AbsorbingChain",
    "Autoregressive",
    "AutoregressiveLearner",
    "Baseline",
    "D3PMLearner",
    "GaussianChain",
    "TimelessEnergy",
    "UniformChain",
]
