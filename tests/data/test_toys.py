import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from sddm.data import DENSITIES, Toy

NUM = 20_000
STANDARD_ERRORS = 5
"""A claim about a mean fails by chance once in two million runs; the seeds are fixed besides."""
RARE = 1e-6
"""The same for a chi-square or Kolmogorov-Smirnov test."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def draw(name, num=NUM, seed=0):
    return DENSITIES[name](num, np.random.default_rng(seed))


def distance_to_curve(points, curve):
    """The distance from each point to a densely sampled curve, and where on it the nearest point lies."""
    squared = ((points[:, None] - curve[None]) ** 2).sum(-1)
    return np.sqrt(squared.min(1)), squared.argmin(1)


def on_circle(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def equally_likely(labels, num_labels):
    """Whether a chi-square test accepts that all labels are equally likely."""
    return stats.chisquare(np.bincount(labels, minlength=num_labels)).pvalue > RARE


def two_spirals_mean_square():
    end = 3 * np.pi
    # E n (sin n - cos n), where n = end * sqrt(u) has the density 2 n / end^2.
    tilt = quad(lambda n: 2 * n / end**2 * n * (np.sin(n) - np.cos(n)), 0, end)[0]
    return (end**2 / 2 + 2 * 0.25 / 3 + 2 * 0.25 * tilt) / 9 + 2 * 0.1**2


def swiss_roll_mean():
    low, high = 1.5 * np.pi, 4.5 * np.pi
    centre = [quad(lambda t, axis=axis: t * on_circle(t)[axis], low, high)[0] for axis in range(2)]
    return np.array(centre) / (high - low) / 5


MOMENTS = {
    "2spirals": ([0, 0], two_spirals_mean_square()),
    "8gaussians": ([0, 0], (16 + 2 * 0.5**2) / 1.414**2),
    "circles": ([0, 0], 9 * ((1 + 0.25) / 2 + 2 * 0.08**2)),
    # Upper moon (cos, sin), lower moon (1 - cos, 0.5 - sin); their mean is (0.5, 0.25) and E |m|^2 as below.
    "moons": (
        [0, 0.3],
        4 * ((1 + 2.25 - 2 / np.pi) / 2 + 2 * 0.1**2) - 4 * (0.5 + 0.2 * 0.25) + 1 + 0.2**2,
    ),
    "pinwheel": ([0, 0], 4 * (1 + 0.3**2 + 0.1**2)),
    "swissroll": (swiss_roll_mean(), ((1.5 * np.pi) ** 2 * 13 / 3 + 2) / 25),
    "checkerboard": ([0, 0], 2 * 16 / 3),
}
"""The mean and E |x|^2 of each density, worked out from its recipe."""


@pytest.mark.parametrize("name", DENSITIES)
def test_a_density_has_the_moments_of_its_recipe(name):
    mean, mean_square = MOMENTS[name]
    points = draw(name)
    observed = np.column_stack([points, (points**2).sum(1)])
    error = observed.std(0) / np.sqrt(NUM)
    assert (np.abs(observed.mean(0) - [*mean, mean_square]) <= STANDARD_ERRORS * error).all()


@pytest.mark.parametrize("name", DENSITIES)
def test_rows_are_independent_of_their_place_in_the_batch(name):
    points = draw(name)
    first, second = np.split(points, 2)
    for axis in range(2):
        assert stats.ks_2samp(first[:, axis], second[:, axis]).pvalue > RARE
        # Not correlated with the row half a batch away, nor with the next row.
        for other in (second, np.roll(first, 1, axis=0)):
            assert abs(stats.pearsonr(first[:, axis], other[:, axis])[0]) <= STANDARD_ERRORS / np.sqrt(NUM / 2)


@pytest.mark.parametrize("name", DENSITIES)
def test_the_law_of_a_point_does_not_depend_on_the_size_of_the_batch(name):
    rng = np.random.default_rng(3)
    singles = np.concatenate([DENSITIES[name](1, rng) for _ in range(2_000)])
    batch = draw(name)
    for axis in range(2):
        assert stats.ks_2samp(singles[:, axis], batch[:, axis]).pvalue > RARE


def test_two_spirals_wind_one_and_a_half_turns_on_both_sides():
    points = draw("2spirals", 4_000)
    turn = np.linspace(0, 3 * np.pi, 600)
    # The uniform offset in [0, 0.5]^2 is centred at 0.25 and never more than 0.25 * sqrt(2) from there.
    arm = turn[:, None] * on_circle(turn) * [-1, 1] + 0.25
    distance, nearest = distance_to_curve(points * 3, np.concatenate([arm, -arm]))
    assert (distance <= 0.25 * np.sqrt(2) + 0.3 * np.sqrt(stats.chi2(2).isf(RARE))).all()
    # Along an arm the square of the angle is uniform, so half of the points lie beyond end / sqrt(2) on either side.
    # Within a unit of length of the middle the noise may carry a point to the other half.
    beyond = nearest % 600 > 600 / np.sqrt(2)
    blurred = 2 / (3 * np.pi) ** 2
    allowed = STANDARD_ERRORS * 0.5 / np.sqrt(4_000) + blurred
    assert abs(beyond[nearest < 600].mean() - 0.5) <= 2 * allowed
    assert abs(beyond[nearest >= 600].mean() - 0.5) <= 2 * allowed


def test_eight_gaussians_sit_at_equal_shares_on_a_circle_of_radius_four():
    points = draw("8gaussians")
    centres = 4 * on_circle(np.arange(8) * np.pi / 4) / 1.414
    distance, nearest = distance_to_curve(points, centres)
    assert equally_likely(nearest, 8)
    # Centres are 6 standard deviations apart, so that almost no point is nearer to a wrong one.
    radius = stats.rayleigh(scale=0.5 / 1.414)
    assert stats.kstest(distance, radius.cdf).pvalue > RARE


def test_circles_have_radii_three_and_one_and_a_half():
    points = draw("circles")
    radius = np.linalg.norm(points, axis=1)
    outer = radius > 2.25
    assert equally_likely(outer.astype(int), 2)
    assert equally_likely((np.arctan2(points[:, 1], points[:, 0]) // (np.pi / 8)).astype(int) + 8, 16)
    for group, centre in ((radius[outer], 3), (radius[~outer], 1.5)):
        # |x|^2 / 0.24^2 is a noncentral chi-square with two degrees of freedom.
        law = stats.ncx2(df=2, nc=(centre / 0.24) ** 2)
        # 3.1 standard deviations of noise from each circle to the cut: it moves at most this share of the points.
        moved = stats.norm.sf(0.75 / 0.24)
        statistic = stats.kstest((group / 0.24) ** 2, law.cdf).statistic
        assert statistic <= stats.kstwo(len(group)).isf(RARE) + 2 * moved


def test_moons_are_two_half_circles_that_reach_into_each_other():
    moons = (draw("moons", 4_000) - [-1, -0.2]) / 2
    upper = on_circle(np.linspace(0, np.pi, 400))
    lower = [1, 0.5] - upper
    distance, nearest = distance_to_curve(moons, np.concatenate([upper, lower]))
    assert (distance <= 0.1 * np.sqrt(stats.chi2(2).isf(RARE))).all()
    # Across a curve the noise is one Gaussian: three standard deviations hold 99.7 percent.
    assert (distance <= 0.3).mean() >= 0.99
    # The moons are at least 0.5 apart, five standard deviations, so that the nearer one is the point's own.
    assert equally_likely(nearest // 400, 2)
    # Spread evenly along the arc, apart from the ends, where the noise piles points up.
    inner = nearest % 400
    inner = inner[(inner >= 80) & (inner < 320)]
    assert equally_likely((inner - 80) // 30, 8)


def test_pinwheel_has_five_arms_that_bend_outwards():
    points = draw("pinwheel") / 2
    radius = np.linalg.norm(points, axis=1)
    angle = -np.arctan2(points[:, 1], points[:, 0]) - 0.25 * np.exp(radius)
    arm = angle / (2 * np.pi / 5)
    label = np.rint(arm).astype(int)
    assert equally_likely(label % 5, 5)
    outside = radius > 0.8
    # There an offset of 0.1 across the arm turns it by about 0.1 / radius, and three of those hold 99.7 percent.
    turned = np.abs(arm - label) * (2 * np.pi / 5) * radius
    assert (turned[outside] <= 0.3 * 1.1).mean() >= 0.99


def test_swiss_roll_winds_from_three_to_nine_quarter_turns():
    points = draw("swissroll", 4_000) * 5
    turn = np.linspace(1.5 * np.pi, 4.5 * np.pi, 1_000)
    distance, nearest = distance_to_curve(points, turn[:, None] * on_circle(turn))
    assert (distance <= np.sqrt(stats.chi2(2).isf(RARE))).all()
    assert (distance <= 3).mean() >= 0.99
    assert equally_likely(np.array([0, 1]).repeat([(nearest < 500).sum(), (nearest >= 500).sum()]), 2)


def test_checkerboard_fills_the_squares_of_one_colour_evenly():
    points = draw("checkerboard")
    assert (np.abs(points) <= 4).all()
    column, row = np.floor(points / 2).astype(int).T
    assert ((column + row) % 2 == 0).all()
    assert equally_likely((column + 2) * 2 + (row + 2) // 2, 8)
    within = points / 2 - np.floor(points / 2)
    for axis in range(2):
        assert stats.kstest(within[:, axis], stats.uniform.cdf).pvalue > RARE


@pytest.mark.parametrize("name", DENSITIES)
def test_every_point_decodes_within_one_quantum(name):
    toy = Toy(name)
    points = toy.points(NUM, seeded(0))
    tokens = toy.encode(points)
    assert tokens.shape == (NUM, toy.length)
    assert tokens.dtype == torch.int64
    assert int(tokens.max()) == toy.num_states - 1
    assert ((toy.decode(tokens) - points).abs() <= 1 / toy.code.scale).all()
    assert torch.equal(toy.encode(toy.decode(tokens)), tokens)


@pytest.mark.parametrize("name", DENSITIES)
def test_the_scale_leaves_a_margin_of_two_around_the_data(name):
    reach = np.abs(DENSITIES[name](5_000, np.random.default_rng(1))).max()
    assert Toy(name).code.scale == pytest.approx(2**15 / (reach + 2), rel=1e-15)


@pytest.mark.parametrize("name", DENSITIES)
def test_the_same_seed_gives_the_same_data_and_another_seed_other_data(name):
    toy = Toy(name)
    assert torch.equal(toy.tokens(50, seeded(7)), toy.tokens(50, seeded(7)))
    assert not torch.equal(toy.tokens(50, seeded(7)), toy.tokens(50, seeded(8)))
    assert torch.equal(toy.encode(toy.points(50, seeded(7))), toy.tokens(50, seeded(7)))


def test_a_generator_moves_on_from_draw_to_draw():
    toy, generator = Toy("moons"), seeded(0)
    assert not torch.equal(toy.points(50, generator), toy.points(50, generator))


def test_without_a_generator_the_data_follow_torchs_own_seed():
    toy = Toy("moons")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = toy.points(50)
        torch.manual_seed(0)
        assert torch.equal(toy.points(50), first)


def test_streams_of_different_seeds_are_uncorrelated():
    toy = Toy("checkerboard")
    streams = np.stack([toy.points(2_000, seeded(seed)).numpy().ravel() for seed in range(10)])
    correlations = np.corrcoef(streams)[np.triu_indices(10, k=1)]
    assert (np.abs(correlations) <= STANDARD_ERRORS / np.sqrt(4_000)).all()


def test_toys_of_one_name_are_equal():
    assert Toy("moons") == Toy("moons") != Toy("circles")
    assert repr(Toy("moons")) == "Toy(name='moons')"


def test_an_unknown_density_is_answered_with_the_list_of_those_there_are(without_annotation_checks):
    with pytest.raises(ValueError, match=r"name='torus' is not a density\. Choose one of 2spirals, 8gaussians"):
        Toy("torus")


@pytest.mark.parametrize(("num", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), (True, TypeError)])
def test_the_number_of_points_must_be_a_positive_whole_number(without_annotation_checks, num, error):
    with pytest.raises(error, match="num must be"):
        Toy("moons").tokens(num)


def test_a_seed_in_place_of_a_generator_is_refused(without_annotation_checks):
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator or None"):
        Toy("moons").points(3, generator=0)
