"""Guidance without a classifier, proven on enumerated laws p(y, x)."""

import pytest
import torch

from enumerated import (
    ROUNDING,
    UNLIKELY,
    OfXt,
    Watched,
    absorbing,
    analytical_laws,
    counts_of,
    euler_laws,
    generated_law,
    law_after,
    law_at,
    on_data_states,
    oracle,
    p_value,
    position_rates,
    process_named,
    seeded,
    start_law,
    states_of,
    times,
    total_variation,
    uniform,
)
from labelled import JOINT, NOISES, C, D, LabelledOracle, T, Told, of_label, random_joint
from sddm import Condition, Diffusion, sample
from sddm.marginals import Energy, Guided, Hollow
from sddm.query import Query
from sddm.samplers import Analytical, Euler, InOrder, TauLeaping, uniform_in_share

GAMMAS = [-1.0, 0.5, 2.0, 4.0]


def guided(process, gamma, label=1, joint=JOINT, dim=D, rates=False):
    return Diffusion(process, Told(Guided(LabelledOracle(joint, C, dim), gamma, rates), label))


def asked(x):
    return Query(x, times(T, len(x)))


def sampled_law(diffusion, laws_of=analytical_laws, dim=D, steps=5):
    grid = uniform_in_share(diffusion.process, steps)
    return law_after(laws_of, diffusion, start_law(diffusion, dim), grid, dim)


def tilted(joint, label, gamma):
    """p(x)^(1 - gamma) p(x | y)^gamma, normalised."""
    law = joint.sum(0) ** (1 - gamma) * joint[label] ** gamma
    return law / law.sum()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("gamma", "label"), [(1.0, 1), (0.0, None)])
@pytest.mark.parametrize("rates", [False, True])
def test_guidance_1_is_the_chain_of_the_label_and_0_that_of_all_data(noise, gamma, label, rates):
    process = process_named(noise)
    laws_of = euler_laws if rates else analytical_laws
    one = sampled_law(guided(process, gamma, rates=rates), laws_of)
    assert total_variation(one, sampled_law(of_label(process, label), laws_of)) < ROUNDING
    other = of_label(process, None if label is not None else 1)
    assert total_variation(one, sampled_law(other, laws_of)) > 0.01


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_step_has_the_law_of_the_formula(noise, gamma):
    """sum over x_0 of p(x_0 | .)^(1 - gamma) p(x_0 | ., y)^gamma / Z q_{s|0}(y | x_0) q_{t|s}(x_t | y), normalised."""
    process, s, x = process_named(noise), 0.15, states_of(process_named(noise), D)
    p, p_y = (of_label(process, y).marginals(x, times(T, len(x))).log_x0.exp() for y in (None, 1))
    mixed = torch.where(p > 0, p ** (1 - gamma) * p_y**gamma, 0)
    mixed = mixed / mixed.sum(-1, keepdim=True)
    to_s, s_to_t = (process.transition(times(a, 1), times(b, 1))[0] for a, b in ((0, s), (s, T)))
    weights = torch.einsum("xda,ac,xdc->xdc", mixed, to_s, s_to_t.T[x])
    step = Analytical().weights(guided(process, gamma), asked(x), times(s, len(x)), times(T, len(x)))
    law = step / step.sum(-1, keepdim=True)
    torch.testing.assert_close(law, weights / weights.sum(-1, keepdim=True), rtol=0, atol=1e-10)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_of_rates_the_mixture_is_that_of_the_reverse_rates(noise, gamma):
    process = process_named(noise)
    _, rates = position_rates(guided(process, gamma, rates=True), T, D)
    (_, plain), (_, told) = (position_rates(of_label(process, y), T, D) for y in (None, 1))
    moves = plain > 0
    torch.testing.assert_close(rates[moves], (plain ** (1 - gamma) * told**gamma)[moves], rtol=1e-9, atol=0)
    assert not rates[~moves].any()


def test_the_mixture_of_laws_of_x0_unmasks_as_fast_as_the_process_and_that_of_rates_does_not():
    process = absorbing()
    masked = states_of(process, D) == C
    _, plain = position_rates(of_label(process, 1), T, D)
    for rates in (False, True):
        _, made = position_rates(guided(process, 3.0, rates=rates), T, D)
        speed, usual = made.sum(-1)[masked], plain.sum(-1)[masked]
        assert torch.allclose(speed, usual, rtol=1e-10) != rates
        assert not rates or bool((speed > usual).all())


@pytest.mark.parametrize("make", [uniform, absorbing])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_in_one_dimension_the_samples_have_the_tilted_law_and_those_of_mixed_rates_only_from_masks(make, gamma):
    """Under absorbing noise a position jumps once, and the rates of both mixtures point to values in one proportion."""
    process, joint = make(0.1), random_joint(2, C, 1, seed=5)
    expected = tilted(joint, 1, gamma)
    of_x0, of_rates = (guided(process, gamma, joint=joint, dim=1, rates=rates) for rates in (False, True))
    start = law_at(process, expected, 1, 1.0)  # of the noised tilted law itself: a tenth of the data is left at T
    law = law_after(analytical_laws, of_x0, start, uniform_in_share(process, 5), 1)
    assert total_variation(on_data_states(process, law, 1), expected) < 1e-10
    made = on_data_states(process, generated_law(of_rates, 1, start=start), 1)
    error = total_variation(made / made.sum(), expected)
    assert error < 1e-10 if make is absorbing else error > 1e-3


