"""Conditionals from an ordinary denoiser, by dividing out what the observed token said: one pass, any network."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm.marginals.base import MarginalModel, Marginals, at_positions
from sddm.networks import Denoiser
from sddm.processes import Process

LEAST_LOG_LIKELIHOOD = -60.0
"""Division by a likelihood of 0 (an absorbing process that did not mask) divides by e^-60."""


class LeaveOneOut(MarginalModel):
    """By Bayes' rule a denoiser p(x_0^d | x_t), which sees x_t^d, knows the conditional that does not:

        p_{0|t}(x_0^d | x_t^{\\d})  is proportional to  p(x_0^d | x_t) / q_{t|0}(x_t^d | x_0^d).

    This is exact when the denoiser is, so train it as one, with `denoising_cross_entropy` (the default for it in
    `sddm.training.train`); until it has learnt, the quotient may still move with x_t^d.

    By default the network's logits are those of the quotient, and the denoiser is their product with the likelihood, so
    that the network need not learn the likelihood, which varies over many orders of magnitude near t = 0. With
    `ordinary` the logits are those of the denoiser itself, such as one trained elsewhere, and are divided.
    """

    sees_own_token = True

    def __init__(self, network: Denoiser, ordinary: bool = False) -> None:
        super().__init__()
        self.network = network
        self.ordinary = ordinary
        self.implicit = True
        self.length = network.length

    @classmethod
    def for_process(
        cls, process: Process, length: int | None = None, grid: tuple[int, int] | None = None, **sizes: Any
    ) -> LeaveOneOut:
        """A bidirectional transformer for this process; `sizes` are those of `Denoiser`."""
        return cls(Denoiser(process.num_symbols, process.num_states, length, grid, **sizes))

    def forward(
        self,
        process: Process,
        xt: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Marginals:
        logits = self.network(xt, t, positions, given, padding)
        if self.ordinary:
            seen = at_positions(xt, positions)
            likelihood = process.likelihood_by(seen, process.tau(0.0, t), logits.dtype)[..., : process.num_states]
            logits = logits - likelihood.log().clamp(min=LEAST_LOG_LIKELIHOOD)
        return self.from_logits(logits, process, t)
