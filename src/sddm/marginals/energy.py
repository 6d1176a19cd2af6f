"""Conditionals from an energy function."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm.marginals.base import MarginalModel, Marginals
from sddm.networks import EnergyNetwork
from sddm.processes import Process


class Energy(MarginalModel):
    """p(X^d = c | x_t^{\\d}) is proportional to exp(-f([c, x_t^{\\d}], t))   (Section 5.1 of the paper),

    for X_0^d if implicit and for X_t^d if not. k positions cost k(C - 1) + 1 evaluations of f.
    """

    def __init__(self, network: EnergyNetwork, implicit: bool = True) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.length = network.length

    def forward(
        self,
        process: Process,
        xt: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
    ) -> Marginals:
        if positions is None:
            positions = torch.arange(xt.shape[1], device=xt.device).expand_as(xt)
        energies = self.network.replaced(xt, t, positions, given)
        return self.from_logits(-energies[..., : self.num_classes(process)], process, t)
