"""The bound on -log p(x_0) against the exact law of what a model generates, and its error bar against the exact one."""

import math

import numpy as np
import pytest
import torch

from enumerated import (
    TableModel,
    Watched,
    absorbing,
    all_states,
    generated_law,
    index_of,
    law_at,
    on_data_states,
    one_way,
    oracle,
    random_law,
    seeded,
    start_law,
    states_of,
    table,
    transition,
    uniform,
)
from sddm import Diffusion
from sddm.likelihood import bound
from sddm.losses import ct_elbo

DIM = 2
LAW = random_law(3, DIM, seed=3)
X0 = all_states(3, DIM)
ENUMERABLE = {"uniform": uniform, "absorbing": absorbing, "not reversible": one_way}
MASTER_EQUATION = 1e-7
"""The error of the exact laws, relative to probabilities of 0.01 and more; see `generated_law`."""


@pytest.fixture(params=list(ENUMERABLE.values()), ids=list(ENUMERABLE))
def make(request):
    return request.param


def generated_nats(diffusion):
    """-log p(x_0) of the model's own samples, for every x_0."""
    return -on_data_states(diffusion.process, generated_law(diffusion, DIM), DIM).log()


def moments(diffusion, t):
    """The mean of the bound's integrand over x_t, and of its square, for every x_0 and each time: (times, rows)."""
    process = diffusion.process
    states = states_of(process, DIM)
    x0 = X0.repeat_interleave(len(states), dim=0).repeat(len(t), 1)
    xt = states.repeat(len(X0) * len(t), 1)
    with torch.no_grad():
        values = ct_elbo(diffusion, x0, t=t.repeat_interleave(len(X0) * len(states)), xt=xt).sum(-1)
    values = values.reshape(len(t), len(X0), len(states))
    rows = index_of(X0, process.num_symbols)
    weight = torch.stack([transition(process, DIM, 0, float(u))[rows] for u in t])
    return (weight * values).sum(-1), (weight * values**2).sum(-1)


def nodes(start, end, num):
    """Gauss and Legendre's times and weights for an integral over [start, end]."""
    x, w = np.polynomial.legendre.leggauss(num)
    half = (end - start) / 2
    return torch.from_numpy(start + half * (x + 1)), torch.from_numpy(half * w)


def end_divergence(diffusion):
    """KL(q_{T|0}(. | x_0) || p_T) on the whole space, for every x_0."""
    process = diffusion.process
    q = transition(process, DIM, 0, 1.0)[index_of(X0, process.num_symbols)]
    return torch.where(q > 0, q * (q / start_law(diffusion, DIM)).log(), 0).sum(-1)


def exact_bound(diffusion):
    """The bound itself, for every x_0. The integrand grows like log t near 0, so that t = u^3 makes it smooth."""
    u, w = nodes(0.0, 1.0, 60)
    mean, _ = moments(diffusion, u**3)
    return end_divergence(diffusion) + (3 * u**2 * w) @ mean


def mismatch(diffusion, law):
    """How much worse than the truth it is to start from p_T rather than q_T: E over q_{T|0} of log(q_T / p_T)."""
    process = diffusion.process
    q = transition(process, DIM, 0, 1.0)[index_of(X0, process.num_symbols)]
    return q @ (law_at(process, law, DIM, 1.0) / start_law(diffusion, DIM)).log()


# ---- the bound is a bound ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_is_never_below_what_the_model_generates(make, share, seed):
    diffusion = table(make(share), DIM, seed=seed)
    truth, limit = generated_nats(diffusion), exact_bound(diffusion)
    assert bool((limit > truth - MASTER_EQUATION).all())
    estimate = bound(diffusion, X0, 256, generator=seeded(seed))
    assert bool((estimate.nats > truth - 4 * estimate.standard_error).all())


@pytest.mark.parametrize("make_process", [uniform, one_way])
def test_the_bound_holds_for_a_model_of_x_t_too(make_process):
    diffusion = table(make_process(), DIM, implicit=False, scale=0.3)
    truth, limit = generated_nats(diffusion), exact_bound(diffusion)
    assert bool((limit > truth - MASTER_EQUATION).all())
    estimate = bound(diffusion, X0, 256, generator=seeded(0))
    assert bool((estimate.nats > truth - 4 * estimate.standard_error).all())


