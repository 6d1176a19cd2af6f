"""By confidence under absorbing noise: the positions of which the model is most certain are drawn first.

Each step asks for the law of every hidden position, and draws as many positions as the process would lose between s and
t: those whose most likely value is the most probable. Positions that are drawn at once do not see each other. If they
are nearly certain, that costs little.

With a step for each position the samples of an exact model have the law of the data: whichever position comes next is
decided by what is seen already. With several positions a step, the order changes the law of the samples: the
values that are drawn early are the likely ones of easy positions (see `results/learning`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.in_order import FromMask, positions_due
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class Confident(FromMask):
    """A step that draws the hidden positions of which the model is most certain.

    >>> sample(diffusion, 64, steps=32, sampler=Confident())
    """

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        x, states = query.xt, diffusion.process.num_states
        chance = randomness.uniform(x.shape, x.device)  # as many for each row, however many it uses
        due = positions_due(diffusion, query, s)
        if int(due.max()) <= 0:
            return x
        law = diffusion(query).require_x0("Confident").exp()[..., :states]
        hidden = x == states
        certainty = torch.where(hidden, law.amax(-1), -1.0)
        rank = certainty.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return torch.where(hidden & (rank < due[:, None]), invert_cdf(law, chance), x)
