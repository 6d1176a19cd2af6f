"""The losses against their expectations, summed over every x_0 and x_t of a small space."""

import itertools
import math

import pytest
import torch

from enumerated import (
    ROUNDING,
    TableModel,
    Watched,
    absorbing,
    all_states,
    base_rates,
    conditionals,
    draw_states,
    index_of,
    law_at,
    model_rates,
    one_way,
    oracle,
    process_named,
    random_law,
    seeded,
    states_of,
    table,
    times,
    transition,
    uniform,
)
from sddm import Diffusion
from sddm.losses import conditional_ratio_matching, ct_elbo, denoising_cross_entropy, ratio_matching, x0_cross_entropy
from sddm.marginals import Oracle
from sddm.processes import PROCESSES

DIM = 2
LAW = random_law(3, DIM, seed=3)
RATIO_LOSSES = [ratio_matching, conditional_ratio_matching]
LOSSES = [*RATIO_LOSSES, x0_cross_entropy, denoising_cross_entropy, ct_elbo]


@pytest.fixture(params=[uniform, absorbing, one_way])
def process(request):
    return request.param()


@pytest.fixture(params=LOSSES, ids=lambda loss: loss.__name__)
def loss(request):
    return request.param


def all_pairs(process, t, law=LAW, dim=DIM):
    """Every (x_0, x_t) that can occur at time t, and its probability."""
    x0, xt = all_states(process.num_states, dim), states_of(process, dim)
    joint = law[:, None] * transition(process, dim, 0, t)[index_of(x0, process.num_symbols)]
    pairs = (joint > 0).nonzero()
    return x0[pairs[:, 0]], xt[pairs[:, 1]], joint[pairs[:, 0], pairs[:, 1]]


def values_at_all_pairs(loss, diffusion, t, **options):
    x0, xt, weight = all_pairs(diffusion.process, t)
    return loss(diffusion, x0, t=times(t, len(x0)), xt=xt, **options), weight


def expected(loss, diffusion, t):
    """The exact mean of the loss at time t."""
    with torch.no_grad():
        values, weight = values_at_all_pairs(loss, diffusion, t)
    return float(weight @ values.sum(-1))


def a_batch(num, seed=0, dim=DIM, law=LAW):
    return draw_states(law, num, 3, dim, seed)


# ---- conditional ratio matching: the same mean, less variance ------------------------------------------------------


@pytest.mark.parametrize("implicit", [True, False], ids=["implicit", "explicit"])
@pytest.mark.parametrize("t", [0.05, 0.5, 1.0])
def test_conditional_ratio_matching_has_the_mean_of_ratio_matching_and_its_gradient(process, t, implicit):
    diffusion = table(process, DIM, implicit=implicit)
    means, gradients = [], []
    for loss in RATIO_LOSSES:
        values, weight = values_at_all_pairs(loss, diffusion, t)
        means.append(weight @ values.sum(-1))
        gradients.append(torch.autograd.grad(means[-1], diffusion.model.table)[0])
    torch.testing.assert_close(*means, rtol=ROUNDING, atol=0)
    torch.testing.assert_close(*gradients, rtol=ROUNDING, atol=ROUNDING)
    assert float(gradients[0].abs().max()) > 1e-3


def exact_variances(loss, diffusion, t):
    """The variance of the loss at each position, and the summed variances of its gradient's components."""
    values, weight = values_at_all_pairs(loss, diffusion, t)
    mean = weight @ values.detach()
    of_value = weight @ (values.detach() - mean).square()
    total = values.sum(-1)
    gradients = torch.stack(
        [torch.autograd.grad(v, diffusion.model.table, retain_graph=True)[0].flatten() for v in total]
    )
    of_gradient = weight @ (gradients - weight @ gradients).square()
    return of_value, float(of_gradient.sum())


def test_conditional_ratio_matching_has_less_variance_in_value_and_gradient(process):
    """It is the conditional mean of ratio matching given x_0 and x_t^{\\d} (Rao and Blackwell)."""
    diffusion = table(process, DIM)
    shares = []
    for t in (0.05, 0.5, 1.0):
        plain, plain_gradient = exact_variances(ratio_matching, diffusion, t)
        conditional, conditional_gradient = exact_variances(conditional_ratio_matching, diffusion, t)
        assert bool((conditional < plain).all())
        assert conditional_gradient < plain_gradient
        shares.append(conditional_gradient / plain_gradient)
    # the more noise, the less of the draw of x_t^d is due to x_0
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.1


