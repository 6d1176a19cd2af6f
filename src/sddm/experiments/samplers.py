"""Which sampler comes nearest to the data with few evaluations of the model: every sampler, on a law of six bits.

`sddm reproduce samplers`. No network is trained: the model is the oracle, or the oracle flattened by a temperature,
which stands for a network that has not learnt everything. Where the law of the samples can be multiplied out, the total
variation is exact. Elsewhere it is that of many samples, and the floor says what as many rows of the data have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from sddm import _files
from sddm.experiments.enumerated import DIM, STATES, Bits, all_rows, exact_law, index_of, law_of_bits
from sddm.experiments.experiment import Cell, Experiment, Row, markdown
from sddm.experiments.pictures import panels
from sddm.experiments.systems import Drawn, Fresh, Source, System
from sddm.experiments.ways import WAYS, counted, if_others
from sddm.samplers import Trapezoidal, sample
from sddm.samplers.steps import OneDraw
from sddm.training.batches import generator_of

COLUMNS = ("uniform, oracle", "absorbing, oracle", "uniform, flattened", "absorbing, flattened")
EVALUATIONS = (4, 8, 16, 32, 64)
FLOOR, FLOORS = "data against data", 50


@dataclass(frozen=True)
class Sampled(System):
    """Samples of a way with so many evaluations, the first, for x_T, among them."""

    way: str
    evaluations: int

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert isinstance(source, Bits)
        diffusion = source.diffusion()
        options = WAYS[self.way].options(diffusion, self.evaluations) | {"batch_size": 25_000}
        with counted(diffusion) as count:
            tokens = sample(diffusion, num, generator=generator_of(seed, "samples", 0), **options)
        return Drawn(tokens, model=diffusion, evaluations=count.rows / num)


class Samplers(Experiment[Row]):
    """`sddm reproduce samplers`: total variation against evaluations of the model."""

    family = "samplers"

    def __init__(self, scale: str) -> None:
        many = 50_000 if scale == "small" else 4_000_000
        rows = {
            f"{name}, {most} evaluations": Row(Sampled(name, most), many)
            for name, way in WAYS.items()
            for most in _allowed(name)
        }
        super().__init__("samplers", scale, {FLOOR: Row(Fresh(), many)} | rows, COLUMNS)

    def source(self, column: str) -> Bits:
        return Bits(column)

    def cells(self) -> list[Cell]:
        return [cell for cell in super().cells() if self._makes_sense(cell)]

    def _makes_sense(self, cell: Cell) -> bool:
        system = self.rows[cell.row].system
        if not isinstance(system, Sampled):
            return cell.column == COLUMNS[0]
        return cell.column.startswith("absorbing") or not WAYS[system.way].masked

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        """Exact where it can be, without samples; all else as in any experiment."""
        system, source = self.rows[cell.row].system, self.source(cell.column)
        if isinstance(system, Sampled):
            way = WAYS[system.way]
            if isinstance(way.step, (OneDraw, Trapezoidal)):
                diffusion = source.diffusion()
                options = way.options(diffusion, system.evaluations)
                grid = options["grid"]
                with torch.inference_mode():
                    law = exact_law(diffusion, way.step, options["corrector"], grid)
                steps, begins = len(grid) - 1, 0 if diffusion.process.prior_covers_all else 1
                asked = begins + steps * way.cost - (way.corrector is not None)  # nothing is corrected at time 0
                return {"tv": distance(law), "evaluations": float(asked), "exact": True}
            return super().run(cell, seed, folder)
        each = [
            self.measure(system.draw(source, self.rows[cell.row].many, n, folder), source, self.rows[cell.row], n)
            for n in range(FLOORS)
        ]
        return each[0] | {"tv": mean(figures["tv"] for figures in each)}

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        counts = torch.bincount(index_of(drawn.tokens, STATES), minlength=len(all_rows(STATES)))
        figures: dict[str, Any] = {"tv": distance(counts / len(drawn.tokens)), "exact": False}
        return figures if drawn.evaluations is None else figures | {"evaluations": drawn.evaluations}

    def headline(self, figures: dict[str, Any]) -> str:
        return f"total variation {figures['tv']:.4f}" + (", exact" if figures["exact"] else "")

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(results, self.name, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        lines: dict[str, dict[str, list[tuple[float, float]]]] = {column: {} for column in self.columns}
        for result in results:
            if result["seed"] == 0 and result["row"] != FLOOR:
                name = result["row"].rpartition(", ")[0]
                point = (result["figures"]["evaluations"], result["figures"]["tv"])
                lines[result["column"]].setdefault(name, []).append(point)
        floor = next((r["figures"]["tv"] for r in results if r["row"] == FLOOR), None)
        floors = {} if floor is None else {c: floor for c in lines if _lowest(lines[c]) < floor}
        panels(lines, floors, ("evaluations a sample", "total variation"), folder / "curves.png")


def _allowed(name: str) -> tuple[int, ...]:
    """The numbers of evaluations for which a way is tried; one at a time takes as many as there are positions."""
    if name in ("first hitting", "in order"):
        return (DIM,)
    if name == "sweeps of 2 groups":
        return EVALUATIONS[1:4]
    if WAYS[name].pilot:
        return EVALUATIONS[:4]
    return EVALUATIONS[:2] if WAYS[name].masked else EVALUATIONS


def _lowest(lines: dict[str, list[tuple[float, float]]]) -> float:
    return min((y for points in lines.values() for _, y in points), default=math.inf)


def distance(law: Tensor) -> float:
    return float((law - law_of_bits()).abs().sum()) / 2


def tables(results: list[dict[str, Any]], name: str, scale: str) -> str:
    """Total variation x 1000 for each kind of noise and of model."""
    parts = [f"# {name}, {scale} scale\n", "Total variation between samples and data, x 1000.\n"]
    floor = next((r["figures"]["tv"] for r in results if r["row"] == FLOOR), None)
    if floor is not None:
        parts.append(f"Those marked ~ are of samples; as many rows of the data have {1000 * floor:.1f} on average.\n")
    for column in COLUMNS:
        found = {r["row"]: r["figures"] for r in results if (r["column"], r["seed"]) == (column, 0)}
        lines = []
        for way in WAYS:
            numbers = sorted({*EVALUATIONS, DIM})
            cells = [_shown(found.get(f"{way}, {most} evaluations"), most) for most in numbers]
            if any(cells):
                lines.append([way, *cells])
        if lines:
            header = ["evaluations", *(str(most) for most in sorted({*EVALUATIONS, DIM}))]
            parts += [f"## {column}\n", markdown(header, lines)]
    parts.append(f"From `sddm reproduce samplers --scale {scale}`. In brackets: the evaluations a sample, if others.\n")
    return "\n".join(parts)


def _shown(figures: dict[str, Any] | None, most: int) -> str:
    if figures is None:
        return ""
    used = if_others(figures["evaluations"], most)
    return f"{'' if figures['exact'] else '~'}{1000 * figures['tv']:.1f}{used}"
