"""A grid for one model: a pilot run finds where steps lose much, and puts more of them there.

A step from t to s holds on to what the model said at t. Half way, at m, the model would say something else, as other
positions have jumped. What the step loses by not asking again is, on the paths of the sampler,

    E sum_d KL( law of x_s^d given x_m, told at m  ||  the same, told at t ).

The sum of these over the steps bounds the KL from halving each step to leaving it as it is, and for n steps it is least
where all are equal: a loss grows with about the square of a step's length. So the lengths are changed in proportion to
1 / sqrt(loss), a few times over, until the losses are about equal.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm._modes import evaluating
from sddm.diffusion import Diffusion
from sddm.processes import HORIZON, Process
from sddm.query import Query
from sddm.randomness import Randomness, Stream, categorical
from sddm.samplers.ends import start, with_settled
from sddm.samplers.grids import uniform_in_share
from sddm.samplers.plan import chosen_length, chosen_step
from sddm.samplers.steps import Analytical, Euler, OneDraw, OwnStart, ReverseStep, TakenBy, can_be_analytical

LEAST_LOSS = 1e-3
"""No step counts as losing less than this share of the mean loss, so that none grows without limit."""


def pilot_grid(
    diffusion: Diffusion,
    steps: int,
    sampler: ReverseStep | None = None,
    *,
    num: int = 512,
    rounds: int = 6,
    length: int | None = None,
    generator: torch.Generator | None = None,
) -> Float64[Tensor, "times"]:
    """The times of `steps` steps that lose about the same each, for a diffusion and a sampler.

    num: pilot samples.
    rounds: how often the grid is improved; each costs about three evaluations a step. The result is the mean of the
        later half of these grids, which evens out the noise of the pilot samples.
    length: the number of positions, for a model that takes any.

    >>> grid = pilot_grid(diffusion, 16)
    >>> sample(diffusion, 64, grid=grid)
    """
    _checks.instance(diffusion, Diffusion, "diffusion")
    for name, value in (("steps", steps), ("num", num), ("rounds", rounds)):
        _checks.whole(value, name, 1)
    sampler, dim = step_of_grid(diffusion, sampler), chosen_length(diffusion, length)
    randomness = Stream(_checks.generator(generator))
    process, times, later = diffusion.process, uniform_in_share(diffusion.process, steps), []
    with evaluating(diffusion), torch.inference_mode():
        for number in range(rounds):
            lost = losses(diffusion, times, sampler, torch.zeros(num, dim, dtype=torch.int64), randomness)
            shares = _spread(process.remaining(times), lost)
            times = _at(process, shares)
            later += [shares] if number >= rounds // 2 else []
    return _at(process, torch.stack(later).mean(0)).clone()


def step_of_grid(diffusion: Diffusion, sampler: ReverseStep | None) -> ReverseStep:
    """The step that is taken on the grid, the default unless given; a ValueError if its steps follow from no grid."""
    step = chosen_step(diffusion, None) if sampler is None else sampler
    _checks.require(
        not isinstance(step, OwnStart),
        f"sampler: {type(step).__name__} does not take its steps from a law at t to one at s, so no pilot run can find "
        "times for it. Take one that does, such as Analytical(), or leave the grid out.",
    )
    return chosen_step(diffusion, step)


def losses(
    diffusion: Diffusion,
    times: Float64[Tensor, "times"],
    sampler: ReverseStep,
    blank: Int[Tensor, "num dim"],
    randomness: Randomness,
) -> Float64[Tensor, "steps"]:
    """What each step loses, in nats a row, by not asking the model again half way (half of the restored share)."""
    process, step = diffusion.process, _one_draw(diffusion, sampler)
    blank = blank.to(diffusion.device)
    query = Query(blank, times[:1].to(diffusion.device).expand(len(blank)))
    query = query.holding(start(diffusion, query, randomness))
    found = []
    for t, s in pairwise(times.to(diffusion.device)):
        share = (process.remaining(t[None]) + process.remaining(s[None])) / 2
        middle = process.schedule.inverse(-share.log() / process.gap).expand_as(query.t)
        told = diffusion(query)
        half = query.holding(with_settled(sampler(diffusion, query, middle, randomness), query), middle)
        end = s.expand_as(query.t)
        asked_again = step.weights(diffusion, half, end, middle).double()
        held = step.weights_by(process, told, half.xt, query.t, end, middle).double()
        new, old = (law / law.sum(-1, keepdim=True) for law in (asked_again, held))
        kl = torch.xlogy(new, new) - torch.xlogy(new, old.clamp_min(torch.finfo(old.dtype).tiny))
        found.append(kl.sum((1, 2)).mean().clamp_min(0))
        query = half.holding(categorical(new, randomness), end)
    return torch.stack(found).cpu()


def _at(process: Process, shares: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
    """The times at which these shares of the data are left; both ends exact."""
    times = process.schedule.inverse(-shares.log() / process.gap)
    times[0], times[-1] = HORIZON, 0.0
    return times


def _one_draw(diffusion: Diffusion, sampler: ReverseStep) -> OneDraw:
    """The law of a step by which the losses of a sampler are measured."""
    if isinstance(sampler, TakenBy):
        return sampler.step
    if isinstance(sampler, OneDraw):
        return sampler
    return Analytical() if can_be_analytical(diffusion) else Euler()


def _spread(places: Float64[Tensor, "times"], lost: Float64[Tensor, "steps"]) -> Float64[Tensor, "times"]:
    """Places, in the same range, between which the sum of sqrt(loss) is equal, if losses are even within each step."""
    least = (LEAST_LOSS * lost.mean()).clamp_min(torch.finfo(lost.dtype).tiny)
    sums = torch.cat([torch.zeros(1, dtype=lost.dtype), lost.clamp_min(least).sqrt().cumsum(0)])
    wanted = torch.linspace(0, float(sums[-1]), len(places), dtype=sums.dtype)[1:-1].contiguous()
    right = torch.searchsorted(sums, wanted).clamp(1, len(sums) - 1)
    part = (wanted - sums[right - 1]) / (sums[right] - sums[right - 1])
    inner = places[right - 1] + part * (places[right] - places[right - 1])
    return torch.cat([places[:1], inner, places[-1:]])
