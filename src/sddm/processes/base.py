"""The forward process: every position of x_0 runs, by itself, through a Markov jump process with rates Q_t = beta(t) Q.

Because Q_t is one fixed matrix times a speed, a transition depends on its two times only through tau = B(s, t), the
integral of the schedule:  P_{s->t} = exp(tau Q).  So every method comes in two forms:

    push(p, s, t), likelihood(x, s, t), ...     takes times and checks what it is given; written once, here
    push_by(p, tau), likelihood_by(x, tau), ... takes tau = process.tau(s, t) and checks nothing; a family implements it

Samplers and losses use the second form. On the clock tau the forward rates are the constant matrix Q.

States: x_0 has `num_states` of them. x_t has `num_symbols`, which is one more where the process adds a MASK.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm.config import Configurable
from sddm.randomness import Randomness, Stream, categorical
from sddm.schedules import Schedule
from sddm.shapes import Laws, Tau, Times, Tokens

HORIZON = 1.0
"""T: time runs from 0 (data) to T (noise)."""

Kind = TypeVar("Kind", bound="Process")


class Process(Configurable, ABC):
    """A forward jump process, the same for each position."""

    num_states: int
    schedule: Schedule
    gap: float
    """How fast the data are forgotten: the share exp(-gap * B(0, t)) of them is left at time t."""
    ordinal: bool = False
    """Whether neighbouring states are neighbours in meaning (pixels, counts), so that jumps may be added up."""

    @property
    def num_symbols(self) -> int:
        """How many states x_t can take: num_states, and one more if there is a MASK."""
        return self.num_states

    # ---- what a family implements, in terms of tau = B(s, t) -------------------------------------------------------

    @abstractmethod
    def push_by(self, p: Laws, tau: Tau) -> Laws:
        """p exp(tau Q)."""

    @abstractmethod
    def law_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        """Where x goes: P(y | x) for every y (a row of the transition)."""

    @abstractmethod
    def likelihood_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        """Where x came from: P(x | y) for every y (a column of the transition)."""

    @abstractmethod
    def rates_into(self, x: Tokens, dtype: torch.dtype) -> Laws:
        """Q(y, x) for every y, with 0 at y = x."""

    @abstractmethod
    def rates_out_of(self, x: Tokens, dtype: torch.dtype) -> Laws:
        """Q(x, y) for every y, with 0 at y = x."""

    @abstractmethod
    def flow_into(self, p: Laws) -> Laws:
        """sum_{y != x} p(y) Q(y, x) for every x: how much probability flows into x per unit of tau."""

    @abstractmethod
    def exit_rates(self, dtype: torch.dtype) -> Float[Tensor, "symbols"]:
        """sum_{y != x} Q(x, y) for every x: how fast x is left."""

    @abstractmethod
    def prior_law(self) -> Float64[Tensor, "symbols"]:
        """The law of one position of x_T that sampling starts from."""

    # ---- what a family may do faster -------------------------------------------------------------------------------

    def transition_by(self, tau: Tau) -> Float64[Tensor, "batch symbols symbols"]:
        """exp(tau Q), row = from."""
        return self.law_by(self._everything(tau.device).expand(len(tau), -1), tau, torch.float64)

    def noise_by(self, x0: Tokens, tau: Tau, randomness: Randomness) -> Tokens:
        return categorical(self.law_by(x0, tau, torch.float64), randomness)

    def log_push_by(self, log_p: Laws, tau: Tau) -> Laws:
        """log(p exp(tau Q)) from log p."""
        pushed = self.push_by(log_p.exp(), tau)
        return pushed.clamp_min(torch.finfo(pushed.dtype).tiny).log()

    def expected_by(self, x: Tokens, tau: Tau, values: Laws) -> Float[Tensor, "batch dim"]:
        """sum_y P(y | x) values[y]; a state of probability 0 counts 0 even where its value is infinite."""
        law = self.law_by(x, tau, values.dtype)
        return torch.where(law > 0, law * values, 0).sum(-1)

    def times_likelihood_by(self, values: Laws, x: Tokens, tau: Tau) -> Laws:
        """Multiply values[y], in place, by P(x | y)."""
        return values.mul_(self.likelihood_by(x, tau, values.dtype))

    def times_rates_into(self, values: Laws, x: Tokens) -> Laws:
        """Multiply values[y], in place, by Q(y, x)."""
        return values.mul_(self.rates_into(x, values.dtype))

    def exit_bound(self, tau: Tau) -> Float64[Tensor, "batch symbols"]:
        """The fastest that the reverse process can leave each state x, in units of tau, whatever the data:

            max over x0 of  sum_{y != x} Q(y, x) q(y | x0) / q(x | x0).

        The reverse rate of any law is a weighted mean of these, and it falls with tau, so that the value at the early
        end of an interval bounds the whole interval. States that x0 reaches with probability below 1e-12 are left out.
        """
        q = self.transition_by(tau)[:, : self.num_states]
        columns = self.rates_into(self._everything(tau.device), torch.float64)[0]  # columns[x, y] = Q(y, x)
        flow = q @ columns.T
        return torch.where(q > 1e-12, flow / q, 0).amax(dim=1)

    def move_bound(self, early: Tau, tau: Tau) -> Float64[Tensor, "batch symbols"]:
        """The largest chance that a position which holds x at time t held something else at s, whatever the data:

            max over x0 of  1 - q_{s|0}(x | x0) P_{s->t}(x | x) / q_{t|0}(x | x0),     early = B(0, s), tau = B(s, t).

        The chance under any law is a weighted mean of these. States that x0 reaches with probability below 1e-12 are
        left out.
        """
        q, step = self.transition_by(early)[:, : self.num_states], self.transition_by(tau)
        later = q @ step
        stays = q * step.diagonal(dim1=1, dim2=2)[:, None] / later
        return torch.where(later > 1e-12, 1 - stays, 0).amax(dim=1).clamp_(0, 1)

    def _everything(self, device: torch.device) -> Tokens:
        return torch.arange(self.num_symbols, device=device)[None]

    # ---- the public face -------------------------------------------------------------------------------------------

    def noise(self, x0: Tokens, t: Float[Tensor, "batch"], generator: torch.Generator | None = None) -> Tokens:
        """Draw x_t given x_0."""
        x0 = _checks.tokens(x0, self.num_states, "x0")
        t = _checks.times(t, x0.shape[0], "t", device=x0.device, owner="x0")
        return self.noise_by(x0, self.tau(0.0, t), Stream(_checks.generator(generator)))

    def prior(self, shape: Sequence[int], generator: torch.Generator | None = None) -> Tokens:
        """Draw x_T of shape (batch, dim)."""
        shape = _checks.batch_shape(shape, "shape")
        return self.draw_prior(shape, Stream(_checks.generator(generator)), torch.device("cpu"))

    def transition(
        self, s: Float[Tensor, "batch"], t: Float[Tensor, "batch"]
    ) -> Float64[Tensor, "batch symbols symbols"]:
        """P_{s->t} as dense matrices, row = from. For small numbers of states."""
        s, t = _checks.ordered_times(s, t, None)
        return self.transition_by(self.tau(s, t))

    def push(self, p: Laws, s: Float[Tensor, "batch"], t: Float[Tensor, "batch"]) -> Laws:
        """p P_{s->t}: the law at time t of a position whose law at time s is p."""
        p = _checks.probabilities(p, self.num_symbols, "p")
        s, t = _checks.ordered_times(s, t, p.shape[0], device=p.device, owner="p")
        return self.push_by(p, self.tau(s, t))

    def likelihood(
        self, x: Tokens, s: Float[Tensor, "batch"], t: Float[Tensor, "batch"], dtype: torch.dtype = torch.float64
    ) -> Laws:
        """P_{s->t}(x | y) for every y: how likely each state at s was to become the x seen at t."""
        x = _checks.tokens(x, self.num_symbols, "x")
        s, t = _checks.ordered_times(s, t, x.shape[0], device=x.device, owner="x")
        return self.likelihood_by(x, self.tau(s, t), _checks.floating_dtype(dtype))

    def rate_to(self, x: Tokens, t: Float[Tensor, "batch"], dtype: torch.dtype = torch.float64) -> Laws:
        """Q_t(y, x) for every y, 0 at y = x: the rates *into* x, which the reverse process follows backwards."""
        return self._per_time(self.rates_into, x, t, dtype)

    def rate_from(self, x: Tokens, t: Float[Tensor, "batch"], dtype: torch.dtype = torch.float64) -> Laws:
        """Q_t(x, y) for every y, 0 at y = x: the rates out of x."""
        return self._per_time(self.rates_out_of, x, t, dtype)

    def _per_time(
        self, rates: Callable[[Tensor, torch.dtype], Tensor], x: Tensor, t: Tensor, dtype: torch.dtype
    ) -> Tensor:
        x = _checks.tokens(x, self.num_symbols, "x")
        t = _checks.times(t, x.shape[0], "t", device=x.device, owner="x")
        return rates(x, _checks.floating_dtype(dtype)) * self.speed(t, dtype)

    def remaining(self, t: Float[Tensor, "batch"]) -> Float64[Tensor, "batch"]:
        """The share of the data that is left at time t, exp(-gap B(0, t))."""
        return torch.exp(-self.gap * self.tau(0.0, _checks.times(t, None, "t")))

    def leaving(self: Kind, share: float = 0.02) -> Kind:
        """The same process at the speed that leaves this share of the data at time T.

        >>> Uniform(129, LogSquare(1.0)).leaving(0.02).remaining(torch.ones(1))
        tensor([0.0200])
        """
        share = _checks.positive(share, "share")
        _checks.require(share < 1, f"share must be below 1, but it is {share:g}: some of the data has to go.")
        factor = -math.log(share) / (self.gap * float(self.schedule.integral(0.0, HORIZON)))
        return self.with_schedule(self.schedule.scaled(factor))

    def with_schedule(self: Kind, schedule: Schedule) -> Kind:
        """The same process with another schedule."""
        other = copy.copy(self)
        other.schedule = _checks.instance(schedule, Schedule, "schedule")
        return other

    # ---- shared by the library -------------------------------------------------------------------------------------

    @property
    def prior_covers_all(self) -> bool:
        """Whether x_T drawn from the prior can be any state. If not (all MASK), the share of the data that is left at T
        has to come from the model: see `sddm.samplers.ends`."""
        return bool((self.prior_law() > 0).all())

    def draw_prior(self, shape: Sequence[int], randomness: Randomness, device: torch.device) -> Tokens:
        """Draw x_T of shape (batch, dim)."""
        return categorical(self.prior_law().to(device).expand(*shape, -1), randomness)

    def tau(self, s: float | Tensor, t: float | Tensor) -> Tau:
        """B(s, t): how far the clock of the process runs from time s to time t."""
        return self.schedule.integral(s, t)

    def speed(self, t: Times, dtype: torch.dtype) -> Float[Tensor, "batch 1 1"]:
        """beta(t), which turns rates per tau into rates per time."""
        return self.schedule.rate(t).to(dtype)[:, None, None]


@runtime_checkable
class Undoable(Protocol):
    """A process whose noise can be undone in closed form."""

    def pull_by(self, p: Laws, tau: Tau) -> Laws:
        """The law whose push by tau is p, up to a factor. If p is not a push, negative values become 0."""