def test_conditional_ratio_matching_has_less_variance_in_draws_too(generator):
    diffusion, x0 = table(uniform(), DIM), a_batch(4000)
    spread = {}
    for loss in RATIO_LOSSES:
        with torch.no_grad():
            spread[loss] = float(loss(diffusion, x0, t=times(0.9, len(x0)), generator=generator).sum(-1).var())
    # A sample variance of 4000 draws errs by a few per cent; the true ones differ by a factor of more than ten.
    assert spread[conditional_ratio_matching] < spread[ratio_matching] / 5


# ---- every loss has the truth for its minimum ----------------------------------------------------------------------


def divergence_of_rates(truth, other, q):
    """The expectation over q of sum_y [R' - R + R log(R / R')]: how fast the two reverse processes diverge."""
    off = ~torch.eye(len(q), dtype=torch.bool)
    terms = other - truth + torch.where(truth > 0, truth * (truth / other).log(), 0)
    return float(q @ torch.where(off & (other + truth > 0), terms, 0).sum(1))


def excess(loss, diffusion, truth, t):
    """By how much the loss must exceed that of the truth: a divergence, in closed form."""
    process = diffusion.process
    states, q = states_of(process, DIM), law_at(process, LAW, DIM, t)
    moments = torch.tensor([t], dtype=torch.float64)
    if loss is ct_elbo:
        return divergence_of_rates(model_rates(truth, moments, DIM)[0], model_rates(diffusion, moments, DIM)[0], q)
    with torch.no_grad():
        ours, theirs = (d.marginals(states, times(t, len(states))) for d in (truth, diffusion))
    log_p, log_r = (ours.log_xt, theirs.log_xt) if loss in RATIO_LOSSES else (ours.log_x0, theirs.log_x0)
    if loss is denoising_cross_entropy:
        log_likelihood = process.likelihood(states, times(0, len(states)), times(t, len(states))).log()
        log_p, log_r = ((log + log_likelihood).log_softmax(-1) for log in (log_p, log_r))
    p = log_p.exp()
    return float(q @ torch.where(p > 0, p * (log_p - log_r), 0).sum((1, 2)))


@pytest.mark.parametrize("t", [0.1, 0.7])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_a_loss_exceeds_that_of_the_oracle_by_the_divergence_from_it(loss, process, t, scale):
    truth = oracle(process, LAW, DIM)
    least = expected(loss, truth, t)
    for seed in range(3):
        perturbed = table(process, DIM, scale=scale, seed=seed, base=truth.model)
        divergence = excess(loss, perturbed, truth, t)
        assert divergence > 0
        # the difference of two numbers of the size of `least`
        assert expected(loss, perturbed, t) - least == pytest.approx(divergence, rel=1e-9, abs=ROUNDING * (1 + least))


@pytest.mark.parametrize("loss", RATIO_LOSSES, ids=lambda loss: loss.__name__)
def test_among_explicit_models_too_the_oracle_minimises_the_ratio_losses(loss, process):
    truth = oracle(process, LAW, DIM)
    for t, seed in itertools.product((0.1, 0.7), range(3)):
        perturbed = table(process, DIM, implicit=False, scale=0.1, seed=seed, base=truth.model)
        gain = expected(loss, perturbed, t) - expected(loss, truth, t)
        assert gain == pytest.approx(excess(loss, perturbed, truth, t), rel=1e-9, abs=ROUNDING)
        assert gain > 0


def test_the_gradient_of_every_loss_vanishes_at_the_oracle(loss, process):
    truth = oracle(process, LAW, DIM)
    at_truth = table(process, DIM, scale=0.0, base=truth.model)
    values, weight = values_at_all_pairs(loss, at_truth, 0.4)
    gradient = torch.autograd.grad(weight @ values.sum(-1), at_truth.model.table)[0]
    assert float(gradient.abs().max()) < ROUNDING


# ---- the bound's integrand -----------------------------------------------------------------------------------------


def elbo_by_loops(diffusion, x0, xt, t, average):
    """The sum over y of [R - R^ + R^ log(R^ / R)] at each position of one row, written out: at x_t^d as it is, or
    averaged over it."""
    process = diffusion.process
    Q = (process.schedule.rate(t) * base_rates(process)).tolist()
    P = process.transition(times(0, 1), times(t, 1))[0].tolist()
    with torch.no_grad():
        p = diffusion.marginals(xt[None], times(t, 1)).log_xt[0].exp().tolist()

    def divergence(d, x):
        q, total = P[x0[d]], 0.0
        for y in range(process.num_symbols):
            if y == x or Q[y][x] == 0:
                continue
            model, given_x0 = Q[y][x] * p[d][y] / p[d][x], Q[y][x] * q[y] / q[x]
            total += model - given_x0 + (given_x0 * math.log(given_x0 / model) if given_x0 > 0 else 0)
        return total

    if not average:
        return [divergence(d, int(xt[d])) for d in range(len(x0))]
    return [sum(q * divergence(d, x) for x, q in enumerate(P[x0[d]]) if q > 0) for d in range(len(x0))]


