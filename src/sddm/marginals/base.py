"""What every sampler and loss sees of a model: the singleton conditionals of x_t and, where it has them, of x_0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sddm import _checks
from sddm._precision import at_least_float32
from sddm.config import Configurable
from sddm.networks import Places, Sizes
from sddm.processes import Process
from sddm.query import Query
from sddm.shapes import Laws

Kind = TypeVar("Kind", bound="MarginalModel")
ONE_BY_ONE = 1 << 16
"""How many tokens are evaluated at once where each position is a row of its own."""


class Marginals:
    """The conditionals at each position given all the others.

    log_xt:  log p_t(X_t^d = c | x_t^{\\d}),        (batch, dim, symbols)
    log_x0:  log p_{0|t}(X_0^d = c | x_t^{\\d}),    the same shape, or None for a model of x_t alone

    A model that predicts x_0 implies the law of x_t,  p_t = p_{0|t} P_{0->t}; it is computed when first asked for.
    """

    def __init__(
        self, log_xt: Laws | None, log_x0: Laws | None = None, *, push: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        if log_xt is None and (log_x0 is None or push is None):
            raise ValueError("Marginals need log_xt, or log_x0 and the push that turns it into log_xt.")
        self._log_xt = None if log_xt is None else at_least_float32(log_xt)
        self.log_x0 = None if log_x0 is None else at_least_float32(log_x0)
        self._push = push

    @classmethod
    def from_x0(cls, log_x0: Laws, process: Process, t: Float[Tensor, "batch"]) -> Marginals:
        """Implicit marginals:  log_xt = log(exp(log_x0) P_{0->t})."""
        return cls(None, log_x0, push=lambda log_p: process.log_push_by(log_p, process.tau(0.0, t)))

    @property
    def log_xt(self) -> Laws:
        if self._log_xt is None:
            assert self.log_x0 is not None
            assert self._push is not None
            self._log_xt = self._push(self.log_x0)
        return self._log_xt

    def unpushed(self) -> tuple[Laws, Callable[[Tensor], Tensor]]:
        """log_x0 and the function that makes log_xt of it, for work on a few positions at a time.

        Without log_x0 these are log_xt and the identity.
        """
        if self.log_x0 is not None and self._push is not None:
            return self.log_x0, self._push
        return self.log_xt, lambda log_xt: log_xt

    def require_x0(self, user: str) -> Laws:
        """log_x0; if there is none, a ValueError says that `user` needs it."""
        if self.log_x0 is None:
            raise ValueError(
                f"{user} needs a model that predicts x0, but this one predicts x_t directly. "
                "Build it with implicit=True, or use the Euler sampler and ratio matching."
            )
        return self.log_x0


class MarginalModel(nn.Module, Configurable, ABC):
    """A model of the conditionals. Its prediction at d must not depend on x_t^d (Section 5 of the paper)."""

    length: int | None
    """The number of positions D, or None if any length will do."""
    implicit: bool
    """Whether it predicts x_0 (and x_t through the process), or x_t directly."""
    sees_own_token: bool = False
    """Whether the prediction at d does look at x_t^d, so that only the losses made for that can train it."""
    by_position: bool = False
    """Whether the cost of an evaluation grows with the number of positions that are asked for."""
    takes_ahead: bool = False
    """Whether it answers queries with `ahead` itself. For any other model each position becomes a row of its own."""
    ordered: bool = False
    """Whether it learns to be asked from left to right, and is sampled so unless another sampler is named."""
    support: Bool[Tensor, "dim states"] | None = None
    """Which values each position can have, if not all of them."""
    architecture: ClassVar[type[nn.Module] | None] = None
    """The transformer that `for_process` builds, of the numbers of tokens and of classes, if there is one."""
    own_tokens: int = 0
    """How many tokens its network knows besides the symbols of the process."""

    @classmethod
    def for_process(
        cls: type[Kind],
        process: Process,
        length: int | None = None,
        grid: tuple[int, int] | None = None,
        sizes: Sizes = Sizes(),
        implicit: bool = True,
        **options: Any,
    ) -> Kind:
        """A model with a transformer for this process.

        length, grid: of its `Places`.   sizes: its `Sizes`, or single ones by name among the options, such as width=64.
        options: what else the transformer takes.
        """
        single = {f.name: options.pop(f.name) for f in fields(Sizes) if f.name in options}
        network = cls.transformer(process, implicit, Places(length, grid), replace(sizes, **single), **options)
        return cls(network, implicit)

    @classmethod
    def transformer(cls, process: Process, implicit: bool, places: Places, sizes: Sizes, **options: Any) -> nn.Module:
        """The transformer of `for_process`."""
        if cls.architecture is None:
            raise TypeError(f"{cls.__name__} has no transformer of its own. Build it with the network it is to use.")
        classes = num_classes(process, implicit)
        return cls.architecture(process.num_symbols + cls.own_tokens, classes, places, sizes, **options)

    @property
    def takes_shorter(self) -> bool:
        """Whether it also takes rows that are shorter than `length`, as transformers do."""
        return isinstance(getattr(getattr(self, "network", None), "places", None), Places)

    @property
    def num_labels(self) -> int | None:
        """How many labels it can be told: 0 if it knows none, None for a model that does not say."""
        network: Any = getattr(self, "network", None)
        if network is None:
            return None
        sizes = getattr(network, "sizes", None)
        return sizes.num_labels if isinstance(sizes, Sizes) else 0

    @abstractmethod
    def forward(self, process: Process, query: Query) -> Marginals:
        """The conditionals at the positions asked for."""

    def check(self, process: Process) -> None:
        """Refuse a process that has other states than the model was built for. `Diffusion` asks this once."""
        network = getattr(self, "network", None)
        expected = {
            "num_tokens": process.num_symbols + self.own_tokens,
            "num_classes": num_classes(process, self.implicit),
        }
        for name, count in expected.items():
            found = getattr(network, name, count)
            _checks.require(
                found == count,
                f"The network of {type(self).__name__} has {name}={found}, but {type(process).__name__} of "
                f"{process.num_states} states needs {count}. Build the model for this process, as for_process does.",
            )

    def from_logits(
        self, logits: Float[Tensor, "batch num classes"], process: Process, t: Float[Tensor, "batch"]
    ) -> Marginals:
        """Normalise a network's output, which has num_states classes if implicit and num_symbols if not."""
        classes = num_classes(process, self.implicit)
        _checks.require(
            logits.shape[-1] == classes,
            f"{type(self).__name__} gives {logits.shape[-1]} logits a position, but {type(process).__name__} of "
            f"{process.num_states} states needs {classes}. Build the model for this process.",
        )
        log_p = F.log_softmax(at_least_float32(logits), dim=-1)
        if not self.implicit:
            return Marginals(log_p)
        missing = process.num_symbols - log_p.shape[-1]
        if missing:  # x_0 is never MASK
            log_p = F.pad(log_p, (0, missing), value=-float("inf"))
        return Marginals.from_x0(log_p, process, t)


def one_by_one(model: MarginalModel, process: Process, query: Query) -> Marginals:
    """What a model says of each position as a row of its own: for queries with `ahead`."""
    shape, each = query.places.shape, query.one_by_one()
    answers = [model(process, some).unpushed()[0] for some in each.split(max(1, ONE_BY_ONE // query.xt.shape[1]))]
    laws = torch.cat(answers).view(*shape, -1)
    return Marginals.from_x0(laws, process, query.t) if model.implicit else Marginals(laws)


def num_classes(process: Process, implicit: bool) -> int:
    """How many logits a position needs: x_0 has num_states values, x_t has num_symbols."""
    return process.num_states if implicit else process.num_symbols
