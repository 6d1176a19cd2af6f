"""The reverse jump process itself, simulated event by event: slow but exact. The tests compare the other steps with it.

Time is measured by the clock tau = B(0, t), in which the forward rates are constant. Over a stretch of the clock,
`Process.exit_bound` bounds the rate at which the reverse process can leave each state, whatever the data. Candidate
events come at the sum of these bounds; a candidate picks a position in proportion to its bound, the model is asked for
its conditional at that position alone, and the jump to y is accepted with probability R(x -> y) / bound (thinning).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.jumps import ratios
from sddm.samplers.steps import Analytical
from sddm.shapes import Tau, Times, Tokens


@dataclass(frozen=True)
class Exact:
    """Event-by-event simulation. Its law does not depend on the number of steps.

    Reverse rates diverge as t -> 0, where a position is still noised with probability of about gap * tau. At
    gap * tau = `floor` the simulation ends. A model that predicts x_0 takes one analytical step from there to t = 0,
    with an error of order (dim * floor)^2; any other model stops. Rates above the bound, which a model may predict
    although no data have them, are lowered to it.
    """

    floor: float = 1e-4

    def __post_init__(self) -> None:
        _checks.positive(self.floor, "floor")

    def check(self, diffusion: Diffusion) -> None:
        pass

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        process, t = diffusion.process, query.t
        floor = torch.full_like(t, self.floor / process.gap)
        stop = torch.maximum(process.tau(0.0, s), floor)
        clock = process.tau(0.0, t)
        while bool((clock > stop).any()):
            early = torch.maximum(clock / 2, stop)
            query, clock = _stretch(diffusion, query, clock, early, randomness)
        if bool((s > 0).all()) or not diffusion.model.implicit:
            return query.xt
        return Analytical()(diffusion, query.holding(query.xt, process.schedule.inverse(stop)), s, randomness)


def _stretch(diffusion: Diffusion, query: Query, clock: Tau, early: Tau, randomness: Randomness) -> tuple[Query, Tau]:
    """Run the clock of every row down to `early`, with the bounds at that end, which are the largest."""
    bounds = diffusion.process.exit_bound(early)
    x, clock = query.xt.clone(), clock.clone()
    rows = torch.nonzero(clock > early).squeeze(1)
    while len(rows):
        bound = bounds[rows].gather(1, x[rows])
        if query.settled is not None:
            bound = torch.where(query.settled[rows], 0, bound)
        # Each row draws from its own stream, and only while it runs: its path does not depend on the others.
        u = randomness.of(rows).uniform((len(rows), 3), x.device)
        wait = -torch.log1p(-u[:, 0]) / bound.sum(1)  # infinite where no position can leave its state
        event = clock[rows] - wait > early[rows]
        clock[rows] = torch.where(event, clock[rows] - wait, early[rows])
        rows, bound, u = rows[event], bound[event], u[event]
        if len(rows):
            position = invert_cdf(bound, u[:, 1])[:, None]
            now = diffusion.process.schedule.inverse(clock[rows])
            asked = query.rows(rows).holding(x[rows], now).at(position)
            x[rows] = x[rows].scatter(1, position, _thinned_jump(diffusion, asked, bound, u[:, 2:]))
    return query.holding(x), clock


def _thinned_jump(
    diffusion: Diffusion, query: Query, bound: Float64[Tensor, "batch dim"], u: Float64[Tensor, "batch 1"]
) -> Int[Tensor, "batch 1"]:
    """At one position a row: to y with probability R(x -> y) / bound, otherwise it stays."""
    here = query.here
    rates = ratios(diffusion(query).log_xt.double(), here) * diffusion.process.rates_into(here, torch.float64)
    limit = bound.gather(1, query.places)
    stay = (limit - rates.sum(-1)).clamp_(min=0)
    return invert_cdf(rates.scatter_(-1, here[..., None], stay[..., None]), u)
