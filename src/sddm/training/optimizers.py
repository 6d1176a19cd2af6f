"""The optimizers that training can be told to use, AdamW and Muon, and how their learning rate falls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.95
ADAM_STEP = 0.2
"""The usual root mean square of AdamW's updates, before the learning rate. Muon's are scaled to it."""
QUINTIC, ROUNDS = (3.4445, -4.7750, 2.0315), 5
"""s <- a s + b s^3 + c s^5, this often, takes every s in [0.01, 1] to somewhere between 0.68 and 1.14."""


def adamw(module: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(module.parameters(), learning_rate, weight_decay=weight_decay, fused=True)


class Muon(torch.optim.AdamW):
    """Muon (Jordan et al., 2024): the matrices of linear layers move along the orthogonal factor of their momentum.

    With the momentum M = U S V^T, the step is U V^T in place of Adam's M over the root of its second moment: all
    directions of the matrix count the same. Biases, norms, embeddings and the like move by AdamW. The steps of matrices
    are scaled to the size of AdamW's (Liu et al., 2025), so that one learning rate serves both.
    """

    def __init__(self, module: nn.Module, learning_rate: float, weight_decay: float) -> None:
        super().__init__(module.parameters(), learning_rate, weight_decay=weight_decay, fused=True)
        linear = (layer.weight for layer in module.modules() if isinstance(layer, nn.Linear))
        self.matrices = {weight for weight in linear if min(weight.shape) > 1}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight in self.matrices and weight.grad is not None:
                    self._move(weight, group["lr"], group["weight_decay"])
                    weight.grad = None  # so that AdamW skips it
        super().step(closure)

    def _move(self, weight: Tensor, learning_rate: float, weight_decay: float) -> None:
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        direction = orthogonal(gradient.lerp(momentum, MOMENTUM))
        weight.mul_(1 - learning_rate * weight_decay)
        # An orthogonal factor has min(shape) singular values 1, so its root mean square is 1 / sqrt(max(shape)).
        weight.add_(direction, alpha=-learning_rate * ADAM_STEP * max(weight.shape) ** 0.5)


def orthogonal(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Nearly U V^T of the matrix U S V^T, by a polynomial: matrix multiplies only, no decomposition."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    a, b, c = QUINTIC
    x = matrix / matrix.norm().clamp_min(torch.finfo(matrix.dtype).tiny)
    for _ in range(ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


OPTIMIZERS: dict[str, Callable[[nn.Module, float, float], torch.optim.Optimizer]] = {"adamw": adamw, "muon": Muon}

DECAYS: dict[str, Callable[[int, int], float]] = {
    "cosine": lambda step, steps: 0.5 * (1 + math.cos(math.pi * step / steps)),
    "linear": lambda step, steps: 1 - step / steps,
    "constant": lambda step, steps: 1.0,
}
"""The learning rate of a step after the warm-up, as a share of its peak, for so many steps after the warm-up."""


def rate_at(step: int, steps: int, warmup: float, decay: str = "cosine") -> float:
    """The learning rate of a step as a share of its peak: it rises from 0 over this share of all steps, then falls."""
    warm = max(1, round(warmup * steps))
    if step < warm:
        return (step + 1) / warm
    return DECAYS[decay](step - warm, max(1, steps - warm))
