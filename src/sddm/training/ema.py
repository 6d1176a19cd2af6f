"""An exponential moving average of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from sddm.training.devices import local_part


@torch.no_grad()
def follow(averages: Iterable[Tensor], weights: Iterable[Tensor], steps: int, decay: float, share: float = 0.1) -> None:
    """Update averages once, as `EMA` does after this many earlier updates."""
    decay = min(decay, (1 + steps) / (1 / share + steps))
    torch._foreach_lerp_(list(averages), list(weights), 1 - decay)


class EMA:
    """shadow <- decay * shadow + (1 - decay) * weight after every step.

    The decay is (1 + step) / (1 / share + step) where that is smaller: the average covers this share of the steps so
    far, and the initial weights soon have no influence.
    """

    def __init__(self, weights: Iterable[Tensor], decay: float, share: float = 0.1) -> None:
        self.decay, self.share = decay, share
        self.steps = 0
        # Where weights are split between processes, each process averages its own part.
        self._weights = [local_part(weight).detach() for weight in weights]
        self._shadows = [w.clone() for w in self._weights]

    def update(self) -> None:
        follow(self._shadows, self._weights, self.steps, self.decay, self.share)
        self.steps += 1

    @torch.no_grad()
    def restart(self, weight: Tensor, rows: Int[Tensor, "rows"]) -> None:
        """Let the average of some rows of a weight begin anew: they were replaced by others, and did not move there."""
        place = local_part(weight).data_ptr()
        for own, shadow in zip(self._weights, self._shadows, strict=True):
            if own.data_ptr() == place:
                shadow[rows] = own[rows]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the weights are their average. Loading other weights then replaces the average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, shadow in zip(self._weights, self._shadows, strict=True):
            kept = weight.clone()
            weight.copy_(shadow)
            shadow.copy_(kept)
