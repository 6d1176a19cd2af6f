"""The hidden layers of the MLP energy over many neighbours of a sequence, with forward and backward written out.

Under autograd, additions and activations cost as much as the matrix multiplies, because each allocates new memory.
Here they work in place on the results of the multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def elu_layers(
    base: Float[Tensor, "batch width"],
    change: Float[Tensor, "batch others width"],
    times: Float[Tensor, "batch layers width"],
    last: Float[Tensor, "width"],
    weights: list[Float[Tensor, "width width"]],
    biases: list[Float[Tensor, "width"]],
) -> Float[Tensor, "batch copies"]:
    """The energies (less a constant) of a sequence and its neighbours, whose first layers are base and base + change:

    h <- elu(h + times_0),    h <- elu(W_i h + b_i + times_i) for each hidden layer,    energy = last . h
    """
    base = base + times[:, 0]
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(base.device.type):
        return _by_autograd(base, change, times[:, 1:], last, weights, biases)
    if not torch.is_grad_enabled():
        return _energies(_hidden(base, change, times[:, 1:], weights, biases, kept=2)[-1], last)
    return _EluLayers.apply(base, change, times[:, 1:], last, *weights, *biases)


def _by_autograd(
    base: Tensor, change: Tensor, times: Tensor, last: Tensor, weights: list[Tensor], biases: list[Tensor]
) -> Tensor:
    """The same in plain operations, for mixed precision and for the compiler, which fuses them itself."""
    h = F.elu(torch.cat([base[:, None], base[:, None] + change], dim=1))
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = F.elu(F.linear(h, weight) + (times[:, i] + bias)[:, None])
    return h @ last


def _hidden(
    base: Tensor, change: Tensor, times: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], kept: int
) -> list[Tensor]:
    """The hidden layers, from the first to the last; they share `kept` tensors, which are reused in rotation."""
    batch, others, width = change.shape
    memory = [base.new_empty(batch, others + 1, width) for _ in range(min(kept, len(weights) + 1))]
    scratch = torch.empty_like(memory[0])
    first = memory[0]
    first[:, 0] = base
    torch.add(change, base[:, None], out=first[:, 1:])
    hidden = [_elu_(first, scratch)]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = memory[(i + 1) % kept]
        torch.mm(hidden[-1].view(-1, width), weight.t(), out=h.view(-1, width))
        hidden.append(_elu_(h.add_((times[:, i] + bias)[:, None]), scratch))
    return hidden


def _energies(h: Tensor, last: Tensor) -> Tensor:
    return torch.mv(h.view(-1, h.shape[-1]), last).view(h.shape[:-1])


class _EluLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: Tensor, change: Tensor, times: Tensor, last: Tensor, *layers: Tensor) -> Tensor:
        weights, biases = layers[: len(layers) // 2], layers[len(layers) // 2 :]
        hidden = _hidden(base, change, times, weights, biases, kept=len(weights) + 1)
        ctx.save_for_backward(last, *weights, *hidden)
        return _energies(hidden[-1], last)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        last, *rest = ctx.saved_tensors
        weights, hidden = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        shape, width = hidden[0].shape, hidden[0].shape[-1]
        energy = gradients[0].reshape(-1)
        last_gradient = torch.mv(hidden[-1].view(-1, width).t(), energy)
        gradient, spare = torch.outer(energy, last), None
        weight_gradients, sums = [], []
        for weight, below, above in zip(reversed(weights), hidden[-2::-1], hidden[:0:-1], strict=True):
            _times_elu_slope(gradient, above.view(-1, width))
            weight_gradients.append(torch.mm(gradient.t(), below.view(-1, width)))
            sums.append(gradient.view(shape).sum(1))
            spare = torch.empty_like(gradient) if spare is None else spare
            torch.mm(gradient, weight, out=spare)
            gradient, spare = spare, gradient
        _times_elu_slope(gradient, hidden[0].view(-1, width))
        gradient = gradient.view(shape)
        times_gradient = torch.stack(sums[::-1], dim=1) if sums else gradient.new_zeros(shape[0], 0, width)
        return (
            gradient.sum(1),
            gradient[:, 1:],
            times_gradient,
            last_gradient,
            *weight_gradients[::-1],
            *[s.sum(0) for s in sums[::-1]],
        )


def _elu_(u: Tensor, scratch: Tensor) -> Tensor:
    """elu(u) = max(u, e^min(u, 0) - 1) in place: four quick passes are faster than one through torch's expm1.

    e^-40 - 1 is -1 in double precision; below that, processors take twenty times as long for e^u.
    """
    below = torch.clamp(u, -40, 0, out=scratch).exp_().sub_(1)
    return torch.maximum(u, below, out=u)


def _times_elu_slope(gradient: Tensor, result: Tensor) -> None:
    """Multiply by elu'(u) in place, from the result elu(u)."""
    torch.ops.aten.elu_backward.grad_input(gradient, 1, 1, 1, True, result, grad_input=gradient)
