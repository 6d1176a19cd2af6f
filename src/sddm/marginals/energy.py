"""Conditionals from an energy function."""

from __future__ import annotations

from typing import Any

from sddm import _checks
from sddm._precision import at_least_float32
from sddm.marginals.base import MarginalModel, Marginals, num_classes
from sddm.networks import EnergyNetwork, MLPEnergy, Places, Sizes, TransformerEnergy
from sddm.processes import Process
from sddm.query import Query


class Energy(MarginalModel):
    """p(X^d = c | x_t^{\\d}) is proportional to exp(-f([c, x_t^{\\d}], t))   (Section 5.1 of the paper),

    for X_0^d if implicit and for X_t^d if not. k positions cost k(C - 1) + 1 evaluations of f.

    fading: for a model of X_t, the law is instead proportional to

        prior(c) exp(-a(t) f([c, x_t^{\\d}], t)),        a(t) the share of the data that is left.

    Under much noise, p_t differs from the prior by a part of order a(t), and sampling divides by a(t) what the network
    gets wrong of it. With the factor outside, f is of order 1 at all times.
    """

    architecture = TransformerEnergy
    by_position = True

    def __init__(self, network: EnergyNetwork, implicit: bool = True, fading: bool = False) -> None:
        super().__init__()
        _checks.require(not (implicit and fading), "fading is for a model of x_t: build it with implicit=False.")
        self.network = network
        self.implicit, self.fading = implicit, fading
        self.length = network.length

    @classmethod
    def mlp(cls, process: Process, length: int, implicit: bool = True, **sizes: Any) -> Energy:
        """The MLP energy of the paper's synthetic experiment (3 layers of 256 unless `sizes` say otherwise)."""
        return cls(MLPEnergy(length, process.num_symbols, **sizes), implicit)

    @classmethod
    def transformer(
        cls, process: Process, implicit: bool, places: Places, sizes: Sizes, **options: Any
    ) -> TransformerEnergy:
        return TransformerEnergy(process.num_symbols, places, sizes, **options)

    def forward(self, process: Process, query: Query) -> Marginals:
        logits = -at_least_float32(self.network.replaced(query))[..., : num_classes(process, self.implicit)]
        if self.fading:
            _checks.require(
                process.prior_covers_all,
                f"fading starts from the prior, but that of {type(process).__name__} has states of probability 0.",
            )
            prior, share = process.prior_law().to(logits.device), process.remaining(query.t)
            logits = logits * share.to(logits.dtype)[:, None, None] + prior.log().to(logits.dtype)
        return self.from_logits(logits, process, query.t)
