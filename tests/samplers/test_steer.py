"""Steering by a reward: the law of the samples and the estimate of Z, on enumerated spaces."""

import math

import pytest
import torch

from enumerated import (
    UNLIKELY,
    absorbing,
    all_states,
    analytical_laws,
    counts_of,
    index_of,
    law_after,
    on_data_states,
    oracle,
    p_value,
    random_law,
    seeded,
    start_law,
    uniform,
)
from labelled import LabelledOracle, random_joint
from sddm import Condition, Diffusion, sample, steer
from sddm.marginals import Hollow
from sddm.samplers import OfLaw, OfNoised, OfPrediction, uniform_in_share

C, D, STEPS = 3, 2, 3
LAW = random_law(C, D, seed=1)
STATES = all_states(C, D)
TABLE = 1.5 * torch.randn(C**D, generator=seeded(7), dtype=torch.float64)
FORMS = {
    "prediction": lambda: OfPrediction(reward),
    "law": lambda: OfLaw(lambda p: torch.einsum("na,nb,ab->n", p[:, 0], p[:, 1], TABLE.view(C, C).to(p.dtype))),
    "noised": lambda: OfNoised(lambda x: reward(x.clamp(max=C - 1))),
}


def reward(x):
    return TABLE[index_of(x, C)]


def sampler_law(diffusion):
    """Of the sampler without a reward, exact."""
    grid = uniform_in_share(diffusion.process, STEPS)
    law = law_after(analytical_laws, diffusion, start_law(diffusion, D), grid, D)
    return on_data_states(diffusion.process, law, D)


def of_table(make=uniform):
    return oracle(make(), LAW, D)


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("make", [uniform, absorbing])
@pytest.mark.parametrize("form", FORMS)
def test_with_few_particles_and_resampling_all_sums_are_unbiased(make, form):
    """The mean of Z times the weighted particles is p(x) exp(r(x)) for every x, however the particles were chosen."""
    diffusion = of_table(make)
    made = steer(diffusion, 2000, FORMS[form](), particles=4, resample_below=0.9, generator=seeded(0), steps=STEPS)
    which = torch.nn.functional.one_hot(index_of(made.particles.flatten(0, 1), C), C**D).view(2000, 4, -1)
    sums = made.log_z.exp()[:, None] * (made.weights[..., None] * which).sum(1)
    expected = sampler_law(diffusion) * TABLE.exp()
    error = sums.std(0) / len(sums) ** 0.5
    assert bool(((sums.mean(0) - expected).abs() < 4 * error).all())
    total = made.log_z.exp()
    assert abs(float(total.mean()) - float(expected.sum())) < 4 * float(total.std()) / 2000**0.5


@pytest.mark.usefixtures("at_full_speed")
def test_the_law_of_the_samples_tends_to_the_rewarded_one_as_particles_grow():
    """It is that of the sampler with one particle, and with 40 no test on 500 samples tells it from the other."""
    diffusion = of_table()
    plain = sampler_law(diffusion)
    aim = plain * TABLE.exp() / (plain * TABLE.exp()).sum()
    one, many = (
        counts_of(steer(diffusion, 500, reward, particles=n, generator=seeded(1), steps=STEPS).tokens, C)
        for n in (1, 40)
    )
    assert p_value(one, plain) > UNLIKELY > p_value(one, aim)
    assert p_value(many, aim) > UNLIKELY > p_value(many, plain)


