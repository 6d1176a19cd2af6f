"""Steering by any reward: sequential Monte Carlo over the samples of a model.

The law that is aimed at is p(x_0) exp(r(x_0)) / Z, where p is the law that the sampler draws from. Each sample has a
system of particles of its own, which are drawn side by side. After a step to s, the weight of a particle becomes

    w <- w exp(r_s - r_t),        r_t: what the reward says of x_t,  r_0 = r(x_0),

so that the product over all steps is exp(r(x_0)), whatever is said on the way. What is said on the way decides which
particles go on: where the weights of a system have become uneven, its particles are drawn anew in proportion to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm._modes import evaluating
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import StreamPerSample, draw_seeds
from sddm.samplers.loop import reverse
from sddm.samplers.plan import planned
from sddm.samplers.ragged import drawn_lengths, padding_of, with_pad
from sddm.samplers.rewards import Function, OfPrediction, Reward


@dataclass(frozen=True)
class Steered:
    """What `steer` returns."""

    tokens: Int[Tensor, "num dim"]
    """One particle of each system, drawn in proportion to the weights: independent samples."""
    particles: Int[Tensor, "num particles dim"]
    """All particles."""
    weights: Float64[Tensor, "num particles"]
    """Their weights; those of a system sum to 1."""
    log_z: Float64[Tensor, "num"]
    """The logarithm of each system's estimate of Z = E exp(r(x_0)). The mean of the estimates themselves is Z."""
    effective: Float64[Tensor, "steps num"]
    """The effective sample size of each system after each step: 1 / sum of w^2, from 1 to the number of particles."""


@dataclass(frozen=True)
class SteeringProgress:
    """What a callback sees: the number of steps made, of all steps, the time, which samples, their particles and the
    effective sample sizes."""

    step: int
    steps: int
    t: float
    rows: slice
    tokens: Int[Tensor, "num particles dim"]
    effective: Float64[Tensor, "num"]


class _Systems:
    """The particles of a batch of samples, and their weights."""

    def __init__(
        self, diffusion: Diffusion, reward: Reward, seeds: Sequence[int], particles: int, below: float
    ) -> None:
        self.diffusion, self.reward, self.below = diffusion, reward, below
        self.shape = (len(seeds), particles)
        self.randomness = StreamPerSample(seeds)
        self.log_weights = torch.zeros(self.shape, dtype=torch.float64, device=diffusion.device)
        self.said, self.log_z = torch.zeros_like(self.log_weights), torch.zeros_like(self.log_weights[:, 0])
        self.effective: list[Tensor] = []

    def weigh(self, query: Query) -> None:
        """Multiply the weights by what the reward says more than it said before."""
        says = self.reward(self.diffusion, query).view(self.shape)
        self.log_weights = self.log_weights + says - self.said
        self.said = says
        dead = (self.log_weights == -math.inf).all(1)
        _checks.require(
            not bool(dead.any()),
            "reward is -inf for every particle of a sample. Give more particles, or a reward that is finite.",
        )
        self.effective.append(1 / self.weights.square().sum(1))

    def resampled(self, query: Query) -> Query:
        """Where the weights of a system are uneven, draw its particles anew: systematically, by one uniform number, so
        that a particle of weight w is taken K w times on average and nearly so each time."""
        num, particles = self.shape
        uneven = self.effective[-1] < self.below * particles
        uniform = self.randomness.uniform((num, 1), query.xt.device)  # as many for each, however many it uses
        if not bool(uneven.any()):
            return query
        places = (torch.arange(particles, device=uniform.device) + uniform) / particles
        kept = self._at(places)
        kept = torch.where(uneven[:, None], kept, torch.arange(particles, device=kept.device))
        self.log_z = torch.where(uneven, self.log_z + self._log_mean, self.log_z)
        self.log_weights = torch.where(uneven[:, None], 0.0, self.log_weights)
        self.said = self.said.gather(1, kept)
        rows = kept + particles * torch.arange(num, device=kept.device)[:, None]
        padding = None if query.padding is None else query.padding[rows.flatten()]
        return query.holding(query.xt[rows.flatten()])._replace(padding=padding)

    def ended(self) -> tuple[Tensor, Tensor, Tensor]:
        """The weights, which particle of each system is its sample, and the estimate of log Z."""
        chosen = self._at(self.randomness.uniform((self.shape[0], 1), self.weights.device))
        return self.weights, chosen[:, 0], self.log_z + self._log_mean

    @property
    def weights(self) -> Float64[Tensor, "num particles"]:
        return self.log_weights.softmax(1)

    @property
    def _log_mean(self) -> Float64[Tensor, "num"]:
        return self.log_weights.logsumexp(1) - math.log(self.shape[1])

    def _at(self, places: Float[Tensor, "num some"]) -> Int[Tensor, "num some"]:
        """The particles at these places of the cumulative weights. None of weight 0 is taken."""
        cumulative = self.weights.cumsum(1)
        total = cumulative[:, -1:]
        within = torch.minimum(places * total, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, within, right=True)


