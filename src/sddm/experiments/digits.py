"""Handwritten digits for an experiment: in parts, and in the order of the labels that are asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from sddm.data import Dataset, load
from sddm.experiments.corpora import Corpus

DIGITS = "digits"
APART, VALIDATION = 20_000, 1_000
"""Rows of the training set that only the recogniser learns from, and rows that only the model's loss is measured on."""


class Parts(NamedTuple):
    """The digits, and those that only the recogniser learns from."""

    corpus: Corpus
    apart: Dataset


@lru_cache(1)
def parts(side: int, levels: int) -> Parts:
    """The digits at this many pixels a side and levels of grey."""
    data = load(DIGITS, size=side, levels=levels)
    rows, apart = data.split(APART / len(data), 0)
    train, validation = rows.split(VALIDATION / len(rows), 0)
    return Parts(Corpus(DIGITS, train, validation, load(f"{DIGITS}-test", size=side, levels=levels)), apart)


def wanted(num: int, num_labels: int) -> Int[Tensor, "num"]:
    """The labels that are asked for, in turn."""
    return torch.arange(num) % num_labels


def of_each_label(data: Dataset, num: int, skipped: int = 0) -> Int[Tensor, "num dim"]:
    """Rows whose labels are the wanted ones. Of each label, the first rows are left out, `skipped` in all."""
    assert data.labels is not None
    rows = torch.empty(num, dtype=torch.int64)
    for label in range(data.num_labels):
        places = wanted(num, data.num_labels) == label
        rows[places] = (data.labels == label).nonzero()[skipped // data.num_labels :, 0][: int(places.sum())]
    return data.tokens[rows]
