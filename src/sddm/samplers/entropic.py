"""As many positions at once as are nearly certain: the number follows from the entropies (absorbing noise).

Positions that are drawn at once do not see each other. What that costs is at most what each of them leaves open. With
the entropies H_d of the conditionals of an exact model,

    KL(law of these positions || product of their conditionals)  <=  sum_d H_d - max_d H_d.

So each step draws the positions of least entropy, as many as keep this sum within a threshold (Ben-Hamu et al., 2025,
arXiv 2505.24857). The KL of the samples from the law of the model is at most the threshold times the number of steps
that draw more than one position. An easy row takes few evaluations, and a hard one up to one for each position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.in_order import FromMask
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class Entropic(FromMask):
    """A step that draws the most certain positions, as many as keep the error of the step within `threshold` nats.

    At least one position is drawn, so that at threshold 0 they come one by one. Steps do not follow the grid: a row
    that is finished costs nothing more, and the last step goes on until all rows are.

    >>> sample(diffusion, 64, sampler=Entropic(threshold=0.2))
    """

    threshold: float = 0.1

    def __post_init__(self) -> None:
        value = _checks.finite(self.threshold, "threshold")
        _checks.require(value >= 0, f"threshold must be at least 0 nats, but it is {value:g}.")

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        x, states = query.xt.clone(), diffusion.process.num_states
        last = bool((s == 0).all())
        while True:
            rows = (x == states).any(1).nonzero().squeeze(1)
            if len(rows) == 0:
                return x
            now = query.rows(rows).holding(x[rows])
            law = diffusion(now).require_x0("Entropic").exp()[..., :states]
            chosen = within(torch.special.entr(law).sum(-1), x[rows] == states, self.threshold)
            drawn = invert_cdf(law, randomness.of(rows).uniform(chosen.shape, x.device))
            x[rows] = torch.where(chosen, drawn, x[rows])
            if not last:
                return x


def within(
    entropy: Float[Tensor, "batch dim"], hidden: Bool[Tensor, "batch dim"], threshold: float
) -> Bool[Tensor, "batch dim"]:
    """The hidden positions of least entropy, the largest number whose entropies but the last sum to the threshold."""
    ranked, order = torch.where(hidden, entropy, torch.inf).sort(dim=1, stable=True)
    before = ranked.cumsum(1) - ranked  # NaN behind the hidden positions, where infinities are subtracted
    take = ranked.isfinite() & ((before <= threshold) | (torch.arange(ranked.shape[1], device=hidden.device) == 0))
    return torch.zeros_like(hidden).scatter(1, order, take)
