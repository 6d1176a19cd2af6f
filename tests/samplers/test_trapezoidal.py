"""Steps of second order, against the exact law of a step written out without the library."""

import itertools

import numpy as np
import pytest
import torch

from enumerated import (
    ENUMERABLE,
    UNLIKELY,
    Watched,
    absorbing,
    analytical_laws,
    as_kernel,
    base_rates,
    finishing_laws,
    fit,
    law_after,
    law_at,
    log_log_slope,
    on_all_symbols,
    one_way,
    oracle,
    random_law,
    seeded,
    states_of,
    table,
    times,
    total_variation,
    uniform,
)
from sddm import Diffusion, sample
from sddm.processes import Absorbing
from sddm.samplers import Euler, Trapezoidal, uniform_in_time


def halfway(process, t, s, theta):
    tau = process.schedule.integral(0.0, t) - theta * process.schedule.integral(s, t)
    return float(process.schedule.inverse(torch.as_tensor(tau, dtype=torch.float64)))


def analytical(process, marginals, x, s, t):
    """The law of each position at s, if it holds x at t and this is said of x_0."""
    to_s = process.transition(times(0, 1), times(s, 1))[0]
    s_to_t = process.transition(times(s, 1), times(t, 1))[0]
    weights = (marginals.log_x0.double().exp() @ to_s) * s_to_t.T[x]
    return weights / weights.sum(-1, keepdim=True)


def euler(process, marginals, x, s, t):
    p = marginals.log_xt.double().exp()
    rates = p / p.gather(-1, x[..., None]) * base_rates(process).T[x]
    hazard = (float(process.schedule.integral(s, t)) * rates).scatter(-1, x[..., None], 0)
    return hazard.scatter(-1, x[..., None], 1 - hazard.sum(-1, keepdim=True))


class Told:
    """Marginals of other rows."""

    def __init__(self, marginals, rows):
        self.log_x0, self.log_xt = marginals.log_x0[rows], marginals.log_xt[rows]


def trapezoidal_kernel(diffusion, t, s, dim, theta=0.5, law=analytical):
    """From x to every z: the sum over y of the step to y and the mixed step from there, with x and y both known."""
    process, states = diffusion.process, states_of(diffusion.process, dim)
    many, rho = len(states), halfway(process, t, s, theta)
    with torch.no_grad():
        first, second = (diffusion.marginals(states, times(u, many)) for u in (t, rho))
    x, y = (grid.flatten() for grid in torch.meshgrid(torch.arange(many), torch.arange(many), indexing="ij"))
    alpha = 1 / (2 * theta * (1 - theta))
    new = law(process, Told(second, y), states[y], s, rho)
    old = law(process, Told(first, x), states[y], s, rho)
    mixture = (alpha * new - (alpha - 1) * old).clamp(min=0)
    mixture /= mixture.sum(-1, keepdim=True)
    to_y = as_kernel(law(process, first, states, rho, t), process.num_symbols)
    return torch.einsum("xy,xyz->xz", to_y, of_pairs(mixture, many))


def of_pairs(laws, many):
    """From every pair (x, y) to every z, when each position draws from its law by itself."""
    product = torch.ones(many * many, 1, dtype=torch.float64)
    for d in range(laws.shape[1]):
        product = (product[:, :, None] * laws[:, d, None]).flatten(1)
    return product.reshape(many, many, many)


def rates_kernel(diffusion, t, s, dim, theta=0.5):
    """As published: a mixture of rates, and Poisson numbers of jumps, of which the last one counts."""
    process, states = diffusion.process, states_of(diffusion.process, dim)
    many, rho, alpha = len(states), halfway(process, t, s, theta), 1 / (2 * theta * (1 - theta))
    tau = float(process.schedule.integral(s, t))

    def rates(u):
        p = diffusion.marginals(states, times(u, many)).log_xt.double().exp()
        return (p / p.gather(-1, states[..., None]) * base_rates(process).T[states]).scatter(-1, states[..., None], 0)

    def leap(x, hazard):
        total = hazard.sum(-1, keepdim=True)
        jumps = hazard * torch.where(total > 0, -torch.expm1(-total) / total.clamp(min=1e-300), 0)
        return jumps.scatter(-1, x[..., None], torch.exp(-total))

    x, y = (grid.flatten() for grid in torch.meshgrid(torch.arange(many), torch.arange(many), indexing="ij"))
    mixed = (alpha * rates(rho)[y] - (alpha - 1) * rates(t)[x]).clamp(min=0).scatter(-1, states[y][..., None], 0)
    to_y = as_kernel(leap(states, theta * tau * rates(t)), process.num_symbols)
    return torch.einsum("xy,xyz->xz", to_y, of_pairs(leap(states[y], (1 - theta) * tau * mixed), many))


