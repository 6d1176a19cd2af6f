"""The seven densities as 32 bits: the paper's Table 1 and its ablation.

One recipe a row, the same for all seven densities. The metric's own noise stands beside every figure: data against
data, by the same protocol. Fresh data for the metric come from a stream of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import load_file
from torch import Tensor

from sddm import _files
from sddm.data import DENSITIES, Toy
from sddm.experiments.pictures import animation, matrix, strip
from sddm.experiments.rows import SCALES, Data, Drawn, Row, Sddm
from sddm.experiments.runner import Cell, slug
from sddm.experiments.tables import markdown, with_error
from sddm.metrics import cell_distance, hamming_mmd
from sddm.samplers import GRIDS, SAMPLERS, Trajectory, sample
from sddm.training.batches import generator_of
from sddm.training.loop import MODEL

UNIT = 1e4
"""MMD^2 is given in units of 1e-4."""
PLANE_POINTS, SAMPLES = 20_000, "samples.safetensors"
KEPT = 4_000
"""Samples of a cell that are kept beside the tables."""
LEAST_FOR_PLANE = 1_000
"""Fewer points leave most cells of the plane empty."""
REVERSE_POINTS, REVERSE_STEPS = 10_000, 24

PAPER = {
    "PCD": (2.160, 0.954, 0.188, 0.962, 0.505, 1.382, 2.831),
    "ALOE+": (0.149, 0.078, 0.636, 0.516, 1.746, 0.718, 12.138),
    "EB-GFN": (0.583, 0.531, 0.305, 0.121, 0.492, 0.274, 1.206),
    "SDDM": (0.096, 0.040, 0.086, 0.150, 0.243, 0.225, 0.162),
    "energy + analytical": (0.250, 0.075, 0.267, 0.037, 0.323, 0.305, 0.383),
    "masked + analytical": (0.143, 0.080, 0.126, 0.064, 0.242, 0.116, 0.345),
    "hollow + analytical": (0.227, 0.052, 0.229, 0.117, 0.049, 0.201, 0.557),
    "energy + euler": (0.199, 0.022, 0.173, 0.095, 0.167, 0.287, 0.211),
    "masked + euler": (0.120, 0.028, 0.204, 0.195, 0.064, 0.086, 0.248),
    "hollow + euler": (0.179, 0.088, 0.077, 0.034, 0.288, 0.281, 0.148),
}
"""The paper's figures by row, in the order of `DENSITIES`."""


class Densities:
    """Some systems on some densities: what the tables and the curves have in common."""

    family = "synthetic"

    def __init__(self, name: str, scale: str, rows: dict[str, Row], densities: Sequence[str]) -> None:
        self.name = name if scale == "small" else f"{name}-{scale}"
        self.scale, self.rows, self.densities = scale, rows, densities

    def cells(self) -> list[Cell]:
        return [Cell(row, density) for row in self.rows for density in self.densities]

    def recipe(self, cell: Cell) -> dict[str, Any]:
        return asdict(self.rows[cell.row])

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        row, toy = self.rows[cell.row], Toy(cell.column)
        num = max(row.many, row.samples * row.repeats)
        drawn = row.draw(toy, num, seed, folder.parent / slug(f"{row.training}/{cell.column}-{seed}"))
        folder.mkdir(parents=True, exist_ok=True)
        _files.save_tensors(folder / SAMPLES, {"tokens": drawn.tokens[:PLANE_POINTS].to(torch.uint8)})
        return measure(drawn, toy, row, seed) | drawn.figures | {"rows": row.rows_seen}

    def headline(self, figures: dict[str, Any]) -> str:
        return (
            f"MMD x 1e4 {with_error(figures['mmd'], figures['mmd_standard_error'])}, "
            f"at {figures['many']} samples "
            f"{with_error(figures['mmd_many'], figures['mmd_many_standard_error'])}"
        )


