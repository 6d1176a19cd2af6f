"""The distance of samples from data, as a function of the sampling steps and of the training time."""

from __future__ import annotations

from abc import abstractmethod
from itertools import product
from pathlib import Path
from typing import Any

from sddm import _files
from sddm.experiments.densities import Densities, Measured
from sddm.experiments.experiment import markdown, with_error
from sddm.experiments.pictures import curves
from sddm.experiments.synthetic import LAZY, SCALES
from sddm.experiments.systems import Diffused

DENSITY = "2spirals"
NUMBERS = {"small": (5, 10, 20, 50, 100, 1000), "paper": (5, 10, 20, 50, 100, 200, 500, 1000)}
"""Steps of sampling."""
TRAINED = {
    "energy MLP": "SDDM",
    "leave-one-out transformer": "leave-one-out + analytical",
    "masked transformer": "masked + analytical",
}
"""Systems whose training is varied, and the row of the tables that has their recipe."""
TRAININGS: dict[str, dict[str, tuple[int, ...]]] = {
    "small": {
        "energy MLP": (75, 150, 300, 600, 1_200, 2_400),
        "leave-one-out transformer": (2_000, 4_000),
        "masked transformer": (1_500, 6_000),
    },
    "paper": dict.fromkeys(TRAINED, (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)),
}
"""Numbers of training steps; each is a separate training."""
STEPS_SAMPLES = 100_000
TRAINING_SAMPLES = {"small": 20_000, "paper": 100_000}


def _row(scale: str, name: str, many: int, **changed: dict[str, Any]) -> Measured:
    """A row of the tables with other settings, and more or fewer samples."""
    row = SCALES[scale]()[name]
    assert isinstance(row.system, Diffused)
    return Measured(Diffused(row.system.recipe.but(**changed)), many, row.samples, many // row.samples, row.held_out)


class Curve(Densities):
    """Systems with one setting varied; a row's name up to its last comma names its line in the picture."""

    label: str
    title: str

    @abstractmethod
    def x(self, result: dict[str, Any]) -> float:
        """What the horizontal axis shows."""

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        figures = [(r["row"], r["figures"]) for r in results]
        lines = [[row, with_error(f["mmd_many"], f["mmd_many_standard_error"])] for row, f in figures]
        table = markdown([self.title, f"MMD x 1e4 on {DENSITY}"], lines)
        command = f"`sddm reproduce {type(self).__name__.lower()} --scale {self.scale}`"
        many = self.rows[next(iter(self.rows))].many
        _files.write_text(folder / "table.md", f"{many:,} samples. From {command}.\n\n{table}")

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for result in results:
            figures, name = result["figures"], result["row"].rpartition(", ")[0]
            point = (self.x(result), figures["mmd_many"], figures["mmd_many_standard_error"])
            lines.setdefault(name, []).append(point)
        if lines:
            floor = min(point[2] for points in lines.values() for point in points)
            curves(lines, floor, (self.label, f"MMD x 1e4 on {DENSITY}"), folder / "curve.png")


class Steps(Curve):
    """`sddm reproduce steps`: both samplers of the paper on both grids."""

    label, title = "steps of sampling", "energy MLP"

    def __init__(self, scale: str) -> None:
        rows = {
            f"{name}, uniform in {grid}, {number} steps": _row(
                scale, "SDDM", STEPS_SAMPLES, sampling={"sampler": lazy, "grid": grid, "steps": number}
            )
            for (name, lazy), grid, number in product(LAZY.items(), ("time", "share"), NUMBERS[scale])
        }
        super().__init__("steps", scale, rows, [DENSITY])

    def x(self, result: dict[str, Any]) -> float:
        return float(result["recipe"]["system"]["recipe"]["sampling"]["steps"])


class Training(Curve):
    """`sddm reproduce training`: the same recipe with fewer steps; the learning rate falls to 0 in each training."""

    label, title = "seconds of training", "training"

    def __init__(self, scale: str) -> None:
        rows = {
            f"{name}, {number} steps": _row(scale, TRAINED[name], TRAINING_SAMPLES[scale], training={"steps": number})
            for name, numbers in TRAININGS[scale].items()
            for number in numbers
        }
        super().__init__("training", scale, rows, [DENSITY])

    def x(self, result: dict[str, Any]) -> float:
        return float(result["figures"]["training_seconds"])
