"""Conditionals from an ordinary denoiser, by dividing out what the observed token said: one pass, any network."""

from __future__ import annotations

from sddm import _checks
from sddm._precision import at_least_float32
from sddm.marginals.base import MarginalModel, Marginals
from sddm.networks import Denoiser
from sddm.processes import Process
from sddm.query import Query

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

    architecture = Denoiser
    sees_own_token = True

    def __init__(self, network: Denoiser, implicit: bool = True, ordinary: bool = False) -> None:
        super().__init__()
        _checks.require(implicit, "A leave-one-out model predicts x0: it cannot be built with implicit=False.")
        self.network = network
        self.ordinary = ordinary
        self.implicit = True
        self.length = network.length

    def forward(self, process: Process, query: Query) -> Marginals:
        logits = at_least_float32(self.network(query))
        if self.ordinary:
            likelihood = process.likelihood_by(query.here, process.tau(0.0, query.t), logits.dtype)
            logits = logits - likelihood[..., : process.num_states].log().clamp(min=LEAST_LOG_LIKELIHOOD)
        return self.from_logits(logits, process, query.t)
