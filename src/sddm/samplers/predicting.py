"""The end of tauLDR's sampling: the last step, to t = 0, takes the most likely value of each position.

Rates grow like 1/t towards t = 0, so that a step to 0 with the rates of its start leaves much of the noise that is
still there. tauLDR leaps to a small time only, t = 0.01, and asks its denoiser p(x_0^d | x_t) there.
"""

from __future__ import annotations

from dataclasses import dataclass

from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness
from sddm.samplers.steps import ReverseStep, TauLeaping
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class Predicting:
    """Another step, but the step to t = 0 takes the most likely value of p(x_0^d | x_t) at every position.

    step: tau-leaping unless another is given. Several jumps in a step add up if the process has ordered states, and
        are rejected otherwise.

    >>> sample(diffusion, 64, steps=1000, sampler=Predicting(), grid=uniform_down_to_least_time)
    """

    step: ReverseStep | None = None

    def check(self, diffusion: Diffusion) -> None:
        self._before(diffusion).check(diffusion)
        if not diffusion.model.implicit:
            raise ValueError(
                "sampler: Predicting needs a model that predicts x0, but this one predicts x_t directly. Use its step "
                "alone, or build the model with implicit=True."
            )

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        if bool((s > 0).any()):
            return self._before(diffusion)(diffusion, query, s, randomness)
        process = diffusion.process
        likelihood = process.likelihood_by(query.xt, process.tau(0.0, query.t), query.t.dtype)
        return (diffusion(query).require_x0("Predicting") + likelihood.log()).argmax(-1)

    def _before(self, diffusion: Diffusion) -> ReverseStep:
        return TauLeaping(diffusion.process.ordinal) if self.step is None else self.step
