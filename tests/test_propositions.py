"""The propositions of Sections 3 and 4 of the paper, on spaces that are written out."""

import pytest
import torch
from scipy.linalg import expm

from enumerated import (
    ROUNDING,
    all_states,
    analytical_laws,
    as_kernel,
    base_rates,
    conditionals,
    draw_states,
    euler_laws,
    forward_rates,
    generated_law,
    index_of,
    law_at,
    model_rates,
    one_way,
    oracle,
    random_law,
    reverse_transition,
    single_changes,
    states_of,
    table,
    times,
    total_variation,
    transition,
    uniform,
)
from sddm.losses import ratio_matching

PROCESSES = {"symmetric": uniform, "not reversible": one_way}
EARLY, MIDDLE, LATE = 0.2, 0.5, 0.9


@pytest.fixture(params=[2, 3], ids=["D=2", "D=3"])
def dim(request):
    return request.param


@pytest.fixture(params=list(PROCESSES.values()), ids=list(PROCESSES))
def process(request):
    return request.param()


@pytest.fixture
def law(dim):
    return random_law(3, dim, seed=dim)


def off_diagonal(matrix):
    return matrix - torch.diag(matrix.diagonal())


def differs(matrix, other):
    return float((matrix - other).abs().max())


# ---- Section 3.1 ---------------------------------------------------------------------------------------------------


def test_forward_transitions_solve_the_kolmogorov_equation(process, dim):
    t, h = MIDDLE, 1e-4
    ahead, behind = (transition(process, dim, EARLY, u) for u in (t + h, t - h))
    derivative = (ahead - behind) / (2 * h)
    Q = forward_rates(process, dim, t)
    speed = float(Q.abs().sum(1).max())
    # A central difference errs by h^2/6 times a third derivative, which here is of the order of the speed cubed.
    assert differs(derivative, transition(process, dim, EARLY, t) @ Q) < h**2 * speed**3


def test_forward_transitions_are_matrix_exponentials_to_the_last_digits(process):
    """Whatever the time, also one at a time: they enter ratios, which divide by what is small."""
    for t in torch.logspace(-6, 0, 60, dtype=torch.float64):
        tau = float(process.schedule.integral(0.0, t))
        exponential = torch.from_numpy(expm(tau * base_rates(process).numpy()))
        alone = process.transition(torch.zeros(1, dtype=torch.float64), t[None])[0]
        torch.testing.assert_close(alone, exponential, rtol=ROUNDING, atol=1e-15)


def test_proposition_3_1_the_reverse_transition_is_bayes_rule_on_the_joint_law(process, law, dim):
    joint = law_at(process, law, dim, EARLY)[:, None] * transition(process, dim, EARLY, LATE)
    given_later = joint / joint.sum(0)
    backwards = reverse_transition(process, law, dim, LATE, EARLY)
    assert differs(backwards, given_later.T) < ROUNDING
    assert differs(backwards.sum(1), torch.ones(3**dim)) < ROUNDING
    assert differs(law_at(process, law, dim, LATE) @ backwards, law_at(process, law, dim, EARLY)) < ROUNDING


def test_proposition_3_1_the_reverse_process_is_markov(process, law, dim):
    q, first, second = (
        law_at(process, law, dim, EARLY),
        transition(process, dim, EARLY, MIDDLE),
        transition(process, dim, MIDDLE, LATE),
    )
    joint = q[:, None, None] * first[:, :, None] * second[None]  # x_early, x_middle, x_late
    given_all_later = joint / joint.sum(0)
    given_middle = reverse_transition(process, law, dim, MIDDLE, EARLY)
    assert differs(given_all_later, given_middle.T[:, :, None]) < ROUNDING


def test_proposition_3_1_the_reverse_transitions_satisfy_chapman_kolmogorov(process, law, dim):
    in_two = reverse_transition(process, law, dim, LATE, MIDDLE) @ reverse_transition(process, law, dim, MIDDLE, EARLY)
    assert differs(in_two, reverse_transition(process, law, dim, LATE, EARLY)) < ROUNDING


def bayes_rates(process, law, dim, t):
    """q_t(y) / q_t(x) Q_t(y, x), with the diagonal of a rate matrix."""
    q = law_at(process, law, dim, t)
    rates = off_diagonal(q[None, :] / q[:, None] * forward_rates(process, dim, t).T)
    return rates - torch.diag(rates.sum(1))


