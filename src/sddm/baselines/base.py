"""What the systems that diffusion is compared with have in common: optimizers, their steps, and samples in pieces."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.networks import MLPEnergy
from sddm.query import Query
from sddm.training.learner import Learner


class Baseline(nn.Module, Learner):
    """A generative model of rows of `length` bits: a learner whose batches are rows of data.

    A subclass puts its optimizers into `_optimizers`.
    """

    stream = "baseline"
    piece: ClassVar[int] = 2_048
    """This many samples are made at once, so that hidden layers stay in the processor's cache."""

    def __init__(self, length: int, decay_steps: int | None = None) -> None:
        super().__init__()
        self.length = _checks.whole(length, "length", 1)
        self.decay_steps = None if decay_steps is None else _checks.whole(decay_steps, "decay_steps", 1)
        self._optimizers: dict[str, torch.optim.Optimizer] = {}

    @property
    def module(self) -> nn.Module:
        return self

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return self._optimizers

    def sample(self, num: int, generator: torch.Generator) -> Int[Tensor, "num dim"]:
        """Draw `num` rows."""
        pieces = torch.arange(_checks.whole(num, "num", 1)).split(self.piece)
        return torch.cat([self._drawn(rows, generator) for rows in pieces])

    def groups(self, num: int) -> Int[Tensor, "num"] | None:
        """The group of each row of `sample(num)`, if rows of one group depend on each other (see `hamming_mmd`)."""
        return None

    @abstractmethod
    def _drawn(self, rows: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows dim"]:
        """The samples with these numbers, from 0 to num - 1."""

    def _descend(self, loss: Float[Tensor, ""], rate: float = 1.0, clip: float | None = None) -> None:
        """One step of every optimizer, at this share of its learning rate; clip: the largest norm of its gradient."""
        for optimizer in self._optimizers.values():
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self._optimizers.values():
            (group,) = optimizer.param_groups
            group["lr"] = rate * optimizer.defaults["lr"]
            if clip is not None:
                nn.utils.clip_grad_norm_(group["params"], clip)
            optimizer.step()


class TimelessEnergy(nn.Module):
    """f(x) for p(x) proportional to exp(-f(x)): the MLP energy of the diffusion, held at time 0."""

    def __init__(self, length: int, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.length = length
        self.network = MLPEnergy(length, width=width, layers=layers)

    def forward(self, x: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch"]:
        return self.network(Query(x, torch.zeros(len(x), dtype=torch.float64, device=x.device)))
