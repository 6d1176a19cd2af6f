"""Sampling: one loop, time grids, and reverse steps. To add a step: a small class, and one line in the table below."""

from collections.abc import Callable

from sddm.samplers.confident import Confident
from sddm.samplers.corrector import Correction, Corrector
from sddm.samplers.entropic import Entropic
from sddm.samplers.exact import Exact
from sddm.samplers.first_hitting import FirstHitting
from sddm.samplers.grids import (
    Grid,
    uniform_down_to_least_time,
    uniform_in_log_share,
    uniform_in_share,
    uniform_in_time,
)
from sddm.samplers.in_order import InOrder
from sddm.samplers.informed import Informed
from sddm.samplers.lazy import Lazy
from sddm.samplers.loop import Callback, Progress, Trajectory, sample
from sddm.samplers.pilot import pilot_grid
from sddm.samplers.predicting import Predicting
from sddm.samplers.refreshing import Refreshing
from sddm.samplers.rewards import OfLaw, OfNoised, OfPrediction
from sddm.samplers.steer import Steered, SteeringProgress, steer
from sddm.samplers.steps import Analytical, Euler, ReverseStep, TauLeaping
from sddm.samplers.sweep import Sweep
from sddm.samplers.trapezoidal import Trapezoidal

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
    "trapezoidal": Trapezoidal,
    "first-hitting": FirstHitting,
    "entropic": Entropic,
    "refreshing": Refreshing,
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
    "Correction",
    "Corrector",
    "Entropic",
    "Euler",
    "Exact",
    "FirstHitting",
    "Grid",
    "InOrder",
    "Informed",
    "Lazy",
    "OfLaw",
    "OfNoised",
    "OfPrediction",
    "Predicting",
    "Progress",
    "Refreshing",
    "ReverseStep",
    "Steered",
    "SteeringProgress",
    "Sweep",
    "TauLeaping",
    "Trajectory",
    "Trapezoidal",
    "pilot_grid",
    "sample",
    "steer",
    "uniform_down_to_least_time",
    "uniform_in_log_share",
    "uniform_in_share",
    "uniform_in_time",
]
