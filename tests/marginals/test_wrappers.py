"""Models made of other models: values that a position does not have, and temperature."""

import math

import pytest
import torch

from enumerated import (
    OfXt,
    absorbing,
    analytical_laws,
    euler_laws,
    law_after,
    oracle,
    random_law,
    seeded,
    start_law,
    states_of,
    times,
    total_variation,
    uniform,
)
from sddm import Condition, Diffusion
from sddm.losses import conditional_ratio_matching, ct_elbo, denoising_cross_entropy, ratio_matching, x0_cross_entropy
from sddm.marginals import Hollow, LeaveOneOut, Masked, Oracle, Restricted, Tempered
from sddm.processes import Absorbing, BirthDeath, Uniform
from sddm.samplers import Analytical, Corrector, Euler, Exact, TauLeaping, uniform_in_share
from sddm.schedules import Constant, SqrtCosine

SIZES = [2, 5, 3, 1]
SMALL = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
LOSSES = [ratio_matching, conditional_ratio_matching, x0_cross_entropy, ct_elbo]
PROCESSES = {"uniform": Uniform, "absorbing": Absorbing, "birth-death": BirthDeath}


def restricted(kind="uniform", make=Hollow.for_process):
    torch.manual_seed(0)
    process = PROCESSES[kind](5, Constant(1.0)).leaving(0.02)
    return Diffusion(process, Restricted(make(process, 4, **SMALL), SIZES)).eval()


def rows(num=6, seed=0):
    generator = seeded(seed)
    return torch.stack([torch.randint(size, (num,), generator=generator) for size in SIZES], dim=1)


def possible(tokens):
    return bool((tokens < torch.tensor(SIZES)).all())


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("make", [Hollow.for_process, Masked.for_process, LeaveOneOut.for_process])
def test_a_value_that_a_position_does_not_have_has_probability_0_and_the_others_sum_to_1(kind, make):
    diffusion = restricted(kind, make)
    x = torch.randint(diffusion.process.num_symbols, (6, 4), generator=seeded(1))
    with torch.no_grad():
        p = diffusion.marginals(x, torch.linspace(0.1, 1, 6)).log_x0.exp()
    for position, size in enumerate(SIZES):
        assert torch.equal(p[:, position, size:], torch.zeros_like(p[:, position, size:]))
        torch.testing.assert_close(p[:, position].sum(-1), torch.ones(6))


