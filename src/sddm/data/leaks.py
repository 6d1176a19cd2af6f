"""Whether music that a model is tested on was already in what it learned from, in the same key or in another."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Integer

from sddm import _checks
from sddm.codecs import Notes
from sddm.data.dataset import Dataset
from sddm.data.near_duplicates import RUN, SHARED, joined, pitches_of, variants
from sddm.formats.score import REST, sounding

TELLING = 2 * RUN
"""So many notes of different pitch a window has to have to be called a variant of another one."""


class Leaks(NamedTuple):
    """How many rows of the test data are in the training data; each count holds the one before."""

    equal: int
    """The same sounds in the same steps."""
    transposed: int
    """The same sounds, higher or lower."""
    variants: int
    """A variant of the highest voice, as `sddm.data.near_duplicates` has it."""
    rows: int
    """Of how many rows."""

    def __str__(self) -> str:
        if not self.variants:
            return f"None of the {self.rows} test rows is in the training data, in any key, nor a variant of it."
        return (
            f"Of the {self.rows} test rows, {self.equal} are in the training data, {self.transposed} if other keys "
            f"count, and {self.variants} if variants count."
        )


def overlap(train: Dataset, test: Dataset) -> str:
    """A sentence on rows of the test data that are in the training data too, if these are music; else nothing."""
    return str(leaks(train, test)) if isinstance(train.codec, Notes) else ""


def with_variants(data: Dataset) -> Dataset:
    """The same data; groups of rows of music that hold variants of one tune are one group, so that no split parts them.

    Windows of few notes tell nothing of kinship. Groups of which one would hold most of the rows stay as they were.
    """
    if data.groups is None or not isinstance(data.codec, Notes):
        return data
    melodies = [pitches_of(row[0]) for row in _sounds(data, data.name)]
    telling = np.flatnonzero([len(melody) >= TELLING for melody in melodies])
    first, second, _ = variants([melodies[row] for row in telling])
    groups = joined(data.groups.numpy(), telling[first], telling[second])
    if 2 * np.bincount(groups).max() <= len(data):
        data = copy(data)
        data.groups = torch.from_numpy(groups)
    return data


def leaks(train: Dataset, test: Dataset, shared: float = SHARED) -> Leaks:
    """Look for every row of the test data among the training rows.

    >>> train, test = load("melodies").split(0.1, seed=0)
    >>> leaks(train, test).variants
    0
    """
    rows = [_sounds(data, name) for data, name in ((train, "train"), (test, "test"))]
    known = {row.tobytes() for row in rows[0]}
    equal = np.array([row.tobytes() in known for row in rows[1]])
    known = {_from_first(row).tobytes() for row in rows[0]}
    transposed = equal | np.array([_from_first(row).tobytes() in known for row in rows[1]])
    first, second, _ = variants([pitches_of(row[0]) for half in rows for row in half], shared)
    across = (first < len(rows[0])) & (second >= len(rows[0]))
    near = transposed.copy()
    near[second[across] - len(rows[0])] = True
    return Leaks(int(equal.sum()), int(transposed.sum()), int(near.sum()), len(test))


def _sounds(data: Dataset, name: str) -> Integer[np.ndarray, "rows voices steps"]:
    _checks.instance(data, Dataset, name)
    _checks.require(isinstance(data.codec, Notes), f"{name} must hold music, but it holds other data.")
    scores = np.asarray(data.codec.decode(torch.as_tensor(data.tokens[:])))
    num, voices, steps = scores.shape
    return sounding(scores.reshape(-1, steps)).reshape(num, voices, steps)


def _from_first(row: Integer[np.ndarray, "voices steps"]) -> Integer[np.ndarray, "voices steps"]:
    """The pitches counted from the first one, so that keys do not matter. Rests stay above all others."""
    pitches = row[row != REST]
    return np.where(row == REST, 2 * REST, row - (pitches[0] if len(pitches) else 0)).astype(np.int16)
