import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from sddm.data import Toy
from sddm.metrics import hamming_mmd

ROUNDING = 1e-12
"""Sums of up to a few thousand float64 numbers below 1, divided by their number."""
REPEATS = 200
LENGTH = 12


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def random_tokens(num, length, num_states, seed):
    return torch.randint(num_states, (num, length), generator=seeded(seed))


def coins(num, chance, generator):
    """Independent bits, each 1 with the given chance."""
    return (torch.rand(num, LENGTH, generator=generator) < chance).long()


def exact_mmd(p, q, bandwidth):
    """MMD^2 between coins of chance p and q: the kernel is a product over positions, and so is its mean."""

    def mean_kernel(a, b):
        differ = a * (1 - b) + b * (1 - a)
        return (1 - differ * (1 - math.exp(-bandwidth))) ** LENGTH

    return mean_kernel(p, p) + mean_kernel(q, q) - 2 * mean_kernel(p, q)


def kernel_by_loops(x, y, bandwidth):
    entries = [
        math.exp(-bandwidth * sum(a != b for a, b in zip(r, s, strict=True)))
        for r, s in product(x.tolist(), y.tolist())
    ]
    return np.array(entries).reshape(len(x), len(y))


def value_by_loops(x, y, bandwidth):
    n, m = len(x), len(y)
    xx, yy, xy = (kernel_by_loops(*pair, bandwidth) for pair in ((x, x), (y, y), (x, y)))
    within_x = sum(xx[i, j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(yy[i, j] for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within_x + within_y - 2 * xy.sum() / (n * m)


def error_by_matrices(x, y, bandwidth):
    """The standard error from matrices that are centred entry by entry."""
    n, m = len(x), len(y)
    xx, yy, xy = (kernel_by_loops(*pair, bandwidth) for pair in ((x, x), (y, y), (x, y)))

    def within(k):
        size = len(k)
        k = k - np.eye(size)
        rows = k.sum(1) / (size - 2)
        centred = k - rows[:, None] - rows[None, :] + k.sum() / ((size - 1) * (size - 2))
        np.fill_diagonal(centred, 0)
        return rows, (centred**2).sum() / (size * (size - 3))

    (rows_x, v_xx), (rows_y, v_yy) = within(xx), within(yy)
    centred = xy - xy.mean(1, keepdims=True) - xy.mean(0, keepdims=True) + xy.mean()
    v_xy = (centred**2).sum() / ((n - 1) * (m - 1))
    a_x = np.var(rows_x - xy.mean(1), ddof=1) - v_xx / (n - 2) - v_xy / m
    a_y = np.var(rows_y - xy.mean(0), ddof=1) - v_yy / (m - 2) - v_xy / n
    second_order = 2 * v_xx / (n * (n - 1)) + 2 * v_yy / (m * (m - 1)) + 4 * v_xy / (n * m)
    return math.sqrt(max(4 * a_x / n + 4 * a_y / m, 0) + second_order)


@pytest.mark.parametrize("num_states", [1, 2, 5, 40])
@pytest.mark.parametrize(("n", "m"), [(7, 7), (4, 9), (11, 5)])
def test_value_and_error_equal_those_of_a_double_loop(n, m, num_states):
    x, y = random_tokens(n, 6, num_states, 0), random_tokens(m, 6, num_states, 1)
    value, standard_error = hamming_mmd(x, y, bandwidth=0.3)
    assert value == pytest.approx(value_by_loops(x, y, 0.3), abs=ROUNDING)
    # The error is a square root: a rounding of its square by 1e-16 is one of 1e-8 next to zero.
    assert standard_error == pytest.approx(error_by_matrices(x, y, 0.3), rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 8), (8, 3)])
def test_the_value_needs_two_rows_and_the_error_four(n, m):
    x, y = random_tokens(n, 6, 3, 0), random_tokens(m, 6, 3, 1)
    value, standard_error = hamming_mmd(x, y)
    assert value == pytest.approx(value_by_loops(x, y, 0.1), abs=ROUNDING)
    assert math.isnan(standard_error)


SETTINGS = {
    "same law": (0.3, 0.3, 150, 150),
    "same law, unequal numbers": (0.3, 0.3, 80, 240),
    "close laws": (0.3, 0.33, 150, 150),
    "different laws": (0.3, 0.5, 150, 150),
    "different laws, unequal numbers": (0.3, 0.5, 240, 80),
}


@pytest.fixture(scope="module")
def simulations():
    """Value and standard error, over and over, for every setting."""
    generator = seeded(0)
    return {
        name: np.array([hamming_mmd(coins(n, p, generator), coins(m, q, generator)) for _ in range(REPEATS)])
        for name, (p, q, n, m) in SETTINGS.items()
    }


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_value_is_unbiased(simulations, setting):
    p, q, _, _ = SETTINGS[setting]
    values = simulations[setting][:, 0]
    assert abs(values.mean() - exact_mmd(p, q, 0.1)) <= 4 * values.std(ddof=1) / math.sqrt(REPEATS)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_standard_error_is_the_standard_deviation_over_repeats(simulations, setting):
    values, standard_errors = simulations[setting].T
    # The standard deviation of 200 values is itself known to 5 percent if they are Gaussian and to some 10 percent for
    # the skewed law under equality; the clipped first-order part adds up to 20 percent there.
    assert standard_errors.mean() == pytest.approx(values.std(ddof=1), rel=0.3)


def test_data_against_data_at_4000_points_has_the_known_noise():
    toy, generator, repeats = Toy("8gaussians"), seeded(0), 12
    results = np.array(
        [hamming_mmd(toy.tokens(4_000, generator), toy.tokens(4_000, generator)) for _ in range(repeats)]
    )
    values, standard_errors = results.T * 1e4
    # (repeats - 1) s^2 / sigma^2 follows a chi-square law; the known noise of the seven densities is 0.41 to 0.61.
    low, high = np.sqrt(stats.chi2(repeats - 1).ppf([0.001, 0.999]) / (repeats - 1))
    assert 0.41 * low <= values.std(ddof=1) <= 0.61 * high
    assert 0.41 <= standard_errors.mean() <= 0.61
    assert abs(values.mean()) <= 4 * 0.61 / math.sqrt(repeats)


@pytest.mark.parametrize("num_states", [2, 5, 40])
@pytest.mark.parametrize("chunk", [1, 3, 16, 37, 10_000])
def test_the_chunk_size_does_not_matter(chunk, num_states):
    x, y = random_tokens(37, 8, num_states, 0), random_tokens(23, 8, num_states, 1)
    assert hamming_mmd(x, y, chunk=chunk) == pytest.approx(hamming_mmd(x, y), abs=ROUNDING)


@pytest.mark.parametrize("num_states", [2, 5, 40])
def test_blocks_in_float32_cost_no_more_than_1e_8(num_states):
    x, y = random_tokens(1500, 32, num_states, 0), random_tokens(1200, 32, num_states, 1)
    coarse, fine = hamming_mmd(x, y, dtype=torch.float32), hamming_mmd(x, y)
    assert coarse.value == pytest.approx(fine.value, abs=1e-8)
    assert coarse.standard_error == pytest.approx(fine.standard_error, rel=1e-3)


def test_x_and_y_may_be_exchanged():
    x, y = random_tokens(60, 8, 4, 0), random_tokens(40, 8, 3, 1)
    assert hamming_mmd(x, y, chunk=16) == pytest.approx(hamming_mmd(y, x, chunk=16), abs=ROUNDING)


def test_the_order_of_rows_and_of_positions_does_not_matter():
    x, y = random_tokens(60, 8, 4, 0), random_tokens(40, 8, 4, 1)
    positions = torch.randperm(8, generator=seeded(2))
    shuffled_x = x[torch.randperm(60, generator=seeded(3))][:, positions]
    shuffled_y = y[torch.randperm(40, generator=seeded(4))][:, positions]
    assert hamming_mmd(shuffled_x, shuffled_y) == pytest.approx(hamming_mmd(x, y), abs=ROUNDING)


@pytest.mark.parametrize("step", [2, 15, 1_000, 2**52])
def test_only_equality_of_states_matters_not_their_names(step):
    # Bits named 0 and 2, 0 and 15, ... go through one-hot products up to 16 states and comparisons beyond.
    x, y = random_tokens(60, 8, 2, 0), random_tokens(40, 8, 2, 1)
    assert hamming_mmd(x * step, y * step) == pytest.approx(hamming_mmd(x, y), abs=ROUNDING)


def test_one_hot_products_agree_with_comparisons_for_many_states():
    x, y = random_tokens(60, 8, 16, 0), random_tokens(40, 8, 16, 1)
    assert hamming_mmd(x + 1, y + 1) == pytest.approx(hamming_mmd(x, y), abs=ROUNDING)


def test_equal_and_constant_rows_are_at_distance_zero_with_no_error():
    rows = torch.ones(50, 8, dtype=torch.int64)
    value, standard_error = hamming_mmd(rows, rows[:30])
    assert abs(value) <= ROUNDING
    assert standard_error <= math.sqrt(ROUNDING)


def test_disjoint_constant_rows_are_at_the_largest_distance():
    zeros, ones = torch.zeros(50, 8, dtype=torch.int64), torch.ones(30, 8, dtype=torch.int64)
    assert hamming_mmd(zeros, ones, bandwidth=0.5).value == pytest.approx(2 - 2 * math.exp(-0.5 * 8), abs=ROUNDING)


def test_a_huge_bandwidth_only_sees_equal_rows():
    x, y = random_tokens(50, 3, 2, 0), random_tokens(60, 3, 2, 1)
    assert hamming_mmd(x, y, bandwidth=1e6).value == pytest.approx(value_by_loops(x, y, 1e6), abs=ROUNDING)


TOKENS = torch.zeros(5, 4, dtype=torch.int64)


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize(
    ("tokens", "error", "sentence"),
    [
        (TOKENS.tolist(), TypeError, "must be a torch.Tensor, but it is a list"),
        (TOKENS.float(), TypeError, "must be of dtype torch.int64, but it is of torch.float32"),
        (TOKENS.int(), TypeError, "must be of dtype torch.int64, but it is of torch.int32"),
        (TOKENS[0], ValueError, r"must have shape \(batch, dim\), but it has shape \(4,\)"),
        (TOKENS[None], ValueError, r"must have shape \(batch, dim\), but it has shape \(1, 5, 4\)"),
        (TOKENS[:, :0], ValueError, "is empty"),
        (TOKENS - 1, ValueError, "must hold tokens from 0"),
        (TOKENS + 2**53, ValueError, "must hold tokens from 0"),
        (TOKENS[:1], ValueError, "must have at least 2 rows to form a pair, but it has 1"),
    ],
)
def test_bad_tokens_are_refused_by_name(without_annotation_checks, name, tokens, error, sentence):
    with pytest.raises(error, match=f"^{name} {sentence}"):
        hamming_mmd(**{"x": TOKENS, "y": TOKENS, name: tokens})


def test_rows_of_different_length_are_refused(without_annotation_checks):
    with pytest.raises(ValueError, match="same number of positions, but x has 4 and y has 3"):
        hamming_mmd(TOKENS, TOKENS[:, :3])


def test_tokens_on_different_devices_are_refused(without_annotation_checks):
    with pytest.raises(ValueError, match="x is on device cpu, but y is on meta"):
        hamming_mmd(TOKENS, TOKENS.to("meta"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"bandwidth": 0.0}, ValueError),
        ({"bandwidth": -0.1}, ValueError),
        ({"bandwidth": float("inf")}, ValueError),
        ({"bandwidth": float("nan")}, ValueError),
        ({"bandwidth": "wide"}, TypeError),
        ({"chunk": 0}, ValueError),
        ({"chunk": -5}, ValueError),
        ({"chunk": 2.5}, TypeError),
        ({"dtype": torch.float16}, ValueError),
    ],
)
def test_bad_options_are_refused_by_name(without_annotation_checks, options, error):
    with pytest.raises(error, match=f"^{next(iter(options))} must be"):
        hamming_mmd(TOKENS, TOKENS, **options)
