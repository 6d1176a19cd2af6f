"""A step that asks the model only where something may happen.

In a small step hardly a position moves. Whatever the data are, a position that holds x leaves it with a chance of at
most h(x), which the process alone decides (`OneDraw.most`). So draw the uniform number u of each position first: where
u >= h(x) it stays, and the model need not be asked. Elsewhere the model says with which chance it leaves, which is
compared with the same u. The law of the step is the same, and its cost is by the move, not by the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.steps import Analytical, OneDraw, check_one_draw
from sddm.shapes import Times, Tokens

MANY = 0.5
"""Where more than this share of the positions is asked for, all are."""
TOGETHER = 2
"""If at least this many positions a row are needed on average, rows with the same number are evaluated together, since
an energy shares work between positions. Below, each position is a row of its own."""


@dataclass(frozen=True)
class Lazy:
    """The same step at a fraction of the evaluations: for many steps, of an energy or a masked model above all.

    A model of x_t may hold more than what noise allows for certain; its chance to leave is cut off at h(x).

    >>> sample(diffusion, 64, steps=1000, sampler=Lazy(Euler()))
    """

    step: OneDraw = field(default_factory=Analytical)

    def __post_init__(self) -> None:
        check_one_draw(self.step)

    def check(self, diffusion: Diffusion) -> None:
        self.step.check(diffusion)

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        x, t = query.xt, query.t
        u = randomness.uniform(x.shape, x.device)
        asked = u < self.step.most(diffusion.process, t, s).gather(1, x)
        if query.settled is not None:
            asked &= ~query.settled
        rows, places = asked.nonzero(as_tuple=True)
        if len(rows) == 0:
            return x

        def weights_of(some: Tensor, positions: Tensor | None) -> Float[Tensor, "some num symbols"]:
            return self.step.weights(diffusion, query.rows(some).at(positions), s[some], t[some])

        counts = asked.sum(1)
        if not diffusion.model.by_position or len(rows) >= MANY * x.numel():
            weights = weights_of(counts > 0, None)[asked[counts > 0]]
        elif len(rows) < TOGETHER * int((counts > 0).sum()):
            weights = weights_of(rows, places[:, None]).squeeze(1)
        else:
            weights = _by_count(weights_of, counts, places)
        x = x.clone()
        x[rows, places] = move_or_stay(weights, x[rows, places], u[rows, places])
        return x


def _by_count(
    weights_of: Callable[[Tensor, Tensor], Tensor], counts: Int[Tensor, "batch"], places: Int[Tensor, "asked"]
) -> Float[Tensor, "asked symbols"]:
    """The weights at the places, which are sorted by row, all rows with as many of them at once."""
    each = counts.repeat_interleave(counts)
    present: list[int] = each.unique().tolist()
    parts = [weights_of(counts == n, places[each == n].view(-1, n)).flatten(0, 1) for n in present]
    order = torch.cat([(each == n).nonzero().squeeze(1) for n in present])
    return torch.cat(parts)[order.argsort()]


def move_or_stay(
    weights: Float[Tensor, "num symbols"], x: Int[Tensor, "num"], u: Float64[Tensor, "num"]
) -> Int[Tensor, "num"]:
    """Leave x where u is below the chance to, h; then u / h, which is uniform again, says where to."""
    elsewhere = weights.double().scatter(1, x[:, None], 0)
    chance = elsewhere.sum(1) / weights.sum(1, dtype=torch.float64)
    if bool(chance.isnan().any()):
        raise ValueError("The model predicts NaN, so that nothing can be drawn. Did its training diverge?")
    moves = u < chance
    return x.masked_scatter(moves, invert_cdf(elsewhere[moves], (u / chance)[moves]))
