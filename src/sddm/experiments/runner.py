"""The runner of all experiments: cells of a table, one after the other, each kept as soon as it is finished."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sddm import __version__, _checks, _files
from sddm.experiments.experiment import Cell, Experiment, slug


def reproduce(
    experiment: Experiment[Any], out: Path, work: Path, cells: Sequence[str] = (), repeats: int = 1
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
        recipe = experiment.recipe(cell)
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
                "recipe": _plain(recipe),
                "versions": {"python": platform.python_version(), "torch": version("torch"), "sddm": __version__},
            }
            _files.write_json(path, known)
            _collect(experiment, out)
        _say(f"[{number}/{len(jobs)}] {cell.name}: {experiment.headline(known['figures'])} ({known['seconds']} s)")
    results = _collect(experiment, out)
    experiment.pictures(results, work, out / experiment.name)
    return results


def _collect(experiment: Experiment[Any], out: Path) -> list[dict[str, Any]]:
    """Write all finished cells to one file, and tables. Cells of an outdated recipe are left out."""
    folder = out / experiment.name
    cells = experiment.cells()
    order, recipes = {cell: i for i, cell in enumerate(cells)}, {cell: experiment.recipe(cell) for cell in cells}
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "cells").glob("*.json")]
    results = [v for v in found if same_recipe(v["recipe"], recipes.get(Cell(v["row"], v["column"])))]
    results.sort(key=lambda value: (order[Cell(value["row"], value["column"])], value["seed"]))
    _files.write_json(out / f"{experiment.name}.json", results)
    experiment.report(results, folder)
    return results


def same_recipe(stored: Any, recipe: Any) -> bool:
    """Whether a recipe equals the stored one. Options that were added since must have their default value. So a new
    option whose default is the old behaviour does not cause cells to be run again."""
    if not is_dataclass(recipe):
        return bool(stored == _plain(recipe))
    options = {option.name: (getattr(recipe, option.name), option) for option in fields(recipe)}
    return stored.keys() <= options.keys() and all(
        same_recipe(stored[name], value) if name in stored else value == _default(option)
        for name, (value, option) in options.items()
    )


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _plain(recipe: Any) -> Any:
    """The recipe as JSON returns it: tuples become lists."""
    return json.loads(json.dumps(asdict(recipe) if is_dataclass(recipe) and not isinstance(recipe, type) else recipe))


def _finished(path: Path, recipe: Any) -> dict[str, Any] | None:
    if not path.exists():
        return None
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value if same_recipe(value["recipe"], recipe) else None


def _matches(cell: Cell, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(cell.name, p) or p in (cell.row, cell.column, cell.name) for p in patterns)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
