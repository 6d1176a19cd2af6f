"""The forward chains of D3PM (Austin et al., NeurIPS 2021): N steps with transition matrices Q_1 ... Q_N, as processes.

A chain moves at the times 1/N, 2/N, ..., 1 only. At time t it has made floor(N t) steps, so that

    P_{s->t} = Q_{floor(N s) + 1} ... Q_{floor(N t)}.

So the library can treat a chain of D3PM as a process. The uniform and the absorbing chain are the
processes of the same name on a clock that jumps, because all their matrices are functions of the share of the data
that is left. The matrices of the Gaussian chain do not commute, and their products are looked up.

Q_k as in the paper and in the code that its authors released:

    uniform     (1 - beta_k) I + beta_k / C 11',   with shares cos((k/N + 0.008) / 1.008 * pi/2) and beta_k <= 0.999
    absorbing   to MASK with probability beta_k = 1 / (N - k + 1), so that the share 1 - k/N is left
    Gaussian    from i to j != i in proportion to exp(-4 (i - j)^2 / ((C - 1)^2 beta_k)), with beta_k from 1e-4 to 0.02
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, reduce

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm._precision import full_precision
from sddm.processes import Absorbing, Process, Uniform
from sddm.schedules import Schedule
from sddm.shapes import Laws, Tau, Times, Tokens

STEPS = 1000
"""N, as in the paper's experiments."""
MOST_STEPS = 100_000
"""A number of steps above which a typing error is more likely than intent."""
OFFSET, LARGEST_BETA = 0.008, 0.999
FIRST_BETA, LAST_BETA = 1e-4, 0.02
"""Of the Gaussian chain of 1000 steps. Those of N steps are 1000/N times as large, so that all have the same noise."""
ROUNDING = 0.01
"""A time that is before k/N by less than this share of a step counts as k/N: float32 may have rounded it."""
NO_RATES = (
    "A chain of D3PM moves in steps, so that it has no rates. Use the analytical step and its own bound, or a process "
    "in continuous time."
)