def law_of_chain(diffusion, law, grid, dim, kernel=trapezoidal_kernel, **options):
    current = law_at(diffusion.process, law, dim, 1.0)
    for t, s in itertools.pairwise(grid.tolist()):
        current = current @ kernel(diffusion, t, s, dim, **options)
    if isinstance(diffusion.process, Absorbing):
        current = current @ as_kernel(finishing_laws(diffusion, float(grid[-2]), dim), diffusion.process.num_symbols)
    return current


def mild_law():
    """Two positions of which one changes no probability of the other by a factor of 2."""
    law = random_law(3, 2, seed=3).reshape(3, 3)
    return (0.3 * law + 0.7 * law.sum(1)[:, None] * law.sum(0)).flatten()


def errors(make, law, numbers, **options):
    process = make()
    diffusion, data = oracle(process, law, 2), on_all_symbols(process, law, 2)
    return [
        total_variation(law_of_chain(diffusion, law, uniform_in_time(process, n), 2, **options), data) for n in numbers
    ]


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(("make", "theta"), [(uniform, 0.35), (uniform, 0.5), (absorbing, 0.5), (one_way, 0.5)])
def test_the_error_falls_with_the_square_of_the_step(make, theta):
    """On a law where no mixture is negative in small steps, and with an oracle."""
    numbers = [16, 32, 64]
    assert log_log_slope(1 / np.array(numbers), errors(make, mild_law(), numbers, theta=theta)) > 1.9


@pytest.mark.usefixtures("without_annotation_checks")
def test_a_mixture_of_rates_is_of_first_order_even_in_one_dimension():
    """Under uniform noise: at a position that has jumped already, the mixture of the rates is wrong or negative."""
    process, law, numbers = uniform(), random_law(3, 1, seed=3), [64, 128, 256]
    diffusion = oracle(process, law, 1)
    ends = [law_of_chain(diffusion, law, uniform_in_time(process, n), 1, kernel=rates_kernel) for n in numbers]
    falls = log_log_slope(1 / np.array(numbers), [total_variation(end, law) for end in ends])
    assert falls == pytest.approx(1, abs=0.2)
    two = random_law(3, 2, seed=3)
    (mixed,), (extrapolated,) = (errors(uniform, two, [8], kernel=k) for k in (rates_kernel, trapezoidal_kernel))
    assert extrapolated < mixed / 2


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize("steps", [2, 4, 8])
def test_it_is_nearer_to_the_data_than_twice_as_many_analytical_steps(make, steps):
    """Which cost as many evaluations. Also on a law with negative mixtures."""
    process, law = make(), random_law(3, 2, seed=3)
    diffusion, start = oracle(process, law, 2), law_at(process, law, 2, 1.0)
    plain = law_after(analytical_laws, diffusion, start, uniform_in_time(process, 2 * steps), 2)
    (error,) = errors(make, law, [steps])
    assert error < total_variation(plain, on_all_symbols(process, law, 2)) / 1.5


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize("theta", [0.2, 0.7])
def test_it_is_exact_in_one_dimension(make, theta):
    process, law = make(), random_law(3, 1, seed=1)
    end = law_of_chain(oracle(process, law, 1), law, uniform_in_time(process, 2), 1, theta=theta)
    assert total_variation(end, on_all_symbols(process, law, 1)) < 1e-10


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize(("t", "s"), [(0.9, 0.6), (0.3, 0.1)])
def test_the_library_draws_from_this_law(make, t, s):
    for step, law in ((Trapezoidal(theta=0.4), analytical), (Trapezoidal(Euler(), theta=0.4), euler)):
        s = s if law is analytical else t - 0.05  # so that Euler's probabilities are not clipped
        diffusion = table(make(), 2, scale=0.7)
        assert fit(diffusion, step, trapezoidal_kernel(diffusion, t, s, 2, 0.4, law), t, s, 2, seed=1) > UNLIKELY


def test_a_step_costs_two_evaluations_the_second_at_a_share_theta_of_the_clock():
    process = uniform()
    watched = Watched(oracle(process, random_law(3, 2, seed=0), 2).model)
    sample(Diffusion(process, watched), 5, 2, Trapezoidal(theta=0.25), generator=seeded(0), grid=uniform_in_time)
    expected = [1.0, halfway(process, 1.0, 0.5, 0.25), 0.5, halfway(process, 0.5, 0.0, 0.25)]
    assert watched.times == pytest.approx(expected)


@pytest.mark.parametrize("theta", [0.0, 1.0, -0.5, 1.5])
def test_a_theta_outside_the_step_is_refused(theta):
    with pytest.raises(ValueError, match=r"theta must lie between 0 and 1, both excluded, but it is"):
        Trapezoidal(theta=theta)
