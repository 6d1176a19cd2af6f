"""The bound on -log p(x_0) against the exact law of what a model generates, and its error bar against the exact one."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from enumerated import (
    ENUMERABLE,
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
    times,
    transition,
    uniform,
)
from sddm import Diffusion
from sddm.likelihood import Bound, _integrand, bound, stretch
from sddm.losses import ct_elbo
from sddm.marginals import Energy, Hollow, LeaveOneOut, MarginalModel, Masked, Oracle
from sddm.networks import Denoiser, HollowTransformer, MLPEnergy, Places, Sizes
from sddm.noising import Batch, noise_batch
from sddm.processes import Uniform
from sddm.query import Query
from sddm.randomness import Stream
from sddm.schedules import Constant, SqrtCosine

DIM = 2
LAW = random_law(3, DIM, seed=3)
X0 = all_states(3, DIM)
MASTER_EQUATION = 1e-7
"""The error of the exact laws, relative to probabilities of 0.01 and more; see `generated_law`."""


def steep():
    return Uniform(3, SqrtCosine(1.0)).leaving(0.02)


class Quotient(Denoiser):
    """The logits of an ordinary denoiser: those of a quotient, times the likelihood of x_t^d."""

    def __init__(self, process):
        super().__init__(3, 3, **SMALL)
        self.process = process

    def forward(self, query):
        likelihood = self.process.likelihood_by(query.here, self.process.tau(0.0, query.t), torch.float64)
        return super().forward(query) + likelihood.log()


def with_random_weights(model):
    """In float64, and away from the zeros and ones that some weights begin with."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model.double()


@pytest.fixture(params=list(ENUMERABLE.values()), ids=list(ENUMERABLE))
def make(request):
    return request.param


def generated_nats(diffusion):
    """-log p(x_0) of the model's own samples, for every x_0."""
    return -on_data_states(diffusion.process, generated_law(diffusion, DIM), DIM).log()


def means(diffusion, t):
    """The mean of the bound's integrand over x_t, for every x_0 and each time: (times, rows)."""
    process = diffusion.process
    states = states_of(process, DIM)
    x0 = X0.repeat_interleave(len(states), dim=0).repeat(len(t), 1)
    xt = states.repeat(len(X0) * len(t), 1)
    with torch.no_grad():
        values = ct_elbo(diffusion, x0, t=t.repeat_interleave(len(X0) * len(states)), xt=xt).sum(-1)
    values = values.reshape(len(t), len(X0), len(states))
    rows = index_of(X0, process.num_symbols)
    weight = torch.stack([transition(process, DIM, 0, float(u))[rows] for u in t])
    return torch.where(weight > 0, weight * values, 0).sum(-1)


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
    """The bound itself, for every x_0. The integrand grows like log t near 0, and that of a steep schedule like
    1 / sqrt(1 - t) near 1. So t is a function of u whose derivative 140 (u (1 - u))^3 makes both ends smooth."""
    u, w = nodes(0.0, 1.0, 60)
    mean = means(diffusion, u**4 * (35 - 84 * u + 70 * u**2 - 20 * u**3))
    return end_divergence(diffusion) + (140 * (u * (1 - u)) ** 3 * w) @ mean


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


def test_a_process_that_forgets_far_more_than_it_needs_to_has_the_same_bound():
    """Of the data e^-300 is left: 1 minus that is 1."""
    diffusion = oracle(Uniform(3, Constant(100.0)), LAW, DIM)
    estimate = bound(diffusion, X0, 512, generator=seeded(6))
    assert bool(((estimate.nats + LAW.log()).abs() < 5 * estimate.standard_error).all())


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

