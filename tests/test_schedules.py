import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from sddm.schedules import SCHEDULES, Constant, Exponential, LogSquare, SqrtCosine

EPSILON = np.finfo(np.float64).eps
EDGE = SqrtCosine.EDGE

EXAMPLES = {
    "constant": [Constant(0.7), Constant(30.0)],
    "log-square": [LogSquare(1.0), LogSquare(5.6)],
    "sqrt-cosine": [SqrtCosine(1.0), SqrtCosine(4.2)],
    "exponential": [Exponential(0.1, 20.0), Exponential(1.0, 1.5)],
}
"""Arguments to try every member of the family with. A schedule that is listed and has none fails the first test."""

every_schedule = pytest.mark.parametrize(
    "schedule", [s for name in SCHEDULES for s in EXAMPLES.get(name, [])], ids=repr
)

TIMES = torch.tensor([0.0, 1e-9, 1e-4, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1 - 2e-6, 1 - 5e-7, 1.0], dtype=torch.float64)
unit = st.floats(0, 1)


def rounding(schedule):
    """The rounding error of B(s, t), a difference of two numbers up to B(0, 1) of a few operations each."""
    return 16 * EPSILON * float(schedule.integral(0.0, 1.0))


def independent_rate_and_primitive(schedule, t):
    """beta(t) and B(0, t) as the papers write them, in numpy."""
    match schedule:
        case Constant(arguments={"rate": rate}):
            return np.full_like(t, rate), rate * t
        case LogSquare(arguments={"scale": scale}):
            return scale * 2 * t / (1 + t * t), scale * np.log(1 + t * t)
        case SqrtCosine(arguments={"scale": scale}):
            angle = np.pi * t / 2
            with np.errstate(divide="ignore", invalid="ignore"):  # the formula itself diverges at t = 1
                return scale * np.pi / 4 * np.sin(angle) / np.sqrt(np.cos(angle)), scale * (1 - np.sqrt(np.cos(angle)))
        case Exponential(arguments={"low": low, "high": high}):
            # tauLDR: sigma(t) = low (high / low)^t, and the rate is the derivative of sigma(t)^2 / 2.
            sigma = low * (high / low) ** t
            return sigma**2 * np.log(high / low), (sigma**2 - low**2) / 2
    raise AssertionError(f"no formula for {schedule!r}")


def test_every_listed_schedule_has_examples_of_its_own_class():
    assert EXAMPLES.keys() == SCHEDULES.keys()
    assert all(type(s) is SCHEDULES[name] for name, examples in EXAMPLES.items() for s in examples)


@every_schedule
def test_rate_and_integral_are_the_closed_forms(schedule):
    t = np.linspace(0, 1 - EDGE, 1001)
    rate, primitive = independent_rate_and_primitive(schedule, t)
    # cos(pi t / 2) loses its digits near t = 1 in the form above, by a factor of 1 / (1 - t).
    tolerance = 16 * EPSILON / (1 - t + EDGE)
    ours = schedule.rate(torch.from_numpy(t)).numpy()
    assert np.all(np.abs(ours - rate) <= tolerance * np.maximum(rate, 1))
    ours = schedule.integral(0.0, torch.from_numpy(t)).numpy()
    assert np.all(np.abs(ours - primitive) <= tolerance * np.maximum(primitive, float(schedule.integral(0.0, 1.0))))


@every_schedule
def test_integral_is_additive(schedule):
    s, u, t = torch.rand(3, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).sort(0).values
    parts = schedule.integral(s, u) + schedule.integral(u, t)
    torch.testing.assert_close(parts, schedule.integral(s, t), rtol=0, atol=rounding(schedule))


@every_schedule
@given(times=st.lists(unit, min_size=3, max_size=3).map(sorted))
def test_integral_is_additive_and_ordered_at_any_times(schedule, times):
    s, u, t = times
    whole, first, second = (float(schedule.integral(*pair)) for pair in ((s, t), (s, u), (u, t)))
    assert first + second == pytest.approx(whole, rel=0, abs=rounding(schedule))
    assert min(first, second, whole) >= -rounding(schedule)
    assert whole <= float(schedule.integral(0.0, 1.0)) + rounding(schedule)


