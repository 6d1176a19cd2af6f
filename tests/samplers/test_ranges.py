"""Positions in ranges: samples have the law of the model given the ranges, and nothing outside them."""

import pytest
import torch

from enumerated import chi_square, counts_of, p_value, seeded, total_variation
from sddm import Condition, Diffusion, sample, steer
from sddm.marginals import Hollow, Oracle
from sddm.processes import Absorbing, BirthDeath, Uniform
from sddm.samplers import ranges as ranges_module
from sddm.schedules import SqrtCosine

NUM = 6_000
STATES, DIM = 4, 3
JOINT = torch.rand(STATES, STATES, STATES, generator=seeded(0), dtype=torch.float64) ** 4
JOINT /= JOINT.sum()
"""A law in which all positions depend on each other."""
ONE = {1: torch.tensor([0.0, 1.0, 0.3, 1.0])}
TWO = {0: torch.tensor([1.0, 0.5, 0.0, 0.0]), 1: torch.tensor([0.0, 1.0, 0.3, 1.0])}
BEHIND = {1: torch.tensor([0.0, 0.0, 1.0, 1.0]), 2: torch.tensor([0.2, 1.0, 0.0, 0.0])}


def oracle(process=Absorbing, left=0.02):
    return Diffusion(process(STATES, SqrtCosine()).leaving(left), Oracle.from_joint(JOINT))


def within(ranges, values=(-1, -1, -1)):
    values = torch.tensor(values)
    return Condition(values != -1, values, {position: w.double() for position, w in ranges.items()})


def weighted(ranges):
    """The law in proportion to the weights."""
    law = JOINT.clone()
    for position, weights in ranges.items():
        law *= weights.double().reshape([-1 if axis == position else 1 for axis in range(DIM)])
    return (law / law.sum()).flatten()


def drawn(diffusion, condition, num=NUM, seed=0, **options):
    options = {"steps": 40, "progress": False, **options}
    return sample(diffusion, num, condition=condition, generator=seeded(seed), **options)


@pytest.mark.parametrize("ranges", [ONE, TWO, BEHIND, TWO | BEHIND], ids=["one", "two", "others", "three"])
def test_samples_in_ranges_have_the_law_of_the_data_given_the_ranges(ranges):
    """For the oracle under absorbing noise, in which x_T says nothing: by chi-square, on the whole space."""
    x = drawn(oracle(), within(ranges), steps=200)
    counts = counts_of(x, STATES)
    assert p_value(counts, weighted(ranges)) > 1e-4
    assert total_variation(counts / NUM, JOINT.flatten()) > 0.2  # which a sampler without ranges would have


def test_a_proposal_that_is_always_kept_would_have_another_law():
    """What the rejection is for: two dependent ranges, drawn one after the other and never rejected."""
    first = JOINT.sum(2)[..., None] * torch.ones(STATES) / STATES
    first = first.sum(2)
    weights = [TWO[0].double(), TWO[1].double()]
    one = first.sum(1) * weights[0]
    other = (first / first.sum(1, keepdim=True)) * weights[1]
    kept = (one / one.sum())[:, None] * other / other.sum(1, keepdim=True)
    true = weighted(TWO).reshape(STATES, STATES, STATES).sum(2)
    assert total_variation(kept, true) > 0.02
    counts = counts_of(drawn(oracle(), within(TWO))[:, :2], STATES)
    statistic, freedom = chi_square(counts, kept.flatten())
    assert statistic > 2 * freedom


def test_under_uniform_noise_the_law_is_off_by_no_more_than_what_is_left_at_the_end():
    """A position of x_T tells of x_0 with the probability that is left; the draws add at most sqrt(states / N) / 2."""
    x = drawn(oracle(Uniform, left=0.02), within(TWO))
    assert total_variation(counts_of(x, STATES) / NUM, weighted(TWO)) < DIM * 0.02 + (STATES**DIM / NUM) ** 0.5 / 2


def test_a_range_goes_with_what_is_given():
    x = drawn(oracle(), within(ONE, (2, -1, -1)), num=2_000)
    law = JOINT[2] * ONE[1].double()[:, None]
    assert bool((x[:, 0] == 2).all())
    assert p_value(counts_of(x[:, 1:], STATES), (law / law.sum()).flatten()) > 1e-4


