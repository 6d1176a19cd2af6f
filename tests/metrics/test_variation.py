"""How far two tables are from each other, column by column, in pairs, and how near to what was trained on."""

import pytest
import torch

from enumerated import seeded
from sddm.metrics import closeness, cramers_v, mean_association_gap, mean_variation, nearest, total_variation
from sddm.metrics.privacy import PAIRS

pytestmark = pytest.mark.usefixtures("without_annotation_checks")


def rows(num, seed, dim=4, values=3):
    return torch.randint(values, (num, dim), generator=seeded(seed))


def test_total_variation_is_the_largest_difference_of_any_event():
    x, y = rows(50, 0, values=4), rows(70, 1, values=4)
    for d, found in enumerate(total_variation(x, y).tolist()):
        shares = [torch.bincount(some[:, d], minlength=4).double() / len(some) for some in (x, y)]
        events = [torch.tensor([bool(number >> v & 1) for v in range(4)]) for number in range(16)]
        assert found == pytest.approx(max(float((shares[0] - shares[1])[event].sum()) for event in events))


@pytest.mark.parametrize(("measure", "highest"), [(mean_variation, 1.4), (mean_association_gap, 2.6)])
def test_the_error_of_a_figure_of_columns_is_its_spread_or_at_most_twice_that_of_associations(measure, highest):
    """Of laws that differ, over 40 pairs of tables; the spread of so many is known to 11%."""

    def tables(seed):
        x, y = rows(200, seed), rows(200, seed + 1_000)
        x[:, 1], y[:, 2] = x[:, 0], 2 * (y[:, 2] > 0).long()
        return measure(x, y)

    found = [tables(i) for i in range(40)]
    spread = float(torch.tensor([each.value for each in found]).std())
    assert 0.7 < sum(each.standard_error for each in found) / 40 / spread < highest


def test_the_gap_of_associations_is_the_mean_over_pairs():
    x, y = rows(100, 0), rows(100, 1)
    x[:, 1] = x[:, 0]
    gaps = (cramers_v(x) - cramers_v(y)).abs()
    pairs = [float(gaps[i, j]) for i in range(4) for j in range(i)]
    assert mean_association_gap(x, y).value == pytest.approx(sum(pairs) / 6)
    assert mean_association_gap(x[:, :1], y[:, :1]) == (0, 0)


@pytest.mark.parametrize("pairs", [1, 7, 60, PAIRS])
def test_the_nearest_training_row_is_found_however_many_pairs_are_compared_at_a_time(pairs):
    some, train = rows(13, 0), rows(20, 1)
    expected = (some[:, None] != train).sum(-1).min(dim=1).values
    assert torch.equal(nearest(some, train, pairs), expected)


def test_copies_and_rows_that_are_too_near_are_counted_beside_those_of_other_data():
    train, held_out = rows(100, 0, dim=12), rows(100, 1, dim=12)
    made = held_out.clone()
    made[:40] = train[:40]
    made[40:60] = train[40:60]
    made[40:60, 0] = (made[40:60, 0] + 1) % 3
    found = closeness(made, held_out, train)
    assert (found.copies[0].value, found.copies[1].value) == (0.4, 0)
    median = int(found.distances[1].median())
    assert median > 1
    nearer = float((found.distances[1][60:] < median).double().sum())
    assert found.nearer[0].value == pytest.approx((60 + nearer) / 100)
    assert found.nearer[1].value <= 0.5
    assert found.copies[0].standard_error == pytest.approx((0.4 * 0.6 / 100) ** 0.5)


def test_bad_arguments_are_answered_by_sentences():
    with pytest.raises(ValueError, match=r"x has 4 columns, but y has 3\. Give the same\."):
        total_variation(rows(5, 0), rows(5, 0)[:, :3])
    with pytest.raises(ValueError, match="must have the same number of rows, but have 5 and 6"):
        mean_variation(rows(5, 0), rows(6, 0))
    with pytest.raises(ValueError, match="rows has 4 columns, but train has 3"):
        nearest(rows(5, 0), rows(5, 0)[:, :3])
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        nearest(rows(5, 0), rows(5, 0), 0)
