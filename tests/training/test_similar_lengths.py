"""Batches of rows of similar length: every row once an epoch, in an order that the seed alone decides."""

import pytest
import torch

from enumerated import seeded
from sddm.codecs import Integers
from sddm.data import Dataset
from sddm.noising import Batch
from sddm.training import Epochs
from sddm.training.batches import SORTED


def numbered(num, longest=50):
    """Rows that hold their own number, and have random lengths."""
    lengths = torch.randint(1, longest + 1, (num,), generator=seeded(0))
    return Dataset(
        torch.arange(num)[:, None].expand(-1, longest), Integers(num + 1), lengths=lengths, labels=range(num)
    )


@pytest.mark.parametrize(("num", "size"), [(600, 4), (601, 4), (7, 3), (5, 16), (1, 3), (64, 64)])
def test_every_row_is_seen_once_an_epoch(num, size):
    batches = Epochs(numbered(num), size, seed=1)
    steps = 3 * num // size
    seen = torch.cat([batches(step).labels for step in range(steps + 1)])
    for epoch in range(3):
        # Only the batches in which an epoch ends mix it with the next one.
        whole = seen[-(-epoch * num // size) * size : (epoch + 1) * num // size * size]
        assert len(whole.unique()) == len(whole)
    assert torch.bincount(seen[: 3 * num // size * size], minlength=num).max() <= 4
    if num * 3 % size == 0:
        assert torch.equal(torch.bincount(seen[: 3 * num], minlength=num), torch.full((num,), 3))


def test_the_rows_of_a_batch_are_of_similar_length():
    data, size = numbered(4096), 16
    batches = Epochs(data, size, seed=0)
    widths, rows = [], 0
    for step in range(4096 // size):
        batch = batches(step)
        assert torch.equal((~batch.padding).sum(1), data.lengths[batch.labels])
        widths.append(batch.cut().x0.shape[1])
        rows += int(data.lengths[batch.labels].sum())
    assert sum(widths) * size < 1.03 * rows  # in random order, the longest of 16 is nearly 50 positions: 1.9 times
    # The order of batches is random: neighbours are no more alike than others.
    widths = torch.tensor(widths, dtype=torch.float64)
    assert float(widths.diff().square().mean() / (2 * widths.var())) > 0.7
    assert len(widths) > 2 * SORTED


def test_the_seed_decides_the_order_and_a_step_needs_no_other():
    data = numbered(500)
    batches, again, other = Epochs(data, 8, seed=0), Epochs(data, 8, seed=0), Epochs(data, 8, seed=1)
    steps = [3, 200, 61, 62, 63, 0]
    assert all(torch.equal(batches(s).labels, again(s).labels) for s in sorted(steps) + steps)
    assert not all(torch.equal(batches(s).labels, other(s).labels) for s in steps)


def test_a_batch_is_cut_behind_the_end_of_its_longest_row():
    padding = torch.arange(5) >= torch.tensor([[2], [3]])
    x0 = torch.arange(10).view(2, 5)
    cut = Batch(x0, x0 % 2 == 0, padding, torch.tensor([1, 2])).cut()
    assert torch.equal(cut.x0, x0[:, :3])
    assert torch.equal(cut.given, (x0 % 2 == 0)[:, :3])
    assert torch.equal(cut.padding, padding[:, :3])
    assert cut.labels.tolist() == [1, 2]
    whole = Batch(x0)
    assert whole.cut() is whole


def test_what_stands_behind_the_end_of_a_row_never_leaves_the_data():
    data = Dataset(torch.tensor([[1, 0, 2], [1, 2, 2]]), Integers(2, ragged=True), lengths=[2, 1])
    batch = Epochs(data, 2, seed=0)(0)
    assert batch.x0.max() == 1
    assert sorted(batch.x0.tolist()) == [[1, 0, 0], [1, 0, 0]]
