"""Models made from other models: restricted to the values that a position can have, or at another temperature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals
from sddm.processes import Process, Undoable
from sddm.query import Query


class Wrapper(MarginalModel):
    """A model whose answers are changed. The inner model's requirements and guarantees are unchanged."""

    def __init__(self, model: MarginalModel) -> None:
        super().__init__()
        _checks.instance(model, MarginalModel, "model")
        self.model = model
        self.length, self.implicit, self.sees_own_token = model.length, model.implicit, model.sees_own_token
        self.by_position, self.takes_ahead, self.ordered = model.by_position, model.takes_ahead, model.ordered
        self.support: Bool[Tensor, "dim states"] | None = model.support

    @property
    def num_labels(self) -> int | None:
        return self.model.num_labels

    @property
    def takes_shorter(self) -> bool:
        return self.model.takes_shorter

    def check(self, process: Process) -> None:
        self.model.check(process)

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.changed(self.model(process, query), process, query)

    @abstractmethod
    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        """What this model answers, from the answers of the inner model."""


class Within(Wrapper):
    """p_{0|t}(X_0^d = c | x_t^{\\d}) = 0 for every c outside of the support of position d, in a mask (dim, states)."""

    def __init__(self, model: MarginalModel, support: Bool[Tensor, "dim states"]) -> None:
        super().__init__(model)
        name = type(self).__name__
        _checks.require(model.implicit, f"{name} needs a model that predicts x0. Build it with implicit=True.")
        self.support, self.length = support, len(support)

    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        assert self.support is not None
        log_x0 = marginals.require_x0(type(self).__name__)
        possible = F.pad(self.support, (0, log_x0.shape[-1] - self.support.shape[-1])).to(log_x0.device)
        possible = possible[None, : query.xt.shape[1]] if query.positions is None else possible[query.positions]
        log_x0 = F.log_softmax(log_x0.masked_fill(~possible, -float("inf")), dim=-1)
        return Marginals.from_x0(log_x0, process, query.t)


class Restricted(Within):
    """p_{0|t}(X_0^d = c | x_t^{\\d}) = 0 for every c >= sizes[d]: position d has its own number of values.

    So the columns of a table can share one process, with as many states as the largest column has values. The noise
    takes a position to any state. The data, and so every sample at its end, only hold the position's own values.
    """

    def __init__(self, model: MarginalModel, sizes: Sequence[int]) -> None:
        if isinstance(model, MarginalModel) and model.length not in (None, len(sizes)):
            raise ValueError(f"sizes has {len(sizes)} entries, but the model {model.length} positions.")
        for d, size in enumerate(sizes):
            _checks.whole(size, f"sizes[{d}]", 1)
        super().__init__(model, torch.arange(max(sizes)) < torch.tensor(list(sizes))[:, None])
        self.sizes = list(sizes)

    def check(self, process: Process) -> None:
        super().check(process)
        assert self.support is not None
        _checks.require(
            self.support.shape[1] <= process.num_states,
            f"sizes of Restricted go up to {self.support.shape[1]}, but {type(process).__name__} has only "
            f"{process.num_states} states. Give the process as many states as the largest size.",
        )

    @property
    def takes_shorter(self) -> bool:
        return False


class Tempered(Wrapper):
    """p_{0|t}(. | x_t^{\\d})^(1 / temperature), normalised: sharpened below temperature 1, flattened above.

    Only the law of the data is changed, never the noise. A model of x_t has its law of x_0 by undoing the noise:
    p_t = p_{0|t} P_{0->t}. To sharpen p_t itself would change how the process runs backwards, and what it draws would
    not be data.
    """

    def __init__(self, model: MarginalModel, temperature: float) -> None:
        super().__init__(model)
        self.temperature = _checks.positive(temperature, "temperature")

    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        log_x0 = marginals.log_x0
        if log_x0 is None:
            if not isinstance(process, Undoable):
                raise ValueError(
                    f"temperature: this model predicts x_t directly, and the noise of {type(process).__name__} cannot "
                    "be undone, so the law of x_0 is not known. Use temperature 1, or a model with implicit=True."
                )
            log_x0 = process.pull_by(marginals.log_xt.exp(), process.tau(0.0, query.t)).log()
        data = F.log_softmax(log_x0[..., : process.num_states] / self.temperature, dim=-1)
        padded = F.pad(data, (0, process.num_symbols - process.num_states), value=-float("inf"))  # x_0 is never MASK
        return Marginals.from_x0(padded, process, query.t)
