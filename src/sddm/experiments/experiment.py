"""An experiment: a task (data, measure, show) times recipes. Systems are the rows of a table, data are its columns."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from jaxtyping import Float64
from torch import Tensor

from sddm import _files
from sddm.experiments.systems import Drawn, Source, System

SAMPLES, MOST_KEPT = "samples.safetensors", 20_000
"""The file of samples in the folder of a cell, and how many it holds at most."""


class Cell(NamedTuple):
    """A place in a table: which system, on which data."""

    row: str
    column: str

    @property
    def name(self) -> str:
        return f"{self.row}/{self.column}"


@dataclass(frozen=True)
class Row:
    """A system, and how many samples of it are drawn and measured."""

    system: System
    many: int


AnyRow = TypeVar("AnyRow", bound=Row)


class Experiment(ABC, Generic[AnyRow]):
    """Which systems run on which data, and how their samples are measured and shown."""

    family: str
    """Experiments of one family keep their trainings in one folder, and share them."""

    def __init__(self, name: str, scale: str, rows: Mapping[str, AnyRow], columns: Sequence[str]) -> None:
        self.name = name if scale == "small" else f"{name}-{scale}"
        self.scale, self.rows, self.columns = scale, rows, columns

    @abstractmethod
    def source(self, column: str) -> Source:
        """The data of a column."""

    @abstractmethod
    def measure(self, drawn: Drawn, source: Source, row: AnyRow, seed: int) -> dict[str, Any]:
        """The figures of a cell, as JSON."""

    @abstractmethod
    def headline(self, figures: dict[str, Any]) -> str:
        """The figures in a few words."""

    @abstractmethod
    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        """Write tables of the results so far."""

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Draw pictures when all requested cells are finished; none unless overridden."""

    def cells(self) -> list[Cell]:
        """All cells, in the order in which they are run."""
        return [Cell(row, column) for row in self.rows for column in self.columns]

    def row(self, cell: Cell) -> AnyRow:
        """The row of a cell, which may depend on its column."""
        return self.rows[cell.row]

    def recipe(self, cell: Cell) -> Any:
        """Everything but the seed that decides a cell's figures; a cell whose recipe has changed is run again."""
        return self.row(cell)

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        """The figures of a cell, as JSON. Some samples are saved in `folder`, the training in a folder beside it."""
        row, source = self.row(cell), self.source(cell.column)
        training = folder.parent / slug(f"{row.system.training}/{cell.column}-{seed}")
        drawn = row.system.draw(source, row.many, seed, training)
        folder.mkdir(parents=True, exist_ok=True)
        _files.save_tensors(folder / SAMPLES, {"tokens": drawn.tokens[:MOST_KEPT]})
        figures = self.measure(drawn, source, row, seed) | {"rows_seen": row.system.rows_seen}
        return figures | ({} if drawn.training_seconds is None else {"training_seconds": drawn.training_seconds})


def slug(name: str) -> str:
    """A name as part of a path."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a header."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def estimated(name: str, values: Float64[Tensor, "num"]) -> dict[str, float]:
    """The mean of independent values and its standard error, as figures of a cell."""
    return {name: float(values.mean()), f"{name}_standard_error": float(values.std() / len(values) ** 0.5)}


def with_error(value: float, error: float, digits: int = 3) -> str:
    return f"{value:.{digits}f} ± {error:.{digits}f}"