@every_schedule
def test_integral_over_no_time_is_exactly_zero(schedule):
    assert torch.equal(schedule.integral(TIMES, TIMES), torch.zeros_like(TIMES))


@every_schedule
def test_derivative_of_the_integral_is_the_rate_everywhere(schedule):
    t = torch.cat([TIMES, torch.linspace(0, 1, 500, dtype=torch.float64)]).requires_grad_()
    (slope,) = torch.autograd.grad(schedule.integral(0.0, t).sum(), t)
    torch.testing.assert_close(slope, schedule.rate(t.detach()), rtol=1e-13, atol=0)


@every_schedule
def test_derivative_in_the_early_time_is_minus_the_rate(schedule):
    s = TIMES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(schedule.integral(s, 1.0).sum(), s)
    torch.testing.assert_close(-slope, schedule.rate(TIMES), rtol=1e-13, atol=0)


@every_schedule
@given(t=unit)
def test_rate_is_finite_and_not_negative(schedule, t):
    rate = float(schedule.rate(t))
    assert 0 <= rate < math.inf


@every_schedule
def test_quadrature_of_the_rate_is_the_integral(schedule):
    # The steep last stretch of SqrtCosine is integrated by itself: up to the edge, and over it.
    for a, b in ((0.0, 0.3), (0.3, 0.99), (0.99, 1 - 1e-4), (1 - 1e-4, 1 - EDGE), (1 - EDGE + 1e-12, 1.0)):
        value, error = integrate.quad(lambda t: float(schedule.rate(t)), a, b, epsabs=1e-13, epsrel=1e-12, limit=200)
        assert float(schedule.integral(a, b)) == pytest.approx(value, rel=1e-11, abs=error + rounding(schedule))


@every_schedule
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_float64_comes_out_whatever_goes_in(schedule, dtype):
    t = torch.tensor([0, 1]).to(dtype)
    assert schedule.rate(t).dtype == torch.float64
    assert schedule.integral(t, t).dtype == torch.float64
    torch.testing.assert_close(schedule.rate(t), schedule.rate(t.double()), rtol=0, atol=0)
    assert schedule.rate(0.5).dtype == schedule.integral(0.0, 0.5).dtype == torch.float64


@every_schedule
def test_a_time_in_float32_is_not_rounded_again(schedule):
    t = torch.tensor([0.3], dtype=torch.float32)
    assert float(schedule.integral(0.0, t)) == float(schedule.integral(0.0, float(t)))


@every_schedule
@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (2, 1, 4)])
def test_times_of_any_shape_are_answered_one_by_one(schedule, shape):
    t = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert schedule.rate(t).shape == schedule.integral(0.0, t).shape == shape
    one_by_one = [float(schedule.integral(0.0, float(v))) for v in t.flatten()]
    # Vectorised and scalar kernels of log and exp may differ in the last bits.
    assert schedule.integral(0.0, t).flatten().tolist() == pytest.approx(one_by_one, rel=0, abs=rounding(schedule))


@every_schedule
@pytest.mark.parametrize("factor", [1e-3, 0.5, 7.0])
def test_scaled_multiplies_rate_and_integral_and_keeps_the_class(schedule, factor):
    scaled = schedule.scaled(factor)
    assert type(scaled) is type(schedule)
    torch.testing.assert_close(scaled.rate(TIMES), factor * schedule.rate(TIMES), rtol=1e-13, atol=0)
    torch.testing.assert_close(
        scaled.integral(0.0, TIMES), factor * schedule.integral(0.0, TIMES), rtol=1e-13, atol=rounding(scaled)
    )


