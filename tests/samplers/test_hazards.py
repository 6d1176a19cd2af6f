"""Steps of fixed rates are taken on the clock of the process: the hazards of a step are B(s, t) times rates per tau.

Rates per time at the beginning of a step, times its length, would be something else where the speed changes within it:
under `SqrtCosine` beta(1) is a thousand times its mean.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from enumerated import (
    as_kernel,
    euler_laws,
    finishing_laws,
    jump_or_stay,
    law_at,
    log_log_slope,
    on_all_symbols,
    one_way,
    oracle,
    position_rates,
    random_law,
    seeded,
    total_variation,
    uniform,
)
from sddm import Diffusion, sample
from sddm.marginals import Oracle
from sddm.processes import Absorbing
from sddm.samplers import Analytical, Euler, Lazy, TauLeaping, uniform_in_share, uniform_in_time
from sddm.schedules import SCHEDULES, Constant, Exponential, LogSquare, SqrtCosine

LENGTH = 8


def chance_of_equal_tokens(process, grid, revealed):
    """The exact chance that all positions of a sample are equal, when the data are rows of equal tokens of two kinds.

    Once a token is revealed, the conditionals of all others say the same one. So a sample is possible if and only if
    all tokens revealed first, at the same moment, agree. A masked position is revealed with chance
    `revealed(h, a_s, a_t)` in a step of hazard h; before the first step with the share that is left at T.
    """
    share = process.remaining(grid).tolist()
    chances = [share[0]]
    for a_t, a_s in itertools.pairwise(share):
        chances.append(revealed(math.log(a_s / a_t) * a_t / (1 - a_t), a_s, a_t))
    chances.append(1.0)  # whatever is masked after the last step is drawn at once
    none, equal = 1.0, 0.0
    for r in chances:
        first = sum(math.comb(LENGTH, m) * r**m * (1 - r) ** (LENGTH - m) * 2 ** (1 - m) for m in range(1, LENGTH + 1))
        equal, none = equal + none * first, none * (1 - r) ** LENGTH
    return equal


REVEALED = {
    Euler(): lambda h, a_s, a_t: min(1.0, h),
    Lazy(Euler()): lambda h, a_s, a_t: min(1.0, h),
    TauLeaping(): lambda h, a_s, a_t: h * math.exp(-h),
    Analytical(): lambda h, a_s, a_t: (a_s - a_t) / (1 - a_t),
}


@pytest.mark.parametrize("step", REVEALED, ids=repr)
def test_a_steep_schedule_does_not_spoil_the_samples_of_steps_of_fixed_rates(step):
    """Hazards of beta(t) (t - s) revealed nearly all tokens in the first step: 21% possible rows, where 98% are due."""
    process, num = Absorbing(2, SqrtCosine(1.0)).leaving(0.02), 1000
    grid = uniform_in_share(process, 100)
    states = torch.tensor([[0], [1]]).expand(2, LENGTH)
    x = sample(Diffusion(process, Oracle(states, [0.5, 0.5])), num, 100, step, generator=seeded(0))
    possible = float((x == x[:, :1]).all(1).double().mean())
    exact, analytical = (chance_of_equal_tokens(process, grid, REVEALED[s]) for s in (step, Analytical()))
    assert abs(possible - exact) < 4 * math.sqrt(exact * (1 - exact) / num)
    # Fixed rates reveal no faster than the analytical step, since tau <= e^tau - 1: fewer tokens are revealed blindly.
    assert exact >= analytical > 0.97


def absorbing():
    return Absorbing(3, Constant(1.0))


SPEEDS = {"constant": Constant(1.0), "log-square": LogSquare(1.0), "sqrt-cosine": SqrtCosine(1.0)}
SPEEDS["exponential"] = Exponential(0.1, 3.0)


def rate_times_length_laws(diffusion, t, s, dim):
    """What Euler's step was before: the speed at its beginning times its length."""
    states, rates = position_rates(diffusion, t, dim)
    return jump_or_stay(states, (t - s) * float(diffusion.process.schedule.rate(t)) * rates)


def error(laws_of, process, law, grid, dim=2):
    """The distance to the data of a chain that starts from their exact law at T."""
    diffusion, current = oracle(process, law, dim), law_at(process, law, dim, 1.0)
    for t, s in zip(grid[:-1].tolist(), grid[1:].tolist(), strict=True):
        current = current @ as_kernel(laws_of(diffusion, t, s, dim), process.num_symbols)
    current = current @ as_kernel(finishing_laws(diffusion, t, dim), process.num_symbols)
    return total_variation(current, on_all_symbols(process, law, dim))


@pytest.mark.parametrize("make", [uniform, absorbing, one_way])
@pytest.mark.parametrize("name", SCHEDULES)
def test_hazards_by_the_clock_are_never_worse_on_the_default_grid_from_fifty_steps_on(make, name):
    """With fewer steps, and on other grids, two errors can cancel: benchmarks/hazards.py lists every case."""
    process, law = make().with_schedule(SPEEDS[name]).leaving(0.02), random_law(3, 2, seed=3)
    grid = uniform_in_share(process, 50)
    by_clock, by_length = (error(laws, process, law, grid) for laws in (euler_laws, rate_times_length_laws))
    assert by_clock <= by_length + 1e-12


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("grid", [uniform_in_share, uniform_in_time])
def test_eulers_error_falls_with_the_step_under_a_rate_that_diverges(grid):
    process, law = absorbing().with_schedule(SqrtCosine(1.0)).leaving(0.02), random_law(3, 2, seed=3)
    numbers = [20, 40, 80]
    errors = [error(euler_laws, process, law, grid(process, n)) for n in numbers]
    assert log_log_slope(1 / np.array(numbers), errors) == pytest.approx(1, abs=0.1)