SMALL = {"places": Places(DIM), "sizes": Sizes(width=8, layers=1, heads=2, mlp=8, time_scale=3.0)}
CASES = {
    "energy": (uniform, lambda p: Energy(MLPEnergy(DIM, 3, width=8, layers=2, time_scale=3.0))),
    "masked": (uniform, lambda p: Masked(Denoiser(4, 3, **SMALL))),
    "hollow": (uniform, lambda p: Hollow(HollowTransformer(3, 3, **SMALL))),
    "leave one out": (uniform, lambda p: LeaveOneOut(Denoiser(3, 3, **SMALL))),
    "leave one out, divided": (uniform, lambda p: LeaveOneOut(Quotient(p), ordinary=True)),
    "oracle": (absorbing, lambda p: Oracle.from_joint(LAW.reshape(3, 3))),
    "table, absorbing": (absorbing, lambda p: TableModel(p, DIM)),
    "table of x_t": (one_way, lambda p: TableModel(p, DIM, implicit=False, scale=0.3)),
    "table of x_t, steep": (steep, lambda p: TableModel(p, DIM, implicit=False, scale=0.3)),
    "table of all of x": (uniform, lambda p: TableModel(p, DIM, sees_own_token=True)),
    "table of all of x, absorbing": (absorbing, lambda p: TableModel(p, DIM, sees_own_token=True)),
    "table of all of x, one way": (one_way, lambda p: TableModel(p, DIM, sees_own_token=True)),
    "table of all of x, steep": (steep, lambda p: TableModel(p, DIM, sees_own_token=True)),
}
"""A schedule is steep when beta(T) is infinite."""


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(("make_process", "make_model"), CASES.values(), ids=list(CASES))
def test_two_standard_errors_cover_the_bound_as_often_as_they_say(make_process, make_model):
    """For one row, and for the mean over four. A coverage of 0.90 or 0.99 would fail: 3,000 rows and 750 means know it
    to 0.004 and 0.008."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        process = make_process()
        diffusion = Diffusion(process, with_random_weights(make_model(process)))
    truth, group = exact_bound(diffusion).repeat(334)[:3000], 4
    estimate = bound(diffusion, X0.repeat(334, 1)[:3000], 32, generator=seeded(5), batch_size=1 << 13)
    covered = (estimate.nats - truth).abs() <= 2 * estimate.standard_error
    assert 0.92 <= float(covered.double().mean()) <= 0.98
    means = [Bound(*(part[i : i + group] for part in estimate)).mean for i in range(0, 3000, group)]
    mean, error = torch.tensor(means, dtype=torch.float64).T
    covered = (mean - truth.reshape(-1, group).mean(1)).abs() <= 2 * error
    assert 0.92 <= float(covered.double().mean()) <= 0.98


@pytest.mark.parametrize("degrees", [7.0, 12.5, 70.0, 1000.0])
def test_the_stretch_is_that_of_student_s_law(degrees):
    wide = stats.t.isf(stats.norm.sf(2), degrees)
    assert stretch(degrees) == pytest.approx(wide / 2, abs=1e-3)


def test_a_value_at_a_moved_token_is_bounded_near_the_start():
    """Drawn as they come, one row in 1/(2 t) moves, and has a value of order 1/t: a variance of order 1/t."""
    diffusion, rows, squares = table(uniform(), DIM, sees_own_token=True), 2000, []
    for early in (1e-3, 1e-6):
        noised = noise_batch(diffusion, Batch(X0[:1].expand(rows, DIM)), t=times(early, rows), generator=seeded(0))
        with torch.no_grad():
            values = _integrand(diffusion, noised, Stream(seeded(1)))
        squares.append(float(values.square().mean()) / math.log(early) ** 2)
    assert squares[1] < 4 * squares[0]


def test_the_standard_error_falls_with_the_number_of_times():
    """At least as fast as the root of their number, because the strata shrink too."""
    few, many = (bound(table(uniform(), DIM), X0, n, generator=seeded(0)).mean[1] for n in (16, 1024))
    assert many < few / 6


def test_the_error_of_the_mean_of_one_row_is_that_of_the_row():
    estimate = bound(table(uniform(), DIM), X0[:1], 16, generator=seeded(0))
    assert estimate.mean == pytest.approx((float(estimate.nats), float(estimate.standard_error)))


# ---- given positions, and padding ----------------------------------------------------------------------------------


class Fixed(MarginalModel):
    """What another model says of all positions but the first, when that is given."""

    def __init__(self, inner, first):
        super().__init__()
        self.inner, self.first = inner, first
        self.length, self.implicit, self.sees_own_token = inner.length - 1, inner.implicit, inner.sees_own_token

    def forward(self, process, query):
        xt = torch.nn.functional.pad(query.xt, (1, 0), value=self.first)
        given = torch.zeros_like(xt, dtype=torch.bool)
        given[:, 0] = True
        return self.inner(process, Query(xt, query.t, query.places + 1, given))


LONGER = all_states(3, DIM + 1)
FIRST_GIVEN = torch.tensor([True, False, False]).expand(len(LONGER), -1)


@pytest.mark.parametrize("own", [False, True])
def test_with_given_positions_it_bounds_the_likelihood_of_the_others_given_these(make, own):
    process = make()
    model = TableModel(process, DIM + 1, sees_own_token=own, scale=0.5)
    estimate = bound(Diffusion(process, model), LONGER, 128, given=FIRST_GIVEN, generator=seeded(0))
    for first in range(3):
        one, rows = Diffusion(process, Fixed(model, first)), LONGER[:, 0] == first
        limit = exact_bound(one)  # for the rows of X0, in the order of the others' values
        assert bool(((estimate.nats[rows] - limit).abs() < 5 * estimate.standard_error[rows]).all())
        if not own:  # the exact law is that of a model that does not look
            assert bool((limit > generated_nats(one) - MASTER_EQUATION).all())


def test_for_the_oracle_the_bound_given_a_position_is_the_data_s_own_conditional(make):
    law = random_law(3, DIM + 1, seed=4)
    truth = -(law.reshape(3, 9) / law.reshape(3, 9).sum(1, keepdim=True)).log().flatten()
    estimate = bound(oracle(make(1e-6), law, DIM + 1), LONGER, 256, given=FIRST_GIVEN, generator=seeded(1))
    start = 1e-5  # of the order of the share that is left
    assert bool(((estimate.nats - truth).abs() < 5 * estimate.standard_error + start).all())


@pytest.mark.parametrize("own", [False, True])
def test_padding_is_not_scored_and_what_it_holds_does_not_matter(own):
    sizes = {"places": Places(None), "sizes": Sizes(width=8, layers=1, heads=2, mlp=8)}
    model = LeaveOneOut(Denoiser(3, 3, **sizes)) if own else Hollow(HollowTransformer(3, 3, **sizes))
    diffusion = Diffusion(uniform(), with_random_weights(model))
    padding = torch.tensor([[False, False, True, True]]).expand(9, -1)
    rows = torch.cat([X0, X0], dim=1)
    first, second = (
        bound(diffusion, padded, 64, padding=padding, generator=seeded(0))
        for padded in (rows, rows.where(~padding, 2 - rows))
    )
    torch.testing.assert_close(first.nats, second.nats, rtol=1e-9, atol=1e-9)
    alone = bound(diffusion, X0, 512, generator=seeded(1))
    error = (first.standard_error.square() + alone.standard_error.square()).sqrt()
    assert bool(((first.nats - alone.nats).abs() < 5 * error).all())
    assert first.free.tolist() == [2] * 9


def test_bits_are_counted_per_free_position():
    given = torch.tensor([[True, False], [False, False]])
    estimate = bound(table(uniform(), DIM), X0[:2], 16, given=given, generator=seeded(0))
    assert estimate.free.tolist() == [1, 2]
    assert estimate.bits_per_dim[0] == pytest.approx(float(estimate.nats.sum()) / 3 / math.log(2))
    assert estimate.bits_per_dim[1] == pytest.approx(estimate.mean[1] * 2 / 3 / math.log(2))


def test_a_row_with_nothing_free_is_certain():
    given = torch.tensor([[True, True], [False, False]])
    for own in (False, True):
        estimate = bound(table(absorbing(), DIM, sees_own_token=own), X0[:2], 16, given=given, generator=seeded(0))
        assert float(estimate.nats[0]) == float(estimate.standard_error[0]) == 0
        assert float(estimate.nats[1]) > 0


# ---- the public face -----------------------------------------------------------------------------------------------


def test_bits_per_dim_are_nats_per_position_over_log_two():
    estimate = bound(table(uniform(), DIM), X0, 16, generator=seeded(0))
    mean, error = estimate.mean
    assert mean == pytest.approx(float(estimate.nats.mean()))
    assert estimate.free.tolist() == [DIM] * len(X0)
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
    bound(Diffusion(uniform(), watched), X0[:3], 80, generator=seeded(0))
    t = watched.asked[0]["t"].reshape(24, 10)
    u = ((1 - uniform().remaining(t.flatten())) / 0.9).sqrt().reshape(24, 10)
    assert torch.equal((u * 10 - 1e-9).floor(), torch.arange(10).double().expand(24, 10))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_evaluated_in_evaluation_mode_and_put_back(training):
    watched = Watched(TableModel(uniform(), DIM))
    diffusion = Diffusion(uniform(), watched).train(training)
    bound(diffusion, X0, 8, generator=seeded(0))
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
        ({"num_times": 20}, "num_times must be a multiple of 8, but it is 20"),
        ({"num_times": 0}, "num_times must be at least 8"),
        ({"given": torch.ones(9, DIM, dtype=torch.bool)}, "leave no position to score"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"x0": torch.full((2, DIM), 3)}, "x0 must hold tokens from 0 to 2"),
        ({"x0": torch.zeros(2, 5, dtype=torch.int64)}, "x0 has 5 positions, but the model was built for 2"),
    ],
)
def test_bad_arguments_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        bound(table(uniform(), DIM), **{"x0": X0, **arguments})


def test_the_integrand_is_finite_at_both_ends_of_time(make):
    ends = torch.tensor([1e-9, 1.0], dtype=torch.float64)
    assert bool(means(table(make(), DIM), ends).isfinite().all())
