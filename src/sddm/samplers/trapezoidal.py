"""A step of second order from two evaluations: half a step, a second look, and an extrapolation (theta-trapezoidal).

A step holds the conditionals fixed while positions jump. So it misses how the jumps of other positions change them.
The theta-trapezoidal method (Ren et al., 2025, arXiv 2502.00234) steps from t to rho, which lies a share theta of the
clock between t and s, asks the model again, and goes on to s by a mixture of what it was told at x_t and at x_rho:

    alpha_1 (told at x_rho) - alpha_2 (told at x_t),    alpha_1 = 1 / (2 theta (1 - theta)),    alpha_2 = alpha_1 - 1.

There this is a mixture of rates, whose positive part is taken, with Poisson numbers of jumps. Here it is a mixture of
the laws of the step from rho to s at each position. Both agree to second order in what other positions do. But laws say
what happens if a position jumps several times in a step: rates have to reject such jumps, or let the last one count,
which is of first order under uniform noise. And laws know that reverse rates grow towards the data. With analytical
steps the mixture is exact in one dimension, since it is then the same law from both evaluations.

Where a value of a position has alpha_1 (told at x_rho) < alpha_2 (told at x_t), the mixture is negative, and 0 takes
its place. So it is if a jump elsewhere made this value less likely by a factor above alpha_1 / alpha_2, which is 2 at
theta = 1/2 and less at any other. If no jump does that, the error falls with the square of the step. Otherwise a part
of it falls with the first power.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.marginals import Marginals
from sddm.processes import Process
from sddm.query import Query
from sddm.randomness import Randomness, categorical
from sddm.samplers.ends import with_settled
from sddm.samplers.jumps import or_stay
from sddm.samplers.steps import TakenBy
from sddm.shapes import Laws, Times, Tokens


@dataclass(frozen=True)
class Trapezoidal(TakenBy):
    """A step of second order. It costs two evaluations, so 8 steps cost as much as 16 of others.

    step: what is extrapolated. With `Euler()`, which models of x_t need if their noise cannot be undone, jumps of the
        same position within a step still cost an error of first order.
    theta: where the second evaluation is, as a share of the step; 1/2 has the fewest negative mixtures.

    >>> sample(diffusion, 64, steps=16, sampler=Trapezoidal())       # 32 evaluations
    """

    theta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.finite(self.theta, "theta")
        _checks.require(
            0 < self.theta < 1,
            f"theta must lie between 0 and 1, both excluded, but it is {self.theta:g}: it says how far into a step the "
            "model is asked for the second time. Take 0.5 if in doubt.",
        )

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        process, t, rho = diffusion.process, query.t, self.between(diffusion.process, s, query.t)
        first = diffusion(query)
        jumped = categorical(self.step.weights_by(process, first, query.xt, t, rho, t), randomness)
        query = query.holding(with_settled(jumped, query), rho)
        return categorical(self.mixture(process, first, diffusion(query), query.xt, s, rho, t), randomness)

    def between(self, process: Process, s: Times, t: Times) -> Times:
        """rho, at a share theta of the clock from t to s."""
        return process.schedule.inverse(process.tau(0.0, t) - self.theta * process.tau(s, t)).clamp(s, t)

    def mixture(
        self, process: Process, first: Marginals, second: Marginals, here: Tokens, s: Times, rho: Times, t: Times
    ) -> Laws:
        """How likely each value is at s in positions that hold `here` at rho, up to a factor."""
        alpha = 1 / (2 * self.theta * (1 - self.theta))
        new = _normalised(self.step.weights_by(process, second, here, rho, s, rho))
        old = _normalised(self.step.weights_by(process, first, here, t, s, rho))
        return or_stay(new.mul_(alpha).sub_(old.mul_(alpha - 1)).clamp_(min=0), here)


def _normalised(weights: Tensor) -> Tensor:
    return weights.div_(weights.sum(-1, keepdim=True))
