"""What the systems that diffusion is compared with have in common: a training step, and samples."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm.networks import MLPEnergy
from sddm.query import Query


class Baseline(nn.Module, ABC):
    """A generative model of rows of `length` bits that brings its own training step.

    All that a step leaves behind is in the module's parameters and buffers and in its optimizers, and all chance comes
    from the generators passed in: so a training can be stopped and go on as if nothing had happened.
    """

    length: int

    @abstractmethod
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimizers, each by a name; always the same objects."""

    @abstractmethod
    def update(self, rows: Int[Tensor, "batch dim"], generator: torch.Generator) -> dict[str, float]:
        """One training step on rows of data; what to show of it."""

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


@torch.no_grad()
def follow(average: nn.Module, present: nn.Module, steps: int, decay: float) -> None:
    """Move averaged weights towards the present ones, as the diffusion's EMA does: quickly in the first steps, so that
    the start is forgotten."""
    decay = min(decay, (1 + steps) / (10 + steps))
    torch._foreach_lerp_(list(average.parameters()), list(present.parameters()), 1 - decay)