def test_at_some_positions_it_is_all_positions_indexed():
    diffusion = restricted()
    positions = torch.tensor([[3, 0], [1, 2], [2, 3], [0, 1], [1, 0], [2, 0]])
    t = torch.linspace(0.1, 1, 6)
    with torch.no_grad():
        some, whole = (diffusion.marginals(rows(), t, p).log_x0 for p in (positions, None))
    assert torch.equal(some, whole.gather(1, positions[..., None].expand(-1, -1, 5)))


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("sampler", [Analytical(), Euler(), TauLeaping(), Exact()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("corrector", [None, Corrector()], ids=["plain", "corrected"])
def test_no_sampler_ever_makes_an_impossible_value(kind, sampler, corrector):
    made = restricted(kind).sample(200, steps=4, sampler=sampler, corrector=corrector, seed=0)
    assert possible(made)
    assert len(made[:, 1].unique()) == 5


def test_conditions_are_kept():
    known = Condition.from_blanks(torch.tensor([1, -1, 2, -1]))
    made = restricted().sample(50, steps=4, condition=known, seed=0)
    assert possible(made)
    assert bool((made[:, [0, 2]] == torch.tensor([1, 2])).all())


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("t", [None, 0.0])
def test_losses_and_their_gradients_are_finite(kind, loss, t):
    diffusion = restricted(kind)
    value = loss(diffusion, rows(), t=None if t is None else torch.full((6,), t), generator=seeded(2)).sum()
    value.backward()
    assert bool(torch.isfinite(value))
    assert all(bool(torch.isfinite(w.grad).all()) for w in diffusion.parameters() if w.grad is not None)


def test_a_denoiser_can_be_restricted_and_trained_as_one():
    diffusion = restricted(make=LeaveOneOut.for_process)
    assert diffusion.model.sees_own_token
    value = denoising_cross_entropy(diffusion, rows(), generator=seeded(2)).sum()
    value.backward()
    assert bool(torch.isfinite(value))


def test_a_restricted_model_is_saved_with_its_sizes(tmp_path):
    diffusion = restricted()
    diffusion.save_pretrained(tmp_path)
    again = Diffusion.from_pretrained(tmp_path)
    assert again.model.arguments["sizes"] == SIZES
    assert torch.equal(again.sample(5, steps=3, seed=1), diffusion.sample(5, steps=3, seed=1))


def test_a_model_that_cannot_be_restricted_says_why():
    process = Uniform(5, Constant(1.0)).leaving(0.02)
    with pytest.raises(ValueError, match="Restricted needs a model that predicts x0"):
        Restricted(Hollow.for_process(process, 4, implicit=False, **SMALL), SIZES)
    with pytest.raises(ValueError, match="sizes has 2 entries, but the model 4 positions"):
        Restricted(Hollow.for_process(process, 4, **SMALL), [2, 5])


# ---- temperature ---------------------------------------------------------------------------------------------------


def two_models(process, law, temperature):
    """Of the same data at the same temperature: one of x_0, one of x_t."""
    model = oracle(process, law, 2).model
    return [Diffusion(process, Tempered(one, temperature)) for one in (model, OfXt(model))]


def test_temperature_raises_each_conditional_of_the_data_to_a_power():
    process, law, x, t = uniform(), random_law(3, 2, seed=1), states_of(uniform(), 2), times(0.4, 9)
    p = oracle(process, law, 2).marginals(x, t).log_x0.exp()
    for temperature in (0.5, 2.0):
        power = p ** (1 / temperature)
        for diffusion in two_models(process, law, temperature):
            q = diffusion.marginals(x, t).log_x0.exp()
            torch.testing.assert_close(q, power / power.sum(-1, keepdim=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [uniform, absorbing])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("laws_of", [euler_laws, analytical_laws])
def test_a_model_of_the_noised_data_at_a_temperature_samples_the_law_of_one_of_the_data(make, temperature, laws_of):
    """By the exact law of the chain. The noise is undone by dividing by a(t) >= 0.1: ten roundings of the law, and
    their roots at temperature 2."""
    process, law = make(0.1), random_law(3, 2, seed=1)
    first, second = (
        law_after(laws_of, diffusion, start_law(diffusion, 2), uniform_in_share(process, 6), 2)
        for diffusion in two_models(process, law, temperature)
    )
    plain = oracle(process, law, 2)
    untempered = law_after(laws_of, plain, start_law(plain, 2), uniform_in_share(process, 6), 2)
    assert total_variation(first, second) < 1e-10
    assert total_variation(first, untempered) > 0.01


@pytest.mark.parametrize("explicit", [False, True])
def test_a_high_temperature_does_not_sharpen_or_flatten_the_noise(explicit):
    """Data of equal tokens stay such at temperature 2, since a flattened certainty is one: the noise that would break
    them up is left alone. When the law of x_t itself was flattened, 28% of the samples were possible; of a model of
    x_0, 99.7% of ten thousand."""
    process, num = Uniform(2, SqrtCosine(1.0)).leaving(0.02), 500
    model = Oracle(torch.tensor([[0], [1]]).expand(2, 8), [0.5, 0.5])
    diffusion = Diffusion(process, OfXt(model) if explicit else model)
    x = diffusion.sample(num, steps=100, seed=0, temperature=2.0)
    impossible = int((x != x[:, :1]).any(1).sum())
    assert impossible < 0.003 * num + 4 * math.sqrt(0.003 * num)


def test_a_temperature_is_refused_where_the_noise_cannot_be_undone():
    process = BirthDeath(3, Constant(1.0)).leaving(0.1)
    diffusion = Diffusion(process, OfXt(oracle(process, random_law(3, 2, seed=1), 2).model))
    with pytest.raises(ValueError, match=r"temperature: .* noise of BirthDeath cannot be undone"):
        diffusion.sample(4, steps=2, seed=0, temperature=0.5)


def test_temperature_1_changes_nothing_and_a_low_one_leaves_only_the_likely():
    diffusion = restricted()
    assert torch.equal(diffusion.sample(9, steps=3, seed=0), diffusion.sample(9, steps=3, seed=0, temperature=1.0))
    cold = diffusion.sample(200, steps=20, seed=0, temperature=1e-3)
    warm = diffusion.sample(200, steps=20, seed=0, temperature=1.0)
    assert len(cold.unique(dim=0)) < len(warm.unique(dim=0))


def test_sampling_at_a_temperature_leaves_the_mode_of_the_model_alone():
    diffusion = restricted().train()
    diffusion.sample(2, steps=2, seed=0, temperature=0.5)
    assert all(module.training for module in diffusion.modules())
