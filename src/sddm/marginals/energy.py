"""Conditionals from an energy function."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm.marginals.base import MarginalModel, Marginals, all_positions, num_classes
from sddm.networks import EnergyNetwork, MLPEnergy, TransformerEnergy
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

    @classmethod
    def mlp(cls, process: Process, length: int, implicit: bool = True, **sizes: Any) -> Energy:
        """The MLP energy of the paper's synthetic experiment (3 layers of 256 unless `sizes` say otherwise)."""
        return cls(MLPEnergy(length, process.num_symbols, **sizes), implicit)

    @classmethod
    def for_process(
        cls,
        process: Process,
        length: int | None = None,
        grid: tuple[int, int] | None = None,
        implicit: bool = True,
        **sizes: Any,
    ) -> Energy:
        """A transformer energy for this process; `sizes` are those of `TransformerEnergy`."""
        return cls(TransformerEnergy(process.num_symbols, length, grid, **sizes), implicit)

    def forward(
        self,
        process: Process,
        xt: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Marginals:
        if positions is None:
            positions = all_positions(xt)
        energies = self.network.replaced(xt, t, positions, given, padding)
        return self.from_logits(-energies[..., : num_classes(process, self.implicit)], process, t)
