"""The columns of a table with few values each: what counting, pictures and classifiers need.

A column of at most `MOST` values keeps them. Of a column with more, neighbouring numbers share a cell, so that the
cells hold equal shares of the rows; of other values, the rarest share one. Cells are numbered in the order in which
they are shown: numbers ascend, other values are the more frequent ones first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

MOST = 32
OTHERS = "others"


class Cells:
    """Which cell each value of each column is in, found from some rows."""

    def __init__(self, codec: Any, rows: Int[Tensor, "num dim"]) -> None:
        found = [
            _cells(_values(codec, d), torch.bincount(rows[:, d], minlength=size).double())
            for d, size in enumerate(codec.sizes)
        ]
        self.names: list[str] = list(codec.names)
        self.places, self.labels = [place for place, _ in found], [labels for _, labels in found]

    def __call__(self, tokens: Int[Tensor, "num dim"]) -> Int[Tensor, "num dim"]:
        return torch.stack([place[column] for place, column in zip(self.places, tokens.T, strict=True)], dim=1)


def _values(codec: Any, d: int) -> list[str] | None:
    """What the tokens of a column stand for; None if they are the bins of a number, in their order."""
    values = codec.values[d]
    plain = isinstance(values, Sequence) and all(isinstance(value, str) for value in values)
    return list(values) if plain else None


def _cells(values: list[str] | None, counts: Float64[Tensor, "values"]) -> tuple[Int[Tensor, "values"], list[str]]:
    """The cell of each value, and what each cell is called."""
    numbers = _numbers(values) if values is not None else torch.arange(len(counts)).double()
    names = values or [f"bin {i}" for i in range(len(counts))]
    if numbers is None:
        order = counts.argsort(descending=True, stable=True)
        ranks = order.argsort().clamp(max=MOST - 1)
        labels = [names[i] for i in order[:MOST].tolist()]
        return ranks, labels if len(counts) <= MOST else [*labels[:-1], OTHERS]
    order = numbers.argsort(stable=True)
    cell = torch.arange(len(counts))
    if len(counts) > MOST:
        share = counts[order].cumsum(0) - counts[order] / 2
        cell = (MOST * share / counts.sum()).long().clamp(0, MOST - 1).unique(return_inverse=True)[1]
    members: list[list[str]] = [[] for _ in range(int(cell.max()) + 1)]
    for place, value in zip(cell.tolist(), order.tolist(), strict=True):
        members[place].append(names[value])
    labels = [some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}" for some in members]
    return cell[order.argsort()], labels


def _numbers(values: list[str]) -> Float64[Tensor, "values"] | None:
    """The values as numbers, if they all are."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return None
    return torch.tensor(numbers, dtype=torch.float64) if all(map(math.isfinite, numbers)) else None
