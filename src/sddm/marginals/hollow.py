"""Conditionals from a hollow transformer: all positions in one pass."""

from __future__ import annotations

from typing import Any

from sddm.marginals.base import MarginalModel, Marginals, num_classes
from sddm.networks import HollowTransformer, Places, Sizes
from sddm.processes import Process
from sddm.query import Query


class Hollow(MarginalModel):
    """p(X^d | x_t^{\\d}) = softmax of logits that do not see x_t^d   (Section 5.3 of the paper).

    >>> Hollow.for_process(process, length=256, sizes=MUSIC)
    """

    def __init__(self, network: HollowTransformer, implicit: bool = True) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.length = network.length

    @classmethod
    def transformer(
        cls, process: Process, implicit: bool, places: Places, sizes: Sizes, **options: Any
    ) -> HollowTransformer:
        return HollowTransformer(process.num_symbols, num_classes(process, implicit), places, sizes, **options)

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.from_logits(self.network(query), process, query.t)