def test_proposition_3_2_the_reverse_rate_is_the_derivative_of_the_reverse_transition(process, law, dim):
    t, h = MIDDLE, 1e-4
    once, twice = (reverse_transition(process, law, dim, t, t - n * h) for n in (1, 2))
    derivative = (4 * once - twice - 3 * torch.eye(3**dim)) / (2 * h)
    rates = bayes_rates(process, law, dim, t)
    speed = float(rates.abs().sum(1).max())
    # A one-sided difference of second order errs by h^2/3 times a third derivative, of the order of the speed cubed.
    assert differs(derivative, rates) < h**2 * speed**3


@pytest.mark.parametrize("t", [1e-3, EARLY, MIDDLE, 1.0])
def test_proposition_3_2_the_library_reverses_the_rates_of_an_oracle(process, law, dim, t):
    rates = model_rates(oracle(process, law, dim), torch.tensor([t], dtype=torch.float64), dim)[0]
    expected = bayes_rates(process, law, dim, t)
    torch.testing.assert_close(rates, expected, rtol=ROUNDING, atol=ROUNDING)


def test_proposition_3_2_reading_the_row_of_the_rates_instead_of_the_column_would_be_wrong():
    law, t = random_law(3, 2, seed=0), MIDDLE
    q = law_at(one_way(), law, 2, t)
    by_row = off_diagonal(q[None, :] / q[:, None] * forward_rates(one_way(), 2, t))
    rates = model_rates(oracle(one_way(), law, 2), torch.tensor([t], dtype=torch.float64), 2)[0]
    assert differs(off_diagonal(rates), by_row) > 0.1


def test_proposition_3_2_the_reverse_rates_lead_from_the_noise_back_to_the_data(process):
    law = random_law(3, 2, seed=5)
    back = generated_law(oracle(process, law, 2), 2, start=law_at(process, law, 2, 1.0))
    # The solver is of order 4: with half the steps it errs sixteen times as much, which tells how much it errs now.
    rough = generated_law(oracle(process, law, 2), 2, start=law_at(process, law, 2, 1.0), intervals=200)
    assert total_variation(back, law) < 1e-8
    assert total_variation(back, law) < total_variation(rough, law) / 12


# ---- Section 3.2 ---------------------------------------------------------------------------------------------------


def brooks_product(p, num_symbols, dim):
    """pi from its singleton conditionals: pi(y) / pi(x) is the product over d of pi(y^d | z) / pi(x^d | z), where
    z = (x^1 .. x^{d-1}, y^{d+1} .. y^D)."""
    y = all_states(num_symbols, dim)
    ratio = torch.ones(len(y), dtype=torch.float64)
    for d in range(dim):
        z = y.clone()
        z[:, : d + 1] = 0  # the reference state x is all zeros
        here = p[index_of(z, num_symbols), d]
        ratio = ratio * here.gather(-1, y[:, d : d + 1])[:, 0] / here[:, 0]
    return ratio / ratio.sum()


def test_proposition_3_3_the_conditionals_determine_the_joint_law(law, dim):
    assert differs(brooks_product(conditionals(law, 3, dim), 3, dim), law) < ROUNDING


def test_proposition_3_3_what_the_oracle_says_of_each_position_determines_the_law_at_every_time(process, law, dim):
    states = states_of(process, dim)
    for t in (0.0, EARLY, MIDDLE, 1.0):
        log_xt = oracle(process, law, dim).marginals(states, times(t, len(states))).log_xt
        q = law_at(process, law, dim, t)
        assert differs(log_xt.exp(), conditionals(q, 3, dim)) < ROUNDING
        assert differs(brooks_product(log_xt.exp(), 3, dim), q) < ROUNDING


def test_proposition_3_3_laws_with_different_conditionals_are_different():
    one, two = random_law(3, 2, seed=1), random_law(3, 2, seed=2)
    assert differs(conditionals(one, 3, 2), conditionals(two, 3, 2)) > 0.1
    product = brooks_product(conditionals(one, 3, 2), 3, 2)
    assert differs(product, two) > 0.01


def both_forms(q, p, dim):
    """The loss as in equation (11), with the conditionals of q, and as in Proposition 3.4, without them."""
    states = all_states(3, dim)
    with_conditionals = -(conditionals(q, 3, dim) * p.log()).sum((1, 2))
    without = -p.gather(-1, states[..., None]).log().sum((1, 2))
    return float(q @ with_conditionals), float(q @ without)


