"""Boosted trees and what is measured by them: laws that are known, and laws with a known best classifier."""

import pytest
import torch

from enumerated import seeded
from sddm.metrics import auc, told_apart, utility
from sddm.metrics.boosting import Boosting

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
FEW = Boosting(rounds=20)


def drawn(num, seed, law):
    return torch.multinomial(torch.tensor(law, dtype=torch.float64), num, replacement=True, generator=seeded(seed))


def noise(num, dim, seed, values=3):
    return torch.randint(values, (num, dim), generator=seeded(seed))


def test_trees_learn_what_depends_on_two_columns_together():
    rows = noise(600, 5, 0, values=2)
    labels = (rows[:, 1] != rows[:, 4]).long()
    rows = torch.cat([rows, 3 - rows[:, :1]], dim=1)
    said = FEW.fit(rows[:400], labels[:400]).probabilities(rows[400:]).argmax(dim=1)
    assert float((said == labels[400:]).double().mean()) > 0.98


def test_a_set_of_values_is_found_whatever_the_numbers_of_the_values():
    """Twenty values in a random order, half of which belong to the second class: one split."""
    label_of = torch.randperm(20, generator=seeded(0)) % 2
    rows = noise(400, 2, 1, values=20)
    classifier = Boosting(rounds=20, depth=1).fit(rows, label_of[rows[:, 0]])
    others = noise(200, 2, 2, values=20)
    assert torch.equal(classifier.probabilities(others).argmax(dim=1), label_of[others[:, 0]])


def test_the_best_split_of_the_first_tree_is_that_of_all_sets_of_values():
    """The gain of a split, for all 2^6 sets of values of one column, from the derivatives at equal odds."""
    rows, labels = noise(60, 1, 3, values=6), drawn(60, 4, [0.5, 0.5])
    boosting = Boosting(rounds=1, depth=1, smooth=1e-9, l2=1e-9, least=1e-9)
    (tree,) = boosting.fit(rows, labels).trees[0]
    first = (labels == 1).double().mean() - (labels == 0).double()  # p - y of class 0, up to its base
    chance = (torch.bincount(labels, minlength=2) + 1).double() / 62
    first, second = chance[0] - (labels == 0).double(), chance[0] * chance[1]

    def gain(right):
        parts = [right[rows[:, 0]], ~right[rows[:, 0]]]
        return sum(float(first[part].sum() ** 2 / (second * part.sum())) for part in parts if bool(part.any()))

    sets = [torch.tensor([bool(number >> v & 1) for v in range(6)]) for number in range(1, 63)]
    assert gain(torch.from_numpy(tree.levels[0].right[0])) == pytest.approx(max(map(gain, sets)), rel=1e-9)


def test_probabilities_of_three_classes_are_those_of_the_law():
    law = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64)
    x = noise(4_000, 1, 5, values=2)
    labels = torch.multinomial(law[x[:, 0]], 1, generator=seeded(6)).squeeze(1)
    said = Boosting().fit(x, labels).probabilities(torch.tensor([[0], [1]]))
    assert torch.allclose(said.sum(dim=1), torch.ones(2, dtype=torch.float64))
    assert float((said - law).abs().max()) < 4 * (0.25 / 2_000) ** 0.5


def test_a_class_without_rows_and_a_value_without_rows_have_places():
    said = FEW.fit(torch.tensor([[0], [1]] * 9), torch.tensor([0, 1] * 9), num_classes=3, num_values=4)
    assert said.probabilities(torch.tensor([[3]])).shape == (1, 3)


def test_the_area_is_the_share_of_pairs_in_order():
    x, y = torch.tensor([3.0, 1.0, 2.0, 2.0]), torch.tensor([2.0, 0.0, 2.5])
    pairs = [(float(a > b) + float(a == b) / 2) for a in x for b in y]
    assert auc(x, y).value == pytest.approx(sum(pairs) / 12)
    assert auc(y, x).value == pytest.approx(1 - sum(pairs) / 12)