def test_the_estimate_agrees_with_the_bound_within_its_standard_error(make):
    diffusion = table(make(), DIM)
    estimate = bound(diffusion, X0, 512, generator=seeded(1))
    assert bool(((estimate.nats - exact_bound(diffusion)).abs() < 4 * estimate.standard_error).all())
    mean, error = estimate.mean
    assert abs(mean - float(exact_bound(diffusion).mean())) < 4 * error


# ---- and tight for the truth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1e-6, 0.2])
def test_for_the_oracle_the_bound_is_the_data_s_own_but_for_the_start(make, share):
    diffusion = oracle(make(share), LAW, DIM)
    truth = -LAW.log() + mismatch(diffusion, LAW)
    # the quadrature errs by what is left of a singularity u^5 log u: far below the error bars
    torch.testing.assert_close(exact_bound(diffusion), truth, rtol=0, atol=1e-5)
    estimate = bound(diffusion, X0, 512, generator=seeded(2))
    assert bool(((estimate.nats - truth).abs() < 4 * estimate.standard_error + 1e-5).all())


def test_the_start_costs_nothing_when_almost_no_data_are_left(make):
    """The mismatch is at most of the order of the share that is left, times the nats of a position."""
    assert float(mismatch(oracle(make(1e-6), LAW, DIM), LAW).abs().max()) < 1e-5


def test_with_much_of_the_data_left_the_oracle_s_bound_is_one_on_what_it_generates(make):
    """Then it does not generate the data, because it starts from the prior."""
    diffusion = oracle(make(0.2), LAW, DIM)
    truth = generated_nats(diffusion)
    assert float((truth + LAW.log()).abs().max()) > 1e-3
    estimate = bound(diffusion, X0, 512, generator=seeded(3))
    assert bool((exact_bound(diffusion) > truth - 1e-5).all())
    assert bool((estimate.nats > truth - 4 * estimate.standard_error).all())


def test_a_worse_model_has_a_worse_bound():
    """On the data's own average the bound exceeds the entropy by a divergence, which grows with the perturbation."""
    truth = oracle(uniform(1e-6), LAW, DIM)
    entropy = -float(LAW @ LAW.log())
    excess = [
        float(LAW @ exact_bound(table(uniform(1e-6), DIM, scale=scale, base=truth.model))) - entropy
        for scale in (0.1, 0.3, 1.0)
    ]
    assert 1e-3 < excess[0] < excess[1] < excess[2]


# ---- the standard error is honest ----------------------------------------------------------------------------------


def exact_variances(diffusion, num_times):
    """The variance of the estimate for every x_0, and the mean of the square of the error that is reported for it."""
    means, variances = [], []
    for i in range(num_times):
        t, w = nodes(i / num_times, (i + 1) / num_times, 6)
        first, second = moments(diffusion, t)
        means.append(num_times * w @ first)
        variances.append(num_times * w @ second - means[-1] ** 2)
    means, variances = torch.stack(means), torch.stack(variances)
    true = variances.sum(0) / num_times**2
    return true, true + (means[0::2] - means[1::2]).square().sum(0) / num_times**2


@pytest.mark.usefixtures("without_annotation_checks")
def test_the_standard_error_is_that_of_the_estimate_and_never_too_small_on_average(make):
    diffusion, num_times, repeats, row = table(make(), DIM), 128, 400, 5
    true, reported = exact_variances(diffusion, num_times)
    estimate = bound(diffusion, X0[row : row + 1].expand(repeats, DIM), num_times, generator=seeded(4))
    squares = estimate.standard_error.square()
    assert float(squares.mean()) == pytest.approx(float(reported[row]), abs=4 * float(squares.std()) / repeats**0.5)
    # the spread of the repeats: a sample variance, whose own error comes from the fourth moment
    deviations = (estimate.nats - estimate.nats.mean()).square()
    error = float(deviations.std()) / repeats**0.5
    assert float(deviations.mean()) == pytest.approx(float(true[row]), abs=4 * error)
    # neighbouring strata have different means, which makes the reported error too large, but by less than a tenth
    assert 1 <= float(reported[row] / true[row]) < 1.21


