"""Steps by groups of positions, and analytical steps of a model of x_t, against exact laws on small spaces."""

import itertools

import numpy as np
import pytest
import torch

from enumerated import (
    UNLIKELY,
    OfXt,
    TableModel,
    Watched,
    absorbing,
    analytical_laws,
    as_kernel,
    counts_of,
    elapsed,
    fit,
    law_after,
    law_at,
    log_log_slope,
    on_all_symbols,
    oracle,
    p_value,
    random_law,
    seeded,
    states_of,
    table,
    times,
    total_variation,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.processes import Uniform
from sddm.query import Query
from sddm.samplers import Analytical, Euler, Sweep, uniform_in_share
from sddm.schedules import LogSquare

STEPS = {"analytical": Analytical(), "euler": Euler()}
PULLED = {"uniform": uniform, "absorbing": absorbing}


def swept_laws(name, diffusion, t, s, dim, groups):
    """The laws of the positions of each group at its turn, by the formulas of the step, at the time between."""
    process, states = diffusion.process, states_of(diffusion.process, dim)
    laws = []
    for number in range(groups):
        w = (number + 0.5) / groups
        share = (1 - w) * process.remaining(times(t, 1)) + w * process.remaining(times(s, 1))
        now = process.schedule.inverse(-share.log() / process.gap)
        with torch.no_grad():
            marginals = diffusion(Query(states, now.expand(len(states))))
        if name == "euler":
            p = marginals.log_xt.double().exp()
            rates = process.rates_into(states, torch.float64) * p / p.gather(-1, states[..., None])
            hazard = elapsed(diffusion, s, t) * rates
            stay = (1 - hazard.sum(-1, keepdim=True)).clamp(min=0)
            law = hazard.scatter(-1, states[..., None], stay)
        else:
            to_s = process.transition(times(0, 1), times(s, 1))[0]
            s_to_t = process.transition(times(s, 1), times(t, 1))[0]
            law = torch.einsum("xda,ac,xdc->xdc", marginals.log_x0.double().exp(), to_s, s_to_t.T[states])
        laws.append(law / law.sum(-1, keepdim=True))
    return laws


def sweep_kernel(laws, symbols):
    """The kernel of a step by groups: positions that do not move stay, and orders and groups are equally likely."""
    size, dim = laws[0].shape[:2]
    stay = torch.nn.functional.one_hot(torch.cartesian_prod(*[torch.arange(symbols)] * dim), symbols).double()
    orders, total = list(itertools.permutations(range(dim))), 0
    for order in orders:
        kernel = torch.eye(size, dtype=torch.float64)
        for law, positions in zip(laws, torch.tensor(order).tensor_split(len(laws)), strict=True):
            moves = stay.clone()
            moves[:, positions] = law[:, positions]
            kernel = kernel @ as_kernel(moves, symbols)
        total = total + kernel / len(orders)
    return total


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("groups", [1, 2, 3, 8])
def test_a_sweep_draws_from_the_mean_of_the_kernels_of_all_orders(name, groups):
    diffusion, dim, t, s = table(uniform(), 3), 3, 0.5, 0.1
    expected = sweep_kernel(swept_laws(name, diffusion, t, s, dim, min(groups, dim)), 3)
    assert fit(diffusion, Sweep(STEPS[name], groups), expected, t, s, dim, each=3000) > UNLIKELY


NUMBERS = [8, 16, 32]


def error(kernel, steps):
    """Of a chain of steps that starts from the exact law at T."""
    law, dim = random_law(2, 3, seed=3), 3
    process = Uniform(2, LogSquare(1.0)).leaving(0.1)
    diffusion, current = oracle(process, law, dim), law_at(process, law, dim, 1.0)
    for t, s in itertools.pairwise(uniform_in_share(process, steps).tolist()):
        current = current @ kernel(diffusion, t, s, dim)
    return total_variation(current, on_all_symbols(process, law, dim))


def test_the_error_of_a_sweep_falls_with_the_square_of_the_step_and_that_of_a_plain_step_with_the_first_power():
    swept = [error(lambda *a: sweep_kernel(swept_laws("analytical", *a, groups=3), 2), n) for n in NUMBERS]
    plain = [error(lambda *a: as_kernel(analytical_laws(*a), 2), n) for n in NUMBERS]
    assert log_log_slope(1 / np.array(NUMBERS), plain) == pytest.approx(1, abs=0.2)
    assert log_log_slope(1 / np.array(NUMBERS), swept) == pytest.approx(2, abs=0.2)
    assert max(swept) < min(plain)


def test_a_sweep_asks_for_each_position_once():
    watched = Watched(TableModel(uniform(), 5))
    sample(Diffusion(uniform(), watched), 4, 3, Sweep(groups=2), generator=seeded(0))
    asked = [call["positions"] for call in watched.asked]
    assert [p.shape[1] for p in asked] == [3, 2] * 3
    for first, second in zip(asked[::2], asked[1::2], strict=True):
        assert torch.equal(torch.cat([first, second], dim=1).sort(dim=1).values, torch.arange(5).expand(4, 5))
    assert not torch.equal(asked[0], asked[2])


def test_given_positions_stay_within_a_sweep():
    """Groups that come later must see the given values, and not what a step would have made of them."""
    watched = Watched(TableModel(uniform(), 4))
    condition = Condition(torch.tensor([True, False, True, False]), torch.tensor([2, 0, 1, 0]))
    x = sample(Diffusion(uniform(), watched), 50, 3, Sweep(groups=4), condition=condition, generator=seeded(0))
    for tokens in [*[call["xt"] for call in watched.asked], x]:
        assert bool((tokens[:, [0, 2]] == torch.tensor([2, 1])).all())


@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_the_batch_does_not_matter(batch_size):
    diffusion = table(uniform(), 4)
    whole, parts = (
        sample(diffusion, 50, 3, Sweep(groups=3), generator=seeded(0), batch_size=size) for size in (50, batch_size)
    )
    assert torch.equal(whole, parts)


# ---- analytical steps of a model of x_t ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", PULLED.values(), ids=PULLED)
def test_pull_undoes_push(make):
    process, tau = make(), torch.tensor([0.0, 0.3, 2.0], dtype=torch.float64)
    p = torch.rand(3, 4, process.num_symbols, dtype=torch.float64, generator=seeded(0))
    p = p / p.sum(-1, keepdim=True)
    pulled = process.pull_by(process.push_by(p, tau), tau)
    assert torch.allclose(pulled / pulled.sum(-1, keepdim=True), p, atol=1e-12)


@pytest.mark.parametrize("make", PULLED.values(), ids=PULLED)
def test_what_no_push_can_be_is_pulled_to_the_edge(make):
    process, tau = make(), torch.tensor([1.0], dtype=torch.float64)
    p = torch.zeros(1, 1, process.num_symbols, dtype=torch.float64)
    p[..., 0] = 1
    pulled = process.pull_by(p, tau)
    assert bool((pulled >= 0).all())
    assert torch.equal((pulled / pulled.sum(-1, keepdim=True)), p)


@pytest.mark.parametrize("make", PULLED.values(), ids=PULLED)
@pytest.mark.parametrize("sampler", [Analytical(), Sweep(groups=2)], ids=["analytical", "sweep"])
def test_the_analytical_step_needs_no_prediction_of_x0_where_the_process_can_be_undone(make, sampler):
    """The same conditionals, once as those of x_0 and once as those of x_t, give the same samples."""
    process = make()
    knows = oracle(process, random_law(3, 3, seed=2), 3)
    seen, told = (
        sample(Diffusion(process, model), 2000, 6, sampler, generator=seeded(0))
        for model in (knows.model, OfXt(knows.model))
    )
    assert float((seen != told).any(dim=1).double().mean()) < 1e-3  # a uniform may fall between two roundings


def test_a_chain_of_analytical_steps_is_exact_in_one_dimension_for_a_model_of_xt():
    process, law = uniform(0.5), random_law(3, 1, seed=1)
    start = law_at(process, law, 1, 1.0)
    end = law_after(analytical_laws, oracle(process, law, 1), start, uniform_in_share(process, 3), 1)
    told = Diffusion(process, OfXt(oracle(process, law, 1).model))
    x = sample(told, 40_000, 3, Analytical(), generator=seeded(0), grid=uniform_in_share)
    prior = torch.full((3,), 1 / 3, dtype=torch.float64)
    expected = law_after(analytical_laws, oracle(process, law, 1), prior, uniform_in_share(process, 3), 1)
    assert total_variation(end, law) < 1e-10
    assert p_value(counts_of(x, 3)[None], expected[None]) > UNLIKELY