@every_schedule
def test_inverse_inverts_the_integral(schedule):
    t = torch.linspace(0, 1, 301, dtype=torch.float64)
    integral = schedule.integral(0.0, t)
    # Bisection stops at 2^-60; the rest is the rounding of the integral, divided by the slope.
    found = schedule.inverse(integral)
    slack = rounding(schedule) + 2.0**-60 * schedule.rate(t).clamp(min=1)
    assert bool(((schedule.integral(0.0, found) - integral).abs() <= slack).all())
    steep = schedule.rate(t) > 1e-3
    error = (found - t).abs()[steep]
    assert bool((error <= rounding(schedule) / schedule.rate(t)[steep] + 4 * EPSILON).all())


@every_schedule
def test_inverse_stays_inside_the_time_axis(schedule):
    total = float(schedule.integral(0.0, 1.0))
    ends = schedule.inverse(torch.tensor([0.0, total, 2 * total], dtype=torch.float64))
    assert 0 <= float(ends[0]) <= 2.0**-60
    assert float(ends[1]) == pytest.approx(1, abs=rounding(schedule) / float(schedule.rate(1.0)) + EPSILON)
    assert float(ends[2]) == 1


@given(scale=st.floats(1e-3, 1e3), t=unit)
def test_sqrt_cosine_reaches_exactly_its_scale_at_a_finite_rate(scale, t):
    schedule = SqrtCosine(scale)
    assert float(schedule.integral(0.0, 1.0)) == scale
    assert 0 <= float(schedule.rate(t)) <= scale * 1253.4
    assert 0 <= float(schedule.integral(0.0, t)) <= scale


def test_sqrt_cosine_is_the_papers_schedule_up_to_the_edge_and_straight_beyond():
    schedule = SqrtCosine(1.0)
    gap = np.geomspace(EDGE * (1 + 1e-9), 1, 200)
    t = torch.from_numpy(1 - gap)
    # 1 - t is known to EPSILON / 2 only, and the root magnifies that by its slope.
    exact = 1 - np.sqrt(np.sin(np.pi / 2 * (1 - t.numpy())))
    assert schedule.integral(0.0, t).numpy() == pytest.approx(exact, rel=0, abs=4 * EPSILON)
    edge = 1 - EDGE
    left = float(schedule.integral(edge, 1.0))
    assert left == pytest.approx(math.sqrt(math.sin(math.pi / 2 * EDGE)), rel=1e-9)
    inside = torch.linspace(edge, 1, 11, dtype=torch.float64)[1:]
    torch.testing.assert_close(schedule.rate(inside), torch.full_like(inside, left / EDGE), rtol=1e-9, atol=0)
    torch.testing.assert_close(schedule.integral(inside, 1.0), left * (1 - inside) / EDGE, rtol=1e-9, atol=4 * EPSILON)


def test_sqrt_cosine_has_finite_second_derivatives_at_the_end():
    t = torch.tensor([1 - 2 * EDGE, 1 - EDGE, 1 - EDGE / 2, 1.0], dtype=torch.float64, requires_grad=True)
    (curvature,) = torch.autograd.grad(SqrtCosine(1.0).rate(t).sum(), t)
    assert bool(torch.isfinite(curvature).all())
    assert curvature[2:].tolist() == [0, 0]


@given(low=st.floats(1e-2, 1), ratio=st.floats(1.01, 1e3), s=unit, t=unit)
def test_exponential_is_the_variance_of_tauldr(low, ratio, s, t):
    s, t = sorted((s, t))
    high = low * ratio
    schedule = Exponential(low, high)
    sigma_s, sigma_t = (low * (high / low) ** time for time in (s, t))
    exact = (sigma_t**2 - sigma_s**2) / 2
    assert float(schedule.integral(s, t)) == pytest.approx(exact, rel=1e-12, abs=64 * EPSILON * high**2)
    assert float(schedule.rate(t)) == pytest.approx(sigma_t**2 * math.log(high / low), rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Constant(0.7), "Constant(rate=0.7)"),
        (Exponential(low=0.1, high=20.0), "Exponential(low=0.1, high=20.0)"),
        (LogSquare(1.0).scaled(2.0), "LogSquare(scale=2.0)"),
    ],
)
def test_repr_is_how_to_build_it(schedule, text):
    assert repr(schedule) == text
    assert repr(eval(text)) == text
