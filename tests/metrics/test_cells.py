"""The distance of points cell by cell: its mean, its error and what it sees that bits do not show."""

import pytest
import torch

from enumerated import seeded
from sddm.data import Toy
from sddm.metrics import cell_distance, hamming_mmd


def draws(law, num, seed):
    return torch.multinomial(torch.tensor(law), num, replacement=True, generator=seeded(seed))


P, Q = [0.1, 0.2, 0.3, 0.4, 0.0], [0.3, 0.2, 0.2, 0.1, 0.2]
DISTANCE = sum((p - q) ** 2 for p, q in zip(P, Q, strict=True)) / sum(q**2 for q in Q)


def test_it_is_the_mmd_of_one_hot_rows_over_the_concentration_of_the_data():
    """With a huge bandwidth, exp(-bandwidth * Hamming) is 1 for equal rows and 0 for others."""
    x, y = draws(P, 300, 0), draws(Q, 200, 1)
    value, error = cell_distance(x, y)
    mmd = hamming_mmd(x[:, None], y[:, None], bandwidth=500.0)
    same = (y[:, None] == y).sum().item() - len(y)
    concentration = same / (len(y) * (len(y) - 1))
    assert value == pytest.approx(mmd.value / concentration, rel=1e-9)
    assert error == pytest.approx(mmd.standard_error / concentration, rel=1e-9)


def test_its_mean_is_the_distance_of_the_laws_and_its_error_is_their_spread():
    found = [cell_distance(draws(P, 4_000, 2 * i), draws(Q, 4_000, 2 * i + 1)) for i in range(60)]
    values, errors = (torch.tensor(part) for part in zip(*found, strict=True))
    assert abs(float(values.mean()) - DISTANCE) < 4 * float(values.std()) / len(values) ** 0.5
    # A standard deviation of 60 normal values is known to about one part in eleven.
    assert float(errors.mean()) == pytest.approx(float(values.std()), rel=4 / (2 * 59) ** 0.5)


def test_the_same_law_is_at_zero_and_laws_without_a_common_cell_at_one_and_more():
    value, error = cell_distance(draws(P, 5_000, 0), draws(P, 5_000, 1))
    assert abs(value) < 4 * error
    assert cell_distance(draws([1.0, 1.0, 0, 0], 500, 0), draws([0, 0, 1.0, 1.0], 500, 1)).value > 1.9


def test_it_sees_that_a_checkerboard_is_filled_where_the_mmd_of_bits_does_not():
    """Points spread over the whole board: half of the data's concentration is missed."""
    toy = Toy("checkerboard")
    data = toy.tokens(10_000, seeded(0))
    filled = toy.encode(torch.rand(10_000, 2, generator=seeded(1), dtype=torch.float64) * 8 - 4)
    value, error = cell_distance(toy.cells(filled), toy.cells(data))
    assert value == pytest.approx(0.5, abs=0.1)  # cells of the grid do not end where squares do
    assert value > 20 * error
    of_bits = hamming_mmd(filled, data)
    assert of_bits.value < 4 * of_bits.standard_error


@pytest.mark.parametrize("name", ["moons", "2spirals"])
def test_cells_of_a_toy_are_numbered_by_place(name):
    toy = Toy(name)
    points = torch.tensor([[-9.0, -9.0], [-4.49, -4.4], [4.4, -4.4], [0.01, 0.01]], dtype=torch.float64)
    reached = toy.encode(points.clamp(-3, 3))
    assert toy.cells(reached, side=3).tolist() == [0, 0, 6, 4]


def test_bad_cells_are_refused(without_annotation_checks):
    good = torch.zeros(5, dtype=torch.int64)
    with pytest.raises(ValueError, match="x must hold at least 4 numbers of cells"):
        cell_distance(good[:3], good)
    with pytest.raises(ValueError, match="y must hold at least 4 numbers of cells, none of them below 0"):
        cell_distance(good, good - 1)
    with pytest.raises(ValueError, match="y has no two points in one cell"):
        cell_distance(good, torch.arange(5))
