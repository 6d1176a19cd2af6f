import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import expm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sddm import Diffusion, losses, sample
from sddm.marginals import Oracle
from sddm.processes import PROCESSES, Absorbing, BirthDeath, CustomRate, DiscretizedGaussian, Uniform, dense
from sddm.processes.uniform import _LogMix, _SumAndPick
from sddm.samplers import Analytical, Corrector, Euler, Lazy, TauLeaping
from sddm.schedules import Constant, Exponential, LogSquare, SqrtCosine

CLOSE = 1e-10
"""Float64 exponentials of matrices with entries below 100, twice: ours and scipy's."""
SIGNIFICANCE = 1e-4
"""Every draw has a fixed seed, so that a chi-square test either always passes or never does."""

SCHEDULES = [Constant(0.4), LogSquare(0.9), SqrtCosine(1.1), Exponential(0.3, 1.5)]

# ---- rate matrices, written down again from their definitions, entry by entry ---------------------------------------


def rates(num_symbols, rate):
    """The rate matrix with these rates off the diagonal, row = from."""
    Q = np.array([[rate(i, j) if i != j else 0.0 for j in range(num_symbols)] for i in range(num_symbols)])
    return Q - np.diag(Q.sum(1))


def uniform_rates(C):
    return rates(C, lambda i, j: 1.0)


def absorbing_rates(C):
    return rates(C + 1, lambda i, j: float(i != C and j == C))


def birth_death_rates(C):
    return rates(C, lambda i, j: float(abs(i - j) == 1))


def gaussian_rates(C, width, target_width=None):
    def target(i):
        return 1.0 if target_width is None else math.exp(-((i - (C - 1) / 2) ** 2) / (2 * target_width**2))

    return rates(C, lambda i, j: math.exp(-((i - j) ** 2) / (2 * width**2)) * min(1, target(j) / target(i)))


def reversible_rates():
    """Detailed balance with the law (1, 2, 3, 4)/10, far from symmetric."""
    law = np.array([0.1, 0.2, 0.3, 0.4])
    weight = np.array([[0, 3, 1, 2], [3, 0, 2, 0], [1, 2, 0, 1], [2, 0, 1, 0]]) / 10
    return rates(4, lambda i, j: weight[i, j] / law[i])


def cyclic_rates():
    """Around a cycle more often forwards than backwards, and some rates across."""
    return rates(5, lambda i, j: {1: 2.0, 4: 0.3}.get((j - i) % 5, 0.0) + (0.7 if (i, j) in ((0, 2), (3, 1)) else 0.0))


def one_absorbing_state_rates():
    """0 -> 1 -> 2, 0 -> 2, and nothing leaves 2: no law but that of state 2 is stationary."""
    return rates(3, lambda i, j: {(0, 1): 1.0, (1, 2): 0.5, (0, 2): 0.25}.get((i, j), 0.0))


def transient_rates():
    """State 0 is left for the cycle 1 -> 2 -> 3 -> 1 and never seen again."""
    return rates(4, lambda i, j: {(0, 1): 1.0, (0, 3): 0.2, (1, 2): 1.0, (2, 3): 0.6, (3, 1): 1.5}.get((i, j), 0.0))


def two_classes_rates():
    """{0, 1} and {2, 3} never meet."""
    return rates(4, lambda i, j: {(0, 1): 1.0, (1, 0): 2.0, (2, 3): 0.5, (3, 2): 0.5}.get((i, j), 0.0))


def custom(Q, prior=None):
    return lambda schedule: CustomRate(torch.from_numpy(Q), schedule, prior)


CASES = {
    "uniform-2": ("uniform", lambda s: Uniform(2, s), uniform_rates(2)),
    "uniform-5": ("uniform", lambda s: Uniform(5, s), uniform_rates(5)),
    "absorbing-1": ("absorbing", lambda s: Absorbing(1, s), absorbing_rates(1)),
    "absorbing-4": ("absorbing", lambda s: Absorbing(4, s), absorbing_rates(4)),
    "birth-death-2": ("birth-death", lambda s: BirthDeath(2, s), birth_death_rates(2)),
    "birth-death-6": ("birth-death", lambda s: BirthDeath(6, s), birth_death_rates(6)),
    "gaussian": ("discretized-gaussian", lambda s: DiscretizedGaussian(6, s), gaussian_rates(6, 1.0)),
    "gaussian-width": (
        "discretized-gaussian",
        lambda s: DiscretizedGaussian(5, s, width=2.5),
        gaussian_rates(5, 2.5),
    ),
    "gaussian-target": (
        "discretized-gaussian",
        lambda s: DiscretizedGaussian(7, s, width=1.2, target_width=1.5),
        gaussian_rates(7, 1.2, 1.5),
    ),
    "custom-reversible": ("custom-rate", custom(reversible_rates()), reversible_rates()),
    "custom-cyclic": ("custom-rate", custom(cyclic_rates()), cyclic_rates()),
    "custom-absorbing-state": ("custom-rate", custom(one_absorbing_state_rates()), one_absorbing_state_rates()),
    "custom-transient": ("custom-rate", custom(transient_rates()), transient_rates()),
    "custom-two-classes": (
        "custom-rate",
        custom(two_classes_rates(), torch.tensor([0.4, 0.2, 0.2, 0.2])),
        two_classes_rates(),
    ),
}
"""A member of PROCESSES, how to build it, and its rate matrix. A process that is listed but not here fails a test."""

