"""Processes given by a rate matrix, for up to a few thousand states: transitions by float64 linear algebra.

A reversible Q (pi_i Q_ij = pi_j Q_ji for its stationary law pi) is similar to a symmetric matrix,
diag(sqrt pi) Q diag(1 / sqrt pi) = U diag(lambda) U', which is diagonalised once. Any other Q uses the matrix
exponential, which is cached for the times of a sampling grid.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm._precision import full_precision
from sddm.config import as_float64
from sddm.processes.base import Process
from sddm.schedules import Schedule
from sddm.shapes import Laws, Tau, Tokens

REMEMBERED_ELEMENTS = 1 << 23
"""How many float64 numbers of matrix exponentials are kept (64 MiB)."""
GRID_TIMES = 16
"""A call with at most this many distinct times counts as a step of a sampling grid, and is cached."""


class DenseProcess(Process):
    """A process with rate matrix Q (row = from). Subclasses make the matrix; `CustomRate` takes one of your own."""

    def __init__(
        self,
        rate_matrix: Float64[Tensor, "symbols symbols"],
        schedule: Schedule,
        prior: Float64[Tensor, "symbols"] | None = None,
    ) -> None:
        self.schedule = _checks.instance(schedule, Schedule, "schedule")
        self.rate_matrix = rate_matrix
        self.num_states = rate_matrix.shape[0]
        stationary = stationary_law(rate_matrix)
        law = stationary if prior is None else prior
        if law is None:
            raise ValueError(
                "rate_matrix has more than one stationary law (some states cannot reach each other), so the law at T "
                "depends on the data. Pass prior=, the law to start sampling from."
            )
        self._prior_law = law
        self._modes: tuple[Tensor, Tensor, Tensor] | None = None
        if stationary is not None and is_reversible(rate_matrix, stationary):
            root = stationary.sqrt()
            symmetric = root[:, None] * rate_matrix / root
            values, vectors = torch.linalg.eigh((symmetric + symmetric.T) / 2)
            self._modes = (values.clamp(max=0), vectors / root[:, None], vectors.T * root)
            decay = -values
        else:
            decay = -torch.linalg.eigvals(rate_matrix).real
        slow = decay[decay > 1e-9 * decay.max()]
        self.gap = float(slow.min())
        self._remembered: OrderedDict[float, Tensor] = OrderedDict()

    @property
    def is_reversible(self) -> bool:
        """Whether the matrix was diagonalised, rather than exponentiated anew for each time."""
        return self._modes is not None

    def prior_law(self) -> Float64[Tensor, "symbols"]:
        return self._prior_law

    def transition_by(self, tau: Tau) -> Float64[Tensor, "batch symbols symbols"]:
        distinct, where = torch.unique(tau, return_inverse=True)
        if self._modes is not None:
            values, left, right = (m.to(tau.device) for m in self._modes)
            transitions = torch.einsum("is,bs,sj->bij", left, torch.exp(distinct[:, None] * values), right)
            # Rounding leaves entries of -1e-17; probabilities are not negative.
            return transitions.clamp_min_(0)[where]
        if len(distinct) > GRID_TIMES:  # times drawn at random do not repeat
            Q = self.rate_matrix.to(tau.device)
            return torch.linalg.matrix_exp(distinct[:, None, None] * Q).clamp_min_(0)[where]
        return torch.stack([self._exponential(float(d)) for d in distinct]).to(tau.device)[where]

    def _exponential(self, tau: float) -> Float64[Tensor, "symbols symbols"]:
        if tau in self._remembered:
            self._remembered.move_to_end(tau)
            return self._remembered[tau]
        # for one matrix of small norm torch 2.13 has an error of 3e-11, for two of them 1e-14
        transition = torch.linalg.matrix_exp(tau * self.rate_matrix.expand(2, -1, -1))[0].clamp_min(0)
        self._remembered[tau] = transition
        while len(self._remembered) * transition.numel() > REMEMBERED_ELEMENTS and len(self._remembered) > 1:
            self._remembered.popitem(last=False)
        return transition

    def push_by(self, p: Laws, tau: Tau) -> Laws:
        return _multiplied(p, self.transition_by(tau).to(p.dtype))

    def law_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        return _rows(self.transition_by(tau).to(dtype), x)

    def likelihood_by(self, x: Tokens, tau: Tau, dtype: torch.dtype) -> Laws:
        return _rows(self.transition_by(tau).to(dtype).mT, x)

    def rates_into(self, x: Tokens, dtype: torch.dtype) -> Laws:
        return self._off_diagonal(x.device, dtype).T[x]

    def rates_out_of(self, x: Tokens, dtype: torch.dtype) -> Laws:
        return self._off_diagonal(x.device, dtype)[x]

    def flow_into(self, p: Laws) -> Laws:
        return _multiplied(p, self._off_diagonal(p.device, p.dtype))

    def exit_rates(self, dtype: torch.dtype) -> Float[Tensor, "symbols"]:
        return -self.rate_matrix.diagonal().to(dtype)

    def _off_diagonal(self, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "symbols symbols"]:
        return (self.rate_matrix - torch.diag(self.rate_matrix.diagonal())).to(device, dtype)


def _multiplied(p: Laws, matrices: Tensor) -> Laws:
    with full_precision(p.device):
        return p @ matrices


def _rows(matrices: Float[Tensor, "batch symbols symbols"], x: Tokens) -> Tensor:
    return matrices[torch.arange(x.shape[0], device=x.device)[:, None], x]


def stationary_law(rate_matrix: Float64[Tensor, "symbols symbols"]) -> Float64[Tensor, "symbols"] | None:
    """The law pi with pi Q = 0, or None if there is more than one."""
    _, sizes, directions = torch.linalg.svd(rate_matrix.T)
    if sizes[-2] < 1e-12 * sizes[0]:
        return None
    law = directions[-1] / directions[-1].sum()
    law = torch.where(law.abs() < 1e-14, 0, law).clamp_min(0)
    return law / law.sum()


def is_reversible(rate_matrix: Float64[Tensor, "symbols symbols"], stationary: Float64[Tensor, "symbols"]) -> bool:
    """Detailed balance, pi_i Q_ij = pi_j Q_ji, with every pi_i large enough to divide by its root."""
    flow = stationary[:, None] * rate_matrix
    balanced = torch.allclose(flow, flow.T, rtol=1e-9, atol=1e-14 * float(flow.abs().max()))
    return balanced and float(stationary.min()) > 1e-8 * float(stationary.max())


def with_diagonal(off_diagonal: Float64[Tensor, "symbols symbols"]) -> Float64[Tensor, "symbols symbols"]:
    """Complete non-negative rates to a rate matrix: the diagonal makes each row sum to zero."""
    rates = off_diagonal - torch.diag(off_diagonal.diagonal())
    return rates - torch.diag(rates.sum(1))


class CustomRate(DenseProcess):
    """Any rate matrix Q, reversible or not, row = from:  Q_ij >= 0 for i != j and each row sums to 0.

    The prior is the stationary law of Q unless another law is given.
    """

    def __init__(
        self, rate_matrix: Tensor | list[list[float]], schedule: Schedule, prior: Tensor | list[float] | None = None
    ) -> None:
        Q = check_rate_matrix(as_float64(rate_matrix, "rate_matrix"))
        self._prior = None if prior is None else as_float64(prior, "prior")
        super().__init__(Q, schedule, None if self._prior is None else _checks.law(self._prior, len(Q), "prior"))


def check_rate_matrix(Q: Tensor) -> Float64[Tensor, "symbols symbols"]:
    """Raise an error that says why a matrix is not a rate matrix."""
    require = _checks.require
    require(Q.ndim == 2 and Q.shape[0] == Q.shape[1], f"rate_matrix must be square, but it has shape {tuple(Q.shape)}.")
    require(Q.shape[0] >= 2, "rate_matrix must have at least 2 states.")
    require(bool(torch.isfinite(Q).all()), "rate_matrix holds NaN or infinite values.")
    off = Q - torch.diag(Q.diagonal())
    i, j = divmod(int(off.argmin()), Q.shape[0])
    require(
        bool((off >= 0).all()),
        f"rate_matrix must not be negative off the diagonal, but the rate from {i} to {j} is {float(Q[i, j]):g}.",
    )
    require(bool((off > 0).any()), "rate_matrix is zero: nothing would ever change. Give some rates above 0.")
    excess = Q.sum(1).abs()
    worst = int(excess.argmax())
    require(
        bool(excess.max() <= Q.shape[0] * torch.finfo(torch.float32).eps * Q.abs().max()),
        f"rate_matrix must have rows that sum to 0, but row {worst} sums to {float(Q[worst].sum()):g}. "
        "Set the diagonal to minus the sum of the other entries.",
    )
    return with_diagonal(Q)  # a matrix given in float32 is off by its rounding