def test_proposition_3_4_the_two_forms_of_the_loss_are_equal(process, law, dim):
    states, q = states_of(process, dim), law_at(process, law, dim, MIDDLE)
    for seed in range(3):
        diffusion = table(process, dim, implicit=False, seed=seed)
        t = times(MIDDLE, len(states))
        with torch.no_grad():
            intractable, tractable = both_forms(q, diffusion.marginals(states, t).log_xt.exp(), dim)
            ours = ratio_matching(diffusion, states, t=t, xt=states).sum(-1)
        assert intractable == pytest.approx(tractable, rel=ROUNDING)
        assert float(q @ ours) == pytest.approx(tractable, rel=ROUNDING)


def test_proposition_3_4_the_loss_exceeds_that_of_the_truth_by_a_divergence(process, law, dim):
    states, q = states_of(process, dim), law_at(process, law, dim, MIDDLE)
    truth = conditionals(q, 3, dim)
    least = both_forms(q, truth, dim)[1]
    t = times(MIDDLE, len(states))
    for scale in (1e-3, 0.1, 1.0):
        perturbed = table(process, dim, implicit=False, scale=scale, base=oracle(process, law, dim).model)
        with torch.no_grad():
            p = perturbed.marginals(states, t).log_xt.exp()
        divergence = float(q @ (truth * (truth / p).log()).sum((1, 2)))
        assert divergence > 0
        assert both_forms(q, p, dim)[1] - least == pytest.approx(divergence, rel=1e-6, abs=ROUNDING)


# ---- Sections 4.2 and 4.3 ------------------------------------------------------------------------------------------


def test_eulers_step_moves_each_position_by_the_paper_s_formula(process, law, dim):
    """p(X_{t-e}^d = c) = e R^d(x, c) for c != x^d, and what is left for staying, with R from the whole space.

    Here e is measured on the clock of the process, B(t - e, t) / beta(t).
    """
    t, step = MIDDLE, 0.01
    R = bayes_rates(process, law, dim, t)
    states = states_of(process, dim)
    target = single_changes(states, 3)
    clock = float(process.schedule.integral(t - step, t) / process.schedule.rate(t))
    by_formula = clock * R[torch.arange(len(states))[:, None, None], target]
    by_formula = by_formula.scatter(-1, states[..., None], 0)
    stay = 1 - by_formula.sum(-1, keepdim=True)
    assert float(stay.min()) > 0
    by_formula = by_formula.scatter(-1, states[..., None], stay)
    assert differs(euler_laws(oracle(process, law, dim), t, t - step, dim), by_formula) < ROUNDING


def test_eulers_kernel_agrees_with_the_reverse_transition_to_first_order(process, law, dim):
    def error(step):
        kernel = as_kernel(euler_laws(oracle(process, law, dim), MIDDLE, MIDDLE - step, dim), 3)
        return differs(kernel, reverse_transition(process, law, dim, MIDDLE, MIDDLE - step))

    # the difference is of second order: halving the step quarters it, up to a relative change of the order of the step
    assert error(1e-3) / error(5e-4) == pytest.approx(4, rel=0.02)


def test_the_law_of_x_t_is_the_law_of_x_0_pushed_forwards(process, law, dim):
    """q_t(X_t^d | x_t^{\\d}) = sum over x_0^d of q_{0|t}(x_0^d | x_t^{\\d}) q_{t|0}(X_t^d | x_0^d)."""
    states = states_of(process, dim)
    marginals = oracle(process, law, dim).marginals(states, times(MIDDLE, len(states)))
    P = process.transition(times(0, 1), times(MIDDLE, 1))[0]
    assert differs(marginals.log_x0.exp() @ P, conditionals(law_at(process, law, dim, MIDDLE), 3, dim)) < ROUNDING


@pytest.mark.parametrize("s", [0.0, EARLY, MIDDLE - 1e-3])
def test_the_analytical_formula_is_the_true_law_of_each_position(process, law, dim, s):
    """q_{s|t}(X_s^d | x_t), as a marginal of the reverse transition on the whole space, whatever the step."""
    whole = reverse_transition(process, law, dim, MIDDLE, s).reshape(-1, *[3] * dim)
    states = states_of(process, dim)
    laws = analytical_laws(oracle(process, law, dim), MIDDLE, s, dim)
    for d in range(dim):
        others = [e + 1 for e in range(dim) if e != d]
        assert differs(laws[:, d], whole.sum(others).reshape(len(states), 3)) < ROUNDING


def test_the_helper_draws_states_from_the_law_it_is_given(law, dim):
    """A frequency errs by its standard error."""
    num = 20_000
    x = draw_states(law, num, 3, dim, seed=0)
    frequency = torch.bincount(index_of(x, 3), minlength=3**dim) / num
    standard_error = (law * (1 - law) / num).sqrt()
    assert bool(((frequency - law).abs() < 5 * standard_error).all())