every_case = pytest.mark.parametrize(("build", "Q"), [case[1:] for case in CASES.values()], ids=CASES)
every_case_under_a_schedule = pytest.mark.parametrize(
    ("build", "Q", "schedule"),
    [(*case[1:], SCHEDULES[number % len(SCHEDULES)]) for number, case in enumerate(CASES.values())],
    ids=[f"{name}-{type(SCHEDULES[number % len(SCHEDULES)]).__name__}" for number, name in enumerate(CASES)],
)
"""A process knows its times through tau alone, so that the schedules, tested by themselves, take turns."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def exponential(Q, tau):
    return torch.from_numpy(np.stack([expm(float(b) * Q) for b in np.atleast_1d(tau)]))


def random_laws(batch, dim, states, seed=0, data_states=None, dtype=torch.float64):
    """Strictly positive laws, on the data states only if their number is given."""
    p = torch.rand(batch, dim, data_states or states, generator=seeded(seed), dtype=torch.float64) + 0.01
    p = torch.nn.functional.pad(p, (0, states - p.shape[-1]))
    return (p / p.sum(-1, keepdim=True)).to(dtype)


def all_symbols(Q, batch):
    """(batch, symbols) tokens that hold every symbol in every row."""
    return torch.arange(len(Q)).expand(batch, -1).contiguous()


def assert_close(actual, expected, tolerance=CLOSE):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def assert_drawn_from(counts, law):
    """Chi-square against the law; what has probability 0 must not occur.

    The rarest states are counted together, so that five or more are expected wherever they are compared.
    """
    counts, law = np.asarray(counts, dtype=float), np.asarray(law, dtype=float)
    possible = law > 1e-15
    assert counts[~possible].sum() == 0
    order = np.argsort(law[possible])
    counts, expected = counts[possible][order], law[possible][order] / law[possible].sum() * counts.sum()
    rare = int(np.searchsorted(expected.cumsum(), 5, side="left")) if expected[0] < 5 else 0
    counts, expected = (np.concatenate([[v[: rare + 1].sum()], v[rare + 1 :]]) for v in (counts, expected))
    if len(expected) > 1:
        assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE


def test_every_listed_process_is_among_the_cases():
    assert {case[0] for case in CASES.values()} == PROCESSES.keys()
    assert all(type(build(Constant(1.0))) is PROCESSES[name] for name, build, _ in CASES.values())


# ---- transitions ----------------------------------------------------------------------------------------------------

S = torch.tensor([0.0, 0.0, 0.1, 0.4, 0.3, 0.0, 1.0], dtype=torch.float64)
T = torch.tensor([0.0, 1e-6, 0.2, 0.7, 1.0, 1.0, 1.0], dtype=torch.float64)


@every_case_under_a_schedule
def test_transition_is_the_matrix_exponential(build, Q, schedule):
    transition = build(schedule).transition(S, T)
    assert transition.dtype == torch.float64
    assert_close(transition, exponential(Q, schedule.integral(S, T).numpy()))


@every_case_under_a_schedule
def test_rows_of_a_transition_are_laws(build, Q, schedule):
    transition = build(schedule).transition(S, T)
    assert bool((transition >= 0).all())
    assert_close(transition.sum(-1), torch.ones(len(S), len(Q), dtype=torch.float64), 1e-13)


@every_case_under_a_schedule
def test_chapman_kolmogorov(build, Q, schedule):
    process = build(schedule)
    s, u, t = torch.rand(3, 20, generator=seeded(1), dtype=torch.float64).sort(0).values
    assert_close(process.transition(s, u) @ process.transition(u, t), process.transition(s, t))


@every_case
def test_derivative_of_a_transition_is_the_rate_matrix(build, Q):
    process = build(Constant(1.0))
    step = 1e-7
    (transition,) = process.transition_by(torch.tensor([step], dtype=torch.float64))
    # exp(h Q) = 1 + h Q + O(h^2 |Q|^2), and a rounding of 1e-16 / h.
    slope = (transition - torch.eye(len(Q), dtype=torch.float64)) / step
    assert_close(slope, torch.from_numpy(Q), step * np.abs(Q).sum(1).max() ** 2 + 1e-8)


# ---- products with a transition, whose direction matters ------------------------------------------------------------


@every_case_under_a_schedule
def test_push_multiplies_a_law_from_the_left(build, Q, schedule):
    p = random_laws(len(S), 3, len(Q))
    assert_close(build(schedule).push(p, S, T), p @ exponential(Q, schedule.integral(S, T).numpy()))


@every_case
def test_push_is_linear(build, Q):
    process = build(LogSquare(0.9))
    p, q = random_laws(len(S), 2, len(Q)), random_laws(len(S), 2, len(Q), seed=1)
    assert_close(process.push(2 * p + q, S, T), 2 * process.push(p, S, T) + process.push(q, S, T))


@every_case_under_a_schedule
def test_likelihood_is_a_column_of_the_transition(build, Q, schedule):
    P = exponential(Q, schedule.integral(S, T).numpy())
    x = all_symbols(Q, len(S))
    assert_close(build(schedule).likelihood(x, S, T), P.mT)


@every_case_under_a_schedule
def test_law_is_a_row_of_the_transition(build, Q, schedule):
    tau = schedule.integral(S, T)
    assert_close(build(schedule).law_by(all_symbols(Q, len(S)), tau, torch.float64), exponential(Q, tau.numpy()))


@every_case
def test_rows_and_columns_follow_scattered_tokens(build, Q):
    process = build(Constant(0.4))
    x = torch.randint(len(Q), (len(S), 9), generator=seeded(2))
    P = exponential(Q, process.schedule.integral(S, T).numpy())
    columns, rows = process.likelihood(x, S, T), process.law_by(x, process.tau(S, T), torch.float64)
    where = list(np.ndindex(*x.shape))
    assert_close(columns.flatten(0, 1), torch.stack([P[b, :, x[b, d]] for b, d in where]))
    assert_close(rows.flatten(0, 1), torch.stack([P[b, x[b, d]] for b, d in where]))


@every_case_under_a_schedule
def test_push_log_is_the_logarithm_of_push(build, Q, schedule):
    p = random_laws(len(S), 3, len(Q))
    pushed = build(schedule).log_push_by(p.log(), schedule.integral(S, T))
    assert_close(pushed, (p @ exponential(Q, schedule.integral(S, T).numpy())).log(), 1e-9)


@every_case
def test_push_log_of_data_that_miss_some_states(build, Q):
    """The logarithm of 0 is -infinity, or that of the smallest float, but never NaN."""
    process = build(Constant(0.4))
    p = torch.zeros(len(T), 2, len(Q), dtype=torch.float64)
    p[:, :, 0] = 1
    pushed = process.log_push_by(p.log(), process.tau(0.0, T))
    assert not bool(pushed.isnan().any())
    assert_close(pushed.exp(), p @ exponential(Q, process.schedule.integral(0.0, T).numpy()))


@every_case_under_a_schedule
def test_expected_is_a_mean_under_the_law(build, Q, schedule):
    values = torch.randn(len(S), len(Q), len(Q), generator=seeded(3), dtype=torch.float64)
    expected = (exponential(Q, schedule.integral(S, T).numpy()) * values).sum(-1)
    assert_close(build(schedule).expected_by(all_symbols(Q, len(S)), schedule.integral(S, T), values), expected)


@every_case
def test_a_certain_prediction_without_noise_costs_nothing(build, Q):
    """At tau = 0 every state but x has probability 0, and counts 0 although its logarithm may be -infinity."""
    process = build(Constant(0.4))
    tau = torch.zeros(1, dtype=torch.float64)
    x = torch.arange(process.num_states)[None]
    certain = torch.zeros(1, process.num_states, len(Q), dtype=torch.float64).scatter_(-1, x[..., None], 1)
    expected = process.expected_by(x, tau, process.log_push_by(certain.log(), tau))
    # the logarithm of the smallest float is -708, and a diagonalised transition is off by some 1e-16
    assert expected.flatten().tolist() == pytest.approx([0] * process.num_states, abs=1e-12)


@every_case_under_a_schedule
def test_times_likelihood_multiplies_by_a_column(build, Q, schedule):
    values = random_laws(len(S), len(Q), len(Q), seed=4)
    product = build(schedule).times_likelihood_by(values.clone(), all_symbols(Q, len(S)), schedule.integral(S, T))
    assert_close(product, values * exponential(Q, schedule.integral(S, T).numpy()).mT)


# ---- rates ----------------------------------------------------------------------------------------------------------


def off_diagonal(Q):
    return torch.from_numpy(Q - np.diag(np.diag(Q)))


def speeds(schedule, t):
    return schedule.rate(t)[:, None, None]


@every_case_under_a_schedule
def test_rate_to_is_a_column_and_rate_from_a_row(build, Q, schedule):
    process, x = build(schedule), all_symbols(Q, len(T))
    assert_close(process.rate_to(x, T), speeds(schedule, T) * off_diagonal(Q).T, 1e-14)
    assert_close(process.rate_from(x, T), speeds(schedule, T) * off_diagonal(Q), 1e-14)


@every_case
def test_rates_from_a_state_to_itself_are_exactly_zero(build, Q):
    process, x = build(Constant(0.4)), all_symbols(Q, 1)
    for rate in (process.rate_to, process.rate_from):
        assert rate(x, T[:1]).diagonal(dim1=1, dim2=2).abs().max() == 0


@every_case
def test_rates_follow_scattered_tokens(build, Q):
    process = build(LogSquare(0.9))
    x = torch.randint(len(Q), (len(T), 9), generator=seeded(5))
    beta, off = process.schedule.rate(T), off_diagonal(Q)
    where = list(np.ndindex(*x.shape))
    columns, rows = (torch.stack([beta[b] * m[:, x[b, d]] for b, d in where]) for m in (off, off.T))
    assert_close(process.rate_to(x, T).flatten(0, 1), columns, 1e-14)
    assert_close(process.rate_from(x, T).flatten(0, 1), rows, 1e-14)


@every_case_under_a_schedule
def test_times_rate_to_multiplies_by_a_column(build, Q, schedule):
    values = random_laws(len(T), len(Q), len(Q), seed=6)
    product = build(schedule).times_rates_into(values.clone(), all_symbols(Q, len(T)))
    assert_close(product, values * off_diagonal(Q).T, 1e-13)


@every_case
def test_flow_and_exit_rates_are_what_comes_in_and_what_goes_out(build, Q):
    process = build(Constant(0.4))
    p = random_laws(4, 3, len(Q), seed=7)
    exits = process.exit_rates(torch.float64)
    assert_close(process.flow_into(p), p @ off_diagonal(Q), 1e-13)
    assert_close(exits, torch.from_numpy(-np.diag(Q).copy()), 1e-13)
    # together they are the derivative of a law, p Q
    assert_close(process.flow_into(p) - p * exits, p @ torch.from_numpy(Q), 1e-13)


# ---- draws ----------------------------------------------------------------------------------------------------------


@every_case_under_a_schedule
def test_noise_follows_the_transition(build, Q, schedule):
    process = build(schedule)
    draws = 20_000
    x0 = torch.arange(process.num_states).repeat_interleave(draws)[None].expand(4, -1)
    t = torch.tensor([0.05, 0.3, 0.8, 1.0], dtype=torch.float64)
    xt = process.noise(x0, t, seeded(8))
    P = exponential(Q, schedule.integral(0.0, t).numpy())
    for b in range(len(t)):
        for state, drawn in enumerate(xt[b].split(draws)):
            assert_drawn_from(drawn.bincount(minlength=len(Q)), P[b, state])


@every_case
def test_noise_at_time_zero_is_none(build, Q):
    process = build(LogSquare(0.9))
    x0 = torch.randint(process.num_states, (5, 1000), generator=seeded(9))
    assert torch.equal(process.noise(x0, torch.zeros(5), seeded(0)), x0)


@every_case
def test_noise_is_repeated_by_its_seed_alone(build, Q):
    process = build(Constant(2.0))
    x0 = torch.zeros(4, 50, dtype=torch.int64)
    t = torch.full((4,), 0.5)
    first, again, other = (process.noise(x0, t, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@every_case
def test_positions_are_noised_independently(build, Q):
    process = build(Constant(0.4))
    x0 = torch.zeros(40_000, 2, dtype=torch.int64)
    xt = process.noise(x0, torch.full((40_000,), 0.7), seeded(10))
    law = expm(0.4 * 0.7 * Q)[0]
    joint = (xt[:, 0] * len(Q) + xt[:, 1]).bincount(minlength=len(Q) ** 2)
    assert_drawn_from(joint, np.outer(law, law).ravel())


@every_case_under_a_schedule
def test_prior_law_is_stationary(build, Q, schedule):
    process = build(schedule)
    law = process.prior_law()
    assert law.dtype == torch.float64
    assert bool((law >= 0).all())
    assert_close(law.sum(), torch.tensor(1.0, dtype=torch.float64), 1e-14)
    later = process.push(law.expand(len(S), 1, -1), S, T)
    assert_close(later, law.expand(len(S), 1, -1))


@every_case
def test_prior_follows_its_law(build, Q):
    process = build(Constant(0.4))
    x = process.prior((200, 100), seeded(11))
    assert x.shape == (200, 100)
    assert x.dtype == torch.int64
    assert_drawn_from(x.flatten().bincount(minlength=len(Q)), process.prior_law())
    assert torch.equal(x, process.prior((200, 100), seeded(11)))


def test_prior_of_a_reversible_process_is_the_law_it_is_balanced_with():
    law = CustomRate(torch.from_numpy(reversible_rates()), Constant(1.0)).prior_law()
    assert law.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=1e-14)
    levels = np.arange(7) - 3
    target = np.exp(-(levels**2) / (2 * 1.5**2))
    law = DiscretizedGaussian(7, Constant(1.0), width=1.2, target_width=1.5).prior_law()
    assert law.tolist() == pytest.approx(list(target / target.sum()), abs=1e-14)


def test_a_prior_of_ones_own_replaces_the_stationary_law():
    process = CustomRate(torch.from_numpy(two_classes_rates()), Constant(1.0), prior=[0.7, 0.1, 0.1, 0.1])
    assert process.prior_law().tolist() == pytest.approx([0.7, 0.1, 0.1, 0.1], abs=1e-15)


@pytest.mark.parametrize(
    ("case", "covers"),
    [("uniform-5", True), ("absorbing-4", False), ("custom-cyclic", True), ("custom-transient", False)],
)
def test_prior_covers_all_states_unless_some_are_transient(case, covers):
    assert CASES[case][1](Constant(1.0)).prior_covers_all is covers


@pytest.mark.parametrize("case", CASES)
def test_only_reversible_matrices_are_diagonalised(case):
    process = CASES[case][1](Constant(1.0))
    if isinstance(process, dense.DenseProcess):
        unbalanced = {"custom-cyclic", "custom-absorbing-state", "custom-transient", "custom-two-classes"}
        assert process.is_reversible is (case not in unbalanced)


# ---- the share of the data that is left -----------------------------------------------------------------------------


@every_case_under_a_schedule
def test_remaining_decays_at_the_slowest_rate_of_the_matrix(build, Q, schedule):
    process = build(schedule)
    decay = -np.linalg.eigvals(Q).real
    gap = decay[decay > 1e-9].min()
    assert process.gap == pytest.approx(gap, rel=1e-7)
    expected = torch.exp(-gap * schedule.integral(0.0, T))
    assert_close(process.remaining(T), expected, 1e-7)


@every_case
def test_what_remains_is_how_far_the_laws_of_two_states_are_apart(build, Q):
    """In the long run the distance between transitions from any two states falls like the share, by definition."""
    process = build(Constant(1.0))
    tau = torch.tensor([14.0, 15.0], dtype=torch.float64) / process.gap
    P = exponential(Q, tau.numpy())
    limit = exponential(Q, [200 / process.gap])
    fall = (P - limit).abs().amax(dim=(1, 2))
    # a complex pair of eigenvalues turns while it decays, by a factor of a few
    assert 0.2 < float(fall[1] / fall[0]) / math.exp(-1) < 5


@every_case_under_a_schedule
@pytest.mark.parametrize("share", [None, 0.5, 1e-6])
def test_leaving_leaves_that_share_at_the_end(build, Q, schedule, share):
    process = build(schedule)
    faster = process.leaving() if share is None else process.leaving(share)
    left = 0.02 if share is None else share
    assert faster.remaining(torch.ones(1)).item() == pytest.approx(left, rel=1e-12)
    assert type(faster.schedule) is type(schedule)
    assert process.schedule is schedule


@given(
    num_states=st.integers(2, 5000),
    share=st.floats(1e-8, 0.99),
    schedule=st.sampled_from(SCHEDULES),
    family=st.sampled_from([Uniform, Absorbing]),
)
def test_leaving_holds_for_any_number_of_states(num_states, share, schedule, family):
    process = family(num_states, schedule).leaving(share)
    assert process.remaining(torch.ones(1)).item() == pytest.approx(share, rel=1e-11)
    x0 = torch.zeros(1, 1, dtype=torch.int64)
    stays = process.likelihood(x0, torch.zeros(1), torch.ones(1))[0, 0, 0].item()
    by_chance = (1 - share) / num_states if family is Uniform else 0
    assert stays == pytest.approx(share + by_chance, rel=1e-11)


@every_case
def test_with_schedule_changes_a_copy(build, Q):
    process, schedule = build(Constant(0.4)), SqrtCosine(1.1)
    other = process.with_schedule(schedule)
    assert type(other) is type(process)
    assert process.schedule.arguments == process.arguments["schedule"].arguments == {"rate": 0.4}
    assert other.schedule is other.arguments["schedule"] is schedule
    assert_close(other.transition(S, T), exponential(Q, schedule.integral(S, T).numpy()))
    assert_close(process.transition(S, T), exponential(Q, 0.4 * (T - S).numpy()))


# ---- the bound that exact simulation relies on ----------------------------------------------------------------------


def point_laws(process):
    """The data that are one state for certain."""
    return np.eye(process.num_states, process.num_symbols)


def reverse_exit_rates(Q, laws, tau):
    """sum_{y != x} Q(y, x) p(y) / p(x) for p = p0 exp(tau Q), for each law p0 of the data, where p(x) > 0."""
    p = laws @ expm(tau * Q)
    flow = p @ (Q - np.diag(np.diag(Q)))
    return np.divide(flow, p, out=np.zeros_like(p), where=p > 1e-10)


@every_case
@pytest.mark.parametrize("tau", [0.05, 0.3, 2.0])
def test_exit_bound_dominates_the_reverse_rates_of_any_data_now_and_later(build, Q, tau):
    process = build(Constant(1.0))
    (bound,) = process.exit_bound(torch.tensor([tau], dtype=torch.float64)).numpy()
    mixed = np.random.default_rng(0).dirichlet(np.full(process.num_states, 0.3), size=100)
    laws = np.concatenate([mixed @ point_laws(process), point_laws(process)])
    for later in (tau, 1.01 * tau, 1.5 * tau, 2 * tau, 10 * tau):
        # a probability of 1e-10 is known to 1e-6 of itself
        assert np.all(reverse_exit_rates(Q, laws, later) <= bound * (1 + 1e-5) + 1e-9)


@every_case
def test_exit_bound_is_reached_by_some_data(build, Q):
    """It is a maximum over data, and so no larger than it has to be: thinning wastes nothing it need not."""
    process = build(Constant(1.0))
    (bound,) = process.exit_bound(torch.tensor([0.3], dtype=torch.float64)).numpy()
    worst = reverse_exit_rates(Q, point_laws(process), 0.3).max(axis=0)
    assert bound == pytest.approx(worst, rel=1e-5, abs=1e-9)


def move_chances(Q, laws, early, tau):
    """1 - p_s(x) P(x | x) / p_t(x), for each law of the data, where p_t(x) > 0."""
    before, step = laws @ expm(early * Q), expm(tau * Q)
    after = before @ step
    stays = np.divide(before * np.diag(step), after, out=np.ones_like(after), where=after > 1e-10)
    return 1 - stays


@every_case
@pytest.mark.parametrize(("early", "tau"), [(0.0, 0.3), (0.05, 0.01), (0.3, 0.3), (0.5, 2.0)])
def test_move_bound_is_the_largest_chance_that_some_data_give(build, Q, early, tau):
    process = build(Constant(1.0))
    (bound,) = process.move_bound(*(torch.tensor([u], dtype=torch.float64) for u in (early, tau))).numpy()
    mixed = np.random.default_rng(0).dirichlet(np.full(process.num_states, 0.3), size=100)
    assert np.all(move_chances(Q, mixed @ point_laws(process), early, tau) <= bound + 1e-9)
    assert bound == pytest.approx(move_chances(Q, point_laws(process), early, tau).max(axis=0), abs=1e-6)


# ---- dtypes and gradients -------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_goes_in_decides_the_dtype_that_comes_out(build, Q, dtype):
    process = build(LogSquare(0.9))
    p, x = random_laws(len(S), len(Q), len(Q), dtype=dtype), all_symbols(Q, len(S))
    tau, values = process.tau(S, T), p.log()
    out = {
        "push": process.push(p, S, T),
        "likelihood": process.likelihood(x, S, T, dtype),
        "rate_to": process.rate_to(x, T, dtype),
        "rate_from": process.rate_from(x, T, dtype),
        "push_log": process.log_push_by(values, tau),
        "law": process.law_by(x, tau, dtype),
        "expected": process.expected_by(x, tau, values),
        "times_likelihood": process.times_likelihood_by(p.clone(), x, tau),
        "times_rate_to": process.times_rates_into(p.clone(), x),
        "flow": process.flow_into(p),
        "exit_rates": process.exit_rates(dtype),
    }
    assert {name: value.dtype for name, value in out.items()} == dict.fromkeys(out, dtype)
    # the constants are float64 until the end: float32 results are those of float64, rounded
    exact = build(LogSquare(0.9)).push(p.double(), S, T)
    torch.testing.assert_close(out["push"].double(), exact, rtol=8 * torch.finfo(dtype).eps, atol=1e-12)


@every_case
def test_times_may_be_in_float32(build, Q):
    process = build(LogSquare(0.9))
    t = torch.tensor([0.3, 1.0], dtype=torch.float32)
    assert_close(process.transition(torch.zeros(2), t), process.transition(torch.zeros(2).double(), t.double()), 1e-15)


@every_case
def test_gradients_of_push_log_and_expected(build, Q):
    process = build(Constant(0.4))
    tau = torch.tensor([0.01, 0.5, 3.0], dtype=torch.float64)
    x = all_symbols(Q, 3)
    # laws stay laws: the argument is normalised inside
    logits = torch.randn(3, len(Q), len(Q), generator=seeded(12), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: process.log_push_by(z.log_softmax(-1), tau), logits)
    assert torch.autograd.gradcheck(lambda z: process.expected_by(x, tau, z), logits)


@pytest.mark.parametrize("tau", [1e-4, 0.3, 5.0])
def test_gradient_of_log_mix(tau):
    a, b = Uniform(5, Constant(1.0))._mixture(torch.full((2,), tau, dtype=torch.float64), torch.float64)
    log_p = torch.randn(2, 3, 5, generator=seeded(13), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: _LogMix.apply(z, a, b), log_p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_of_log_mix_without_noise_is_one(dtype):
    """At tau = 0, log(1 p + 0) = log p, and its gradient must be 1 even where p is tiny."""
    a, b = (torch.full((1, 1, 1), value, dtype=dtype) for value in (1, 0))
    log_p = torch.tensor([[[0.0, -5.0, -20.0, -60.0]]], dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(_LogMix.apply(log_p, a, b).sum(), log_p)
    # b = 0 counts as the smallest normal float: p / (p + tiny) = 1 within e^60 tiny
    slack = math.exp(60) * torch.finfo(dtype).tiny + torch.finfo(dtype).eps
    torch.testing.assert_close(gradient, torch.ones_like(log_p), rtol=0, atol=slack)


def test_gradient_of_log_mix_of_an_impossible_state_is_zero():
    a, b = (torch.full((1, 1, 1), value, dtype=torch.float64) for value in (0.9, 0.05))
    log_p = torch.tensor([[[0.0, -math.inf]]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(_LogMix.apply(log_p, a, b).sum(), log_p)
    assert gradient.flatten().tolist() == pytest.approx([0.9 / 0.95, 0.0])


def test_gradient_of_sum_and_pick():
    a, b = Uniform(5, Constant(1.0))._mixture(torch.tensor([0.01, 0.7], dtype=torch.float64), torch.float64)
    x = torch.tensor([[0, 4, 2], [3, 3, 1]])
    values = torch.randn(2, 3, 5, generator=seeded(14), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: _SumAndPick.apply(v, x, a[..., 0], b[..., 0]), values)


def test_in_place_products_leave_the_tokens_and_reuse_the_memory():
    process = Uniform(5, Constant(1.0))
    values, x = random_laws(2, 3, 5), torch.randint(5, (2, 3), generator=seeded(15))
    before = x.clone()
    product = process.times_likelihood_by(values, x, torch.full((2,), 0.3, dtype=torch.float64))
    assert product.data_ptr() == values.data_ptr()
    assert torch.equal(x, before)


# ---- remembered matrix exponentials ---------------------------------------------------------------------------------


@pytest.fixture
def counted_exponentials(monkeypatch):
    """The number of matrix exponentials taken so far."""
    calls = []
    original = torch.linalg.matrix_exp

    def counting(matrix):
        calls.append(matrix.shape)
        return original(matrix)

    monkeypatch.setattr(torch.linalg, "matrix_exp", counting)
    return calls


def test_matrix_exponentials_are_taken_once_for_each_time_of_a_grid(counted_exponentials):
    process = CustomRate(torch.from_numpy(cyclic_rates()), Constant(1.0))
    grid = torch.linspace(0, 1, 11, dtype=torch.float64)
    first = process.transition(torch.zeros(11), grid.repeat_interleave(1))
    assert len(counted_exponentials) == 11
    again = process.transition(torch.zeros(33), grid.repeat(3))
    assert len(counted_exponentials) == 11
    assert torch.equal(again, first.repeat(3, 1, 1))


def test_a_copy_with_another_schedule_shares_what_is_remembered(counted_exponentials):
    process = CustomRate(torch.from_numpy(cyclic_rates()), Constant(1.0))
    process.transition(torch.zeros(1), torch.ones(1))
    process.with_schedule(Constant(2.0)).transition(torch.zeros(1), torch.full((1,), 0.5))
    assert len(counted_exponentials) == 1


def test_reversible_matrices_take_no_exponential(counted_exponentials):
    CustomRate(torch.from_numpy(reversible_rates()), Constant(1.0)).transition(S, T)
    assert counted_exponentials == []


def test_remembered_exponentials_are_bounded_and_the_latest_are_kept(monkeypatch, counted_exponentials):
    Q = cyclic_rates()
    monkeypatch.setattr(dense, "REMEMBERED_ELEMENTS", 4 * Q.size)
    process = CustomRate(torch.from_numpy(Q), Constant(1.0))
    tau = torch.linspace(0.1, 1, 10, dtype=torch.float64)
    for moment in tau:
        process.transition_by(moment[None])
        assert len(process._remembered) <= 4
    assert len(counted_exponentials) == 10
    process.transition_by(tau[-4:])
    assert len(counted_exponentials) == 10
    process.transition_by(tau[:1])
    assert len(counted_exponentials) == 11
    assert_close(process.transition_by(tau), exponential(Q, tau.numpy()))


def test_a_matrix_larger_than_the_memory_is_still_remembered_alone(monkeypatch, counted_exponentials):
    monkeypatch.setattr(dense, "REMEMBERED_ELEMENTS", 1)
    process = CustomRate(torch.from_numpy(cyclic_rates()), Constant(1.0))
    for _ in range(2):
        process.transition_by(torch.tensor([0.3], dtype=torch.float64))
    assert len(counted_exponentials) == len(process._remembered) == 1


def test_what_sampling_remembers_does_not_get_in_the_way_of_training():
    """Exponentials remembered in inference mode must not reach autograd as inference tensors."""
    process = CustomRate(torch.from_numpy(cyclic_rates()), Constant(1.0))
    t = torch.tensor([0.25, 0.5], dtype=torch.float64)
    with torch.inference_mode():
        process.transition_by(t)
    p = random_laws(2, 3, 5).requires_grad_()
    process.push(p, torch.zeros(2), t).square().sum().backward()
    assert bool(torch.isfinite(p.grad).all())


def test_changing_the_callers_matrix_changes_nothing():
    Q = torch.from_numpy(cyclic_rates())
    process = CustomRate(Q, Constant(1.0))
    before = process.transition(S, T)
    Q.zero_()
    assert torch.equal(process.transition(S, T), before)
    assert process.arguments["rate_matrix"].tolist() == cyclic_rates().tolist()


# ---- hypothesis: any size, any times --------------------------------------------------------------------------------

moments = st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted)


@pytest.mark.parametrize(("family", "dense_rates"), [(Uniform, uniform_rates), (Absorbing, absorbing_rates)])
@given(num_states=st.integers(2, 12), times=moments, scale=st.floats(0.01, 5), seed=st.integers(0, 2**32))
def test_closed_forms_hold_for_any_number_of_states_and_times(family, dense_rates, num_states, times, scale, seed):
    process, Q = family(num_states, LogSquare(scale)), dense_rates(num_states)
    s, t = (torch.tensor([time], dtype=torch.float64) for time in times)
    P = exponential(Q, process.schedule.integral(s, t).numpy())
    p, x = random_laws(1, 2, len(Q), seed=seed), all_symbols(Q, 1)
    assert_close(process.transition(s, t), P)
    assert_close(process.push(p, s, t), p @ P)
    assert_close(process.likelihood(x, s, t), P.mT)
    assert_close(process.law_by(x, process.tau(s, t), torch.float64), P)
    assert_close(process.log_push_by(p.log(), process.tau(s, t)), (p @ P).log(), 1e-9)
    assert_close(process.rate_to(x, t), speeds(process.schedule, t) * off_diagonal(Q).T, 1e-14)


@pytest.mark.parametrize("family", [Uniform, Absorbing])
@given(num_states=st.integers(2, 300), batch=st.integers(1, 4), dim=st.integers(1, 5), t=st.floats(0, 1))
def test_shapes_and_ranges_hold_for_any_size(family, num_states, batch, dim, t):
    process = family(num_states, SqrtCosine(1.0))
    x0 = torch.randint(num_states, (batch, dim), generator=seeded(0))
    times = torch.full((batch,), t, dtype=torch.float64)
    xt = process.noise(x0, times, seeded(1))
    assert xt.shape == x0.shape
    assert int(xt.min()) >= 0
    assert int(xt.max()) < process.num_symbols
    likelihood = process.likelihood(xt, torch.zeros_like(times), times)
    assert likelihood.shape == (batch, dim, process.num_symbols)
    # x_t was drawn from x_0, so x_0 cannot be impossible
    assert bool((likelihood.gather(-1, x0[..., None]) > 0).all())


def test_small_times_keep_their_digits():
    """1 - exp(-C tau) is computed as expm1: relative precision even for a jump of probability 1e-18."""
    tau = torch.tensor([1e-18], dtype=torch.float64)
    x = torch.zeros(1, 1, dtype=torch.int64)
    assert Uniform(5, Constant(1.0)).law_by(x, tau, torch.float64)[0, 0, 1].item() == pytest.approx(1e-18, rel=1e-14)
    assert Absorbing(5, Constant(1.0)).law_by(x, tau, torch.float64)[0, 0, 5].item() == pytest.approx(1e-18, rel=1e-14)


# ---- many states: nothing of size C^2 -------------------------------------------------------------------------------

MANY = 20_000


class LargestTensor(TorchDispatchMode):
    """The size of the largest tensor that any operation made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        sizes = [
            leaf.untyped_storage().nbytes() // leaf.element_size() for leaf in tree_leaves(out) if torch.is_tensor(leaf)
        ]
        self.elements = max([self.elements, *sizes])
        return out


