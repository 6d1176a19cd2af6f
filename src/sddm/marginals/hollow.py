"""Conditionals from a hollow transformer: all positions in one pass."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm.marginals.base import MarginalModel, Marginals, at_positions, num_classes
from sddm.networks import HollowTransformer
from sddm.processes import Process


class Hollow(MarginalModel):
    """p(X^d | x_t^{\\d}) = softmax of logits that do not see x_t^d   (Section 5.3 of the paper).

    >>> Hollow.for_process(process, length=256, **MUSIC)
    """

    def __init__(self, network: HollowTransformer, implicit: bool = True) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.length = network.length

    @classmethod
    def for_process(
        cls,
        process: Process,
        length: int | None = None,
        grid: tuple[int, int] | None = None,
        implicit: bool = True,
        **sizes: Any,
    ) -> Hollow:
        """A hollow transformer for this process; `sizes` are those of `HollowTransformer`."""
        classes = num_classes(process, implicit)
        return cls(HollowTransformer(process.num_symbols, classes, length, grid, **sizes), implicit)

    def forward(
        self,
        process: Process,
        xt: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Marginals:
        logits = at_positions(self.network(xt, t, given, padding), positions)
        return self.from_logits(logits, process, t)
