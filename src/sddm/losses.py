"""Training losses. Each takes a diffusion and a batch of data and returns values of shape (batch, dim).

The sum over positions is, in expectation, the loss of the paper. Given positions (`given`) stay clean and hold 0.
When only some positions are evaluated (`num_positions`), the others hold 0 and these are scaled up, so that the sum
over dim is unbiased whatever was evaluated. Times are stratified over the batch unless they are passed in.

    loss = conditional_ratio_matching(diffusion, x0).sum(-1).mean()
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm._precision import full_precision
from sddm.diffusion import Diffusion
from sddm.marginals import Marginals
from sddm.networks.chunks import in_chunks
from sddm.noising import Batch, NoisedBatch, noise_batch
from sddm.pool import without_own_token
from sddm.processes import Process
from sddm.query import Query, at_positions
from sddm.randomness import CHUNK_ELEMENTS
from sddm.shapes import Asked, AskedLaws, Times, Tokens

TimeWeight = Callable[[Float64[Tensor, "batch"]], Tensor]
"""A weight for each time: (batch,) -> (batch,)."""


@dataclass(frozen=True)
class Noised:
    """A batch of data at its times of noise, with what the model says of it at the evaluated positions."""

    process: Process
    t: Times
    x0: Asked
    xt: Asked
    marginals: Marginals
    sees_own_token: bool
    posterior: AskedLaws | None = None
    """p(x_0^d | x_t) by a pool of data, which stands for the x_0^d that was noised."""

    def forbid_own_token(self, loss: str) -> None:
        """Refuse a model whose prediction at d looks at x_t^d: it would learn to copy what it should predict."""
        if self.sees_own_token:
            raise ValueError(
                f"{loss} needs a model whose prediction at d does not look at x_t^d, but this one does. "
                "Train it with denoising_cross_entropy or ct_elbo."
            )

    def forbid_pool(self, loss: str) -> None:
        """Refuse a pool where the loss is not linear in the law of x_0^d."""
        if self.posterior is not None:
            raise ValueError(
                f"{loss} cannot take its mean over a pool. Leave out the pool, or use conditional_ratio_matching."
            )


class Loss:
    """A loss, from the function that gives its value at each evaluated position of a noised batch."""

    def __init__(self, value: Callable[[Noised], Float[Tensor, "batch num"]]) -> None:
        self.value = value
        functools.update_wrapper(self, value)

    def __call__(
        self,
        diffusion: Diffusion,
        x0: Tokens,
        *,
        t: Float[Tensor, "batch"] | None = None,
        xt: Tokens | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
        num_positions: int | None = None,
        pool: Int[Tensor, "pool dim"] | None = None,
        weight: TimeWeight | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """Values of shape (batch, dim); see the head of this file.

        t: times in [0, T], stratified over the batch if not given.    xt: the noised data, drawn if not given.
        given: positions that stay clean and count 0.              padding: positions that do not exist; count 0.
        num_positions: how many to evaluate; all if None.              weight: a weight for each time.
        pool: rows of data, x0 among them, over which the target is averaged (see `sddm.pool`); for cross entropies.
        generator: the source of every draw.
        """
        noised = noise_batch(
            diffusion,
            Batch(x0, given, padding),
            t=t,
            xt=xt,
            num_positions=num_positions,
            pool=pool,
            generator=generator,
        )
        return self.at(diffusion, noised, weight)

    def at(
        self, diffusion: Diffusion, batch: NoisedBatch, weight: TimeWeight | None = None
    ) -> Float[Tensor, "batch dim"]:
        """The values on a batch that is noised already."""
        query = batch.query
        x0, seen = at_positions(batch.x0, query.positions), diffusion.model.sees_own_token
        noised = Noised(diffusion.process, query.t, x0, query.here, diffusion(query), seen, batch.posterior)
        with full_precision(x0.device):
            values = self.value(noised)
            if weight is not None:
                values = values * _weights(weight, query.t).to(values.dtype)[:, None]
        return _spread(values, query)


def _weights(weight: TimeWeight, t: Times) -> Tensor:
    if not callable(weight):
        raise TypeError(f"weight must be a function of the times, but it is a {type(weight).__name__}.")
    weights = _checks.tensor(weight(t), "The result of weight")
    _checks.require(
        weights.shape == t.shape,
        f"weight must give one number for each of the {len(t)} times, but it gave shape {tuple(weights.shape)}.",
    )
    return weights


@Loss
def ratio_matching(noised: Noised) -> Float[Tensor, "batch num"]:
    """- log p_t(x_t^d | x_t^{\\d}), categorical ratio matching (the paper's Proposition 3.4)."""
    noised.forbid_own_token("ratio_matching")
    noised.forbid_pool("ratio_matching")
    return -noised.marginals.log_xt.gather(-1, noised.xt[..., None]).squeeze(-1)


@Loss
def conditional_ratio_matching(noised: Noised) -> Float[Tensor, "batch num"]:
    """- sum_c q_{t|0}(c | x_0^d) log p_t(c | x_t^{\\d}): ratio matching with the draw of x_t^d replaced by its mean.

    Given x_0, x_t^d is independent of x_t^{\\d}, and the prediction at d does not look at x_t^d. So this has the mean
    and the minimiser of `ratio_matching`, and less variance.
    """
    noised.forbid_own_token("conditional_ratio_matching")
    process, tau, log_xt = noised.process, noised.process.tau(0.0, noised.t), noised.marginals.log_xt
    if noised.posterior is not None:
        return -_mean(log_xt, process.push_by(without_own_token(process, noised.posterior, noised.xt, noised.t), tau))
    return -process.expected_by(noised.x0, tau, log_xt)


@Loss
def x0_cross_entropy(noised: Noised) -> Float[Tensor, "batch num"]:
    """- log p_{0|t}(x_0^d | x_t^{\\d}), for models that predict x_0."""
    noised.forbid_own_token("x0_cross_entropy")
    log_x0 = noised.marginals.require_x0("x0_cross_entropy")
    if noised.posterior is not None:
        return -_mean(log_x0, without_own_token(noised.process, noised.posterior, noised.xt, noised.t))
    return -log_x0.gather(-1, noised.x0[..., None]).squeeze(-1)


@Loss
def denoising_cross_entropy(noised: Noised) -> Float[Tensor, "batch num"]:
    """- log p(x_0^d | x_t), the loss of an ordinary denoiser, which sees x_t^d as well. By Bayes' rule

    p(x_0^d | x_t)  is proportional to  p_{0|t}(x_0^d | x_t^{\\d}) q_{t|0}(x_t^d | x_0^d).
    """
    log_x0 = noised.marginals.require_x0("denoising_cross_entropy")
    process = noised.process
    likelihood = process.likelihood_by(noised.xt, process.tau(0.0, noised.t), log_x0.dtype)
    log_posterior = torch.log_softmax(log_x0 + likelihood.log(), dim=-1)
    if noised.posterior is not None:
        return -_mean(log_posterior, noised.posterior)
    return -log_posterior.gather(-1, noised.x0[..., None]).squeeze(-1)


@Loss
def ct_elbo(noised: Noised) -> Float[Tensor, "batch num"]:
    """The integrand of the continuous-time bound on - log p(x_0):  E sum_{y != x} [R - R^ + R^ log(R^ / R)],

    where R is the model's reverse rate from x = x_t^d to y and R^ = Q_t(y, x) q(y) / q(x), with q = q_{t|0}(. | x_0^d),
    the reverse rate given x_0. As in `conditional_ratio_matching` the expectation over x_t^d is taken exactly, because
    the prediction at d does not look at x_t^d. (Drawn instead, it has no finite variance: R^ is of order 1/t, with
    probability t.) With p = p_t(. | x_t^{\\d}) and f = log(q / p) it is

        sum_{x != y} Q_t(y, x) [ q(x) p(y) / p(x)  -  q(y)  +  q(y) (f(y) - f(x)) ].
    """
    noised.forbid_pool("ct_elbo")
    value = _ct_elbo_at_drawn_token if noised.sees_own_token else _ct_elbo
    source, push = noised.marginals.unpushed()

    def some(x0: Tensor, xt: Tensor, source: Tensor) -> Tensor:
        return value(noised.process, noised.t, x0, xt, push(source))

    at_once = max(1, CHUNK_ELEMENTS // 4 // (source.shape[0] * source.shape[2]))
    return in_chunks(some, (noised.x0, noised.xt, source), at_once, dim=1)


def _mean(values: AskedLaws, law: AskedLaws) -> Float[Tensor, "batch num"]:
    """The mean of values under a law; where it has no weight, values may be infinite."""
    return torch.where(law > 0, law.to(values.dtype) * values, 0).sum(-1)


def _ct_elbo(process: Process, t: Times, x0: Asked, xt: Asked, log_p: AskedLaws) -> Float[Tensor, "batch num"]:
    q = process.law_by(x0, process.tau(0.0, t), log_p.dtype)
    possible = q > 0
    f = torch.where(possible, q.log() - log_p, 0)
    exits = process.exit_rates(log_p.dtype).to(log_p.device)
    into, from_q = process.flow_into(log_p.exp()), process.flow_into(q)
    backwards = torch.where(possible & (into > 0), f.exp() * into, 0)
    forwards = torch.where(exits > 0, q * exits * (f - 1), 0)
    arrivals = torch.where(from_q > 0, from_q * f, 0)
    return process.speed(t, log_p.dtype)[..., 0] * (backwards + forwards - arrivals).sum(-1)


def _ct_elbo_at_drawn_token(
    process: Process, t: Times, x0: Asked, xt: Asked, log_p: AskedLaws
) -> Float[Tensor, "batch num"]:
    """sum_{y != x} [R - R^ + R^ log(R^ / R)] at the x_t^d that was drawn, for models that look at it."""
    log_model = log_p - log_p.gather(-1, xt[..., None])  # log of R / Q_t(y, x)
    law = process.law_by(x0, process.tau(0.0, t), log_p.dtype)
    truth = law / law.gather(-1, xt[..., None])  # R^ / Q_t(y, x)
    surprise = torch.where(truth > 0, truth * (truth.log() - log_model), 0)
    rates = process.rates_into(xt, log_p.dtype) * process.speed(t, log_p.dtype)
    return torch.where(rates > 0, rates * (log_model.exp() - truth + surprise), 0).sum(-1)


def _spread(values: Float[Tensor, "batch num"], query: Query) -> Float[Tensor, "batch dim"]:
    """Put values at k positions back into (batch, dim), scaled by (free positions) / (free positions evaluated)."""
    if query.settled is not None:
        values = torch.where(at_positions(query.settled, query.positions), 0, values)
    if query.positions is None:
        return values
    free = query.free.to(values.dtype)
    scale = free / free.clamp(1, query.positions.shape[1])
    return values.new_zeros(query.xt.shape).scatter(1, query.positions, values * scale[:, None])
