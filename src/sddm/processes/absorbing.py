"""The absorbing process: every state falls into one extra state, MASK, and stays there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm.processes.base import Process
from sddm.randomness import Randomness
from sddm.schedules import Schedule
from sddm.shapes import Laws, Tau, Tokens


class Absorbing(Process):
    """Q(c, MASK) = 1 for every data state c, so that with a = exp(-tau) a state stays with probability a, else is MASK.

    MASK = num_states is one more symbol: x_t has num_states + 1 of them. The prior is all MASK.
    """

    gap = 1.0

    def __init__(self, num_states: int, schedule: Schedule) -> None:
        self.num_states = _checks.whole(num_states, "num_states", 1)
        self.mask = num_states
        self.schedule = _checks.instance(schedule, Schedule, "schedule")

    @property
    def num_symbols(self) -> int:
        return self.num_states + 1

    def prior_law(self) -> Float64[Tensor, "symbols"]:
        return F.pad(torch.ones(1, dtype=torch.float64), (self.num_states, 0))

    def _stay(self, tau: Tau, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """a and 1 - a, of shape (batch, 1, 1)."""
        return torch.exp(-tau).to(dtype)[:, None, None], (-torch.expm1(-tau)).to(dtype)[:, None, None]

    def push_by(self, p: Laws, tau: Tau) -> Laws:
        a, gone = self._stay(tau, p.dtype)
        data, masked = p[..., : self.mask], p[..., self.mask :]
        return torch.cat([a * data, masked + gone * data.sum(-1, keepdim=True)], dim=-1)

    def log_push_by(self, log_p: Laws, tau: Tau) -> Laws:
        a, gone = self._stay(tau, log_p.dtype)
        masked = log_p[..., self.mask :].exp()
        masked = masked + gone * (1 - masked)  # p sums to one, so the data states hold 1 - masked of it
        at_mask = torch.where(masked > 0, masked, 1).log().where(masked > 0, -torch.inf)  # the gradient of log 0 is NaN
        return torch.cat([torch.log(a) + log_p[..., : self.mask], at_mask], dim=-1)

    def pull_by(self, p: Laws, tau: Tau) -> Laws:
        a, gone = self._stay(tau, p.dtype)
        return torch.cat([p[..., : self.mask], (p[..., self.mask :] - gone).clamp_(min=0)], dim=-1) / a

    def law_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        a, gone = self._stay(tau, dtype)
        law = torch.zeros(*x.shape, self.num_symbols, dtype=dtype, device=x.device)
        law[..., self.mask :] = gone
        return law.scatter_add_(-1, x[..., None], a.expand(-1, x.shape[1], 1))

    def likelihood_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        a, gone = self._stay(tau, dtype)
        is_mask = (x == self.mask)[..., None]
        likelihood = (is_mask * gone).repeat(1, 1, self.num_symbols)
        at_x = torch.where(is_mask, torch.ones_like(a), a)
        return likelihood.scatter_(-1, x[..., None], at_x)

    def rates_into(self, x: Tokens, dtype: torch.dtype) -> Laws:
        return F.pad((x == self.mask)[..., None].to(dtype).expand(-1, -1, self.num_states), (0, 1))

    def rates_out_of(self, x: Tokens, dtype: torch.dtype) -> Laws:
        return F.pad((x != self.mask)[..., None].to(dtype), (self.num_states, 0))

    def flow_into(self, p: Laws) -> Laws:
        return F.pad(p[..., : self.mask].sum(-1, keepdim=True), (self.num_states, 0))

    def exit_rates(self, dtype: torch.dtype) -> Float[Tensor, "symbols"]:
        return F.pad(torch.ones(self.num_states, dtype=dtype), (0, 1))

    def noise_by(self, x0: Tokens, tau: Tau, randomness: Randomness) -> Tokens:
        u = randomness.uniform(x0.shape, x0.device)
        return torch.where(u < torch.exp(-tau)[:, None], x0, self.mask)

    def expected_by(self, x: Tokens, tau: Tau, values: Laws) -> Float[Tensor, "batch dim"]:
        a, gone = self._stay(tau, values.dtype)
        masked = torch.where(gone[..., 0] > 0, gone[..., 0] * values[..., self.mask], 0)  # not 0 * log 0
        return a[..., 0] * values.gather(-1, x[..., None]).squeeze(-1) + masked

    def times_rates_into(self, values: Laws, x: Tokens) -> Laws:
        values.mul_((x == self.mask)[..., None])
        values[..., self.mask] = 0
        return values

    def exit_bound(self, tau: Tau) -> Float64[Tensor, "batch symbols"]:
        return self._at_mask(torch.exp(-tau) / -torch.expm1(-tau))

    def move_bound(self, early: Tau, tau: Tau) -> Float64[Tensor, "batch symbols"]:
        return self._at_mask(1 - torch.expm1(-early) / torch.expm1(-early - tau))

    def _at_mask(self, values: Tau) -> Float64[Tensor, "batch symbols"]:
        """These values for MASK, and 0 for the data states, which the reverse process never leaves."""
        return F.pad(values[:, None], (self.num_states, 0))
