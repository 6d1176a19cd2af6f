"""The continuous-time bound on -log p(x_0), in nats, with a standard error.

    -log p(x_0)  <=  KL(q_{T|0}(. | x_0) || p_T)  +  integral over t of  E_{x_t | x_0} [ sum_d ct_elbo_d(x_t, t) ]

p_T is the law that sampling starts from. The integral is estimated at times stratified over [0, T].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm._modes import evaluating
from sddm.diffusion import Diffusion
from sddm.losses import ct_elbo
from sddm.processes import HORIZON
from sddm.randomness import Stream
from sddm.samplers.ends import start_log_law


class Bound(NamedTuple):
    """An upper bound on -log p(x_0) in nats for each row of x_0, and the standard error of its estimate."""

    nats: Float64[Tensor, "batch"]
    standard_error: Float64[Tensor, "batch"]
    dim: int

    @property
    def mean(self) -> tuple[float, float]:
        """The mean over the rows, and the standard error of the estimate of that mean (for these rows)."""
        return float(self.nats.mean()), float(self.standard_error.square().sum().sqrt()) / len(self.nats)

    @property
    def bits_per_dim(self) -> tuple[float, float]:
        """The mean in bits per position, and its standard error."""
        mean, error = self.mean
        return mean / self.dim / math.log(2), error / self.dim / math.log(2)


def bound(
    diffusion: Diffusion,
    x0: Int[Tensor, "batch dim"],
    num_times: int = 128,
    *,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Bound:
    """Estimate the bound for each row of x_0, with `num_times` (an even number) stratified times a row."""
    _checks.instance(diffusion, Diffusion, "diffusion")
    x0 = _checks.tokens(x0, diffusion.process.num_states, "x0", length=diffusion.length, device=diffusion.device)
    _checks.whole(num_times, "num_times", 2)
    _checks.require(
        num_times % 2 == 0, f"num_times must be even, but it is {num_times}: times are paired for the error."
    )
    _checks.whole(batch_size, "batch_size", 1)
    _checks.generator(generator)
    with evaluating(diffusion), torch.inference_mode():
        integral, error = _integral(diffusion, x0, num_times, generator, batch_size)
        return Bound(_prior_divergence(diffusion, x0) + integral, error, x0.shape[1])


def _integral(
    diffusion: Diffusion, x0: Tensor, num_times: int, generator: torch.Generator | None, batch_size: int
) -> tuple[Float64[Tensor, "batch"], Float64[Tensor, "batch"]]:
    batch = x0.shape[0]
    u = Stream(generator).uniform((batch, num_times), x0.device)
    times = (torch.arange(num_times, device=x0.device) + u) / num_times
    rows = x0.repeat_interleave(num_times, dim=0)
    values = [
        ct_elbo(diffusion, some, t=t, generator=generator).double().sum(-1)
        for some, t in zip(rows.split(batch_size), times.reshape(-1).split(batch_size), strict=True)
    ]
    strata = torch.cat(values).reshape(batch, num_times)
    # Strata hold one draw each. The squared difference of two neighbours estimates the sum of their variances, plus the
    # square of the difference of their means: an error bar that is right to first order and never too small on average.
    differences = strata[:, 0::2] - strata[:, 1::2]
    return HORIZON * strata.mean(1), HORIZON * differences.square().sum(1).sqrt() / num_times


def _prior_divergence(diffusion: Diffusion, x0: Tensor) -> Float64[Tensor, "batch"]:
    """KL(q_{T|0}(. | x_0) || p_T), summed over the positions."""
    process = diffusion.process
    end = torch.full((x0.shape[0],), HORIZON, dtype=torch.float64, device=x0.device)
    law = process.law_by(x0, process.tau(0.0, end), torch.float64)
    log_prior = start_log_law(diffusion, x0.shape[1]).double()
    return torch.where(law > 0, law * (law.log() - log_prior), 0).sum((-2, -1))
