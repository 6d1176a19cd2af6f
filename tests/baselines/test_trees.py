"""Tables without a network: independent columns and the tree of Chow and Liu."""

import math

import pytest
import torch

from enumerated import all_states, seeded
from sddm.baselines.trees import HALF, ONE, chow_liu, independent, mutual_information

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
NAMES, SIZES = ["a", "b", "c", "d"], [3, 2, 2, 4]


def chain(num, seed=0):
    """a - c - b, and d by itself; the order of the columns is not that of the tree."""
    a = torch.randint(3, (num,), generator=seeded(seed))
    noise = torch.rand(num, 2, generator=seeded(seed + 1))
    c = ((a > 0) ^ (noise[:, 0] < 0.1)).long()
    b = (c.bool() ^ (noise[:, 1] < 0.2)).long()
    return torch.stack([a, b, c, torch.randint(4, (num,), generator=seeded(seed + 2))], dim=1)


def rows_of_table():
    rows = all_states(4, 4)
    return rows[(rows < torch.tensor(SIZES)).all(dim=1)]


def test_the_tree_has_the_edges_of_the_law_that_drew_the_rows():
    tree = chow_liu(chain(5_000), NAMES, SIZES)
    edges = {frozenset((d, parent)) for d, parents in enumerate(tree.parents) for parent in parents}
    assert {frozenset((0, 2)), frozenset((1, 2))} <= edges
    assert len(edges) == 3


def test_no_other_tree_has_a_larger_likelihood():
    """All 16 trees on four columns, by their likelihoods without smoothing: minus the sum of the columns' entropies,
    plus the mutual informations of the edges."""
    rows = torch.randint(2, (40, 4), generator=seeded(3))
    rows[:, 3] = torch.where(torch.rand(40, generator=seeded(4)) < 0.7, rows[:, 0], rows[:, 3])

    def weight(edges):
        return sum(
            mutual_information(torch.bincount(2 * rows[:, i] + rows[:, j], minlength=4).reshape(2, 2).double())
            for i, j in edges
        )

    pairs = [(i, j) for i in range(4) for j in range(i)]
    best = max(
        weight(some)
        for number in range(1 << len(pairs))
        if len(some := [pairs[k] for k in range(len(pairs)) if number >> k & 1]) == 3 and joined(some)
    )
    tree = chow_liu(rows, NAMES, [2] * 4)
    assert weight([(d, p[0]) for d, p in enumerate(tree.parents) if p]) == pytest.approx(best, rel=1e-12)


def joined(edges):
    reached = {0}
    for _ in range(3):
        reached |= {v for edge in edges if reached & set(edge) for v in edge}
    return len(reached) == 4


@pytest.mark.parametrize("fit", [independent, chow_liu])
def test_probabilities_are_positive_and_sum_to_one(fit):
    law = fit(chain(50), NAMES, SIZES).log_prob(rows_of_table()).exp()
    assert float(law.min()) > 0
    assert float(law.sum()) == pytest.approx(1, abs=1e-12)


def test_smoothing_adds_half_a_row_to_each_value_and_one_row_of_the_columns_law_to_each_case():
    rows = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 1]])
    b = (torch.tensor([2.0, 2.0], dtype=torch.float64) + HALF) / 5
    tree = chow_liu(rows, ["a", "b"], [3, 2])
    assert tree.parents == [[], [0]]
    a = (torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64) + HALF) / 5.5
    expected = {(0, 1): a[0] * (1 + ONE * b[1]) / (3 + ONE), (2, 0): a[2] * b[0]}  # nothing is known of b if a is 2
    for row, chance in expected.items():
        assert float(tree.log_prob(torch.tensor([row]))) == pytest.approx(math.log(chance), rel=1e-12)
    apart = independent(rows, ["a", "b"], [3, 2])
    assert float(apart.log_prob(torch.tensor([[1, 0]]))) == pytest.approx(math.log(a[1] * b[0]), rel=1e-12)


def test_bad_arguments_are_answered_by_sentences():
    rows = chain(5)
    with pytest.raises(ValueError, match="names and sizes must be as many, but they are 4 and 3"):
        chow_liu(rows, NAMES, SIZES[:3])
    with pytest.raises(ValueError, match="rows has 4 positions"):
        independent(rows, NAMES[:3], SIZES[:3])
    rows[0, 1] = 2
    with pytest.raises(ValueError, match="rows holds 2 for 'b', whose tokens are 0 to 1"):
        chow_liu(rows, NAMES, SIZES)
