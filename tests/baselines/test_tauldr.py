"""tauLDR: its rates are those of leave-one-out, its bound is ours, and its recipes train and sample as it does."""

import math

import pytest
import torch

from enumerated import (
    ROUNDING,
    TableModel,
    Watched,
    all_states,
    base_rates,
    index_of,
    law_at,
    on_data_states,
    one_way,
    oracle,
    random_law,
    seeded,
    single_changes,
    table,
    times,
    transition,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.baselines import tauldr
from sddm.losses import ct_elbo, denoising_cross_entropy
from sddm.marginals import LeaveOneOut
from sddm.networks import Denoiser, Places, Sizes
from sddm.objectives import LOSSES
from sddm.processes import BirthDeath
from sddm.query import Query
from sddm.recipe import SamplingConfig
from sddm.samplers import Euler, Predicting, TauLeaping, Trajectory, uniform_down_to_least_time, uniform_in_time
from sddm.samplers.jumps import reverse_rates
from sddm.schedules import Exponential

DIM, TIMES = 2, (0.05, 0.4, 1.0)
TINY = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}


def birth_death():
    return BirthDeath(3, Exponential(0.5, 1.5)).leaving(0.1)


@pytest.fixture(params=[uniform, birth_death, one_way], ids=lambda make: make.__name__)
def process(request):
    return request.param()


# ---- rates ---------------------------------------------------------------------------------------------------------


def campbell_rates(process, denoiser, x, t):
    """Q_t(y, x^d) sum_c q(y | c) / q(x^d | c) p(c | x), 0 at y = x^d, from the denoiser's p(c | x)."""
    q = transition(process, 1, 0, t)
    ratio = q / q.T[x][..., None]  # (rows, dim, c, y)
    rates = float(process.schedule.rate(t)) * base_rates(process).T[x] * torch.einsum("bdc,bdcy->bdy", denoiser, ratio)
    return rates.scatter(-1, x[..., None], 0)


def ordinary_denoiser():
    """A model of p(x_0^d | x_t) with random weights, and what it says."""
    torch.manual_seed(0)
    network = Denoiser(3, 3, Places(DIM), Sizes(**TINY))
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.5 * torch.randn_like(weight))
    made = LeaveOneOut(network.double(), ordinary=True)
    return made, lambda query: torch.softmax(network(query), -1)


@pytest.mark.parametrize("t", TIMES)
def test_the_rates_from_any_denoiser_are_those_of_leave_one_out(process, t):
    """Also before it has learnt anything; its logits may be those of the denoiser or of the quotient."""
    x = all_states(3, DIM)
    query = Query(x, times(t, len(x)))
    speed = float(process.schedule.rate(t))
    ordinary, said = ordinary_denoiser()
    quotient = TableModel(process, DIM, sees_own_token=True)
    with torch.no_grad():
        product = quotient(process, query).log_x0.exp() * transition(process, 1, 0, t).T[x]
        for model, denoiser in ((ordinary, said(query)), (quotient, product / product.sum(-1, keepdim=True))):
            found = speed * reverse_rates(Diffusion(process, model), query)
            torch.testing.assert_close(found, campbell_rates(process, denoiser, x, t), rtol=1e-9, atol=ROUNDING)


# ---- the loss ------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_bound_and_a_thousandth_of_the_cross_entropy_from_one_evaluation(process):
    watched = Watched(TableModel(process, DIM, sees_own_token=True))
    diffusion, x0 = Diffusion(process, watched), all_states(3, DIM)
    noised = {"t": times(0.4, 9), "xt": x0.flip(0)}
    found = LOSSES["tauldr"](diffusion, x0, **noised)
    assert len(watched.asked) == 1
    wanted = ct_elbo(diffusion, x0, **noised) + 0.001 * denoising_cross_entropy(diffusion, x0, **noised)
    assert torch.equal(found, wanted)


def jumps(process):
    """Q(x, x~) for every two states of the whole that differ in one position."""
    states = all_states(3, DIM)
    rates = torch.zeros(9, 9, dtype=torch.float64)
    out = base_rates(process)[states].scatter(-1, states[..., None], 0).flatten(1)
    return rates.scatter_add(1, single_changes(states, 3).flatten(1), out)