@pytest.mark.parametrize("sees_own_token", [False, True], ids=["averaged over x_t^d", "at x_t^d"])
@pytest.mark.parametrize("t", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("name", PROCESSES)
def test_ct_elbo_is_the_divergence_of_the_reverse_rates(name, t, sees_own_token):
    """Averaged over x_t^d where the model does not look at it; at the x_t^d that was drawn where it does."""
    process = process_named(name)
    diffusion = table(process, DIM, sees_own_token=sees_own_token)
    x0, xt, _ = all_pairs(process, t)
    x0, xt = x0[::5], xt[::5]
    with torch.no_grad():
        values = ct_elbo(diffusion, x0, t=times(t, len(x0)), xt=xt)
    by_loops = [elbo_by_loops(diffusion, a, b, t, average=not sees_own_token) for a, b in zip(x0, xt, strict=True)]
    torch.testing.assert_close(values, torch.tensor(by_loops, dtype=torch.float64), rtol=1e-10, atol=1e-10)


def test_ct_elbo_is_never_negative(process):
    """R - R^ + R^ log(R^ / R) >= 0, and 0 only where R = R^."""
    for t, seed in itertools.product((1e-3, 0.3, 1.0), range(3)):
        with torch.no_grad():
            values, _ = values_at_all_pairs(ct_elbo, table(process, DIM, scale=3.0, seed=seed), t)
        assert float(values.min()) > -ROUNDING * float(values.max())


def test_ct_elbo_vanishes_for_an_oracle_of_a_single_row(process):
    alone = Diffusion(process, Oracle([[2, 0]], [1.0]))
    x0 = torch.tensor([[2, 0]]).expand(50, 2)
    values = ct_elbo(alone, x0, generator=seeded(0))
    assert float(values.abs().max()) < 1e-9


# ---- shapes, conditions, some of the positions ---------------------------------------------------------------------


def test_a_loss_has_one_value_for_each_row_and_position(loss, generator):
    values = loss(oracle(uniform(), LAW, DIM), a_batch(7), generator=generator)
    assert values.shape == (7, DIM)


def test_given_positions_stay_clean_and_count_nothing(loss, process, generator):
    law = random_law(3, 3, seed=1)
    watched = Watched(Oracle.from_joint(law.reshape(3, 3, 3)))
    x0 = a_batch(64, dim=3, law=law)
    condition = torch.rand(64, 3, generator=generator) < 0.5
    # even where the noised data that are handed in disagree with what is given
    xt = process.noise(x0, times(1.0, 64), generator)
    values = loss(Diffusion(process, watched), x0, t=times(0.6, 64), xt=xt, given=condition)
    seen = watched.asked[0]
    assert bool((values[condition] == 0).all())
    assert bool((values[~condition] != 0).any())
    assert torch.equal(seen["xt"][condition], x0[condition])
    assert torch.equal(seen["xt"][~condition], xt[~condition])
    assert torch.equal(seen["given"], condition)


def test_padding_counts_nothing_and_is_told_to_the_model(loss, generator):
    class Padded(Watched):
        def forward(self, process, query):
            self.padding = query.padding
            return super().forward(process, query._replace(padding=None))

    watched = Padded(Oracle.from_joint(LAW.reshape(3, 3)))
    padding = torch.tensor([[False, True]]).expand(20, 2)
    for num_positions in (None, 1):
        values = loss(
            Diffusion(uniform(), watched),
            a_batch(20),
            padding=padding,
            num_positions=num_positions,
            generator=generator,
        )
        assert bool((values[:, 1] == 0).all())
        assert bool((values[:, 0] != 0).all())
        assert torch.equal(watched.padding, padding)


def test_a_condition_leaves_the_loss_of_the_conditional_law(process):
    """Given x_0^1 = 1 the loss at position 0 is that of the one-dimensional law pi(. | x^1 = 1)."""
    t = 0.6
    rest = conditionals(LAW, 3, DIM)[1, 0]  # the state (0, 1): the law of x^0 given x^1 = 1
    x0 = torch.tensor([[c, 1] for c in range(3)])
    alone = all_states(3, 1)
    for loss in (conditional_ratio_matching, x0_cross_entropy, ct_elbo):
        mask = torch.tensor([False, True]).expand(3, 2)
        both = loss(oracle(process, LAW, DIM), x0, t=times(t, 3), xt=x0, given=mask)[:, 0]
        single = loss(oracle(process, rest, 1), alone, t=times(t, 3), xt=alone)[:, 0]
        torch.testing.assert_close(both, single, rtol=ROUNDING, atol=ROUNDING)


def subsets_drawn(values, num_positions):
    """Which positions were evaluated, as a set for each row (values are never exactly 0 there)."""
    drawn = [frozenset(row.nonzero().flatten().tolist()) for row in values]
    assert all(len(s) <= num_positions for s in drawn)
    return drawn


@pytest.mark.parametrize("num_positions", [1, 2, 3, 4])
def test_some_of_the_positions_estimate_the_loss_without_bias(loss, num_positions):
    """Each evaluated position is scaled by D/k; averaged over all subsets of k that is the loss at every position."""
    dim, num = 4, 6000
    process = uniform()
    diffusion = table(process, dim)
    x0 = torch.tensor([[0, 2, 1, 1]]).expand(num, dim)
    xt = torch.tensor([[0, 1, 1, 2]]).expand(num, dim)
    t = times(0.4, num)
    with torch.no_grad():
        everything = loss(diffusion, x0[:1], t=t[:1], xt=xt[:1])[0]
        some = loss(diffusion, x0, t=t, xt=xt, num_positions=num_positions, generator=seeded(1))
    subsets = subsets_drawn(some, num_positions)
    for row, subset in zip(some[:200], subsets[:200], strict=True):
        chosen = torch.tensor([d in subset for d in range(dim)])
        scaled = torch.where(chosen, everything * dim / num_positions, 0)
        torch.testing.assert_close(row, scaled, rtol=ROUNDING, atol=ROUNDING)
    # and all subsets of k positions are equally likely
    possible = list(itertools.combinations(range(dim), num_positions))
    share = 1 / len(possible)
    for subset in possible:
        frequency = sum(s == frozenset(subset) for s in subsets) / num
        assert abs(frequency - share) <= 4 * math.sqrt(share * (1 - share) / num)


@pytest.mark.parametrize("num_positions", [1, 2, 3, 4])
def test_some_of_the_free_positions_estimate_the_loss_without_bias(loss, num_positions):
    """With m free positions each one that is evaluated is scaled by m/k, or by 1 if all of them are."""
    dim, num = 4, 6000
    diffusion = table(uniform(), dim)
    x0 = torch.tensor([[0, 2, 1, 1]]).expand(num, dim)
    xt = torch.tensor([[0, 1, 1, 2]]).expand(num, dim)
    given = torch.tensor([[False, True, False, False]]).expand(num, dim)
    t = times(0.4, num)
    with torch.no_grad():
        everything = loss(diffusion, x0[:1], t=t[:1], xt=xt[:1], given=given[:1])[0]
        some = loss(diffusion, x0, t=t, xt=xt, given=given, num_positions=num_positions, generator=seeded(2))
    assert float(some[:, 1].abs().max()) == 0
    error = some.std(0) / math.sqrt(num)
    assert bool(((some.mean(0) - everything).abs() <= 4 * error + ROUNDING * everything.abs()).all())
    if num_positions >= 3:
        torch.testing.assert_close(some, everything.expand_as(some), rtol=ROUNDING, atol=ROUNDING)


def test_rows_that_are_given_altogether_count_nothing(loss, generator):
    x0 = a_batch(5)
    given = torch.ones(5, DIM, dtype=torch.bool)
    for num_positions in (None, 1):
        values = loss(oracle(uniform(), LAW, DIM), x0, given=given, num_positions=num_positions, generator=generator)
        assert torch.equal(values, torch.zeros(5, DIM, dtype=values.dtype))


def test_only_the_drawn_positions_are_asked_of_the_model(loss, generator):
    law = random_law(3, 3, seed=1)
    watched = Watched(Oracle.from_joint(law.reshape(3, 3, 3)))
    loss(Diffusion(uniform(), watched), a_batch(5, dim=3, law=law), num_positions=2, generator=generator)
    assert len(watched.asked) == 1
    assert watched.asked[0]["positions"].shape == (5, 2)
    loss(Diffusion(uniform(), watched), a_batch(5, dim=3, law=law), generator=generator)
    assert watched.asked[1]["positions"] is None


# ---- times and randomness ------------------------------------------------------------------------------------------


def test_times_are_stratified_over_the_batch_by_default(loss, generator):
    watched = Watched(Oracle.from_joint(LAW.reshape(3, 3)))
    batch = 50
    loss(Diffusion(uniform(), watched), a_batch(batch), generator=generator)
    t = watched.asked[0]["t"]
    assert t.dtype == torch.float64
    assert torch.equal((t * batch).floor().sort().values, torch.arange(batch, dtype=torch.float64))


@pytest.mark.usefixtures("without_annotation_checks")
def test_two_equal_rows_of_a_fixed_batch_have_equal_losses_on_average():
    diffusion, row = table(uniform(), DIM), torch.tensor([[1, 2]]).expand(2, -1)
    draws = [ct_elbo(diffusion, row, generator=seeded(seed)).detach().sum(-1) for seed in range(100)]
    difference = torch.stack([first - second for first, second in draws])
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / 10


def test_a_weight_multiplies_each_row_by_its_time_s(loss):
    x0, t = a_batch(20), torch.linspace(0.05, 1, 20, dtype=torch.float64)
    diffusion = oracle(uniform(), LAW, DIM)
    plain = loss(diffusion, x0, t=t, generator=seeded(5))
    weighted = loss(diffusion, x0, t=t, weight=lambda t: 1 / t, generator=seeded(5))
    torch.testing.assert_close(weighted, plain / t[:, None], rtol=ROUNDING, atol=0)


def test_the_same_generator_gives_the_same_loss(loss, process):
    def drawn(seed):
        return loss(oracle(process, LAW, DIM), a_batch(30), num_positions=1, generator=seeded(seed))

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_noise_is_drawn_from_the_forward_process(process):
    """With everything drawn by the library, the mean agrees with the exact one within four standard errors."""
    diffusion, num, t = table(process, DIM), 20_000, 0.5
    with torch.no_grad():
        for loss in LOSSES:
            values = loss(diffusion, a_batch(num, seed=9), t=times(t, num), generator=seeded(3)).sum(-1)
            error = float(values.std()) / math.sqrt(num)
            assert abs(float(values.mean()) - expected(loss, diffusion, t)) < 4 * error


# ---- which models, which processes ---------------------------------------------------------------------------------


def test_an_explicit_model_has_no_cross_entropy_of_x_0():
    diffusion = table(uniform(), DIM, implicit=False)
    for loss in (*RATIO_LOSSES, ct_elbo):
        assert bool(loss(diffusion, a_batch(4), generator=seeded(0)).isfinite().all())
    for loss in (x0_cross_entropy, denoising_cross_entropy):
        with pytest.raises(ValueError, match=f"{loss.__name__} needs a model that predicts x0"):
            loss(diffusion, a_batch(4))


def test_a_model_that_sees_its_own_token_is_refused_where_it_would_learn_to_copy_it():
    diffusion = table(uniform(), DIM, sees_own_token=True)
    for loss in (denoising_cross_entropy, ct_elbo):
        assert bool(loss(diffusion, a_batch(4), generator=seeded(0)).isfinite().all())
    for loss in (*RATIO_LOSSES, x0_cross_entropy):
        with pytest.raises(ValueError, match=f"{loss.__name__} needs a model whose prediction at d does not look"):
            loss(diffusion, a_batch(4))


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_loss_and_its_gradient_is_finite_for_every_process(loss, name, dtype):
    process = process_named(name)
    model = TableModel(process, DIM).to(dtype)
    x0 = a_batch(60)
    t = torch.cat(
        [torch.tensor([1e-12, 1e-6, 1 - 1e-9, 1.0], dtype=torch.float64), torch.linspace(0.01, 1, 56).double()]
    )
    values = loss(Diffusion(process, model), x0, t=t, generator=seeded(0))
    (gradient,) = torch.autograd.grad(values.sum(), model.table)
    assert values.dtype == dtype
    assert bool(values.isfinite().all())
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("law", [LAW, random_law(3, DIM, seed=3, impossible=5)], ids=["everywhere", "in places"])
def test_without_noise_the_ratio_losses_are_the_cross_entropy_of_the_data(name, law):
    """At t = 0, x_t is x_0, and states of probability 0 count nothing although their logarithm is infinite."""
    diffusion, x0 = oracle(process_named(name), law, DIM), a_batch(30, law=law)
    truth = -conditionals(law, 3, DIM)[index_of(x0, 3)].gather(-1, x0[..., None])[..., 0].log()
    for loss in (*RATIO_LOSSES, x0_cross_entropy):
        values = loss(diffusion, x0, t=times(0.0, 30))
        torch.testing.assert_close(values, truth, rtol=1e-9, atol=1e-9)
