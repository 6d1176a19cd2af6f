"""Time grids: descending times from T to 0, both included. A grid is data, made outside the loop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Tensor

from sddm import _checks
from sddm.processes import HORIZON, Process

Grid = Callable[[Process, int], Float64[Tensor, "times"]]
"""A rule that makes the times of a number of steps."""


def uniform_in_time(process: Process, steps: int) -> Float64[Tensor, "times"]:
    """Steps of equal length in t."""
    _checks.instance(process, Process, "process")
    _checks.whole(steps, "steps", 1)
    return torch.linspace(HORIZON, 0, steps + 1, dtype=torch.float64)


def uniform_in_log_share(process: Process, steps: int) -> Float64[Tensor, "times"]:
    """Steps of equal length in log(surviving share) = -gap B(0, t): equal amounts of forward noise a step.

    For a constant schedule this is `uniform_in_time`.
    """
    _checks.instance(process, Process, "process")
    _checks.whole(steps, "steps", 1)
    end = float(process.schedule.integral(0.0, HORIZON))
    return _pinned(process.schedule.inverse(torch.linspace(end, 0, steps + 1, dtype=torch.float64)))


def uniform_in_share(process: Process, steps: int) -> Float64[Tensor, "times"]:
    """Steps of equal length in the surviving share exp(-gap B(0, t)): each step restores the same
    share of the data.
    """
    _checks.instance(process, Process, "process")
    _checks.whole(steps, "steps", 1)
    left = float(process.remaining(torch.tensor([HORIZON], dtype=torch.float64)))
    shares = torch.linspace(left, 1, steps + 1, dtype=torch.float64)
    return _pinned(process.schedule.inverse(-shares.log() / process.gap))


LEAST_TIME = 0.01
"""The time from which tauLDR takes its last step."""


def uniform_down_to_least_time(process: Process, steps: int) -> Float64[Tensor, "times"]:
    """Steps of equal length in t from T to 0.01, and one from there to 0, as in tauLDR."""
    _checks.instance(process, Process, "process")
    _checks.whole(steps, "steps", 1)
    return torch.cat([torch.linspace(HORIZON, LEAST_TIME, steps, dtype=torch.float64), torch.zeros(1).double()])


def _pinned(times: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
    """Both ends exact: the inversion may have rounded them."""
    times[0], times[-1] = HORIZON, 0.0
    return times


def check_grid(times: Tensor) -> Float64[Tensor, "times"]:
    """Check that a user's own times descend from T to 0."""
    times = _checks.times(times, None, "grid")
    _checks.require(len(times) >= 2, "grid must hold at least two times, T and 0.")
    _checks.require(
        float(times[0]) == HORIZON and float(times[-1]) == 0 and bool((times[1:] < times[:-1]).all()),
        f"grid must descend strictly from {HORIZON:g} to 0, both included.",
    )
    return times
