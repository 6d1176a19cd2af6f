"""The runner of all experiments: cells of a table, one after the other, each kept as soon as it is finished."""

from __future__ import annotations

import fnmatch
import json
import platform
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from sddm import _checks, _files


@dataclass(frozen=True)
class Cell:
    """A place in a table: which system, on which data."""

    row: str
    column: str

    @property
    def name(self) -> str:
        return f"{self.row}/{self.column}"


class Experiment(Protocol):
    """A table of the paper."""

    name: str
    family: str
    """Experiments of one family keep their trainings in one folder, and share them."""

    def cells(self) -> list[Cell]:
        """All cells, in the order in which they are run."""
        ...

    def recipe(self, cell: Cell) -> dict[str, Any]:
        """Everything that decides a cell's figures but the seed, as JSON; a cell with another recipe is run again."""
        ...

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        """The figures of a cell, as JSON. What it needs on the way goes into the folder, so that it can go on there."""
        ...

    def headline(self, figures: dict[str, Any]) -> str:
        """The figures in a few words."""
        ...

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        """Tables of what there is so far."""
        ...

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Pictures of what there is, once all cells that were asked for are finished."""
        ...


def reproduce(
    experiment: Experiment, out: Path, work: Path, cells: Sequence[str] = (), repeats: int = 1
) -> list[dict[str, Any]]:
    """Run the cells whose names match one of `cells` (all if none), `repeats` times with different seeds.

    A cell that is finished is kept in out/NAME/cells and not run again; out/NAME.json holds all of them.
    """
    _checks.whole(repeats, "repeats", 1)
    store = out / experiment.name / "cells"
    chosen = [cell for cell in experiment.cells() if _matches(cell, cells)]
    if not chosen:
        names = ", ".join(cell.name for cell in experiment.cells())
        raise ValueError(f"No cell matches {', '.join(map(repr, cells))}. The cells are: {names}.")
    store.mkdir(parents=True, exist_ok=True)
    jobs = [(cell, seed) for seed in range(repeats) for cell in chosen]
    for number, (cell, seed) in enumerate(jobs, start=1):
        path = store / f"{slug(f'{cell.name}-{seed}')}.json"
        recipe = _recipe(experiment, cell)
        if (known := _finished(path, recipe)) is None:
            _say(f"[{number}/{len(jobs)}] {cell.name}, seed {seed}: running")
            began = time.monotonic()
            figures = experiment.run(cell, seed, work / slug(f"{cell.name}-{seed}"))
            known = {
                "row": cell.row,
                "column": cell.column,
                "seed": seed,
                "figures": figures,
                "seconds": round(time.monotonic() - began, 1),
                "recipe": recipe,
                "versions": {"python": platform.python_version(), "torch": version("torch"), "sddm": version("sddm")},
            }
            _files.write_json(path, known)
            _collect(experiment, out)
        _say(f"[{number}/{len(jobs)}] {cell.name}: {experiment.headline(known['figures'])} ({known['seconds']} s)")
    results = _collect(experiment, out)
    experiment.pictures(results, work, out / experiment.name)
    return results


def _collect(experiment: Experiment, out: Path) -> list[dict[str, Any]]:
    """All finished cells, in one file, and tables. Those of another recipe than today's are left out."""
    folder = out / experiment.name
    cells = experiment.cells()
    order, recipes = {cell: i for i, cell in enumerate(cells)}, {cell: _recipe(experiment, cell) for cell in cells}
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "cells").glob("*.json")]
    results = [value for value in found if value["recipe"] == recipes.get(Cell(value["row"], value["column"]))]
    results.sort(key=lambda value: (order[Cell(value["row"], value["column"])], value["seed"]))
    _files.write_json(out / f"{experiment.name}.json", results)
    experiment.report(results, folder)
    return results


def _recipe(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """As it is read back from JSON, where tuples are lists."""
    recipe: dict[str, Any] = json.loads(json.dumps(experiment.recipe(cell)))
    return recipe


def _finished(path: Path, recipe: dict[str, Any]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value if value["recipe"] == recipe else None


def _matches(cell: Cell, patterns: Sequence[str]) -> bool:
    return not patterns or any(
        fnmatch.fnmatchcase(cell.name, p) or p in (cell.row, cell.column, cell.name) for p in patterns
    )


def slug(name: str) -> str:
    """A name as part of a path."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
