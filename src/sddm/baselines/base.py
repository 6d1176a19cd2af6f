"""What the systems that diffusion is compared with have in common: a training step, and samples."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm.networks import MLPEnergy
from sddm.query import Query
from sddm.training.learner import Learner


class Baseline(nn.Module, Learner):
    """A generative model of rows of `length` bits: a learner whose batches are rows of data."""

    stream = "baseline"
    length: int

    @property
    def module(self) -> nn.Module:
        return self

    @abstractmethod
    def sample(self, num: int, generator: torch.Generator) -> Int[Tensor, "num dim"]:
        """Draw `num` rows."""

    def groups(self, num: int) -> Int[Tensor, "num"] | None:
        """The group of each row of `sample(num)`, if rows of one group depend on each other (see `hamming_mmd`)."""
        return None


class TimelessEnergy(nn.Module):
    """f(x) for p(x) proportional to exp(-f(x)): the MLP energy of the diffusion, held at time 0."""

    def __init__(self, length: int, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.length = length
        self.network = MLPEnergy(length, width=width, layers=layers)

    def forward(self, x: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch"]:
        return self.network(self._at_time_0(x))

    def flips(self, x: Int[Tensor, "batch dim"], positions: Int[Tensor, "batch num"]) -> Float[Tensor, "batch num"]:
        """f(x) - f(x with the bit at d turned), for every d of `positions`: the logit of turning it."""
        energies = self.network.replaced(self._at_time_0(x).at(positions))
        here = x.gather(1, positions)[..., None]
        own, other = energies.gather(-1, here), energies.gather(-1, 1 - here)
        return (own - other).squeeze(-1)

    def _at_time_0(self, x: Int[Tensor, "batch dim"]) -> Query:
        return Query(x, torch.zeros(len(x), dtype=torch.float64, device=x.device))
