"""An exponential moving average of a module's weights."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


class EMA(Generic[Module]):
    """shadow <- decay * shadow + (1 - decay) * weights after every step.

    Early on the decay is (1 + step) / (10 + step) where that is smaller, so that the start is forgotten quickly.
    """

    def __init__(self, module: Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.shadow = copy.deepcopy(module).requires_grad_(False)
        self._shadows = tuple(self.shadow.parameters())
        self._weights = tuple(module.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Take in the module's weights as they are now."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self._shadows, self._weights, 1 - decay)
        self.steps += 1
