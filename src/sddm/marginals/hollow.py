"""Conditionals from a hollow transformer: all positions in one pass."""

from __future__ import annotations

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals
from sddm.networks import HollowTransformer
from sddm.processes import Absorbing, Process
from sddm.query import Query


class Hollow(MarginalModel):
    """p(X^d | x_t^{\\d}) = softmax of logits that do not see x_t^d   (Section 5.3 of the paper).

    ordered: under absorbing noise, it learns to be asked from left to right as well, and is sampled so (see
        `sddm.samplers.InOrder`). The left stream is a causal model of a clean row, so that one pass gives every
        p(x^d | x^{<d}).

    >>> Hollow.for_process(process, length=256, sizes=MUSIC)
    """

    architecture = HollowTransformer
    takes_ahead = True

    def __init__(self, network: HollowTransformer, implicit: bool = True, ordered: bool = False) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.ordered = _checks.instance(ordered, bool, "ordered")
        self.length = network.length

    def check(self, process: Process) -> None:
        super().check(process)
        _checks.require(
            not self.ordered or (self.implicit and isinstance(process, Absorbing)),
            f"ordered needs a model of x_0 under Absorbing noise, where MASK stands for what is not known yet, but the "
            f"process is {type(process).__name__}. Leave out ordered, or use Absorbing.",
        )

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.from_logits(self.network(query), process, query.t)
