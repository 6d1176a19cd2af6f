"""The distance of two Gaussians, against independent computations and closed forms, and FID with its error and bias."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from scripted import tiny_inception
from sddm.metrics import Moments, features, fid, frechet_distance, load_inception

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
EPS = torch.finfo(torch.float64).eps
REPEATS = 100


def normal(num, dim, seed, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(num, dim, generator=generator, dtype=torch.float64) + shift


def mixed(num, dim, seed):
    """Rows with correlated features."""
    return normal(num, dim, seed) @ normal(dim, dim, seed + 1000)


def distance(x, y):
    of_x, of_y = Moments.of(x), Moments.of(y)
    return frechet_distance(of_x.mean, of_x.covariance, of_y.mean, of_y.covariance)


def rounding(x, y):
    """An eigenvalue is right up to d roundings of the largest; the root of one that is 0 is off by the root of that."""
    dim = x.shape[1]
    largest = max(float(torch.linalg.matrix_norm(rows.T.cov(), 2)) for rows in (x, y))
    return 2 * dim * math.sqrt(dim * EPS) * largest


@pytest.mark.parametrize("dim", [1, 3, 20])
def test_the_distance_is_that_of_the_square_root_of_the_product(dim):
    x, y = mixed(200, dim, 0), mixed(300, dim, 1) + 0.5
    gap, first, second = (x.mean(0) - y.mean(0)).numpy(), np.atleast_2d(np.cov(x.T)), np.atleast_2d(np.cov(y.T))
    expected = gap @ gap + np.trace(first + second - 2 * sqrtm(first @ second).real)
    assert distance(x, y) == pytest.approx(expected, rel=1e-9)  # 200 rows of 20 features: a condition far below 1e6


def test_diagonal_gaussians_have_the_distance_of_their_means_and_deviations():
    means, deviations = normal(2, 6, 0), normal(2, 6, 1).abs()
    found = frechet_distance(means[0], deviations[0].square().diag(), means[1], deviations[1].square().diag())
    assert found == pytest.approx(
        float((means[0] - means[1]).square().sum() + (deviations[0] - deviations[1]).square().sum())
    )


def test_a_shift_counts_as_its_square():
    x = mixed(100, 5, 0)
    assert distance(x, x + torch.arange(5)) == pytest.approx(0 + 1 + 4 + 9 + 16, abs=rounding(x, x))


@pytest.mark.parametrize("num", [10, 500])
def test_equal_sets_have_no_distance_even_if_their_covariance_is_singular(num):
    x = mixed(num, 40, 0)
    assert 0 <= distance(x, x) <= rounding(x, x)


def test_the_distance_of_singular_covariances_is_that_of_the_rows_themselves():
    """The trace of the root is the sum of the singular values of X Y', with X and Y the centred and scaled rows."""
    x, y = mixed(12, 40, 0), mixed(9, 40, 1)
    centred = [(rows - rows.mean(0)).numpy() / math.sqrt(len(rows) - 1) for rows in (x, y)]
    overlap = np.linalg.svd(centred[0] @ centred[1].T, compute_uv=False).sum()
    gap = float((x.mean(0) - y.mean(0)).square().sum())
    expected = gap + sum((rows**2).sum() for rows in centred) - 2 * overlap
    assert distance(x, y) == pytest.approx(expected, abs=rounding(x, y))


def test_the_distance_is_symmetric():
    x, y = mixed(30, 8, 0), mixed(50, 8, 1) + 1
    assert distance(x, y) == pytest.approx(distance(y, x), rel=1e-9)


def test_moments_of_pieces_add_up_to_those_of_all_and_can_be_taken_away(monkeypatch):
    monkeypatch.setattr("sddm.metrics.frechet.CHUNK", 7)
    x = mixed(100, 5, 0) + 1000  # far from 0, where sums of squares would lose digits
    total = Moments.of(x)
    tolerance = 100 * 1000 * EPS * float(x.abs().max())
    np.testing.assert_allclose(total.mean, x.mean(0), rtol=10 * EPS)
    np.testing.assert_allclose(total.covariance, np.cov(x.T), atol=tolerance)
    left = total - Moments.of(x[20:50])
    expected = torch.cat([x[:20], x[50:]])
    assert left.num == len(expected)
    np.testing.assert_allclose(left.mean, expected.mean(0), rtol=100 * EPS)
    np.testing.assert_allclose(left.covariance, np.cov(expected.T), atol=tolerance)


