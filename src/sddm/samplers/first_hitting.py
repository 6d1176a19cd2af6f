"""Absorbing noise, position by position, at the times at which the process itself would show them (first hitting).

A position that is MASK at t was lost at a time before t, whose law follows from the process alone: it was lost by u
with probability (1 - a(u)) / (1 - a(t)), where a is the share of the data that is left. Run backwards, the first of n
such positions is seen again at the time u with

    1 - a(u) = (1 - a(t)) U^(1/n),        U uniform on (0, 1),

and each of the n is as likely to be that one (Zheng et al., 2024, arXiv 2409.02908). At each of these times the model
is asked for one position. So nothing is neglected, and a row of D positions costs D evaluations, however small steps
are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sddm.diffusion import Diffusion
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.in_order import FromMask
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class FirstHitting(FromMask):
    """Each row shows its positions one by one, at times of its own. The law does not depend on the steps or the grid.

    It starts from a row of MASK. Positions that would be lost after T are drawn at T.

    >>> sample(diffusion, 64, sampler=FirstHitting())        # as many evaluations as there are positions
    """

    def usual_steps(self, length: int) -> int:
        """One, in which all events happen: then the rows of a batch are asked together."""
        return 1

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        process, x = diffusion.process, query.xt.clone()
        stop = 1 - process.remaining(s)
        lost = torch.where(query.t < HORIZON, 1 - process.remaining(query.t), 1.0)
        rows = (x == process.num_states).any(1).nonzero().squeeze(1)
        while len(rows):
            hidden = x[rows] == process.num_states
            u = randomness.of(rows).uniform((len(rows), 3), x.device)
            lost[rows] = lost[rows] * u[:, 0] ** (1 / hidden.sum(1))
            event = lost[rows] > stop[rows]
            rows, hidden, u = rows[event], hidden[event], u[event]
            if len(rows) == 0:
                break
            position = invert_cdf(hidden.double(), u[:, 1])[:, None]
            # What is lost later than T is asked for at T, where the model was trained.
            now = process.schedule.inverse(-torch.log1p(-lost[rows]) / process.gap).clamp(max=HORIZON)
            law = diffusion(query.rows(rows).holding(x[rows], now).at(position)).require_x0("FirstHitting").exp()
            x[rows] = x[rows].scatter(1, position, invert_cdf(law[..., : process.num_states], u[:, 2:]))
            rows = rows[hidden.sum(1) > 1]
        return x
