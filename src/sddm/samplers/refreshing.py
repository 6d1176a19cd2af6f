"""Analytical steps that mix in fresh noise, so that a mistake can still be taken back (remasking, Psi-samplers).

Given x_0, both the posterior of the process and fresh noise have the right law at s, and so has any mixture of them:

    (1 - share) q_{s|t}(. | x_t, x_0) + share q_{s|0}(. | x_0),        x_0^d drawn from p(x_0^d | x_t).

A refreshed position forgets x_t^d but for what it says of x_0. These are the Psi-samplers of Deschenaux et al. (2026,
arXiv 2602.21185), for any noise. Under absorbing noise, that is remasking: a token that is shown becomes MASK with
probability sigma = share (1 - a(s)), and more of the masked ones are shown (ReMDM, Wang et al., 2025, arXiv
2503.00307).

The law of each position at s is right for every share. What several positions are at once is not, as in any step that
moves them at the same time. Each refreshment is a chance to repair that, and one to get it wrong. The papers report
gains on trained networks with many steps; on the small law of docs/sampling.md the share costs quality at any number
of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float64
from torch import Tensor

from sddm import _checks
from sddm.marginals import Marginals
from sddm.processes import Process
from sddm.samplers.jumps import or_stay
from sddm.samplers.steps import Analytical
from sddm.shapes import Asked, AskedLaws, Times


@dataclass(frozen=True)
class Refreshing(Analytical):
    """An analytical step in which a share of the positions is noised afresh, from what the model predicts of x_0.

    The model must predict x_0, or the noise must be one that can be undone.

    >>> sample(diffusion, 64, steps=200, sampler=Refreshing(share=0.05))
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        value = _checks.finite(self.share, "share")
        _checks.require(
            0 <= value <= 1,
            f"share must lie in [0, 1], but it is {value:g}: it is the part of a step's law that is fresh noise.",
        )

    def weights_by(
        self, process: Process, marginals: Marginals, here: Asked, asked: Times, s: Times, t: Times
    ) -> AskedLaws:
        zero = s.new_zeros(len(s))
        posterior, data = (super(Refreshing, self).weights_by(process, marginals, here, asked, u, t) for u in (s, zero))
        fresh = process.push_by(data.div_(data.sum(-1, keepdim=True)), process.tau(zero, s))
        mixture = posterior.div_(posterior.sum(-1, keepdim=True)).mul_(1 - self.share).add_(fresh.mul_(self.share))
        return or_stay(mixture, here)

    def most(self, process: Process, t: Times, s: Times) -> Float64[Tensor, "batch symbols"]:
        return super().most(process, t, s) * (1 - self.share) + self.share
