"""Data larger than memory: tokens stay in the file and in their type, and are int64 only in a batch."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sddm import randomness, token_array
from sddm.data import Dataset, TokenArray, load
from sddm.formats import arrays
from sddm.randomness import Shuffle
from sddm.training import Epochs

SIZE, DIM = 1 << 28, 256
TRAIN = """
import sys, sddm
from pathlib import Path
from sddm.commands.train import TrainCommand, run
from sddm.fit import ModelConfig
from sddm.training import TrainingConfig, diffusion

diffusion.HELD_OUT_ROWS = diffusion.BOUND_ROWS = 4  # evaluations take most of the time and are not what is measured

def field(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))

def train(data, out):
    model = ModelConfig(width=16, layers=1)
    run(TrainCommand(data, Path(out), architecture=model, training=TrainingConfig(steps=3, batch_size=4)))

small, large, folder = sys.argv[1:]
train(small, folder + "/first")  # the libraries and their buffers are there
Path("/proc/self/clear_refs").write_text("5")  # forget the highest value so far
before = field("VmRSS")
train(large, folder + "/second")
print(field("VmHWM") - before)
"""


def sparse(path, rows):
    """A file of zeros, but for one row, that takes no room on the disk."""
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, DIM))
    array[rows // 2] = 1
    array.flush()
    return path


def test_training_on_a_large_file_takes_less_memory_than_a_fraction_of_the_file(tmp_path):
    small, large = sparse(tmp_path / "small.npy", 1_000), sparse(tmp_path / "large.npy", SIZE // DIM)
    arguments = [sys.executable, "-c", TRAIN, str(small), str(large), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    # The random order takes 16 bytes a row, 8 bytes each for the split and for the epoch, in place of DIM: SIZE / 16,
    # and as much again while they are made. One copy of the tokens in the type of the file would take SIZE.
    assert int(done.stdout.splitlines()[-1]) < SIZE / 4


def test_a_large_file_is_mapped_and_a_small_one_is_read(tmp_path):
    """A small file may be written again while a model is trained on it."""
    data = load(sparse(tmp_path / "a.npy", (arrays.MAPPED_FROM // DIM) + 1))
    assert data.tokens.in_file
    assert not load(sparse(tmp_path / "b.npy", 100)).tokens.in_file
    assert data.tokens[:3].dtype == torch.int64


@pytest.mark.parametrize(("high", "kind"), [(1, "uint8"), (255, "uint8"), (256, "uint16"), (65_536, "uint32")])
def test_tokens_are_kept_in_the_smallest_type_that_holds_them(high, kind):
    rows = np.array([[0, 1], [high, 0]])
    for tokens in (TokenArray(rows), Dataset.from_tokens(torch.from_numpy(rows)).tokens):
        assert tokens.values.dtype == kind
        assert tokens[:].tolist() == rows.tolist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_all_of_a_mapped_array_can_be_had_in_every_way(tmp_path, monkeypatch, order):
    monkeypatch.setattr(arrays, "MAPPED_FROM", 0)
    monkeypatch.setattr(token_array, "PIECE", 64)
    rows = np.random.default_rng(0).integers(300, size=(50, 7)).astype(">i2", order=order)
    np.save(tmp_path / "a.npy", rows)
    tokens, expected = load(tmp_path / "a.npy").tokens, torch.from_numpy(rows.astype(np.int64))
    assert tokens.in_file
    assert (tokens.low, tokens.high) == (rows.min(), rows.max())
    assert tokens.highest().tolist() == rows.max(0).tolist()
    assert torch.equal(tokens[:], expected)
    assert torch.equal(tokens[40:3:-5], expected[torch.arange(40, 3, -5)])
    assert torch.equal(tokens[torch.tensor([3, 3, 49])], expected[[3, 3, 49]])
    assert torch.equal(tokens[torch.arange(50) % 2 == 0], expected[::2])
    assert torch.equal(tokens[-1], expected[-1])
    assert torch.equal(torch.stack(list(tokens)), expected)
    assert load(tmp_path / "a.npy").fingerprint() == Dataset.from_tokens(rows).fingerprint()


@given(st.data())
def test_views_of_views_are_rows_of_the_array(data):
    expected = torch.arange(40).view(20, 2)
    tokens = TokenArray(expected.numpy())
    for _ in range(3):
        rows = torch.tensor(data.draw(st.lists(st.integers(0, len(tokens) - 1), min_size=1, unique=True)))
        if data.draw(st.booleans()) and len(rows) < len(tokens):
            kept = torch.ones(len(tokens), dtype=torch.bool).index_fill(0, rows, False)
            tokens, expected = tokens.without(rows.sort().values), expected[kept]
        else:
            tokens, expected = tokens.select(rows), expected[rows]
        assert tokens.shape == expected.shape
        assert torch.equal(tokens[:], expected)


def fingerprints_in_pieces(monkeypatch):
    monkeypatch.setattr(token_array, "PIECE", 2_000)
    monkeypatch.setattr(token_array, "HASHED_WHOLE", 100)
    monkeypatch.setattr(token_array, "HASHED_OF_PIECE", 100)


def test_any_other_token_changes_the_fingerprint_of_large_data(monkeypatch):
    fingerprints_in_pieces(monkeypatch)
    rows = np.random.default_rng(0).integers(200, size=(77, 101))
    known = {Dataset.from_tokens(rows).fingerprint()}
    for place in range(0, rows.size, 191):
        changed = rows.copy()
        changed.flat[place] += 1
        known.add(Dataset.from_tokens(changed, num_states=201).fingerprint())
        known.add(Dataset.from_tokens(changed).fingerprint())
    assert len(known) > rows.size // 191
    assert Dataset.from_tokens(rows[::-1]).fingerprint() not in known


def test_the_fingerprint_of_large_data_does_not_depend_on_the_type_of_the_file(monkeypatch, tmp_path):
    fingerprints_in_pieces(monkeypatch)
    monkeypatch.setattr(arrays, "MAPPED_FROM", 0)
    rows = np.random.default_rng(0).integers(200, size=(77, 101))
    known = set()
    for kind in ("u1", ">i2", "i8"):
        np.save(tmp_path / f"{kind[1:]}.npy", rows.astype(kind))
        data = load(tmp_path / f"{kind[1:]}.npy")
        assert data.tokens.in_file
        known |= {data.fingerprint(), Dataset.from_tokens(rows.astype(kind)).fingerprint()}
    assert len(known) == 1


@pytest.mark.parametrize("num", [2**24 + 1, 40_000_000])
def test_a_shuffle_of_many_rows_takes_no_memory_and_repeats_none(num):
    shuffle = Shuffle(num, torch.Generator().manual_seed(3))
    assert shuffle.order is None
    rows = shuffle(torch.arange(num - 100_000, num))
    assert int(rows.min()) >= 0
    assert int(rows.max()) < num
    assert len(rows.unique()) == len(rows)
    # Places are as good as random: the mean of n uniform numbers, within five standard errors.
    assert abs(float(rows.double().mean()) / num - 0.5) < 5 / (12 * len(rows)) ** 0.5


def test_a_computed_shuffle_is_a_uniform_permutation(monkeypatch):
    monkeypatch.setattr(randomness, "DRAWN_AT_ONCE", 0)
    num, repeats = 37, 4_000
    rows = torch.stack([Shuffle(num, torch.Generator().manual_seed(i))(torch.arange(num)) for i in range(repeats)])
    assert torch.equal(rows.sort(dim=1).values, torch.arange(num).expand(repeats, num))
    # Every value at every place, and every pair of values at the first two places: chi-square against equal counts,
    # mean k and variance 2k for k degrees of freedom; five standard deviations.
    places = torch.stack([rows[:, d].bincount(minlength=num) for d in range(num)]).double()
    pairs = (rows[:, 0] * num + rows[:, 1]).bincount(minlength=num**2).double().view(num, num)
    off = ~torch.eye(num, dtype=torch.bool)
    for counts, free in ((places, (num - 1) ** 2), (pairs[off], num * (num - 1) - 1)):
        statistic = float((counts - counts.mean()).square().sum() / counts.mean())
        assert abs(statistic - free) < 5 * (2 * free) ** 0.5


def test_epochs_and_splits_of_many_rows_see_each_row_once(monkeypatch):
    monkeypatch.setattr(randomness, "DRAWN_AT_ONCE", 0)
    kept, apart = Dataset.from_tokens(np.arange(100)[:, None]).split(0.2, seed=1)
    assert sorted([*kept.tokens[:].flatten().tolist(), *apart.tokens[:].flatten().tolist()]) == list(range(100))
    epochs = Epochs(kept.tokens, 32, seed=0)
    seen = torch.cat([epochs(step).x0 for step in range(5)]).flatten()
    assert sorted(seen[:80].tolist()) == kept.tokens[:].flatten().tolist() == sorted(seen[80:].tolist())