def test_rows_that_give_a_position_of_a_range_keep_it():
    values = torch.tensor([[-1, 2, -1], [-1, -1, -1], [3, -1, 0]]).repeat(20, 1)
    x = drawn(oracle(), Condition(values != -1, values, within(ONE).ranges), num=60)
    assert torch.equal(x[values != -1], values[values != -1])
    assert bool((x[:, 1] > 0).all())


@pytest.mark.parametrize("process", [Absorbing, Uniform])
def test_samples_in_ranges_do_not_depend_on_the_batch_size(process):
    whole = drawn(oracle(process), within(TWO), num=50)
    assert torch.equal(whole, drawn(oracle(process), within(TWO), num=50, batch_size=7))
    assert not torch.equal(whole, drawn(oracle(process), within(TWO), num=50, seed=1))


def test_one_range_needs_one_draw(monkeypatch):
    monkeypatch.setattr(ranges_module, "ROUNDS", 1)
    rare = {1: torch.tensor([0.0, 0.0, 0.0, 1e-6])}
    assert set(drawn(oracle(), within(rare), num=200)[:, 1].tolist()) == {3}
    with pytest.raises(
        ValueError, match=r"The ranges hardly ever hold together: \d+ of 200 samples were drawn 1 times"
    ):
        drawn(oracle(), within(TWO), num=200)


def test_steered_samples_stay_in_their_ranges():
    steered = steer(
        oracle(), 8, lambda x: -x[:, 2].double(), particles=4, steps=10, condition=within(TWO), generator=seeded(0)
    )
    assert bool((weighted(TWO).reshape([STATES] * DIM)[tuple(steered.tokens.T)] > 0).all())


def test_joined_conditions_have_the_ranges_of_both():
    both = within(ONE, (2, -1, -1)) | within(TWO)
    assert both.ranges.keys() == {0, 1}
    assert both.ranges[1].tolist() == pytest.approx([0, 1, 0.09, 1])


BAD = [
    ({3: torch.ones(4)}, "position of a range must be at most 2, but it is 3"),
    ({-1: torch.ones(4)}, "position of a range must be at least 0, but it is -1"),
    ({1: torch.zeros(4)}, "range at position 1 must hold a weight from 0 to 1 for each token, one of them above 0"),
    ({1: torch.tensor([0.5, 2.0])}, "must hold a weight from 0 to 1"),
    ({1: torch.tensor([0.5, float("nan")])}, "must hold a weight from 0 to 1"),
    ({1: torch.ones(5)}, "range at position 1 has 5 weights, but there are 4 tokens"),
]


@pytest.mark.parametrize(("ranges", "match"), BAD)
def test_a_range_that_means_nothing_is_refused(without_annotation_checks, ranges, match):
    with pytest.raises(ValueError, match=match):
        drawn(oracle(), within(ranges), num=2)


def test_a_given_token_outside_of_its_range_is_refused():
    with pytest.raises(ValueError, match="gives a token at position 1 that its range there does not allow"):
        drawn(oracle(), within(ONE, (-1, 0, -1)), num=2)


def test_a_model_of_noised_data_alone_cannot_be_asked_for_ranges():
    process = BirthDeath(STATES, SqrtCosine()).leaving(0.02)
    model = Hollow.for_process(process, DIM, implicit=False, width=8, layers=1, heads=2, mlp=8)
    with pytest.raises(ValueError, match="A condition with ranges needs a model that predicts x0"):
        drawn(Diffusion(process, model), within(ONE), num=2)


def test_a_range_that_the_model_excludes_is_refused():
    joint = JOINT.clone()
    joint[3] = 0
    diffusion = Diffusion(Absorbing(STATES, SqrtCosine()).leaving(0.02), Oracle.from_joint(joint / joint.sum()))
    with pytest.raises(ValueError, match="The model gives no probability to the range at position 0"):
        drawn(diffusion, within({0: torch.tensor([0.0, 0.0, 0.0, 1.0])}), num=2)