class Synthetic(Densities):
    """`sddm reproduce synthetic`: the paper's Table 1 and its ablation."""

    def __init__(self, scale: str) -> None:
        super().__init__("synthetic", scale, SCALES[scale](), list(DENSITIES))

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(results, self.rows, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Data and samples of every row that has been run, and the reverse process of the energy on 2spirals.

        Some samples of each cell are kept beside the tables, so that a picture can be drawn again without the work
        folder. A picture of which a finished cell has no samples here stays as it is.
        """
        finished = [Cell(r["row"], r["column"]) for r in results if r["seed"] == 0]
        kept = {cell: folder / "samples" / f"{slug(cell.name)}.npy" for cell in finished}
        for cell, path in kept.items():
            if (whole := work / slug(f"{cell.name}-0") / SAMPLES).exists():
                keep_bits(load_file(whole)["tokens"][:KEPT], path)
        for picture in dict.fromkeys(row.picture for row in self.rows.values()):
            shown = {c: p for c, p in kept.items() if self.rows[c.row].picture == picture and not self._is_data(c.row)}
            if shown and all(path.exists() for path in shown.values()):
                self._matrix(shown, folder / f"{picture}.png")
        self._reverse("2spirals", work, folder)

    def _is_data(self, row: str) -> bool:
        return isinstance(self.rows[row], Data)

    def _matrix(self, samples: dict[Cell, Path], path: Path) -> None:
        """The data, and the rows of which there are samples."""
        rows = [row for row in self.rows if self._is_data(row) or any(cell.row == row for cell in samples)]
        clouds = [
            [
                _data(Toy(density)) if self._is_data(row) else _points(samples.get(Cell(row, density)), Toy(density))
                for density in DENSITIES
            ]
            for row in rows
        ]
        matrix(rows, list(DENSITIES), clouds, path)

    def _reverse(self, density: str, work: Path, folder: Path) -> None:
        row, toy = self.rows["SDDM"], Toy(density)
        assert isinstance(row, Sddm)
        trained = work / slug(f"{row.training}/{density}-0")
        if not (trained / MODEL).exists():
            return
        model = row.trained(toy, 0, trained)
        path = Trajectory()
        sample(
            model,
            REVERSE_POINTS,
            steps=REVERSE_STEPS,
            sampler=SAMPLERS[row.sampler](),
            grid=GRIDS[row.grid],
            generator=generator_of(0, "picture", 0),
            callback=path,
        )
        clouds = [toy.decode(tokens).numpy() for tokens in path.tokens]
        shown = [round(i * (len(clouds) - 1) / 7) for i in range(8)]
        strip([path.times[i] for i in shown], [clouds[i] for i in shown], folder / "reverse.png")
        animation(path.times, clouds, folder / "reverse.gif")


def keep_bits(tokens: Int[Tensor, "num dim"], path: Path) -> None:
    """Eight bits a byte, as .npy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _files.replacing(path) as aside:
        np.save(aside, np.packbits(tokens.numpy().astype(bool), axis=1))


def _points(path: Path | None, toy: Toy) -> Any:
    return None if path is None else toy.decode(torch.from_numpy(np.unpackbits(np.load(path), axis=1)).long()).numpy()


def _data(toy: Toy) -> Any:
    return toy.points(KEPT, generator_of(0, "data in pictures", 0)).numpy()


def measure(drawn: Drawn, toy: Toy, row: Row, seed: int) -> dict[str, Any]:
    """MMD by the paper's protocol and of many samples, each against as many fresh points, with standard errors.

    Where samples come in groups, each repeat of the protocol takes groups of its own, so that repeats are independent.
    """
    fresh = (generator_of(seed, "fresh data", number) for number in range(10**6))

    def against_data(some: Int[Tensor, "some"]) -> tuple[float, float]:
        data = toy.tokens(len(some), next(fresh))
        groups = None if drawn.groups is None else drawn.groups[some]
        value, error = hamming_mmd(drawn.tokens[some], data, dtype=torch.float32, groups=groups)
        return value * UNIT, error * UNIT

    places = torch.arange(len(drawn.tokens))
    part = places // row.samples if drawn.groups is None else drawn.groups % row.repeats
    repeats = [against_data(places[part == number][: row.samples])[0] for number in range(row.repeats)]
    many, many_error = against_data(places[: row.many])
    return plane(drawn, toy, seed) | {
        "mmd": mean(repeats),
        "mmd_standard_error": stdev(repeats) / len(repeats) ** 0.5,
        "many": row.many,
        "mmd_many": many,
        "mmd_many_standard_error": many_error,
    }


def plane(drawn: Drawn, toy: Toy, seed: int) -> dict[str, float]:
    """The distance of some samples, if there are enough, from as many fresh points, on a grid in the plane."""
    some = drawn.tokens[:PLANE_POINTS]
    if len(some) < LEAST_FOR_PLANE:
        return {}
    fresh = toy.tokens(len(some), generator_of(seed, "fresh points of the plane", 0))
    groups = None if drawn.groups is None else drawn.groups[: len(some)]
    value, error = cell_distance(toy.cells(some), toy.cells(fresh), groups)
    return {"plane": value, "plane_standard_error": error}


STEPS = {
    "sweep": "sweeps of analytical steps",
    "analytical": "analytical steps",
    "lazy": "analytical steps",
    "euler": "Euler steps",
    "lazy-euler": "Euler steps",
}
"""Samplers by the law of their step."""


def grouped(values: dict[str, str]) -> str:
    """Each value with the names that have it."""
    names = {value: [name for name in values if values[name] == value] for value in values.values()}
    return "; ".join(f"{value}: {', '.join(f'`{name}`' for name in those)}" for value, those in names.items())


def tables(results: list[dict[str, Any]], rows: dict[str, Row], scale: str) -> str:
    """The figures of the first seed of each cell, as Markdown."""
    first = {(r["row"], r["column"]): r["figures"] for r in reversed(results) if r["seed"] == 0}
    there = [row for row in rows if any((row, density) in first for density in DENSITIES)]

    def line(row: str, value: str, digits: int = 3) -> list[str]:
        cells = [first.get((row, density), {}) for density in DENSITIES]
        known = [f[value] for f in cells if value in f]
        shown = [with_error(f[value], f[value + "_standard_error"], digits) if value in f else "" for f in cells]
        average = f"{mean(known):.{digits}f}" if len(known) == len(cells) else ""
        return [row, *shown, average]

    def published(row: str) -> list[list[str]]:
        figures = PAPER.get(row)
        return [[f"paper: {row}", *[f"{v:.3f}" for v in figures], f"{mean(figures):.3f}"]] if figures else []

    def table(title: str, lines: list[list[str]]) -> str:
        return markdown([title, *DENSITIES, "mean"], lines)

    protocol = [part for row in there for part in (line(row, "mmd"), *published(row))]
    counts = grouped({name: f"{rows[name].repeats} times {rows[name].samples:,}" for name in there})
    many = grouped({name: f"{rows[name].many:,}" for name in there})
    diffusions = {name: row for name, row in rows.items() if name in there and isinstance(row, Sddm)}
    steps = grouped({name: f"{row.sampling_steps} {STEPS[row.sampler]}" for name, row in diffusions.items()})
    return "\n".join(
        [
            f"# Seven densities as 32 bits, {scale} scale\n",
            "MMD x 1e4 between samples and as many fresh points. "
            "The row `data` has fresh points for samples: the noise of the metric.\n",
            f"Sampling: {steps}.\n" if steps else "",
            f"The paper's protocol: mean and standard error over repeats. {counts}.\n",
            table("MMD x 1e4", protocol),
            f"Many samples at once. {many}.\n",
            table("MMD x 1e4", [line(row, "mmd_many") for row in there]),
            f"Distance in the plane of {PLANE_POINTS:,} samples (fewer where fewer were drawn): sum of (p - q)^2 "
            "over 32 x 32 cells, by the sum of q^2; p is the share of the samples in a cell, q that of fresh points.\n",
            table("distance", [line(row, "plane") for row in there if line(row, "plane")[1:] != [""] * 8]),
            "Bound on the negative log-likelihood of fresh points.\n",
            table("nats", [line(row, "nats", 2) for row in there if line(row, "nats")[1:] != [""] * 8]),
            f"Every number comes from `sddm reproduce synthetic --scale {scale}`; a recipe serves all densities.\n",
        ]
    )
