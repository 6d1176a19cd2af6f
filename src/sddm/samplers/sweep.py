"""A step that moves one group of positions after the other, so that each group sees the jumps of those before it.

Positions that are drawn at once do not see each other's new values. That is the error of a large step. In a sweep the
groups move from t to s one by one. At the turn of a group, a part w of the positions is at s already and the rest is
still at t. So the model is asked at a time between, at which the share of the data that is left is

    a(now) = (1 - w) a(t) + w a(s),            w = (number of the group + 1/2) / groups.

The groups and their order are drawn anew for each sample and step. So, over the samples, the error of an order and the
error of the reverse order cancel. Together this makes the error fall with the square of the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import Process
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.steps import TakenBy
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class Sweep(TakenBy):
    """A step taken by one group of positions after the other, where each group sees the new values of those before it.

    The cost of an energy or a masked model depends on the number of positions, so that a sweep costs little more than a
    plain step. With any other model it costs `groups` times as much.

    >>> sample(diffusion, 64, steps=10, sampler=Sweep(), grid=uniform_in_share)
    """

    groups: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.whole(self.groups, "groups", 1)

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        x, t = query.xt, query.t
        # One call for all draws of the sweep: with one generator a sample, the cost of a draw is that of the calls.
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
    """The time at which the share of the data that is left is (1 - w) times that at t plus w times that at s."""
    share = (1 - w) * process.remaining(t) + w * process.remaining(s)
    return process.schedule.inverse(-share.log() / process.gap).clamp(s, t)