def test_the_error_of_the_area_is_its_spread():
    found = [
        auc(torch.randn(60, generator=seeded(i)) + 1, torch.randn(90, generator=seeded(1_000 + i))) for i in range(300)
    ]
    spread = torch.tensor([each.value for each in found]).std()
    assert float(spread) == pytest.approx(sum(each.standard_error for each in found) / 300, rel=0.15)


def test_sets_of_one_law_are_not_told_apart_and_the_error_says_so():
    """Over 30 pairs of sets: the mean is 1/2, and the spread is what the errors say (its own error is 13%)."""
    found = [told_apart(noise(100, 4, 2 * i), noise(100, 4, 2 * i + 1), seeded(i), FEW) for i in range(30)]
    values = torch.tensor([each.value for each in found])
    said = sum(each.standard_error for each in found) / 30
    assert abs(float(values.mean()) - 0.5) < 4 * said / 30**0.5
    assert 0.6 < float(values.std()) / said < 1.5


def test_the_area_comes_near_that_of_the_best_classifier():
    """The best classifier scores by the ratio of the laws; its area is a sum over pairs of values."""
    p, q = [0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]
    ratio = torch.tensor(p) / torch.tensor(q)
    order = (ratio[:, None] > ratio).double() + (ratio[:, None] == ratio).double() / 2
    best = float(torch.tensor(p).double() @ order @ torch.tensor(q).double())
    x, y = (
        torch.stack([drawn(1_000, seed, law), noise(1_000, 1, seed)[:, 0]], dim=1) for seed, law in enumerate((p, q))
    )
    found = told_apart(x, y, seeded(0), FEW)
    assert abs(found.value - best) < 3 * found.standard_error
    assert best > 0.5 + 10 * found.standard_error


def table(num, seed, kept):
    """The last column follows the first with this probability."""
    rows = noise(num, 3, seed)
    follows = torch.rand(num, generator=seeded(seed + 100)) < kept
    rows[:, 2] = torch.where(follows, rows[:, 0], rows[:, 2])
    return rows


def test_a_column_is_predicted_as_well_as_its_law_allows_by_data_and_not_by_rows_without_the_dependence():
    found = utility(table(400, 0, 0.0), table(400, 1, 0.7), table(600, 2, 0.7), 2)
    best, guess = 0.7 + 0.3 / 3, 1 / 3
    assert abs(found.by_data.value - best) < 3 * found.by_data.standard_error
    for each in (found.by_samples, found.by_guess):
        assert abs(each.value - guess) < 4 * each.standard_error
    assert found.difference.value == pytest.approx(found.by_samples.value - found.by_data.value)
    same = utility(table(400, 3, 0.7), table(400, 1, 0.7), table(600, 2, 0.7), 2)
    assert abs(same.difference.value) < 4 * same.difference.standard_error + 1e-9


def test_rows_with_one_value_in_the_column_predict_it():
    rows = noise(40, 2, 0)
    rows[:, 1] = 2
    assert utility(rows, rows, rows, 1).by_samples.value == 1


def test_bad_arguments_are_answered_by_sentences():
    rows = noise(20, 2, 0)
    with pytest.raises(ValueError, match="There is one class only"):
        Boosting().fit(rows, torch.zeros(20, dtype=torch.int64))
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        Boosting(rounds=0)
    with pytest.raises(ValueError, match="rate must be above 0"):
        Boosting(rate=0.0)
    with pytest.raises(ValueError, match="num_values must be at least 3, but it is 1"):
        Boosting().fit(rows, rows[:, 0], num_values=1)
    with pytest.raises(ValueError, match="x must have at least 10 rows, but has 9"):
        told_apart(rows[:9], rows)
    with pytest.raises(ValueError, match="y has 1 positions"):
        told_apart(rows, rows[:, :1])
    with pytest.raises(ValueError, match="x and y must hold at least two scores each"):
        auc(torch.ones(1), torch.ones(3))
    with pytest.raises(ValueError, match="target must be at most 1, but it is 2"):
        utility(rows, rows, rows, 2)
    with pytest.raises(ValueError, match="one column only, so that there is nothing to predict it from"):
        utility(rows[:, :1], rows[:, :1], rows[:, :1], 0)
