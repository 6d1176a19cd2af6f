"""Which rows a step sees, and every other draw of training, as functions of the seed and the number of the step.

So the position in the data, and the state of every generator, is one number: a run that goes on from step n sees what
it would have seen, on any number of processes.
"""

from __future__ import annotations

import hashlib
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
from sddm.randomness import Shuffle
from sddm.token_array import TokenArray

Batches = Callable[[int], Int[Tensor, "batch dim"] | Batch]
"""The rows of a step."""
Data = Int[Tensor, "num dim"] | TokenArray | Dataset
"""Rows to take batches from."""


def seed_of(seed: int, purpose: str, number: int) -> int:
    """A seed of its own for each purpose and number."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_of(seed: int, purpose: str, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(seed, purpose, number))


def rows_of(data: Data, rows: slice | Int[Tensor, "batch"]) -> Batch:
    """Some rows of data, with their classes and which of their positions exist, if the data say so."""
    if not isinstance(data, Dataset):
        return Batch(data[rows])
    padding = None if data.lengths is None else torch.arange(data.length) >= data.lengths[rows, None]
    return Batch(data.tokens[rows], None, padding, None if data.labels is None else data.labels[rows])


class Epochs:
    """Rows of data in random order, each once an epoch.

    >>> batches = Epochs(data, batch_size=64, seed=0)
    >>> batches(7)                                  # the rows of step 7
    """

    def __init__(self, data: Data, batch_size: int, seed: int = 0) -> None:
        self.data = data
        self.batch_size = _checks.whole(batch_size, "batch_size", 1)
        # A batch may span two epochs.
        self._order = lru_cache(2)(lambda epoch: Shuffle(len(data), generator_of(seed, "order", epoch)))

    def __call__(self, step: int) -> Batch:
        size = len(self.data)
        first, last = step * self.batch_size, (step + 1) * self.batch_size
        epochs = range(first // size, (last - 1) // size + 1)
        rows = [self._order(e)(torch.arange(max(first - e * size, 0), min(last - e * size, size))) for e in epochs]
        return rows_of(self.data, torch.cat(rows))


def transposed(batches: Batches, codec: Codec, semitones: int, seed: int) -> Batches:
    """The same rows of music, each moved by a random number of semitones up to this one, down or up."""

    def moved(step: int) -> Batch:
        batch = batches(step)
        batch = batch if isinstance(batch, Batch) else Batch(batch)
        generator = generator_of(seed, "transposition", step)
        by = torch.randint(-semitones, semitones + 1, (len(batch),), generator=generator)
        return replace(batch, x0=codec.transposed(batch.x0, by))

    return moved
