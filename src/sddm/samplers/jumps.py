"""Reverse rates, and the ways to jump by given hazards (rate times duration) in all positions at once."""

from __future__ import annotations

import torch
from torch import Tensor

from sddm.diffusion import Diffusion
from sddm.marginals import Marginals
from sddm.processes import Process
from sddm.query import Query
from sddm.randomness import Randomness, categorical
from sddm.shapes import Asked, AskedLaws, Laws, Tau, Tokens

LARGEST_LOG_RATIO = 60.0
"""Ratios p(y)/p(x) above e^60 count as e^60: such a jump is certain in both cases, and float32 stays finite."""


def reverse_rates(diffusion: Diffusion, query: Query) -> AskedLaws:
    """R(x -> y at d) = Q(y, x^d) p_t(y | x^{\\d}) / p_t(x^d | x^{\\d}), with 0 at y = x^d: the reverse rates per tau.

    A step from t to s takes the time tau(s, t) on that clock, so that its hazards are tau(s, t) R. Times beta(t) they
    would be rates per time, but beta changes within a step, and changes much where a schedule is steep.
    """
    return rates_by(diffusion.process, diffusion(query), query.here)


def rates_by(process: Process, marginals: Marginals, here: Asked) -> AskedLaws:
    """The reverse rates of positions that hold `here`, by these marginals."""
    return process.times_rates_into(ratios(marginals.log_xt, here), here)


def ratios(log_p: Laws, x: Tokens) -> Tensor:
    """p(y) / p(x) for every y. An impossible x has the smallest probability of its dtype, since 0 / 0 would be NaN."""
    here = log_p.gather(-1, x[..., None]).clamp_(min=torch.finfo(log_p.dtype).min)
    return (log_p - here).clamp_(max=LARGEST_LOG_RATIO).exp_()


def over(tau: Tau, rates: AskedLaws) -> Tensor:
    """The hazards of these rates over a time tau on the clock. Works in place."""
    return rates.mul_(tau.to(rates.dtype)[:, None, None])


def or_stay(weights: Laws, x: Tokens) -> Laws:
    """Where all weights are 0 (the model says that x is impossible), all weight is on x. Works in place."""
    stuck = (weights.sum(-1, keepdim=True) == 0).to(weights.dtype)
    return weights.scatter_add_(-1, x[..., None], stuck)


def euler_weights(x: Tokens, hazard: Laws) -> Laws:
    """Jump to y with weight hazard[y], and stay with the rest, which is at least 0. Works in place."""
    stay = (1 - hazard.sum(-1, keepdim=True)).clamp_(min=0)
    return hazard.scatter_(-1, x[..., None], stay)


def single_leap(x: Tokens, hazard: Laws, randomness: Randomness) -> Tokens:
    """Poisson counts of jumps with these means. A position that would jump more than once stays.

    So y is reached with probability hazard[y] exp(-total) and x kept with 1 - total exp(-total): one categorical draw.
    Overwrites hazard.
    """
    total = hazard.sum(-1, keepdim=True)
    once = torch.exp(-total)
    # total * exp(-total) is at most 1/e, so that staying always has positive probability
    weights = hazard.mul_(once).scatter_(-1, x[..., None], 1 - total * once)
    return categorical(weights, randomness)


def summed_leap(x: Tokens, hazard: Laws, randomness: Randomness) -> Tokens:
    """Poisson counts of jumps with these means. Their distances add up, within the range. For ordered states."""
    # A jump of 1e9 leaves the range in any case, and the count fits an integer.
    counts = randomness.poisson(hazard.clamp(max=1e9))
    level = torch.arange(hazard.shape[-1], dtype=hazard.dtype, device=x.device)
    moved = x + (counts * (level - x[..., None])).sum(-1)
    return moved.clamp(0, hazard.shape[-1] - 1).round().long()