def few_rows_of_many_states():
    states = torch.randint(MANY, (3, 2), generator=seeded(16))
    return Oracle(states, torch.tensor([0.2, 0.3, 0.5]))


def use_the_process(process, diffusion):
    x0 = torch.randint(MANY, (2, 2), generator=seeded(17))
    s, t = torch.full((2,), 0.2, dtype=torch.float64), torch.full((2,), 0.7, dtype=torch.float64)
    xt = process.noise(x0, t, seeded(18))
    p = torch.zeros(2, 2, process.num_symbols).scatter_(-1, x0[..., None], 1)
    process.push(p, s, t)
    process.likelihood(xt, s, t)
    process.rate_to(xt, t)
    process.rate_from(xt, t)
    process.prior((2, 2), seeded(19))
    tau = process.tau(s, t)
    process.expected_by(x0, tau, process.log_push_by(p.log(), tau))
    process.times_likelihood_by(p.clone(), xt, tau)
    process.times_rates_into(p.clone(), xt)
    process.flow_into(p)
    process.exit_bound(tau)
    process.move_bound(tau, tau)


def use_every_loss(process, diffusion):
    x0 = diffusion.model.states[:2]
    for loss in (losses.ratio_matching, losses.conditional_ratio_matching, losses.x0_cross_entropy, losses.ct_elbo):
        assert loss(diffusion, x0, generator=seeded(20)).shape == x0.shape