def test_where_positions_are_independent_the_samples_have_the_tilted_law():
    """The label changes the law of the first position only."""
    process, first = absorbing(), random_joint(2, C, 1, seed=5)
    joint = (first[:, :, None] * torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)).flatten(1)
    law = sampled_law(guided(process, 3.0, joint=joint))
    assert total_variation(on_data_states(process, law, D), tilted(joint, 1, 3.0)) < 1e-10


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("noise", NOISES)
def test_samples_of_several_labels_have_the_laws_of_their_guided_chains(noise):
    process, num = process_named(noise), 3000
    diffusion = Diffusion(process, LabelledOracle(JOINT, C, D))
    labels = torch.arange(2 * num) % 2
    x = sample(diffusion, 2 * num, 4, generator=seeded(0), labels=labels, guidance=2.0)
    laws = [on_data_states(process, sampled_law(guided(process, 2.0, y), steps=4), D) for y in (0, 1)]
    counts = [counts_of(x[labels == y], C) for y in (0, 1)]
    assert p_value(torch.stack(counts), torch.stack(laws)) > UNLIKELY
    plain = on_data_states(process, sampled_law(of_label(process, 1), steps=4), D)
    assert p_value(counts[1], plain) < UNLIKELY


@pytest.mark.parametrize("sampler", [Analytical(), InOrder()], ids=lambda step: type(step).__name__)
def test_guided_samples_do_not_depend_on_the_batch_and_keep_what_is_given(sampler, at_full_speed):
    """From left to right, the model keeps what it has computed of both halves of the question."""
    process = absorbing()
    torch.manual_seed(0)
    model = Hollow.for_process(process, 4, width=8, layers=1, heads=2, mlp=8, num_labels=2)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.4)
    diffusion = Diffusion(process, Hollow(model.network, ordered=True)).eval()
    options = {"sampler": sampler, "labels": torch.arange(12) % 2, "guidance": 2.5}
    options["condition"] = Condition.from_blanks(torch.tensor([-1, -1, 2, -1]))
    one, other = (sample(diffusion, 12, 4, generator=seeded(0), batch_size=n, **options) for n in (12, 1))
    assert torch.equal(one, other)
    assert bool((one[:, 2] == 2).all())
    assert not torch.equal(one, sample(diffusion, 12, 4, generator=seeded(0), **options | {"guidance": 1.0}))


def test_a_question_is_one_batch_of_the_rows_with_and_without_their_labels():
    process = uniform()
    watched = Watched(LabelledOracle(JOINT, C, D))
    x, labels = states_of(process, D)[:5], torch.tensor([0, 1, -1, 1, 0])
    made = Guided(watched, 2.0)(process, asked(x)._replace(label=labels)).log_x0
    assert len(watched.asked) == 1
    assert watched.asked[0]["label"].tolist() == [-1] * 5 + labels.tolist()
    without = watched.inner(process, asked(x)).log_x0
    torch.testing.assert_close(made[2], without[2], rtol=0, atol=ROUNDING)  # a row without a label is not guided


@pytest.mark.parametrize("gamma", [-3.0, 0.3, 1.0, 5.0])
def test_what_the_data_or_the_label_exclude_stays_excluded_and_nothing_is_nan(gamma):
    """The first value is impossible, the second impossible for label 1. Away from the label, the second is certain."""
    joint = torch.tensor([[0.0, 0.3, 0.2], [0.0, 0.0, 0.5]], dtype=torch.float64)
    x = torch.zeros(1, 1, dtype=torch.int64)
    law = guided(uniform(), gamma, joint=joint, dim=1).marginals(x, torch.ones(1)).log_x0[0, 0].exp()
    assert float(law[0]) == 0
    certain = torch.tensor([0.0, 1.0, 0.0] if gamma < 0 else [0.0, 0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(law, certain, rtol=0, atol=1e-15)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_a_model_of_xt_is_guided_by_its_rates(gamma):
    process, label = uniform(), torch.ones(C**D, dtype=torch.int64)
    query = asked(states_of(process, D))._replace(label=label)
    model = LabelledOracle(JOINT, C, D)
    one, other = Guided(OfXt(model), gamma)(process, query), Guided(model, gamma, rates=True)(process, query)
    assert one.log_x0 is None
    assert other.log_x0 is None
    torch.testing.assert_close(one.log_xt, other.log_xt, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("sampler", [Euler(), TauLeaping()], ids=lambda step: type(step).__name__)
def test_a_model_whose_rates_are_mixed_is_sampled_by_them(sampler, at_full_speed):
    for make in (uniform, absorbing):
        diffusion = Diffusion(make(), Guided(LabelledOracle(JOINT, C, D), 2.0, rates=True))
        x = sample(diffusion, 8, 5, sampler, labels=torch.ones(8, dtype=torch.int64), generator=seeded(0))
        assert 0 <= int(x.min()) <= int(x.max()) < C


def test_guidance_without_labels_is_refused_in_a_sentence():
    process = uniform()
    diffusion = Diffusion(process, LabelledOracle(JOINT, C, D))
    labels = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"guidance is 2\.0, but no labels were given to follow"):
        sample(diffusion, 2, 2, guidance=2.0)
    with pytest.raises(ValueError, match="guidance must be finite"):
        sample(diffusion, 2, 2, labels=labels, guidance=float("nan"))
    for model in (oracle(process, JOINT.sum(0), D), Diffusion(process, Energy.mlp(process, D))):
        with pytest.raises(ValueError, match="guidance needs a model that was trained with labels"):
            sample(model, 2, 2, labels=labels, guidance=2.0)
