"""A step by some positions at a time, so that they see each other's jumps.

Positions that are drawn at once do not see what the others become, which is what a large step gets wrong. In a sweep
one group of positions moves from t to s after the other. When it is a group's turn, a part w of the positions is at s
already and the rest still at t, so the model is asked at a time between: that at which the share of the data left is

    a(now) = (1 - w) a(t) + w a(s),            w = (number of the group + 1/2) / groups.

Which positions form a group, and in which order, is drawn anew for each sample and step, so that over the samples the
errors of an order and of its reverse cancel. Together this makes the error fall with the square of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import Process
from sddm.randomness import Randomness
from sddm.samplers.steps import Analytical, Batch, Given, Places, ReverseStep, Tokens


@runtime_checkable
class StepOfSome(ReverseStep, Protocol):
    """A reverse step that can be taken in some of the positions, while the others stay."""

    def at(
        self,
        positions: Places | None,
        now: Batch,
        diffusion: Diffusion,
        x: Tokens,
        t: Batch,
        s: Batch,
        given: Given | None,
        randomness: Randomness,
    ) -> Places:
        """Draw x_s at these positions (all if None) from x_t; what the model says of the others is asked at `now`."""
        ...


@dataclass(frozen=True)
class Sweep:
    """A step taken by one group of positions after the other, each seeing what the groups before it have become.

    For an energy or a masked model, whose cost is by the position, a sweep comes at little more than the price of a
    plain step; for the others it costs `groups` times as much.

    >>> sample(diffusion, 64, steps=10, sampler=Sweep(), grid=uniform_in_share)
    """

    step: StepOfSome = field(default_factory=Analytical)
    groups: int = 8

    def __post_init__(self) -> None:
        _checks.whole(self.groups, "groups", 1)
        if isinstance(self.step, type) or not isinstance(self.step, StepOfSome):
            raise TypeError(f"step must be Analytical() or Euler(), but it is {self.step!r}.")

    def check(self, diffusion: Diffusion) -> None:
        self.step.check(diffusion)

    def __call__(
        self, diffusion: Diffusion, x: Tokens, t: Batch, s: Batch, given: Given | None, randomness: Randomness
    ) -> Tokens:
        # All of the sweep's chance at once: a draw costs by the call when each sample has a generator of its own.
        keys, uniforms = randomness.uniform((x.shape[0], 2, x.shape[1]), x.device).unbind(dim=1)
        order, prepared = keys.argsort(dim=1), _Prepared(uniforms)
        groups = order.tensor_split(min(self.groups, x.shape[1]), dim=1)
        for number, positions in enumerate(groups):
            now = _between(diffusion.process, t, s, (number + 0.5) / len(groups))
            moved = self.step.at(positions, now, diffusion, x, t, s, given, prepared)
            if given is not None:
                moved = torch.where(given.gather(1, positions), x.gather(1, positions), moved)
            x = x.scatter(1, positions, moved)
        return x


class _Prepared:
    """Uniforms that were drawn before, handed out one column after the other: a position uses one."""

    def __init__(self, uniforms: Float64[Tensor, "batch dim"]) -> None:
        self.uniforms, self.used = uniforms, 0

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        num = shape[1]
        self.used += num
        return self.uniforms[:, self.used - num : self.used]

    def poisson(self, mean: Tensor) -> Tensor:
        raise NotImplementedError("A step of some positions draws categories only.")

    def of(self, rows: Int[Tensor, "rows"]) -> Randomness:
        raise NotImplementedError("A step of some positions draws for the whole batch.")


def _between(process: Process, t: Batch, s: Batch, w: float) -> Batch:
    """The time at which the share of the data left lies by w on the way from that at t to that at s."""
    share = (1 - w) * process.remaining(t) + w * process.remaining(s)
    return process.schedule.inverse(-share.log() / process.gap).clamp(s, t)
