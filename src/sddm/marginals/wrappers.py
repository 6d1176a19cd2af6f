"""Models made from other models: restricted to the values that a position can have, and made bolder or shyer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals
from sddm.processes import Process
from sddm.query import Query


class Wrapper(MarginalModel):
    """A model whose answers are changed; what it needs and promises is as it was."""

    def __init__(self, model: MarginalModel) -> None:
        super().__init__()
        _checks.instance(model, MarginalModel, "model")
        self.model = model
        self.length, self.implicit, self.sees_own_token = model.length, model.implicit, model.sees_own_token
        self.by_position = model.by_position
        self.support: Bool[Tensor, "dim states"] | None = model.support

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.changed(self.model(process, query), process, query)

    @abstractmethod
    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        """The answers of the inner model, changed."""


class Restricted(Wrapper):
    """p_{0|t}(X_0^d = c | x_t^{\\d}) = 0 for every c >= sizes[d]: position d has its own number of values.

    So the columns of a table can share one process with as many states as the largest of them has values. The noise
    takes a position through all states; the data, and hence the end of every sample, only through its own.
    """

    def __init__(self, model: MarginalModel, sizes: Sequence[int]) -> None:
        super().__init__(model)
        _checks.require(model.implicit, "Restricted needs a model that predicts x0. Build it with implicit=True.")
        _checks.require(
            model.length in (None, len(sizes)),
            f"sizes has {len(sizes)} entries, but the model {model.length} positions.",
        )
        for d, size in enumerate(sizes):
            _checks.whole(size, f"sizes[{d}]", 1)
        self.length = len(sizes)
        self.support = torch.arange(max(sizes)) < torch.tensor(list(sizes))[:, None]

    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        assert self.support is not None
        log_x0 = marginals.require_x0("Restricted")
        possible = F.pad(self.support, (0, log_x0.shape[-1] - self.support.shape[-1])).to(log_x0.device)
        possible = possible[None] if query.positions is None else possible[query.positions]
        log_x0 = F.log_softmax(log_x0.masked_fill(~possible, -float("inf")), dim=-1)
        return Marginals.from_x0(log_x0, process, query.t)


class Tempered(Wrapper):
    """p^(1 / temperature), normalised: below 1 the likely becomes likelier, above 1 all becomes more alike."""

    def __init__(self, model: MarginalModel, temperature: float) -> None:
        super().__init__(model)
        self.temperature = _checks.positive(temperature, "temperature")

    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        if marginals.log_x0 is None:
            return Marginals(F.log_softmax(marginals.log_xt / self.temperature, dim=-1))
        return Marginals.from_x0(F.log_softmax(marginals.log_x0 / self.temperature, dim=-1), process, query.t)
