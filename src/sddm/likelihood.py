"""The continuous-time bound on -log p(x_0), in nats, with a standard error.

    -log p(x_0)  <=  KL(q_{T|0}(. | x_0) || p_T)  +  integral over t of  E_{x_t | x_0} [ sum_d ct_elbo_d(x_t, t) ]

p_T is the law that sampling starts from. With given positions it bounds -log p(free positions | given ones), and all
sums are over the free positions.

Times. The integrand is as large as beta(t), grows like log B(0, t) near 0, and falls as fast as the data are forgotten.
So times are not uniform in t but in u, where u^2 is proportional to the share of the data that is gone,
1 - exp(-gap B(0, t)). For a model of x_t, which need not forget, u^2 is proportional to B(0, t). Multiplied by dt/du,
the integrand is bounded for every schedule.

The error. The integral is estimated `REPLICATES` times, independently, each with one time in each of the
num_times / REPLICATES strata of u. The estimate is the mean of these independent replicates, and its error comes from
their spread, which is itself an estimate: 2 standard deviations of the mean cover the truth less often than 95.4%. The
standard error is therefore multiplied by `stretch`, so that +-2 of it do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm._modes import evaluating
from sddm.diffusion import Diffusion
from sddm.losses import Loss, ct_elbo
from sddm.noising import Batch, NoisedBatch, noise_batch
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.randomness import Stream, categorical, draw_seeds
from sddm.samplers.ends import start_log_law
from sddm.samplers.in_order import check_in_order
from sddm.shapes import Times

REPLICATES = 8
"""How many independent estimates of the integral the error comes from; `num_times` is a multiple of it."""
FREEDOM = REPLICATES - 1.0
"""The degrees of freedom of their spread."""
EARLIEST = 1e-7
"""No time is closer to 0, where schedules that start slowly cannot be inverted."""


LEAST_LOG_SHARE = 30.0
"""With e^-30 of the data left, a model of x_0 has nothing more to lose, and 1 minus that is still below 1."""

TimesOf = Callable[[Diffusion, Tensor], tuple[Tensor, Tensor]]
"""The time and its weight for each u in (0, 1]."""
IntegrandOf = Callable[[Diffusion, NoisedBatch, Stream], Tensor]
"""An estimate of the integrand for each row of a noised batch."""


def stretch(freedom: float) -> float:
    """Half the quantile of Student's t with these degrees of freedom that covers as much as 2 standard deviations of a
    normal law, by the expansion of Cornish and Fisher (right to 1e-3 from 7 degrees of freedom on)."""
    return 1 + 1.25 / freedom + 1.53125 / freedom**2 + 2.859375 / 2 / freedom**3


class Bound(NamedTuple):
    """An upper bound on -log p(x_0) in nats for each row of x_0, with the standard error of its estimate."""

    nats: Float64[Tensor, "batch"]
    standard_error: Float64[Tensor, "batch"]
    """+-2 standard errors cover the exact bound in 95% of the cases."""
    free: Int[Tensor, "batch"]
    """How many positions of each row are scored: those that are neither given nor padding."""

    @property
    def mean(self) -> tuple[float, float]:
        """The mean over the rows, and its standard error as an estimate for these rows: how far it is from the mean of
        their exact bounds. (How far these rows are from others like them is in the spread of `nats`.)"""
        # Rows are independent, so that their variances add up, with more degrees of freedom than one of them has
        # (Welch and Satterthwaite).
        squares = (self.standard_error / stretch(FREEDOM)).square()
        total = float(squares.sum())
        freedom = FREEDOM * (total**2 / float(squares.square().sum()) if 0 < total < math.inf else 1)
        return float(self.nats.mean()), stretch(freedom) * math.sqrt(total) / len(self.nats)

    @property
    def bits_per_dim(self) -> tuple[float, float]:
        """The bits of all rows per free position, and their standard error."""
        mean, error = self.mean
        per_bit = math.log(2) * float(self.free.double().mean())
        return mean / per_bit, error / per_bit


def bound(
    diffusion: Diffusion,
    x0: Int[Tensor, "batch dim"],
    num_times: int = 128,
    *,
    given: Bool[Tensor, "batch dim"] | None = None,
    padding: Bool[Tensor, "batch dim"] | None = None,
    labels: Int[Tensor, "batch"] | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Bound:
    """Estimate the bound for each row of x_0, with `num_times` times a row (a multiple of 8).

    given: positions that are known: the bound is on the likelihood of the others given these.
    padding: positions that do not exist. For a diffusion with a law of lengths, those that hold `diffusion.pad` do not
        exist either, and the bound includes -log p(length) unless something is given.
    labels: the class of each row: the bound is on the likelihood given these, for a model that was trained with labels.

    A model that sees its own token is evaluated twice for each time.
    """
    known = {"given": given, "padding": padding, "labels": labels}
    return estimated_bound(
        diffusion, x0, num_times, _times, _integrand, **known, generator=generator, batch_size=batch_size
    )


def estimated_bound(
    diffusion: Diffusion,
    x0: Int[Tensor, "batch dim"],
    num_times: int,
    times: TimesOf,
    integrand: IntegrandOf,
    *,
    given: Bool[Tensor, "batch dim"] | None = None,
    padding: Bool[Tensor, "batch dim"] | None = None,
    labels: Int[Tensor, "batch"] | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Bound:
    """KL(q_{T|0}(. | x_0) || p_T) plus the integral over u in (0, 1] of weight(u) integrand at t(u), for each row.

    times: t and the weight for each u.   integrand: an estimate of the integrand for each row of a noised batch.
    The other arguments are those of `bound`.
    """
    _checks.instance(diffusion, Diffusion, "diffusion")
    x0, padding = existing(diffusion, x0, padding)
    check_times(_checks.whole(num_times, "num_times", REPLICATES))
    if given is not None:
        given = _checks.boolean_mask(given, x0.shape, "given", device=x0.device)
    if padding is not None:
        padding = _checks.boolean_mask(padding, x0.shape, "padding", device=x0.device)
    if labels is not None:
        labels = _checks.labels(labels, len(x0), known=diffusion.model.num_labels)
    _checks.whole(batch_size, "batch_size", 1)
    _checks.generator(generator)
    batch = Query(x0, x0.new_full((len(x0),), HORIZON, dtype=torch.float64), None, given, padding, labels)
    _checks.require(
        bool((batch.free > 0).any()), "given and padding leave no position to score. Leave some of them out."
    )
    with evaluating(diffusion), torch.inference_mode():
        replicates = _integrals(diffusion, batch, num_times, times, integrand, generator, batch_size)
        starts = torch.cat([_prior_divergence(diffusion, some) for some in batch.split(batch_size)])
    nats = starts + replicates.mean(1) + _nats_of_lengths(diffusion, x0, given, padding)
    error = stretch(FREEDOM) * replicates.std(1) / REPLICATES**0.5
    return Bound(nats, torch.where(nats.isfinite(), error, math.inf), batch.free)


def in_order(
    diffusion: Diffusion,
    x0: Int[Tensor, "batch dim"],
    *,
    given: Bool[Tensor, "batch dim"] | None = None,
    padding: Bool[Tensor, "batch dim"] | None = None,
    labels: Int[Tensor, "batch"] | None = None,
    batch_size: int = 256,
) -> Float64[Tensor, "batch"]:
    """- log p(x_0) of each row in nats, exact, if it is drawn from left to right by `InOrder` with a step a position:

        - sum_d log p_{0|T}(x_0^d | x_0^{<d}, MASK ... MASK).

    given, padding, labels: as for `bound`; given positions are seen by all others.
    """
    _checks.instance(diffusion, Diffusion, "diffusion")
    check_in_order(diffusion, "in_order")
    rows, ordered = len(x0), torch.ones(len(x0), dtype=torch.bool, device=diffusion.device)
    if labels is not None:
        labels = _checks.labels(labels, rows, known=diffusion.model.num_labels)
    x0, padding = existing(diffusion, x0, padding)
    batch = noise_batch(diffusion, Batch(x0, given, padding, labels), t=ordered.double() * HORIZON, in_order=ordered)
    pieces = [slice(i, i + _checks.whole(batch_size, "batch_size", 1)) for i in range(0, rows, batch_size)]
    with evaluating(diffusion), torch.inference_mode():
        nats = torch.cat([_nats_in_order(diffusion, batch.rows(some)) for some in pieces])
    return nats + _nats_of_lengths(diffusion, x0, given, padding)


def existing(
    diffusion: Diffusion, x0: Int[Tensor, "batch dim"], padding: Bool[Tensor, "batch dim"] | None = None
) -> tuple[Int[Tensor, "batch dim"], Bool[Tensor, "batch dim"] | None]:
    """Rows, and which of their positions do not exist: also where they hold the PAD of samples."""
    if diffusion.lengths is not None and padding is None and isinstance(x0, Tensor):
        padding = x0 == diffusion.pad
        x0 = x0.masked_fill(padding, 0)
    return diffusion.checked(x0, diffusion.process.num_states, "x0"), padding


def _nats_of_lengths(
    diffusion: Diffusion, x0: Tensor, given: Tensor | None, padding: Tensor | None
) -> Float64[Tensor, "batch"]:
    """- log p(n) of each row; 0 if all rows have one length, or if something of them is given, and so their ends."""
    if diffusion.lengths is None or given is not None or padding is None:
        return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    return -diffusion.lengths.log_prob((~padding).sum(1))


def _nats_in_order(diffusion: Diffusion, batch: NoisedBatch) -> Float64[Tensor, "batch"]:
    log_law = diffusion(batch.query).require_x0("in_order")
    nats = -log_law.gather(-1, batch.x0[..., None]).squeeze(-1).double()
    return (nats if batch.query.settled is None else nats.masked_fill(batch.query.settled, 0)).sum(1)


def check_times(num_times: int) -> None:
    """Refuse a number of times that the replicates cannot share."""
    _checks.require(
        num_times % REPLICATES == 0,
        f"num_times must be a multiple of {REPLICATES}, but it is {num_times}: the error comes from the spread of "
        f"{REPLICATES} independent estimates.",
    )


def _integrals(
    diffusion: Diffusion,
    data: Query,
    num_times: int,
    times: TimesOf,
    integrand: IntegrandOf,
    generator: torch.Generator | None,
    batch_size: int,
) -> Float64[Tensor, "batch replicates"]:
    """Independent estimates of the integral for each row."""
    # Each generator draws row by row, so that the rows of a batch do not matter.
    of_times, of_noise, of_moves = (torch.Generator().manual_seed(seed) for seed in draw_seeds(3, generator))
    strata = num_times // REPLICATES
    later = Stream(of_times).uniform((len(data.xt), REPLICATES, strata), data.xt.device)
    u = (torch.arange(1, strata + 1, device=later.device) - later) / strata
    t, weight = times(diffusion, u.flatten())
    values = []
    for rows in torch.arange(len(t), device=t.device).split(batch_size):
        these = data.rows(rows // num_times)
        batch = Batch(these.xt, these.given, these.padding, these.label)
        noised = noise_batch(diffusion, batch, t=t[rows], generator=of_noise)
        values.append(weight[rows] * integrand(diffusion, noised, Stream(of_moves)))
    return torch.cat(values).reshape(u.shape).mean(-1)


def _times(diffusion: Diffusion, u: Float64[Tensor, "times"]) -> tuple[Times, Float64[Tensor, "times"]]:
    """t and dt/du, for u in (0, 1]; see the head of this file."""
    process = diffusion.process
    gap, whole = process.gap, process.schedule.integral(0.0, HORIZON).to(u.device)
    if diffusion.model.implicit:
        gone = -torch.expm1(-(gap * whole).clamp(max=LEAST_LOG_SHARE)) * u**2
        tau, slope = -torch.log1p(-gone) / gap, 2 * gone / u / (gap * (1 - gone))
    else:
        tau, slope = whole * u**2, 2 * whole * u
    t = process.schedule.inverse(tau).clamp(min=EARLIEST)
    return t, slope / process.schedule.rate(t)


def _integrand(diffusion: Diffusion, noised: NoisedBatch, randomness: Stream) -> Float64[Tensor, "batch"]:
    """An estimate of E sum_d ct_elbo_d for each row: unbiased, and bounded up to logarithms.

    If the model does not see its own token, the expectation over x_t^d is taken exactly; if it does, x_t^d is drawn.
    """
    if diffusion.model.sees_own_token:
        return with_a_moved_token(ct_elbo, diffusion, noised, randomness)
    return ct_elbo.at(diffusion, noised).double().sum(1)


def with_a_moved_token(
    loss: Loss, diffusion: Diffusion, noised: NoisedBatch, randomness: Stream
) -> Float64[Tensor, "batch"]:
    """An estimate of E sum_d of a loss whose values at drawn tokens are of order 1/t where x_t^d != x_0^d.

    A position moves, x_t^d != x_0^d, with a probability of order t only: the values alone have no finite variance. So
    one more position d is drawn and changed on purpose, d with probability m_d / M, where m_d is the probability to
    have moved and M their sum. The positions that moved by themselves (M on average) and this one have the same law.
    Their values count M / (1 + M) each, so that the sum of their weights is M on average, and the product with a value
    of order 1/t is bounded.
    """
    values = loss.at(diffusion, noised).double()
    x0, query = noised.x0, noised.query
    tau = diffusion.process.tau(0.0, query.t)
    moves = diffusion.process.law_by(x0, tau, torch.float64).scatter(-1, x0[..., None], 0)
    if query.settled is not None:
        moves = moves.masked_fill(query.settled[..., None], 0)
    total = moves.sum((1, 2))
    move = categorical(torch.where(total > 0, 0, 1)[:, None] + moves.flatten(1), randomness)[:, None]
    where, what = move // moves.shape[2], move % moves.shape[2]
    forced = loss.at(diffusion, replace(noised, query=query.holding(query.xt.scatter(1, where, what)).at(where)))
    share = total / (1 + total)
    # The loss counts one position for all that are free.
    own = torch.where(query.xt == x0, values, share[:, None] * values).sum(1)
    return own + share * forced.double().sum(1) / query.free.clamp(min=1)


def _prior_divergence(diffusion: Diffusion, data: Query) -> Float64[Tensor, "batch"]:
    """KL(q_{T|0}(. | x_0) || p_T), summed over the free positions."""
    process = diffusion.process
    law = process.law_by(data.xt, process.tau(0.0, data.t), torch.float64)
    divergence = torch.where(law > 0, law * (law.log() - start_log_law(diffusion, data).double()), 0).sum(-1)
    return (divergence if data.settled is None else divergence.masked_fill(data.settled, 0)).sum(-1)