@pytest.mark.usefixtures("at_full_speed")
def test_without_resampling_it_is_importance_sampling():
    diffusion = of_table()
    made = steer(diffusion, 20, reward, particles=50, resample_below=0, generator=seeded(2), steps=STEPS)
    values = reward(made.particles.flatten(0, 1)).view(20, 50)
    torch.testing.assert_close(made.weights, values.softmax(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(made.log_z, values.exp().mean(1).log(), rtol=0, atol=1e-12)
    torch.testing.assert_close(made.effective[-1], 1 / made.weights.square().sum(1))
    z = float((sampler_law(diffusion) * TABLE.exp()).sum())
    assert abs(float(values.exp().mean()) - z) < 4 * float(values.exp().std()) / 1000**0.5


def test_resampling_keeps_more_particles_effective():
    diffusion = of_table()
    sharp = OfNoised(lambda x: 4 * reward(x))
    options = {"particles": 32, "steps": 10}
    never, often = (
        steer(diffusion, 50, sharp, resample_below=share, generator=seeded(0), **options) for share in (0.0, 0.5)
    )
    assert float(often.effective[-1].mean()) > 2 * float(never.effective[-1].mean())
    assert 1 <= float(never.effective.min()) <= float(never.effective.max()) <= 32 + 1e-9
    flat = steer(diffusion, 3, lambda x: torch.zeros(len(x)), generator=seeded(0), **options)
    torch.testing.assert_close(flat.effective, torch.full((10, 3), 32.0, dtype=torch.float64))
    assert not flat.log_z.abs().gt(1e-12).any()


def test_the_result_is_that_of_the_seed_at_any_batch_size_and_keeps_what_is_given(at_full_speed):
    """Also from left to right, where the network keeps what it has computed of particles that are exchanged."""
    process = absorbing()
    torch.manual_seed(0)
    model = Hollow.for_process(process, 4, width=8, layers=1, heads=2, mlp=8)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    diffusion = Diffusion(process, Hollow(model.network, ordered=True)).eval()
    known = Condition.from_blanks(torch.tensor([[-1, -1, 2, -1], [-1, 1, 0, -1], [-1, -1, -1, -1]]))
    options = {"particles": 6, "resample_below": 1.0, "condition": known}
    for form in (OfPrediction, OfNoised):
        how = form(lambda x: 0.5 * x.sum(1))
        one, other = (steer(diffusion, 3, how, generator=seeded(0), batch_size=n, **options) for n in (3, 1))
        for name in ("tokens", "particles", "weights", "log_z", "effective"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=1e-12)
        assert bool((one.particles[0, :, 2] == 2).all())
        assert bool((one.particles[1, :, 1:3] == torch.tensor([1, 0])).all())
        assert not torch.equal(one.particles, steer(diffusion, 3, how, generator=seeded(1), **options).particles)


def test_it_takes_labels_and_guidance_and_reports_each_step(at_full_speed):
    diffusion = Diffusion(uniform(), LabelledOracle(random_joint(2, C, D, seed=3), C, D))
    heard, options = [], {"labels": torch.tensor([0, 1, 1]), "guidance": 2.0, "steps": 4}
    made = steer(diffusion, 3, reward, particles=5, callback=heard.append, generator=seeded(0), batch_size=2, **options)
    assert [(p.step, p.steps, tuple(p.tokens.shape)) for p in heard] == [
        *((n, 4, (2, 5, D)) for n in range(1, 5)),
        *((n, 4, (1, 5, D)) for n in range(1, 5)),
    ]
    torch.testing.assert_close(torch.stack([p.effective for p in heard[:4]]), made.effective[:, :2])
    with pytest.raises(ValueError, match=r"guidance is 2\.0, but no labels were given"):
        steer(diffusion, 3, reward, guidance=2.0)


@pytest.mark.usefixtures("at_full_speed")
def test_a_row_of_reward_minus_infinity_is_never_drawn():
    diffusion = of_table()
    made = steer(
        diffusion,
        100,
        lambda x: torch.where(x[:, 0] == x[:, 1], 0.0, -math.inf),
        particles=16,
        generator=seeded(0),
        steps=STEPS,
    )
    assert bool((made.tokens[:, 0] == made.tokens[:, 1]).all())
    share = float(LAW.view(C, C).diagonal().sum())
    assert share < 0.9  # so that without a reward 10 of 100 samples would be others
    with pytest.raises(ValueError, match="reward is -inf for every particle of a sample"):
        steer(diffusion, 2, lambda x: torch.full((len(x),), -math.inf), particles=3, steps=STEPS)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"reward": lambda x: x.sum(1) / 0.0 * 0}, ValueError, "reward returned NaN"),
        ({"reward": lambda x: x.sum(1) + math.inf}, ValueError, "reward returned inf"),
        ({"reward": lambda x: x.double()}, ValueError, r"must return a tensor of shape \(8,\), .* shape \(8, 2\)"),
        ({"reward": lambda x: 1.0}, TypeError, r"reward must return a torch\.Tensor .*not float"),
        ({"reward": 3}, TypeError, "reward must be a function of tokens, but it is a int"),
        ({"particles": 0}, ValueError, "particles must be at least 1"),
        ({"resample_below": 1.5}, ValueError, r"resample_below must lie in \[0, 1\], but it is 1\.5"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
    ],
)
def test_a_reward_that_cannot_be_is_refused_in_a_sentence(options, kind, message):
    arguments = {"reward": reward, "particles": 4, "steps": 2, **options}
    with pytest.raises(kind, match=message):
        steer(of_table(), 2, **arguments)


def test_one_particle_is_a_plain_sample_of_its_law(at_full_speed):
    diffusion = of_table()
    made = steer(diffusion, 5, reward, particles=1, generator=seeded(0), steps=STEPS)
    assert torch.equal(made.tokens[:, None], made.particles)
    assert torch.equal(made.weights, torch.ones(5, 1, dtype=torch.float64))
    torch.testing.assert_close(made.log_z, reward(made.tokens), rtol=0, atol=1e-12)
    assert made.tokens.shape == sample(diffusion, 5, STEPS).shape
