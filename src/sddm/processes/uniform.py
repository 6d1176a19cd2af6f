"""The uniform process: from every state to every other at the same rate."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm.processes.base import Process
from sddm.randomness import Randomness
from sddm.schedules import Schedule
from sddm.shapes import Laws, Tau, Tokens


class Uniform(Process):
    """Q = 11' - C I, so that with a = exp(-C tau):  P = a I + (1 - a)/C 11'.

    Everything is O(C) in time and memory; no (C, C) matrix is made except by `transition`.
    """

    def __init__(self, num_states: int, schedule: Schedule) -> None:
        self.num_states = _checks.whole(num_states, "num_states", 2)
        self.schedule = _checks.instance(schedule, Schedule, "schedule")
        self.gap = float(num_states)

    def prior_law(self) -> Float64[Tensor, "symbols"]:
        return torch.full((self.num_states,), 1 / self.num_states, dtype=torch.float64)

    def _mixture(self, tau: Tau, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """a and b = (1 - a)/C, so that P = a I + b 11'; shape (batch, 1, 1)."""
        a = torch.exp(-self.num_states * tau)
        b = -torch.expm1(-self.num_states * tau) / self.num_states
        return a.to(dtype)[:, None, None], b.to(dtype)[:, None, None]

    def push_by(self, p: Laws, tau: Tau) -> Laws:
        a, b = self._mixture(tau, p.dtype)
        return a * p + b * p.sum(-1, keepdim=True)

    def log_push_by(self, log_p: Laws, tau: Tau) -> Laws:
        a, b = self._mixture(tau, log_p.dtype)
        return _LogMix.apply(log_p, a, b)

    def pull_by(self, p: Laws, tau: Tau) -> Laws:
        a, b = self._mixture(tau, p.dtype)
        return ((p - b) / a).clamp_(min=0)

    def law_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        a, b = self._mixture(tau, dtype)
        law = b.repeat(1, x.shape[1], self.num_states)
        return law.scatter_(-1, x[..., None], (a + b).expand(-1, x.shape[1], 1))

    likelihood_by = law_by  # P is symmetric

    def rates_into(self, x: Tokens, dtype: torch.dtype) -> Laws:
        rates = torch.ones(*x.shape, self.num_states, dtype=dtype, device=x.device)
        return rates.scatter_(-1, x[..., None], 0)

    rates_out_of = rates_into  # and so is Q

    def flow_into(self, p: Laws) -> Laws:
        return p.sum(-1, keepdim=True) - p

    def exit_rates(self, dtype: torch.dtype) -> Float[Tensor, "symbols"]:
        return torch.full((self.num_states,), self.num_states - 1, dtype=dtype)

    def noise_by(self, x0: Tokens, tau: Tau, randomness: Randomness) -> Tokens:
        u = randomness.uniform((x0.shape[0], 2, x0.shape[1]), x0.device)
        anything = (u[:, 1] * self.num_states).long()
        return torch.where(u[:, 0] < torch.exp(-self.num_states * tau)[:, None], x0, anything)

    def expected_by(self, x: Tokens, tau: Tau, values: Laws) -> Float[Tensor, "batch dim"]:
        a, b = self._mixture(tau, values.dtype)
        return _SumAndPick.apply(values, x, a[..., 0], b[..., 0])

    def times_likelihood_by(self, values: Laws, x: Tokens, tau: Tau) -> Laws:
        a, b = self._mixture(tau, values.dtype)
        at_x = values.gather(-1, x[..., None]) * (a + b)
        return values.mul_(b).scatter_(-1, x[..., None], at_x)

    def times_rates_into(self, values: Laws, x: Tokens) -> Laws:
        return values.scatter_(-1, x[..., None], 0)

    def exit_bound(self, tau: Tau) -> Float64[Tensor, "batch symbols"]:
        _, b = self._mixture(tau, torch.float64)
        return ((1 - b) / b)[..., 0].expand(-1, self.num_states)

    def move_bound(self, early: Tau, tau: Tau) -> Float64[Tensor, "batch symbols"]:
        (_, before), (a, b), (_, after) = (self._mixture(u, torch.float64) for u in (early, tau, early + tau))
        return (1 - before * (a + b) / after)[..., 0].expand(-1, self.num_states)


class _LogMix(torch.autograd.Function):
    """log(a p + b) from log p, with one (batch, dim, states) tensor forwards and one backwards."""

    @staticmethod
    def forward(ctx: Any, log_p: Tensor, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(log_p, a, b)
        return log_p.exp().mul_(a).add_(b).log_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        log_p, a, b = ctx.saved_tensors
        # d log(a p + b) / d log p = a p / (a p + b) = sigmoid(log p + log(a / b))
        log_odds = torch.log(a) - torch.log(b.clamp_min(torch.finfo(b.dtype).tiny))
        return (log_p + log_odds).sigmoid_().mul_(gradients[0]), None, None


class _SumAndPick(torch.autograd.Function):
    """b * sum_y values[y] + a * values[x], whose gradient is one (batch, dim, states) tensor."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(x, a, b)
        ctx.states = values.shape[-1]
        anywhere = torch.where(b > 0, b * values.sum(-1), 0)  # not 0 * log 0
        return anywhere + a * values.gather(-1, x[..., None]).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, a, b = ctx.saved_tensors
        g = gradients[0][..., None]
        spread = (g * b[..., None]).repeat(1, 1, ctx.states)
        return spread.scatter_add_(-1, x[..., None], g * a[..., None]), None, None, None