@cache
def repeats(name):
    """Rows of the value, the error and the corrected value of FID: of Gaussians that are apart, or of equal ones."""
    scale, shift = (1.3, 0.2) if name == "apart" else (1.0, 0.0)
    pairs = ((normal(200, 4, 2 * r, scale, shift), normal(300, 4, 2 * r + 1)) for r in range(REPEATS))
    return torch.tensor([fid(*pair) for pair in pairs])


TRUTH = {"apart": 4 * (0.3**2 + 0.2**2), "equal": 0.0}


@pytest.mark.parametrize("name", TRUTH)
def test_the_usual_figure_is_too_large_and_the_corrected_one_is_not(name):
    value, _, corrected = repeats(name).mean(0).tolist()
    error, error_of_corrected = (repeats(name)[:, column].std() / REPEATS**0.5 for column in (0, 2))
    assert value - TRUTH[name] > 6 * error
    # Of a bias of about 5 features / 200 rows, what is left is of the order of its square.
    assert abs(corrected - TRUTH[name]) < 4 * error_of_corrected + (5 / 200) ** 2


def test_the_error_is_the_spread_of_the_figure():
    spread, errors = repeats("apart")[:, 0].std(), repeats("apart")[:, 1].square().mean().sqrt()
    # The relative errors of the deviation of all draws, and of as many jackknives with 9 degrees of freedom.
    tolerance = 4 * math.hypot((2 * REPEATS) ** -0.5, (2 * 9 * REPEATS) ** -0.5)
    assert abs(float(errors / spread) - 1) < tolerance
    assert abs(float(errors / repeats("apart")[:, 2].std()) - 1) < tolerance


def test_the_error_of_equal_laws_is_larger_than_the_spread_but_less_than_twice():
    ratio = float(repeats("equal")[:, 1].square().mean().sqrt() / repeats("equal")[:, 0].std())
    assert 1 < ratio < 2


def test_the_figure_is_that_of_the_two_gaussians():
    x, y = mixed(60, 5, 0), mixed(50, 5, 1)
    assert fid(x, y).value == pytest.approx(distance(x, y), rel=1e-9)
    assert fid(x.float().numpy(), y.float()).value == pytest.approx(distance(x, y), rel=1e-4)


def test_pictures_go_through_the_network(tmp_path):
    network = load_inception(tiny_inception(tmp_path))
    pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    of_features = fid(*(features(part, network, keep=False) for part in (pictures[:30], pictures[30:])))
    assert fid(pictures[:30], pictures[30:], network, folder=tmp_path / "parts") == of_features
    assert fid(pictures[:30], features(pictures[30:], network, keep=False), network, keep=False) == of_features


def test_what_cannot_be_measured_is_refused():
    x = normal(40, 3, 0)
    with pytest.raises(
        ValueError, match="samples must have at least 20 rows, 2 in each of 10 groups, but they have 19"
    ):
        fid(x[:19], x)
    with pytest.raises(ValueError, match="groups must be at least 2, but it is 1"):
        fid(x, x, groups=1)
    with pytest.raises(
        ValueError, match="samples and data must have the same number of features, but they have 3 and 2"
    ):
        fid(x, x[:, :2])
    for wrong in (x.long(), x[0], x * math.nan, [1, 2], x[:0]):
        with pytest.raises(
            ValueError, match=r"data must be pictures, in uint8 of shape .* or a row of finite features"
        ):
            fid(x, wrong)
    with pytest.raises(ValueError, match="data must be uint8 of shape"):
        fid(x, x[:, None, None])
    with pytest.raises(ValueError, match="other_covariance must be symmetric and finite"):
        frechet_distance(x[0], torch.eye(3).double(), x[1], torch.ones(3, 3).double().triu())