def their_bound(diffusion, t, one_pass=False):
    """Campbell et al.'s bound up to constants, for every x_0: the mean over x_t, and over x~ after a jump from x_t, of

        sum_y R(x_t -> y) - Z(x_t) log R(x~ -> x_t).

    one_pass: with x~ in place of x_t in the first term, as in the code that they released.
    """
    process, states = diffusion.process, all_states(3, DIM)
    q, Q = transition(process, DIM, 0, t), jumps(process)
    p = diffusion(Query(states, times(t, 9))).log_xt.exp()
    rates = p / p.gather(-1, states[..., None]) * base_rates(process).T[states].scatter(-1, states[..., None], 0)
    to = torch.zeros(9, 9, dtype=torch.float64).scatter_add(1, single_changes(states, 3).flatten(1), rates.flatten(1))
    where = q @ (Q / Q.sum(1, keepdim=True)) if one_pass else q
    surprise = torch.where(Q > 0, Q * torch.where(Q.T * to > 0, to.T, 1).log(), 0)  # log R(x~ -> x) at [x, x~]
    return float(process.schedule.rate(t)) * (where @ to.sum(1) - q @ surprise.sum(1))


def our_bound(diffusion, t):
    process, states = diffusion.process, all_states(3, DIM)
    x0, xt = states.repeat_interleave(9, 0), states.repeat(9, 1)
    values = ct_elbo(diffusion, x0, t=times(t, 81), xt=xt).sum(1).reshape(9, 9)
    return (transition(process, DIM, 0, t) * values).sum(1)


