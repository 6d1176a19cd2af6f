"""Sampling: one loop, time grids, and reverse steps. To add a step: a small class, and one line in the table below."""

from collections.abc import Callable

from sddm.samplers.confident import Confident
from sddm.samplers.corrector import Corrector
from sddm.samplers.exact import Exact
from sddm.samplers.grids import (
    Grid,
    uniform_down_to_least_time,
    uniform_in_log_share,
    uniform_in_share,
    uniform_in_time,
)
from sddm.samplers.in_order import InOrder
from sddm.samplers.lazy import Lazy
from sddm.samplers.loop import Callback, Progress, Trajectory, sample
from sddm.samplers.predicting import Predicting
from sddm.samplers.rewards import OfLaw, OfNoised, OfPrediction
from sddm.samplers.steer import Steered, SteeringProgress, steer
from sddm.samplers.steps import Analytical, Euler, ReverseStep, TauLeaping
from sddm.samplers.sweep import Sweep

SAMPLERS: dict[str, Callable[[], ReverseStep]] = {
    "euler": Euler,
    "analytical": Analytical,
    "sweep": Sweep,
    "lazy": Lazy,
    "lazy-euler": lambda: Lazy(Euler()),
    "tau-leaping": TauLeaping,
    "exact": Exact,
    "in-order": InOrder,
    "confident": Confident,
    "tauldr": Predicting,
}

GRIDS: dict[str, Grid] = {
    "time": uniform_in_time,
    "log-share": uniform_in_log_share,
    "share": uniform_in_share,
    "tauldr": uniform_down_to_least_time,
}

__all__ = [
    "GRIDS",
    "SAMPLERS",
    "Analytical",
    "Callback",
    "Confident",
    "Corrector",
    "Euler",
    "Exact",
    "Grid",
    "InOrder",
    "Lazy",
    "OfLaw",
    "OfNoised",
    "OfPrediction",
    "Predicting",
    "Progress",
    "ReverseStep",
    "Steered",
    "SteeringProgress",
    "Sweep",
    "TauLeaping",
    "Trajectory",
    "sample",
    "steer",
    "uniform_down_to_least_time",
    "uniform_in_log_share",
    "uniform_in_share",
    "uniform_in_time",
]
