"""A step by some positions at a time, so that they see each other's jumps.

Positions that are drawn at once do not see what the others become, which is what a large step gets wrong. In a sweep
one group of positions moves from t to s after the other. When it is a group's turn, a part w of the positions is at s
already and the rest still at t, so the model is asked at a time between: that at which the share of the data left is

    a(now) = (1 - w) a(t) + w a(s),            w = (number of the group + 1/2) / groups.

Which positions form a group, and in which order, is drawn anew for each sample and step, so that over the samples the
errors of an order and of its reverse cancel. Together this makes the error fall with the square of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import Process
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.steps import Analytical, OneDraw, check_one_draw
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class Sweep:
    """A step taken by one group of positions after the other, each seeing what the groups before it have become.

    For an energy or a masked model, whose cost is by the position, a sweep comes at little more than the price of a
    plain step; for the others it costs `groups` times as much.

    >>> sample(diffusion, 64, steps=10, sampler=Sweep(), grid=uniform_in_share)
    """

    step: OneDraw = field(default_factory=Analytical)
    groups: int = 8

    def __post_init__(self) -> None:
        _checks.whole(self.groups, "groups", 1)
        check_one_draw(self.step)

    def check(self, diffusion: Diffusion) -> None:
        self.step.check(diffusion)

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        x, t = query.xt, query.t
        # All of the sweep's chance at once: a draw costs by the call when each sample has a generator of its own.
        keys, uniforms = randomness.uniform((x.shape[0], 2, x.shape[1]), x.device).unbind(dim=1)
        groups = min(self.groups, x.shape[1])
        turns = zip(*(part.tensor_split(groups, dim=1) for part in (keys.argsort(dim=1), uniforms)), strict=True)
        for number, (positions, chance) in enumerate(turns):
            now = _between(diffusion.process, t, s, (number + 0.5) / groups)
            turn = query.holding(x, now).at(positions)
            moved = invert_cdf(self.step.weights(diffusion, turn, s, t), chance)
            if query.settled is not None:
                moved = torch.where(query.settled.gather(1, positions), turn.here, moved)
            x = x.scatter(1, positions, moved)
        return x


def _between(process: Process, t: Times, s: Times, w: float) -> Times:
    """The time at which the share of the data left lies by w on the way from that at t to that at s."""
    share = (1 - w) * process.remaining(t) + w * process.remaining(s)
    return process.schedule.inverse(-share.log() / process.gap).clamp(s, t)
