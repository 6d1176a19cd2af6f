"""The columns of a table with few values each: what counting, pictures and classifiers need.

A column of at most `MOST` values keeps them. Of a column with more, neighbouring numbers share a cell, so that the
cells hold equal shares of the rows; of other values, the rarest share one. Cells are numbered in the order in which
they are shown: numbers ascend, behind a missing value; other values are the more frequent ones first.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm.codecs.fields import Binned, Category, Field

MOST = 32
OTHERS, MISSING = "others", "missing"


class Cells:
    """Which cell each value of each column is in, found from some rows."""

    def __init__(self, codec: Any, rows: Int[Tensor, "num dim"]) -> None:
        found = [
            _cells(_values(codec, d), torch.bincount(rows[:, d], minlength=size).double(), codec.fields[d])
            for d, size in enumerate(codec.sizes)
        ]
        self.names: list[str] = list(codec.names)
        self.places, self.labels = [place for place, _ in found], [labels for _, labels in found]

    def __call__(self, tokens: Int[Tensor, "num dim"]) -> Int[Tensor, "num dim"]:
        return torch.stack([place[column] for place, column in zip(self.places, tokens.T, strict=True)], dim=1)


def _values(codec: Any, d: int) -> list[str] | None:
    """What the tokens of a column stand for; None if they are bins, in their order."""
    field = codec.fields[d]
    return field.values if isinstance(field, Category) else None


def _cells(
    values: list[str] | None, counts: Float64[Tensor, "values"], field: Field
) -> tuple[Int[Tensor, "values"], list[str]]:
    """The cell of each value, and what each cell is called."""
    if isinstance(field, Binned):
        places, labels = _neighbours(
            torch.arange(field.first, len(counts)).double(), counts[field.first :], *_ends(field)
        )
        return torch.cat([torch.zeros(field.first, dtype=torch.int64), places + field.first]), [
            MISSING
        ] * field.first + labels
    assert values is not None
    numbers = _numbers(values)
    if numbers is not None:
        return _neighbours(numbers, counts, values, values)
    order = counts.argsort(descending=True, stable=True)
    ranks = order.argsort().clamp(max=MOST - 1)
    labels = [values[i] for i in order[:MOST].tolist()]
    return ranks, labels if len(counts) <= MOST else [*labels[:-1], OTHERS]


def _ends(field: Binned) -> tuple[list[str], list[str]]:
    """How the low and the high ends of bins are written."""
    return [field.text(step) for step in field.lows], [field.text(step) for step in field.highs]


def _neighbours(
    numbers: Float64[Tensor, "values"], counts: Float64[Tensor, "values"], lows: list[str], highs: list[str]
) -> tuple[Int[Tensor, "values"], list[str]]:
    """Cells of neighbouring numbers, or of bins from a low to a high end."""
    order = numbers.argsort(stable=True)
    cell = torch.arange(len(counts))
    if len(counts) > MOST:
        share = counts[order].cumsum(0) - counts[order] / 2
        cell = (MOST * share / counts.sum()).long().clamp(0, MOST - 1).unique(return_inverse=True)[1]
    members: list[list[int]] = [[] for _ in range(int(cell.max()) + 1)]
    for place, value in zip(cell.tolist(), order.tolist(), strict=True):
        members[place].append(value)
    labels = [_spoken(lows[some[0]], highs[some[-1]]) for some in members]
    return cell[order.argsort()], labels


def _spoken(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _numbers(values: list[str]) -> Float64[Tensor, "values"] | None:
    """The values as numbers, if they all are."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return None
    return torch.tensor(numbers, dtype=torch.float64) if all(map(math.isfinite, numbers)) else None