def test_the_standard_error_of_the_mean_is_honest():
    """Over 60 repeats the spread is chi-square distributed about the truth: a relative error of 1/sqrt(118)."""
    diffusion, num_times, repeats = table(uniform(), DIM), 16, 60
    true, reported = exact_variances(diffusion, num_times)
    runs = [bound(diffusion, X0, num_times, generator=seeded(seed)).mean for seed in range(repeats)]
    spread = float(np.std([mean for mean, _ in runs], ddof=1))
    error = math.sqrt(float(true.sum())) / len(X0)
    assert spread / error == pytest.approx(1, abs=4 / math.sqrt(2 * (repeats - 1)))
    squares = np.array([e for _, e in runs]) ** 2
    honest = float(reported.sum()) / len(X0) ** 2
    assert squares.mean() == pytest.approx(honest, abs=4 * squares.std(ddof=1) / math.sqrt(repeats))


def test_the_standard_error_falls_with_the_number_of_times():
    """At least as fast as the root of their number, because the strata shrink too."""
    few, many = (bound(table(uniform(), DIM), X0, n, generator=seeded(0)).mean[1] for n in (16, 1024))
    assert many < few / 6


# ---- the public face -----------------------------------------------------------------------------------------------


def test_bits_per_dim_are_nats_per_position_over_log_two():
    estimate = bound(table(uniform(), DIM), X0, 16, generator=seeded(0))
    mean, error = estimate.mean
    assert mean == pytest.approx(float(estimate.nats.mean()))
    assert error == pytest.approx(float(estimate.standard_error.norm()) / len(X0))
    assert estimate.dim == DIM
    assert estimate.bits_per_dim == pytest.approx((mean / DIM / math.log(2), error / DIM / math.log(2)))


def test_the_same_generator_gives_the_same_bound(make):
    first, again, other = (bound(table(make(), DIM), X0, 8, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.nats, again.nats)
    assert torch.equal(first.standard_error, again.standard_error)
    assert not torch.equal(first.nats, other.nats)


def test_the_bound_does_not_depend_on_the_batch_size(make):
    whole, *parts = (
        bound(table(make(), DIM), X0, 8, generator=seeded(1), batch_size=size).nats for size in (1024, 72, 7, 1)
    )
    for part in parts:
        torch.testing.assert_close(part, whole, rtol=1e-12, atol=1e-12)


def test_batches_hold_no_more_rows_than_asked():
    watched = Watched(TableModel(uniform(), DIM))
    bound(Diffusion(uniform(), watched), X0, 8, generator=seeded(0), batch_size=10)
    assert max(len(call["xt"]) for call in watched.asked) == 10
    assert sum(len(call["xt"]) for call in watched.asked) == 8 * len(X0)


def test_the_times_of_each_row_are_stratified():
    watched = Watched(TableModel(uniform(), DIM))
    bound(Diffusion(uniform(), watched), X0[:3], 10, generator=seeded(0))
    t = watched.asked[0]["t"].reshape(3, 10)
    assert torch.equal((t * 10).floor(), torch.arange(10).double().expand(3, 10))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_evaluated_in_evaluation_mode_and_put_back(training):
    watched = Watched(TableModel(uniform(), DIM))
    diffusion = Diffusion(uniform(), watched).train(training)
    bound(diffusion, X0, 2, generator=seeded(0))
    assert not any(call["training"] for call in watched.asked)
    assert diffusion.training == watched.training == training


def test_a_row_that_the_oracle_holds_impossible_has_no_finite_bound():
    law = random_law(3, DIM, seed=1, impossible=5)
    nats = bound(oracle(absorbing(), law, DIM), X0, 64, generator=seeded(0)).nats
    assert bool(nats[law == 0].isinf().all())
    assert bool(nats[law > 0].isfinite().all())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_times": 3}, "num_times must be even"),
        ({"num_times": 0}, "num_times must be at least 2"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"x0": torch.full((2, DIM), 3)}, "x0 must hold tokens from 0 to 2"),
        ({"x0": torch.zeros(2, 5, dtype=torch.int64)}, "x0 has 5 positions, but the model was built for 2"),
    ],
)
def test_bad_arguments_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        bound(table(uniform(), DIM), **{"x0": X0, **arguments})


def test_the_integrand_is_finite_at_both_ends_of_time(make):
    mean, square = moments(table(make(), DIM), torch.tensor([1e-9, 1.0], dtype=torch.float64))
    assert bool(mean.isfinite().all())
    assert bool(square.isfinite().all())
