"""A step that asks the model only about the positions that may move.

In a small step few positions move. A position that holds x leaves it with a probability of at most h(x), whatever the
data are; h follows from the process alone (`OneDraw.most`). So the step first draws a uniform number u for each
position. Where u >= h(x) the position stays, and the model is not asked about it. Elsewhere the model gives the
probability of leaving, which is compared with the same u. The law of the step is the same. Its cost depends on how many
positions may move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.steps import TakenBy
from sddm.shapes import Times, Tokens

MANY = 0.5
"""If more than this share of the positions may move, the model is asked about all positions."""
TOGETHER = 2
"""If a row has at least so many open positions on average, rows with the same number of open positions are evaluated
together, since an energy shares work between the positions of a row. Otherwise each position is a row of its own."""


@dataclass(frozen=True)
class Lazy(TakenBy):
    """The same step with fewer evaluations of the model: for many steps, above all of an energy or a masked model.

    A model of x_t may predict a probability of leaving above h(x), although no data have one; it is lowered to h(x).

    >>> sample(diffusion, 64, steps=1000, sampler=Lazy(Euler()))
    """

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
    """The weights at the places, which are sorted by row. Rows with as many places are evaluated together."""
    each = counts.repeat_interleave(counts)
    present: list[int] = each.unique().tolist()
    parts = [weights_of(counts == n, places[each == n].view(-1, n)).flatten(0, 1) for n in present]
    order = torch.cat([(each == n).nonzero().squeeze(1) for n in present])
    return torch.cat(parts)[order.argsort()]


def move_or_stay(
    weights: Float[Tensor, "num symbols"], x: Int[Tensor, "num"], u: Float64[Tensor, "num"]
) -> Int[Tensor, "num"]:
    """Leave x where u is below the probability of leaving. There u / chance is uniform, and draws the new value."""
    elsewhere = weights.double().scatter(1, x[:, None], 0)
    chance = elsewhere.sum(1) / weights.sum(1, dtype=torch.float64)
    if bool(chance.isnan().any()):
        raise ValueError("The model predicts NaN, so that nothing can be drawn. Did its training diverge?")
    moves = u < chance
    return x.masked_scatter(moves, invert_cdf(elsewhere[moves], (u / chance)[moves]))