@pytest.mark.parametrize("t", TIMES)
def test_the_bound_from_one_evaluation_is_campbell_s_from_two_up_to_terms_without_parameters(process, t):
    """So its gradient has the same mean; that of the code that they released has another."""
    law = random_law(3, DIM, seed=3)
    one, other = (table(process, DIM, sees_own_token=True, seed=seed) for seed in (0, 1))
    constants = [our_bound(d, t) - their_bound(d, t) for d in (one, other)]
    torch.testing.assert_close(*constants, rtol=1e-9, atol=1e-9)
    ours, theirs, released = (
        torch.autograd.grad(law @ value, one.model.table)[0]
        for value in (our_bound(one, t), their_bound(one, t), their_bound(one, t, one_pass=True))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert float((released - theirs).norm()) > 0.2 * float(theirs.norm())  # in rows of two positions


# ---- noise ---------------------------------------------------------------------------------------------------------


def test_the_noise_of_the_recipes_is_that_of_the_paper():
    assert float(tauldr.uniform(129).remaining(torch.ones(1))) == pytest.approx(math.exp(-129 * 0.03))
    t = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    wanted = 1.0**2 * (100.0 / 1.0) ** (2 * t) * math.log(100.0)
    torch.testing.assert_close(tauldr.birth_death(129).schedule.rate(t), wanted)
    for name, (make, _) in tauldr.PROCESSES.items():
        made = tauldr.recipe(129, name).but(model=TINY).model.diffusion(129, 4)
        assert type(made.process) is type(make(129))
        assert made.model.sees_own_token
        torch.testing.assert_close(made.process.schedule.rate(t), make(129).schedule.rate(t), rtol=1e-9, atol=0)


def test_with_few_states_a_recipe_leaves_a_little_of_the_data():
    made = tauldr.recipe(3, "birth-death").but(model=TINY).model.diffusion(3, 4)
    assert float(made.process.remaining(torch.ones(1))) == pytest.approx(1e-12)


# ---- sampling ------------------------------------------------------------------------------------------------------


def test_the_steps_lead_down_to_a_hundredth_and_then_to_0():
    assert uniform_down_to_least_time(uniform(), 4).tolist() == pytest.approx([1, 0.67, 0.34, 0.01, 0])
    assert uniform_down_to_least_time(uniform(), 1).tolist() == [1, 0]


def test_the_last_step_takes_the_most_likely_value_of_the_denoiser_and_the_others_leap(process):
    diffusion = table(process, DIM, sees_own_token=True)
    path = Trajectory()
    options = {"grid": uniform_down_to_least_time, "seeds": range(50)}
    x = sample(diffusion, 50, 4, Predicting(), callback=path, **options)
    last = path.tokens[-2]
    log_x0 = diffusion.marginals(last, times(0.01, 50)).log_x0
    likelihood = process.likelihood(last, times(0, 50), times(0.01, 50))
    assert torch.equal(x, (log_x0.exp() * likelihood).argmax(-1))
    leaps = Trajectory()
    sample(diffusion, 50, 4, TauLeaping(ordinal=process.ordinal), callback=leaps, **options)
    assert torch.equal(path.tokens[:-1], leaps.tokens[:-1])


def test_a_leap_to_0_leaves_noise_where_predicting_does_not():
    law = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    diffusion = oracle(uniform(), law, 1)
    leapt = sample(diffusion, 3_000, 5, TauLeaping(), grid=uniform_in_time, generator=seeded(0))
    predicted = sample(diffusion, 3_000, 5, Predicting(), grid=uniform_in_time, generator=seeded(0))
    assert float((leapt != 0).double().mean()) > 0.01
    assert int(predicted.max()) == 0


def test_many_steps_give_the_data(at_full_speed):
    law = random_law(3, DIM, seed=3)
    process = uniform(1e-4)
    diffusion = oracle(process, law, DIM)
    x = SamplingConfig(100, "tauldr", "tauldr").sample(diffusion, 8_000, generator=seeded(0))
    found = torch.bincount(index_of(x, 3), minlength=9).double() / 8_000
    before = on_data_states(process, law_at(process, law, DIM, 0.01), DIM)
    assert float((found - law).abs().sum()) / 2 < 0.03 + float((before - law).abs().sum())


def test_another_step_can_lead_up_to_the_last_one():
    diffusion, ends = table(uniform(), DIM), [Trajectory(), Trajectory()]
    for step, path in zip((Predicting(Euler()), Euler()), ends, strict=True):
        sample(diffusion, 50, 4, step, callback=path, seeds=range(50))
    assert torch.equal(ends[0].tokens[:-1], ends[1].tokens[:-1])


@pytest.mark.parametrize("rounds", [0, 2])
def test_the_corrector_is_not_used_above_its_entry(rounds):
    process = uniform()
    watched = Watched(TableModel(process, DIM, sees_own_token=True))
    settings = SamplingConfig(4, "tauldr", "tauldr", corrector=rounds, corrector_factor=0.1, corrector_entry=0.5)
    settings.sample(Diffusion(process, watched), 2, generator=seeded(0))
    assert watched.times == pytest.approx([1.0, 0.67, *[0.34] * rounds, 0.34, *[0.01] * rounds, 0.01])


@pytest.mark.parametrize("entry", [0.0, -1.0, 1.5, math.nan])
def test_an_entry_that_is_no_time_is_refused(entry, without_annotation_checks):
    with pytest.raises(ValueError, match="corrector_entry must"):
        SamplingConfig(corrector_entry=entry)


def test_a_model_of_x_t_cannot_predict():
    with pytest.raises(ValueError, match="sampler: Predicting needs a model that predicts x0"):
        sample(table(uniform(), DIM, implicit=False), 2, 2, Predicting())


# ---- recipes -------------------------------------------------------------------------------------------------------


def test_there_are_the_six_of_the_paper():
    made = tauldr.recipes(129)
    assert [*made] == [f"tauLDR-{n} {noise}" for noise in ("uniform", "birth-death") for n in (0, 2, 10)]
    for recipe in made.values():
        assert (recipe.training.loss, recipe.training.times, recipe.training.learning_rate) == (
            "tauldr",
            "uniform:0.01",
            2e-4,
        )
        assert (recipe.sampling.corrector_factor, recipe.sampling.corrector_entry) == (0.1, 0.9)
        assert recipe.sampling.corrector in (0, 2, 10)


@pytest.mark.parametrize("name", ["tauLDR-0 uniform", "tauLDR-2 uniform", "tauLDR-10 birth-death"])
def test_a_recipe_trains_and_completes_rows(name, at_full_speed):
    def rows(step):
        return torch.randint(5, (16, 1), generator=seeded(step)).expand(-1, 6).contiguous()

    recipe = tauldr.recipes(5, steps=12)[name]
    recipe = recipe.but(
        model=TINY, training={"steps": 100, "batch_size": 16, "known": "prefix:2", "learning_rate": 1e-2, "ema": 0.9}
    )
    model = recipe.trained(rows, 5, 6)
    known = Condition.from_prefix(torch.arange(5).repeat_interleave(2).reshape(5, 2).repeat(6, 1), 6)
    x = recipe.sampling.sample(model, 30, condition=known, generator=seeded(0))
    assert torch.equal(x[:, :2], known.values[:, :2])
    assert float((x[:, 2:] == x[:, :1]).double().mean()) > 0.5
    again = recipe.sampling.sample(model, 30, condition=known, generator=seeded(0), batch_size=7)
    assert torch.equal(x, again)
