"""Which rows a step sees, and every other draw of training, as functions of the seed and the number of the step.

So the position in the data, and the state of every generator, is one number: a run that goes on from step n sees what
it would have seen, on any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.codecs import Codec
from sddm.data import Dataset
from sddm.noising import Batch
from sddm.randomness import Shuffle, seed_of
from sddm.token_array import TokenArray

Batches = Callable[[int], Int[Tensor, "batch dim"] | Batch]
"""The rows of a step."""
SORTED = 64
"""How many batches' rows are sorted by length at a time."""
Data = Int[Tensor, "num dim"] | TokenArray | Dataset
"""Rows to take batches from."""


def generator_of(seed: int, purpose: str, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(seed, purpose, number))


def rows_of(data: Data, rows: slice | Int[Tensor, "batch"]) -> Batch:
    """Some rows of data, with their classes and which of their positions exist, if the data say so."""
    if not isinstance(data, Dataset):
        return Batch(data[rows])
    padding = None if data.lengths is None else torch.arange(data.length) >= data.lengths[rows, None]
    tokens = data.tokens[rows]
    tokens = tokens if padding is None else tokens.masked_fill(padding, 0)
    return Batch(tokens, None, padding, None if data.labels is None else data.labels[rows])


class Epochs:
    """Rows of data in random order, each once an epoch. Where rows have lengths, a batch has rows of similar length.

    For that, the rows of `SORTED` batches at a time are sorted by their lengths and cut into batches, whose order is
    random. A batch in which one epoch ends and the next begins has rows of both.

    >>> batches = Epochs(data, batch_size=64, seed=0)
    >>> batches(7)                                  # the rows of step 7
    """

    def __init__(self, data: Data, batch_size: int, seed: int = 0) -> None:
        self.data = data
        self.batch_size = _checks.whole(batch_size, "batch_size", 1)
        self.seed = seed
        self.lengths = data.lengths if isinstance(data, Dataset) else None
        # A batch may span two epochs.
        self._order = lru_cache(2)(lambda epoch: Shuffle(len(data), generator_of(seed, "order", epoch)))
        self._sorted = lru_cache(2)(self._of_similar_length)

    def __call__(self, step: int) -> Batch:
        size = len(self.data)
        epochs = range(step * self.batch_size // size, ((step + 1) * self.batch_size - 1) // size + 1)
        return rows_of(self.data, torch.cat([self._rows(step, epoch) for epoch in epochs]))

    def _rows(self, step: int, epoch: int) -> Int[Tensor, "rows"]:
        """The rows of this epoch that are in the batch of a step."""
        if self.lengths is None:
            return self._order(epoch)(torch.arange(*self._places(step, step + 1, epoch)))
        begun = epoch * len(self.data) // self.batch_size  # the step in which the epoch begins
        return self._sorted(epoch, begun, (step - begun) // SORTED)[step]

    def _places(self, first: int, last: int, epoch: int) -> tuple[int, int]:
        """Which places of the order of an epoch the steps from `first` to `last` (not reached) take."""
        size, before = len(self.data), epoch * len(self.data)
        return max(first * self.batch_size - before, 0), min(last * self.batch_size - before, size)

    def _of_similar_length(self, epoch: int, begun: int, group: int) -> dict[int, Int[Tensor, "rows"]]:
        """The rows of each step of a group: sorted by length, rows of one length in random order, and cut."""
        assert self.lengths is not None
        first = begun + group * SORTED
        low, high = self._places(first, first + SORTED, epoch)
        rows = self._order(epoch)(torch.arange(low, high))
        rows = rows[self.lengths[rows].argsort(stable=True)]
        last = -(-(epoch * len(self.data) + high) // self.batch_size)
        generator = generator_of(self.seed, f"order of batches in epoch {epoch}", group)
        steps = (first + torch.randperm(last - first, generator=generator)).tolist()
        taken = [self._places(step, step + 1, epoch) for step in steps]
        return dict(zip(steps, rows.split([high - low for low, high in taken]), strict=True))


def transposed(batches: Batches, codec: Codec, semitones: int, seed: int) -> Batches:
    """The same rows of music, each moved by a random number of semitones up to this one, down or up."""

    def moved(step: int) -> Batch:
        batch = batches(step)
        batch = batch if isinstance(batch, Batch) else Batch(batch)
        generator = generator_of(seed, "transposition", step)
        by = torch.randint(-semitones, semitones + 1, (len(batch),), generator=generator)
        return replace(batch, x0=codec.transposed(batch.x0, by))

    return moved
