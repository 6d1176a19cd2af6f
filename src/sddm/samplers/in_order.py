"""From left to right under absorbing noise: the order in which a hollow transformer can learn a row in one pass.

An absorbing process may lose the positions of a row in any order. So a model of it can also be asked in one fixed
order:

    p(x) = prod_d p_{0|T}(x^d | x^{<d}, MASK ... MASK).

The model is always asked at time T, at which the first position is drawn; under absorbing noise the truth is the same
at all times. With a step for each position this is the law of the samples, and `sddm.likelihood.in_order` computes it.
With fewer steps, each draws several neighbours at once, which do not see each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import HORIZON, Absorbing
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.ends import with_settled
from sddm.shapes import Times, Tokens

ROUNDING = 1e-6
"""A number of positions that is above a whole one by less than this counts as that."""


class FromMask:
    """A step under absorbing noise that starts from a row of MASK, with what is known of it."""

    def check(self, diffusion: Diffusion) -> None:
        check_in_order(diffusion, f"sampler: {type(self).__name__}")

    def start(self, diffusion: Diffusion, query: Query, randomness: Randomness) -> Tokens:
        return all_masked(diffusion, query)

    def usual_steps(self, length: int) -> int:
        """A step for each position."""
        return length


@dataclass(frozen=True)
class InOrder(FromMask):
    """A step that draws the next positions from the left, as many as the process would lose between s and t.

    It starts from a row of MASK. Given positions are seen from the start, also those behind the ones that are drawn.

    >>> sample(diffusion, 64, steps=diffusion.length, sampler=InOrder())
    """

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        x, process = query.xt, diffusion.process
        chance = randomness.uniform(x.shape, x.device)  # as many for each row, however many it uses
        hidden, end = x == process.num_states, torch.full_like(s, HORIZON)
        due = positions_due(diffusion, query, s)
        most = int(due.max())
        if most <= 0:
            return x
        turn = hidden & (hidden.cumsum(1) <= due[:, None])
        positions = (turn.long() * x.shape[1] - torch.arange(x.shape[1], device=x.device)).topk(most).indices
        ahead = all_masked(diffusion, query)
        law = diffusion(query.at(positions)._replace(t=end, ahead=ahead)).require_x0("InOrder").exp()
        drawn = invert_cdf(law[..., : process.num_states], chance.gather(1, positions))
        return x.scatter(1, positions, torch.where(turn.gather(1, positions), drawn, x.gather(1, positions)))


def all_masked(diffusion: Diffusion, query: Query) -> Tokens:
    """A row of MASK, with what is known of it."""
    return with_settled(torch.full_like(query.xt, diffusion.process.num_states), query)


def positions_due(diffusion: Diffusion, query: Query, s: Times) -> Int[Tensor, "batch"]:
    """How many hidden positions are to be drawn, so that at s as large a share is hidden as the process would have.

    With a law of lengths, what lies behind the end of a row counts as its last positions. So all rows are drawn at one
    pace, and a batch of short ones has no evaluations left when they are done.
    """
    process, behind = diffusion.process, torch.zeros_like(query.free)
    if diffusion.lengths is not None and query.padding is not None:
        behind = (diffusion.length or 0) - (~query.padding).sum(1)
    at_end = 1 - process.remaining(torch.full_like(s, HORIZON))
    stay = ((query.free + behind) * (1 - process.remaining(s)) / at_end - ROUNDING).ceil().long() - behind
    return (query.xt == process.num_states).sum(1) - stay.clamp(min=0)


def check_in_order(diffusion: Diffusion, user: str) -> None:
    """Raise a ValueError if a diffusion cannot be asked from left to right."""
    _checks.require(
        isinstance(diffusion.process, Absorbing) and diffusion.model.implicit,
        f"{user} needs a model of x_0 under Absorbing noise, where MASK stands for what is not known yet, but this is "
        f"a model of {'x_0' if diffusion.model.implicit else 'x_t'} under {type(diffusion.process).__name__}.",
    )
