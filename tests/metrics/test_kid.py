"""KID: the value by loops, no bias, and an error that is the spread."""

import math

import numpy as np
import pytest
import torch

from scripted import tiny_inception
from sddm.metrics import features, kid, load_inception

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
EPS = torch.finfo(torch.float64).eps
REPEATS = 200
POINTS = torch.tensor([[0.0, 0.0], [1.0, 0.5], [2.0, -1.0], [0.5, 3.0]]).double()
"""Features that a row may have, so that means of the kernel are finite sums."""


def rows(num, law, seed):
    generator = torch.Generator().manual_seed(seed)
    return POINTS[torch.tensor(law).multinomial(num, replacement=True, generator=generator)]


def kernel(a, b):
    return (sum(p * q for p, q in zip(a, b, strict=True)) / len(a) + 1) ** 3


def mean_kernel(p, q):
    return sum(
        s * t * kernel(a, b)
        for s, a in zip(p, POINTS.tolist(), strict=True)
        for t, b in zip(q, POINTS.tolist(), strict=True)
    )


def test_the_value_is_the_means_of_the_cubic_kernel_over_distinct_pairs():
    x, y = rows(7, [0.1, 0.2, 0.3, 0.4], 0), rows(5, [0.4, 0.3, 0.2, 0.1], 1)
    (n, m), (a, b) = (7, 5), (x.tolist(), y.tolist())
    within_x = sum(kernel(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(kernel(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    between = sum(kernel(p, q) for p in a for q in b) / (n * m)
    assert kid(x, y).value == pytest.approx(within_x + within_y - 2 * between, rel=1e-10)


@pytest.mark.parametrize(
    ("p", "q"), [([0.25] * 4, [0.25] * 4), ([0.1, 0.2, 0.3, 0.4], [0.3, 0.3, 0.2, 0.2])], ids=["equal", "apart"]
)
def test_there_is_no_bias_and_the_error_is_the_spread(p, q):
    found = torch.tensor([kid(rows(40, p, 2 * r), rows(60, q, 2 * r + 1)) for r in range(REPEATS)])
    truth = mean_kernel(p, p) + mean_kernel(q, q) - 2 * mean_kernel(p, q)
    spread = float(found[:, 0].std())
    assert abs(float(found[:, 0].mean()) - truth) < 4 * spread / REPEATS**0.5
    error = float(found[:, 1].square().mean().sqrt())
    if p == q:  # a first-order variance that is estimated below 0 counts as 0: see hamming_mmd
        assert 0.9 < error / spread < 1.6
    else:  # draws with heavier tails than the normal law: a kurtosis of up to 9
        assert abs(error / spread - 1) < 4 * math.sqrt(8 / (4 * REPEATS))


def test_the_size_of_a_chunk_changes_rounding_only():
    x, y = rows(50, [0.1, 0.2, 0.3, 0.4], 0), rows(33, [0.25] * 4, 1)
    whole = kid(x, y)
    largest = float((POINTS.square().sum(1).max() / 2 + 1) ** 3)
    for chunk in (1, 8, 1000):
        np.testing.assert_allclose(kid(x, y, chunk=chunk), whole, atol=50 * EPS * largest, rtol=1e-9)


def test_pictures_go_through_the_network(tmp_path):
    network = load_inception(tiny_inception(tmp_path))
    pictures = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    of_features = kid(*(features(part, network, keep=False) for part in (pictures[:5], pictures[5:])))
    assert kid(pictures[:5], torch.from_numpy(pictures[5:]), network, keep=False) == of_features


def test_an_error_needs_four_rows_of_each():
    x = rows(4, [0.25] * 4, 0)
    assert math.isnan(kid(x, x[:3]).standard_error)
    with pytest.raises(ValueError, match="y must have at least 2 rows to form a pair, but it has 1"):
        kid(x, x[:1])
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        kid(x, x, chunk=0)
