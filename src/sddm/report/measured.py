"""What a report says: each figure of samples against held-out rows, and of as many training rows against the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.codecs import Codec, Columns
from sddm.metrics import Closeness, Estimate, Figure, closeness, cramers_v, told_apart, utility
from sddm.metrics import mean_association_gap as association_gap
from sddm.metrics import mean_variation as variation
from sddm.report.cells import Cells
from sddm.training.batches import generator_of

LEAST_ROWS, MOST_ROWS = 40, 10_000
"""How many rows of each kind a report needs, and how many it takes at most."""
MOST_CLASSES = 20
"""The column to predict is the last one with no more values than this, unless one is named."""
Tokens = Int[Tensor, "num dim"]


@dataclass(frozen=True)
class Measured:
    """Everything that a page shows."""

    rows: int
    """How many samples, held-out rows and training rows are compared."""
    trained_on: int
    """How many training rows distances are measured from."""
    figures: list[Figure]
    """Each beside that of training rows."""
    columns: list[Figure]
    """The total variation of each column."""
    best: dict[str, str]
    """What a figure would be if samples had the law of the data, in words."""
    cells: Cells
    shares: list[tuple[Float64[Tensor, "cells"], Float64[Tensor, "cells"]]]
    """How often each value of each column is in samples and in held-out rows."""
    associations: tuple[Float64[Tensor, "dim dim"], Float64[Tensor, "dim dim"]]
    """Cramer's V of each pair of columns, of samples and of held-out rows."""
    closeness: Closeness

    def saved(self) -> dict[str, Any]:
        """As JSON."""
        values = {key: number for figure in self.figures for key, number in figure.saved().items()}
        columns = {name: figure.saved() for name, figure in zip(self.cells.names, self.columns, strict=True)}
        return {"rows": self.rows, **values, "columns": columns}


def measured(samples: Tokens, train: Tokens, held_out: Tokens, codec: Any, target: int, seed: int = 0) -> Measured:
    """Compare samples with held-out rows, and training rows with the same held-out rows, in equal numbers.

    target: the column that is predicted from the others.
    """
    num = min(len(samples), len(train), len(held_out), MOST_ROWS)
    _checks.require(
        num >= LEAST_ROWS,
        f"A report needs at least {LEAST_ROWS} samples, training rows and held-out rows, but there are {len(samples)}, "
        f"{len(train)} and {len(held_out)}. Raise --samples, or name more data with --data.",
    )
    of_rows = closeness(samples[:num], held_out := _some(held_out, num, seed), train)
    cells = Cells(codec, train)
    made, known, apart = cells(samples[:num]), cells(_some(train, num, seed)), cells(held_out)

    def beside(name: str, title: str, measure: Callable[[Tokens, Tokens], Estimate]) -> Figure:
        return _figure(name, title, measure(made, apart), measure(known, apart))

    def told(one: Tokens, other: Tokens) -> Estimate:
        return told_apart(one, other, generator_of(seed, "folds", 0))

    predicted = utility(made, known, apart, target)
    name = cells.names[target]
    figures = [
        beside("column_variation", "mean total variation of the columns", variation),
        beside("pair_gap", "mean gap in pairwise association (Cramer's V)", association_gap),
        beside("auc", "area under the ROC curve of a classifier that tells samples from data", told),
        _figure("utility", f"accuracy in predicting {name} after training on these", *predicted[:2]),
        _figure("nearer", "share nearer to training rows than the median of held-out rows", *of_rows.nearer),
        _figure("copies", "share of exact copies of training rows", *of_rows.copies),
    ]
    columns = [
        _figure("total_variation", each, *(variation(one[:, d : d + 1], apart[:, d : d + 1]) for one in (made, known)))
        for d, each in enumerate(cells.names)
    ]
    best = {
        "column_variation": "as small as of data",
        "pair_gap": "as small as of data",
        "auc": "0.5, nobody can tell",
        "utility": f"as high as of data; the most frequent value: {predicted.by_guess.value:.3f}",
        "nearer": "no higher than of held-out rows",
        "copies": "no higher than of held-out rows",
    }
    shares = [
        (_shares(made[:, d], len(labels)), _shares(apart[:, d], len(labels))) for d, labels in enumerate(cells.labels)
    ]
    associations = cramers_v(made), cramers_v(apart)
    return Measured(num, len(train), figures, columns, best, cells, shares, associations, of_rows)


def of_table(codec: Codec) -> Columns:
    """The codec, if it is that of a table."""
    if not isinstance(codec, Columns):
        raise ValueError(
            f"A report is about a table, but this model was trained on {type(codec).__name__.lower()}. Leave out "
            "--report; the figures are printed, and --out writes them."
        )
    return codec


def target_of(codec: Any, name: str | None) -> int:
    """The column to predict: the one that is named, or the last one of few values."""
    if name is None:
        few = [d for d, size in enumerate(codec.sizes) if size <= MOST_CLASSES]
        return few[-1] if few else len(codec.sizes) - 1
    _checks.require(
        name in codec.names,
        f"target is {name!r}, but the table has no such column. It has {_checks.shown(list(codec.names))}.",
    )
    return int(codec.names.index(name))


def _figure(name: str, title: str, samples: Estimate, data: Estimate) -> Figure:
    return Figure(name, title, samples.value, samples.standard_error, data.value, data.standard_error)


def _some(rows: Tokens, num: int, seed: int) -> Tokens:
    """Random rows, if there are more."""
    if len(rows) == num:
        return rows
    return rows[torch.randperm(len(rows), generator=generator_of(seed, "rows of a report", 0))[:num]]


def _shares(column: Int[Tensor, "num"], size: int) -> Float64[Tensor, "cells"]:
    return torch.bincount(column, minlength=size).double() / len(column)
