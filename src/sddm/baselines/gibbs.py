"""Gibbs sampling of bits: p(x) proportional to exp(-f(x)), one position redrawn at a time from its conditional.

Let x' be x with the bit at position d turned. Given all other bits, p chooses between x and x' only:

    p(turn | x^{\\d}) = exp(-f(x')) / (exp(-f(x)) + exp(-f(x'))) = sigmoid(f(x) - f(x'))

A move draws a position for each row, independently of the row, and redraws the bit there; so the move leaves p
invariant. Each row is a chain of its own. Since f(x) is known from the move before, a move costs one evaluation of f a
row, on the turned row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sddm import _checks
from sddm.baselines.base import TimelessEnergy
from sddm.randomness import random_positions
from sddm.shapes import Tokens

EnergyFunction = Callable[[Tensor], Tensor]
"""f: rows of bits (batch, dim) to one number each (batch,); a `TimelessEnergy` is one."""


def random_scan(energy: EnergyFunction, x: Tokens, moves: int, generator: torch.Generator) -> Tokens:
    """Make `moves` Gibbs moves in every row, each at a position drawn uniformly, one for each row.

    >>> x = torch.randint(2, (128, 32), generator=generator)
    >>> x = random_scan(TimelessEnergy(32), x, moves=320, generator=generator)
    """
    _checks.tokens(x, 2, "x")
    _checks.whole(moves, "moves", 0)
    positions = torch.randint(x.shape[1], (x.shape[0], moves), generator=generator, device=generator.device)
    return _visit(energy, x, positions.to(x.device), generator)


def sweep(energy: EnergyFunction, x: Tokens, sweeps: int, generator: torch.Generator) -> Tokens:
    """Redraw every position of every row `sweeps` times: each sweep in an order drawn anew for each row."""
    _checks.tokens(x, 2, "x")
    _checks.whole(sweeps, "sweeps", 0)
    batch, length = x.shape
    for _ in range(sweeps):
        x = _visit(energy, x, random_positions(batch, length, length, generator, x.device), generator)
    return x


@torch.no_grad()
def frozen(energy: TimelessEnergy) -> EnergyFunction:
    """f with its current weights, as plain layers, for many evaluations without a gradient.

    At one fixed time the embedding of the time is a constant and part of the biases. The general network embeds the
    time of every row at every call, and takes two to three times as long.
    """
    network = energy.network
    times = network.times(torch.zeros(1, dtype=torch.float64, device=network.first.weight.device))[0]
    layers = [network.first, *network.hidden]
    weights = [layer.weight.detach().T.contiguous() for layer in layers]
    biases = [layer.bias.detach() + time for layer, time in zip(layers, times, strict=True)]
    last, constant = network.last.weight[0].detach().clone(), network.last.bias.detach().clone()

    @torch.no_grad()
    def evaluate(x: Tokens) -> Float[Tensor, "batch"]:
        h = x.to(last.dtype)
        for weight, bias in zip(weights, biases, strict=True):
            h = F.elu(torch.addmm(bias, h, weight), inplace=True)
        return torch.mv(h, last) + constant

    return evaluate


@torch.no_grad()
def _visit(
    energy: EnergyFunction, x: Tokens, positions: Int[Tensor, "batch moves"], generator: torch.Generator
) -> Tokens:
    """Redraw the bits at these positions, one column of positions after another."""
    energy = frozen(energy) if isinstance(energy, TimelessEnergy) else energy
    here: Float[Tensor, "batch"] = energy(x)
    for column in positions.T:
        at = column[:, None]
        turned = x.scatter(1, at, 1 - x.gather(1, at))
        there = energy(turned)
        uniform = torch.rand(len(x), generator=generator, dtype=torch.float64, device=generator.device)
        accepted = uniform.to(x.device) < torch.sigmoid((here - there).double())
        x = torch.where(accepted[:, None], turned, x)
        here = torch.where(accepted, there, here)
    return x
