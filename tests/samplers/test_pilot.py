"""Grids from a pilot run: equal losses, and nearer to the data than the uniform grids on laws that were not seen."""

import pytest
import torch

from enumerated import (
    all_states,
    analytical_laws,
    law_after,
    law_at,
    on_all_symbols,
    oracle,
    random_law,
    seeded,
    table,
    total_variation,
    uniform,
)
from sddm import sample
from sddm.randomness import Stream
from sddm.samplers import (
    Analytical,
    Euler,
    InOrder,
    Sweep,
    Trapezoidal,
    pilot_grid,
    uniform_in_log_share,
    uniform_in_share,
    uniform_in_time,
)
from sddm.samplers.pilot import losses

DIM = 3


def neighbours():
    """Neighbours that agree are e^2 times as likely."""
    states = all_states(3, DIM)
    law = torch.exp(2.0 * (states[:, 1:] == states[:, :-1]).sum(1).double())
    return law / law.sum()


LAWS = {"random": random_law(3, DIM, seed=2), "neighbours": neighbours()}


def error(law, grid):
    process = uniform(0.02)
    start = law_at(process, law, DIM, 1.0)
    end = law_after(analytical_laws, oracle(process, law, DIM), start, grid, DIM)
    return total_variation(end, on_all_symbols(process, law, DIM))


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(("name", "steps"), [("random", 4), ("random", 8), ("random", 16), ("neighbours", 8)])
def test_it_is_nearer_to_the_data_than_every_uniform_grid(name, steps):
    """By a tenth at least, exactly: the total variation is that of the law of the samples."""
    process, law = uniform(0.02), LAWS[name]
    grid = pilot_grid(oracle(process, law, DIM), steps, generator=seeded(0))
    best = min(error(law, rule(process, steps)) for rule in (uniform_in_time, uniform_in_log_share, uniform_in_share))
    assert error(law, grid) < 0.9 * best


def spread(lost):
    return float(lost.max() / lost.mean())


@pytest.mark.usefixtures("without_annotation_checks")
def test_its_steps_lose_about_the_same():
    """Measured on other samples than the pilot's. Uniform in time, one step loses most."""
    diffusion = oracle(uniform(0.02), LAWS["neighbours"], DIM)
    blank, grids = torch.zeros(1000, DIM, dtype=torch.int64), (uniform_in_time, uniform_in_share)
    plain = [losses(diffusion, grid(diffusion.process, 6), Analytical(), blank, Stream(seeded(1))) for grid in grids]
    made = losses(diffusion, pilot_grid(diffusion, 6, generator=seeded(0)), Analytical(), blank, Stream(seeded(1)))
    assert spread(made) < min(spread(lost) for lost in plain)
    assert float(made.sum()) < min(float(lost.sum()) for lost in plain)


@pytest.mark.parametrize("sampler", [None, Euler(), Sweep(groups=2), Trapezoidal()], ids=repr)
@pytest.mark.parametrize("steps", [1, 5])
def test_a_grid_descends_and_samples_are_drawn_on_it(sampler, steps):
    diffusion = table(uniform(), 2)
    one, two = (pilot_grid(diffusion, steps, sampler, num=8, generator=seeded(0)) for _ in range(2))
    assert torch.equal(one, two)
    assert (len(one), float(one[0]), float(one[-1])) == (steps + 1, 1.0, 0.0)
    assert sample(diffusion, 4, grid=one, sampler=sampler, generator=seeded(0)).shape == (4, 2)


def test_what_makes_no_grid_is_refused():
    diffusion = table(uniform(), 2)
    with pytest.raises(ValueError, match=r"steps must be at least 1"):
        pilot_grid(diffusion, 0)
    with pytest.raises(ValueError, match=r"sampler: InOrder does not take its steps from a law at t"):
        pilot_grid(diffusion, 4, InOrder())
    with pytest.raises(ValueError, match=r"grid must descend strictly from 1 to 0"):
        sample(diffusion, 2, grid=torch.tensor([1.0, 0.2, 0.5, 0.0], dtype=torch.float64))