def steer(
    diffusion: Diffusion,
    num: int,
    reward: Reward | Function,
    *,
    particles: int = 64,
    resample_below: float = 0.5,
    generator: torch.Generator | None = None,
    callback: Callable[[SteeringProgress], None] | None = None,
    seeds: Sequence[int] | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Steered:
    """Draw `num` samples of p(x_0) exp(r(x_0)) / Z, each by `particles` particles of its own; exact as these grow.

    reward: a function of tokens (n, D) -> (n,), or how it is asked before the end: `OfPrediction(function)`, which is
        meant by a function alone, `OfLaw(function)`, `OfNoised(function)`. -inf forbids a row.
    resample_below: particles are drawn anew where the effective sample size is below this share of their number. With
        0 they never are, which is importance sampling.
    callback: called with a `SteeringProgress` after every step.
    seeds: one for each sample, instead of a generator; `sddm.randomness.draw_seeds` makes them for a part of a job.
    batch_size: how many samples, each with all its particles, are drawn at once. The result does not depend on it.
    options: those of `sddm.sample`: steps, sampler, corrector, condition, grid, length, temperature, labels, guidance
        and padding.

    If the diffusion has a law of lengths, each particle has a length of its own.

    The mean of exp(log_z) over the samples is an estimate of Z without bias, however many particles there are.

    >>> steer(diffusion, 16, lambda x: -(x.sum(1) - 10).abs().double(), particles=32).tokens
    """
    reward = reward if isinstance(reward, Reward) else OfPrediction(reward)
    _checks.whole(particles, "particles", 1)
    below = _checks.finite(resample_below, "resample_below")
    _checks.require(0 <= below <= 1, f"resample_below must lie in [0, 1], but it is {below:g}.")
    plan = planned(diffusion, num, **options)
    usual = max(1, plan.usual_batch // particles)
    batch_size = _checks.whole(usual if batch_size is None else batch_size, "batch_size", 1)
    if seeds is None:
        seeds = draw_seeds(num, _checks.generator(generator))
    _checks.require(len(seeds) == num, f"seeds has {len(seeds)} entries, but {num} samples were asked for.")
    parts: list[Steered] = []
    with evaluating(plan.diffusion), torch.inference_mode():
        for first in range(0, num, batch_size):
            rows = slice(first, min(first + batch_size, num))
            each = [draw_seeds(particles + 1, torch.Generator().manual_seed(seed)) for seed in seeds[rows]]
            systems = _Systems(plan.diffusion, reward, [one[0] for one in each], particles, below)

            def between(number: int, query: Query, systems: _Systems = systems) -> Query:
                systems.weigh(query)
                return query if number == plan.num_steps else systems.resampled(query)

            of_particles = [seed for one in each for seed in one[1:]]
            query = plan.query.rows(rows).to(diffusion.device).repeated(particles)
            if diffusion.lengths is not None and query.padding is None:
                condition = None if query.given is None else Condition(query.given, query.xt, plan.ranges)
                drawn = drawn_lengths(diffusion.lengths, of_particles, condition)
                query = query._replace(padding=padding_of(drawn.to(diffusion.device), query.xt.shape[1]))
            for number, now in enumerate(reverse(plan, query, of_particles, between)):
                tokens = with_pad(diffusion, now.xt, now.padding).unflatten(0, (-1, particles))
                if callback is not None and number:
                    ess, time = systems.effective[-1], float(plan.times[number])
                    callback(SteeringProgress(number, plan.num_steps, time, rows, tokens, ess))
            weights, chosen, log_z = systems.ended()
            taken = tokens[torch.arange(len(tokens)), chosen]
            parts.append(Steered(taken, tokens, weights, log_z, torch.stack(systems.effective)))
    columns = {name: [getattr(part, name) for part in parts] for name in Steered.__dataclass_fields__}
    # Out of inference mode, so that the caller may train on what was sampled.
    return Steered(
        **{name: torch.cat(values, dim=int(name == "effective")).clone() for name, values in columns.items()}
    )
