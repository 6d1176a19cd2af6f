"""Real data and a table of known law, each in three parts: to train on, to choose recipes on, and to report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm.codecs import Characters
from sddm.data import Dataset, load
from sddm.data.published import alarm_network
from sddm.training.batches import generator_of

REPORTED, CHOSEN_ON = 2_000, 2_000
"""Rows that figures are reported on, and rows that recipes were chosen on, where there are enough."""
CORPORA = ("molecules", "moby-dick", "tunes", "alarm", "molecules-200k")


@dataclass(frozen=True)
class Corpus:
    """Rows of data; `tokens` draws from those to train on."""

    name: str
    train: Dataset
    validation: Dataset
    test: Dataset
    log_prob: Callable[[Int[Tensor, "num dim"]], Float64[Tensor, "num"]] | None = None
    """The logarithm of the law that drew the rows, if it is known."""

    @property
    def num_states(self) -> int:
        return self.train.num_states

    @property
    def length(self) -> int:
        return self.train.length

    def tokens(self, num: int, generator: torch.Generator) -> Tensor:
        return self.train.tokens[torch.randint(len(self.train), (num,), generator=generator)]

    @property
    def marks(self) -> float:
        """The mean number of characters of a row to report on; the end of a shorter row counts as one."""
        codec, rows = self.test.codec, self.test.tokens[:]
        if not isinstance(codec, Characters) or not codec.padded:
            return float(self.length)
        return float(((rows != codec.pad).sum(1) + 1).clamp(max=self.length).double().mean())


@lru_cache(2)
def corpus(name: str) -> Corpus:
    """The corpus of a name in `CORPORA`."""
    if name.startswith("molecules"):
        rows = 200_000 if name.endswith("200k") else 20_000
        data = load("molecules", rows=200_000 + CHOSEN_ON + REPORTED)
        return Corpus(name, _rows(data, 0, rows), _rows(data, 200_000, CHOSEN_ON), _rows(data, 202_000, REPORTED))
    if name == "alarm":
        sizes = (20_000, CHOSEN_ON, REPORTED)
        train, validation, test = (load("alarm", rows=num, seed=seed) for seed, num in enumerate(sizes))
        return Corpus(name, train, validation, test, alarm_network().log_prob)
    # The paper scrambles its melodies, so that no model can use the order of the pitches.
    options: dict[str, Any] = {"scramble": True} if name == "melodies" else {}
    train, apart = load(name, **options).split(0.2, 0)
    validation, test = apart.split(0.5, 0)
    return Corpus(name, train, _some(validation, CHOSEN_ON), _some(test, REPORTED))


def _rows(data: Dataset, first: int, num: int) -> Dataset:
    return Dataset(data.tokens[first : first + num], data.codec, name=data.name)


def _some(data: Dataset, num: int) -> Dataset:
    """Random rows, if there are more."""
    rows = torch.randperm(len(data), generator=generator_of(0, "rows of a corpus", 0))[:num]
    return Dataset(data.tokens[rows], data.codec, None if data.groups is None else data.groups[rows], name=data.name)
