"""Conditionals from a hollow transformer: all positions in one pass."""

from __future__ import annotations

from sddm.marginals.base import MarginalModel, Marginals
from sddm.networks import HollowTransformer
from sddm.processes import Process
from sddm.query import Query


class Hollow(MarginalModel):
    """p(X^d | x_t^{\\d}) = softmax of logits that do not see x_t^d   (Section 5.3 of the paper).

    >>> Hollow.for_process(process, length=256, sizes=MUSIC)
    """

    architecture = HollowTransformer

    def __init__(self, network: HollowTransformer, implicit: bool = True) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.length = network.length

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.from_logits(self.network(query), process, query.t)
