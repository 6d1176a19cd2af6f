"""Absorbing noise: positions at the times of the process, and as many at once as their entropies allow."""

import itertools
import math

import pytest
import torch

from enumerated import (
    UNLIKELY,
    Watched,
    absorbing,
    counts_of,
    law_at,
    oracle,
    p_value,
    random_law,
    seeded,
    table,
    times,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.query import Query
from sddm.randomness import StreamPerSample
from sddm.samplers import Entropic, FirstHitting
from sddm.samplers.entropic import within

DIM, NUM = 3, 6000
LAW = random_law(3, DIM, seed=5)


def watched():
    inner = Watched(oracle(absorbing(), LAW, DIM).model)
    return Diffusion(absorbing(), inner), inner


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("steps", [None, 4])
@pytest.mark.parametrize("sampler", [FirstHitting(), Entropic(threshold=0.0)], ids=repr)
def test_samples_of_the_oracle_have_the_law_of_the_data(sampler, steps):
    x = sample(oracle(absorbing(), LAW, DIM), NUM, steps, sampler, generator=seeded(0))
    assert p_value(counts_of(x, 3), LAW) > UNLIKELY


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("grid", [(1.0, 0.4), (1.0, 0.7, 0.4)])
def test_positions_are_seen_again_when_the_process_would_show_them(grid):
    """So the rows at a time on the way have the law of noised data, also if the events come in several steps."""
    diffusion = oracle(absorbing(), LAW, DIM)
    x, randomness = torch.full((NUM, DIM), diffusion.process.mask), StreamPerSample(range(NUM))
    for t, s in itertools.pairwise(grid):
        x = FirstHitting()(diffusion, Query(x, times(t, NUM)), times(s, NUM), randomness)
    assert p_value(counts_of(x, 4), law_at(absorbing(), LAW, DIM, 0.4)) > UNLIKELY


@pytest.mark.parametrize(("sampler", "most"), [(FirstHitting(), DIM), (Entropic(0.0), DIM), (Entropic(math.log(9)), 1)])
def test_the_model_is_asked_at_most_once_for_each_position(sampler, most):
    diffusion, model = watched()
    sample(diffusion, 20, sampler=sampler, generator=seeded(0))
    assert len(model.asked) == most
    if isinstance(sampler, FirstHitting):
        assert all(call["positions"].shape == (20, 1) for call in model.asked)
        assert all(0 < float(call["t"].min()) <= float(call["t"].max()) <= 1 for call in model.asked)


@pytest.mark.parametrize("sampler", [FirstHitting(), Entropic(0.3)], ids=repr)
def test_samples_do_not_depend_on_the_batch_and_keep_what_is_given(sampler):
    blanks = torch.where(torch.rand(7, DIM, generator=seeded(0)) < 0.4, 1, -1)
    options = {"sampler": sampler, "condition": Condition.from_blanks(blanks)}
    together, apart = (
        sample(table(absorbing(), DIM), 7, generator=seeded(1), batch_size=size, **options) for size in (7, 2)
    )
    assert torch.equal(together, apart)
    assert bool((together == blanks)[blanks >= 0].all())


def test_the_chosen_entropies_but_the_largest_sum_to_at_most_the_threshold():
    entropy = torch.tensor([[0.3, 0.1, 0.9, 0.2], [0.3, 0.1, 0.9, 0.2], [2.0, 3.0, 1.0, 0.1]])
    hidden = torch.tensor([[True] * 4, [True, False, True, True], [True, True, True, False]])
    expected = torch.tensor([[True, True, False, True], [True, False, False, True], [False, False, True, False]])
    assert torch.equal(within(entropy, hidden, 0.35), expected)


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("threshold", [1.0, 1.2])
def test_the_error_of_entropic_steps_is_below_the_bound(threshold):
    """KL of the exact law of the samples, by going through every row that can come about."""
    diffusion = oracle(absorbing(), LAW, DIM)
    mask = diffusion.process.mask
    rows, weights, several = torch.full((1, DIM), mask), torch.ones(1, dtype=torch.float64), 0
    while bool((rows == mask).any()):
        law = diffusion.marginals(rows, times(1.0, len(rows))).log_x0.exp()[..., :3]
        hidden = rows == mask
        chosen = within(torch.special.entr(law).sum(-1), hidden, threshold)
        several += int(bool((chosen.sum(1) > 1).any()))
        for d in range(DIM):
            split = torch.where(chosen[:, d, None], law[:, d], torch.nn.functional.one_hot(rows[:, d].clamp(max=2), 3))
            keep = chosen[:, d] | ~hidden[:, d]
            values = torch.where(keep[:, None], torch.arange(3), mask)
            split = torch.where(keep[:, None], split, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
            many = len(rows)
            rows, weights = rows.repeat_interleave(3, 0), (weights[:, None] * split).flatten()
            rows[:, d] = values.flatten()
            law, hidden, chosen = (part.repeat_interleave(3, 0) for part in (law, hidden, chosen))
            assert len(rows) == 3 * many
        rows, weights = rows[weights > 0], weights[weights > 0]
    made = torch.zeros(27, dtype=torch.float64).index_add_(0, (rows * torch.tensor([9, 3, 1])).sum(1), weights)
    x = sample(diffusion, NUM, sampler=Entropic(threshold), generator=seeded(0))
    assert p_value(counts_of(x, 3), made) > UNLIKELY
    assert -1e-12 < float((made * (made / LAW).log()).sum()) <= threshold * several + 1e-12
    assert several > 0


@pytest.mark.parametrize("sampler", [FirstHitting(), Entropic()], ids=repr)
def test_other_noise_is_refused(sampler):
    with pytest.raises(ValueError, match=rf"sampler: {type(sampler).__name__} needs a model of x_0 under Absorbing"):
        sample(oracle(uniform(), LAW, DIM), 2, sampler=sampler)


def test_a_negative_threshold_is_refused():
    with pytest.raises(ValueError, match=r"threshold must be at least 0 nats, but it is -1"):
        Entropic(threshold=-1.0)