class Staircase(Schedule):
    """B(0, t) = -scale log a_k with k = floor(N t): the clock of a chain that leaves the share a_k after k steps."""

    def __init__(self, shares: Float64[Tensor, "points"], scale: float = 1.0) -> None:
        self.shares, self.scale = shares, _checks.positive(scale, "scale")
        self._clock = -scale * shares.log()

    def rate(self, t: float | Tensor) -> Float64[Tensor, "*shape"]:
        raise ValueError(NO_RATES)

    def primitive(self, t: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return self._clock.to(t.device)[steps_made(t, len(self.shares) - 1)]

    def integral(self, s: float | Tensor, t: float | Tensor) -> Float64[Tensor, "*shape"]:
        start, end = (self.primitive(torch.as_tensor(time, dtype=torch.float64)) for time in (s, t))
        return torch.where(start == end, 0, end - start)  # both may be infinite

    def scaled(self, factor: float) -> Staircase:
        return Staircase(self.shares, self.scale * _checks.positive(factor, "factor"))


def steps_made(t: Float64[Tensor, "*shape"], steps: int) -> Int[Tensor, "*shape"]:
    """How many of its steps a chain has made at time t."""
    return (t * steps + ROUNDING).floor().long()


class Chain(Process):
    """A process that makes `steps` steps, at the times 1/N, 2/N, ..., 1."""

    steps: int

    def number(self, t: Float64[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """How many steps it has made at time t."""
        return steps_made(t, self.steps)

    def before(self, t: Times) -> Times:
        """The time one step earlier."""
        return (self.number(t) - 1).double() / self.steps

    def grid(self, steps: int) -> Float64[Tensor, "times"]:
        """The times of `steps` of the chain's own steps, as equally far apart as can be; at most all of them."""
        steps = min(_checks.whole(steps, "steps", 1), self.steps)
        return torch.linspace(self.steps, 0, steps + 1, dtype=torch.float64).round() / self.steps


class UniformChain(Chain, Uniform):
    """With probability beta_k a step replaces a token by one drawn uniformly, by the cosine schedule."""

    def __init__(self, num_states: int, steps: int = STEPS) -> None:
        self.steps = _checks.whole(steps, "steps", 1, MOST_STEPS)
        Uniform.__init__(self, num_states, Staircase(cosine_shares(steps), 1 / num_states))


class AbsorbingChain(Chain, Absorbing):
    """A step hides each token that is still seen with probability 1 / (N - k + 1), so that the last one hides all."""

    def __init__(self, num_states: int, steps: int = STEPS) -> None:
        self.steps = _checks.whole(steps, "steps", 1, MOST_STEPS)
        Absorbing.__init__(self, num_states, Staircase(1 - torch.arange(steps + 1, dtype=torch.float64) / steps))


def cosine_shares(steps: int) -> Float64[Tensor, "points"]:
    """The share of the data that is left after each number of steps, by the schedule of Hoogeboom et al. (2021)."""
    at = torch.arange(steps + 1, dtype=torch.float64) / steps
    aimed = torch.cos((at + OFFSET) / (1 + OFFSET) * math.pi / 2)
    betas = (1 - aimed[1:] / aimed[:-1]).clamp(max=LARGEST_BETA)
    return F.pad((1 - betas).cumprod(0), (1, 0), value=1.0)


class GaussianChain(Chain):
    """Steps of a Gaussian size between ordered states: the discretized Gaussian chain.

    Its matrices do not commute, so that no length of time says what the product over an interval is. On its clock,
    tau(s, t) is the number of the interval instead, s (N + 1) + t in steps, by which the product is looked up.

    The products from 0 on take 8 (N + 1) C^2 bytes. They are made once for all chains of the same size.
    """

    ordinal = True
    gap = 1.0

    def __init__(self, num_states: int, steps: int = STEPS) -> None:
        self.num_states = _checks.whole(num_states, "num_states", 2)
        self.steps = _checks.whole(steps, "steps", 1, MOST_STEPS)
        # The mean probability that a state stays, beyond that of a uniform draw. For a uniform chain this is the share.
        stays = gaussian_products(num_states, steps).diagonal(dim1=1, dim2=2).mean(1)
        shares = (stays - 1 / num_states) / (1 - 1 / num_states)
        self.schedule = Staircase(shares.clamp(min=torch.finfo(torch.float64).tiny))

    def tau(self, s: float | Tensor, t: float | Tensor) -> Tau:
        start, end = (self.number(torch.as_tensor(time, dtype=torch.float64)) for time in (s, t))
        return (start * (self.steps + 1) + end).double()

    def remaining(self, t: Float[Tensor, "batch"]) -> Float64[Tensor, "batch"]:
        return torch.exp(-self.schedule.integral(0.0, _checks.times(t, None, "t")))

    def transition_by(self, tau: Tau) -> Float64[Tensor, "batch symbols symbols"]:
        intervals, where = tau.long().cpu().unique(return_inverse=True)
        products = [self._product(*divmod(interval, self.steps + 1)) for interval in intervals.tolist()]
        return torch.stack(products)[where].to(tau.device)

    def _product(self, start: int, end: int) -> Float64[Tensor, "symbols symbols"]:
        """Q_{start + 1} ... Q_end."""
        if start == 0:
            return gaussian_products(self.num_states, self.steps)[end]
        kernels = gaussian_kernels(self.num_states, self.steps)[start:end]
        return reduce(torch.matmul, map(gaussian_matrix, kernels), torch.eye(self.num_states, dtype=torch.float64))

    def prior_law(self) -> Float64[Tensor, "symbols"]:
        return torch.full((self.num_states,), 1 / self.num_states, dtype=torch.float64)

    def push_by(self, p: Laws, tau: Tau) -> Laws:
        with full_precision(p.device):
            return p @ self.transition_by(tau).to(p.dtype)

    def law_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        return self.transition_by(tau).to(dtype)[torch.arange(len(x), device=x.device)[:, None], x]

    def likelihood_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        return self.transition_by(tau).to(dtype).mT[torch.arange(len(x), device=x.device)[:, None], x]

    def rates_into(self, x: Tokens, dtype: torch.dtype) -> Laws:
        raise ValueError(NO_RATES)

    def rates_out_of(self, x: Tokens, dtype: torch.dtype) -> Laws:
        raise ValueError(NO_RATES)

    def flow_into(self, p: Laws) -> Laws:
        raise ValueError(NO_RATES)

    def exit_rates(self, dtype: torch.dtype) -> Float[Tensor, "symbols"]:
        raise ValueError(NO_RATES)


def gaussian_kernels(num_states: int, steps: int) -> Float64[Tensor, "steps states"]:
    """The probability of each step to go a distance of 0 .. C - 1, one way, on a line without ends."""
    betas = STEPS / steps * torch.linspace(FIRST_BETA, LAST_BETA, steps, dtype=torch.float64)
    distance = torch.arange(num_states, dtype=torch.float64)
    weights = torch.exp(-4 * distance**2 / ((num_states - 1) ** 2 * betas[:, None]))
    return weights / (2 * weights.sum(1, keepdim=True) - 1)  # distance 0 is there once, any other one in two directions


def gaussian_matrix(kernel: Float64[Tensor, "states"]) -> Float64[Tensor, "states states"]:
    """Q(i, j) = kernel[|i - j|] for i != j; the diagonal makes each row sum to 1."""
    level = torch.arange(len(kernel))
    matrix = kernel[(level[:, None] - level).abs()].fill_diagonal_(0)
    return matrix + torch.diag(1 - matrix.sum(1))


@lru_cache(maxsize=2)
def gaussian_products(num_states: int, steps: int) -> Float64[Tensor, "points states states"]:
    """I, Q_1, Q_1 Q_2, ..., Q_1 ... Q_N."""
    products = torch.empty(steps + 1, num_states, num_states, dtype=torch.float64)
    products[0] = torch.eye(num_states, dtype=torch.float64)
    for k, kernel in enumerate(gaussian_kernels(num_states, steps)):
        torch.matmul(products[k], gaussian_matrix(kernel), out=products[k + 1])
    return products


CHAINS: dict[str, Callable[[int, int], Chain]] = {
    "uniform": UniformChain,
    "absorbing": AbsorbingChain,
    "gaussian": GaussianChain,
}
"""The chains by name, each made from its number of states and of steps."""
