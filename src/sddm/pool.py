"""Targets of less noise: what a pool of data says of a position of a noised row.

A noised row x_t comes from one row of the pool, and any of them may have been it: row X_i with the weight

    w_i  proportional to  prod_d q_{t|0}(x_t^d | X_i^d),      p(x_0^d = c | x_t) = sum of w_i over rows with X_i^d = c.

In a loss that is linear in its target, as cross entropies are, this law can stand for the one row that x_t did come
from: it is the mean over all rows that it may have come from, so that by the tower rule the loss keeps its mean, and
with it its minimiser, whatever the size of the pool. Under much noise many rows share the weight, and the target loses
its noise; under little noise one row has it all, and nothing changes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sddm import _checks
from sddm._precision import full_precision
from sddm.processes import Process
from sddm.shapes import Asked, AskedLaws, Laws, Times, Tokens

CHUNK_ELEMENTS = 1 << 23
"""How many weights (rows times rows of the pool) are held at once."""
LEAST_LOG_WEIGHT = -60.0
"""Relative to the largest. Processors take twenty times as long for e^u where it is hardly a number any more."""
LEAST_LIKELIHOOD = 1e-12
"""Less likely tokens count as this likely, in the weights and in dividing by it, so that t = 0 is no exception."""


def posterior(process: Process, xt: Tokens, t: Times, pool: Int[Tensor, "pool dim"]) -> Laws:
    """p(x_0^d = c | x_t), if x_0 is a row of the pool: two matrix multiplies with one-hot rows."""
    hot = F.one_hot(pool, process.num_symbols).flatten(1).to(torch.get_default_dtype())
    rows = max(1, CHUNK_ELEMENTS // len(pool))
    pieces = zip(xt.split(rows), t.split(rows), strict=True)
    return torch.cat([_posterior(_likelihood(process, x, s, hot.dtype), hot) for x, s in pieces])


def check_process(process: Process) -> None:
    """A token that rules out all values of x_0 but one cannot be divided out again."""
    _checks.require(
        process.prior_covers_all,
        f"pool needs a process under which every value can become every other, but {type(process).__name__} has "
        "values that only stay or become MASK. Leave out the pool, or use Uniform.",
    )


def without_own_token(process: Process, law: AskedLaws, xt: Asked, t: Times) -> AskedLaws:
    """p(x_0^d | x_t^{\\d}) from p(x_0^d | x_t): proportional to p(x_0^d | x_t) / q_{t|0}(x_t^d | x_0^d)."""
    law = law / _likelihood(process, xt, t, law.dtype)
    return law / law.sum(-1, keepdim=True)


def _likelihood(process: Process, xt: Asked, t: Times, dtype: torch.dtype) -> AskedLaws:
    """q_{t|0}(x_t^d | c) for every c."""
    return process.likelihood_by(xt, process.tau(0.0, t), dtype).clamp_min(LEAST_LIKELIHOOD)


def _posterior(likelihood: Laws, hot: Float[Tensor, "pool features"]) -> Laws:
    with full_precision(hot.device):
        weights = likelihood.log().flatten(1) @ hot.T
        weights.sub_(weights.amax(dim=1, keepdim=True)).clamp_(min=LEAST_LOG_WEIGHT).exp_()
        law = (weights @ hot).view_as(likelihood)
    return law / law.sum(-1, keepdim=True)