def use_every_sampler(process, diffusion):
    for sampler in (Euler(), Analytical(), Lazy(), TauLeaping()):
        tokens = sample(diffusion, 2, steps=2, sampler=sampler, corrector=Corrector(), generator=seeded(21))
        assert tokens.shape == (2, 2)


@pytest.mark.parametrize("use", [use_the_process, use_every_loss, use_every_sampler])
@pytest.mark.parametrize("family", [Uniform, Absorbing])
def test_no_tensor_of_states_times_states_is_made(family, use, monkeypatch):
    monkeypatch.setattr(family, "transition_by", None)  # whoever calls it fails at once
    process = family(MANY, LogSquare(1.0)).leaving(0.02)
    diffusion = Diffusion(process, few_rows_of_many_states())
    with LargestTensor() as largest:
        use(process, diffusion)
    # (batch, dim, symbols) is the largest there should be; two of them in one tensor would still be O(C)
    assert MANY <= largest.elements <= 2 * 2 * 2 * (MANY + 1) < MANY**2


def test_the_meter_for_large_tensors_sees_them():
    with LargestTensor() as largest:
        Uniform(100, Constant(1.0)).transition(torch.zeros(1), torch.ones(1))
    assert largest.elements >= 100**2


def test_noise_of_many_states_spreads_evenly():
    """Chi-square over 100 groups of the 50,000 states; a state left is one of the other 49,999."""
    process = Uniform(50_000, Constant(1.0)).leaving(0.02)
    x0 = torch.full((1, 200_000), 123)
    xt = process.noise(x0, torch.ones(1), seeded(22))
    law = process.law_by(x0[:, :1], process.tau(0.0, torch.ones(1)), torch.float64)[0, 0]
    assert_drawn_from((xt[0] // 500).bincount(minlength=100), law.reshape(100, 500).sum(1))
    assert int((xt == 123).sum()) == pytest.approx(4000, abs=5 * math.sqrt(4000))


# ---- facts of single families ---------------------------------------------------------------------------------------


def test_absorbing_has_one_more_symbol_and_stays_masked():
    process = Absorbing(4, Constant(1.0))
    assert (process.num_states, process.num_symbols, process.mask) == (4, 5, 4)
    assert bool((process.prior((3, 7)) == process.mask).all())
    masked = torch.full((2, 3), process.mask)
    assert_close(process.rate_from(masked, torch.ones(2)), torch.zeros(2, 3, 5, dtype=torch.float64))


def test_only_processes_of_ordered_states_say_so():
    ordinal = {name for name, (_, build, _) in CASES.items() if build(Constant(1.0)).ordinal}
    assert ordinal == {name for name in CASES if name.startswith(("birth-death", "gaussian"))}


@pytest.mark.parametrize(("num_states", "width"), [(256, 6.0), (8, 1.0), (512, 12.0)])
def test_default_width_keeps_the_proportion_of_tauldr(num_states, width):
    default = DiscretizedGaussian(num_states, Constant(1.0))
    assert torch.equal(default.rate_matrix, DiscretizedGaussian(num_states, Constant(1.0), width=width).rate_matrix)


def test_the_kernel_of_tauldr_is_balanced_and_exact_at_256_states():
    process = DiscretizedGaussian(256, Constant(0.1), width=6.0, target_width=512.0)
    Q = gaussian_rates(256, 6.0, 512.0)
    assert process.is_reversible
    assert_close(process.transition(torch.zeros(1), torch.ones(1)), exponential(Q, [0.1]))


def test_a_narrow_target_is_exact_although_it_cannot_be_diagonalised():
    """With stationary probabilities of 1e-40 the symmetrisation would divide by their roots."""
    process = DiscretizedGaussian(21, Constant(0.1), width=2.0, target_width=0.75)
    Q = gaussian_rates(21, 2.0, 0.75)
    assert not process.is_reversible
    assert_close(process.transition(torch.zeros(1), torch.ones(1)), exponential(Q, [0.1]))
    assert_close(process.prior_law() @ torch.from_numpy(Q), torch.zeros(21, dtype=torch.float64))


def test_custom_rates_may_come_as_lists_and_in_float32():
    Q = cyclic_rates()
    for given_as in (Q.tolist(), torch.from_numpy(Q).float()):
        transition = CustomRate(given_as, Constant(1.0)).transition(S, T)
        torch.testing.assert_close(transition, exponential(Q, (T - S).numpy()), rtol=0, atol=1e-6)


def test_repr_shows_how_it_was_built():
    assert repr(Uniform(5, Constant(1.0))) == "Uniform(num_states=5, schedule=Constant(rate=1.0))"
    assert repr(CustomRate(torch.from_numpy(cyclic_rates()), Constant(1.0))).startswith(
        "CustomRate(rate_matrix=tensor(5, 5)"
    )
