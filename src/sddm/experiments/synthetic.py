"""The seven densities as 32 bits: the paper's Table 1 and its ablation. One recipe a row, the same for all densities.

Rows that differ only in sampling share a training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import load_file
from torch import Tensor

from sddm import _files
from sddm.data import DENSITIES, Toy
from sddm.experiments.densities import PLANE_POINTS, Densities, Measured
from sddm.experiments.experiment import SAMPLES, Cell, markdown, slug, with_error
from sddm.experiments.pictures import animation, matrix, strip
from sddm.experiments.systems import Compared, Diffused, Fresh
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.samplers import Trajectory
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of
from sddm.training.loop import MODEL

KEPT = 4_000
"""Samples of a cell that are kept beside the tables."""
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

ENERGY_MLP = Recipe(
    ModelConfig("mlp-energy", "uniform", fading=True, time_scale=10.0, input_gain=4.0, film_blocks=2),
    TrainingConfig(
        steps=2_400,
        batch_size=1_024,
        pool=4_096,
        optimizer="muon",
        learning_rate=5e-3,
        noise_weight=2.0,
        num_positions=8,
        ema_share=0.2,
        evaluate_every=10**9,
        keep=1,
    ),
    SamplingConfig(steps=8, sampler="sweep"),
)
TRANSFORMER = replace(
    ENERGY_MLP.but(training={"batch_size": 256, "learning_rate": 1e-2, "num_positions": None}),
    model=ModelConfig(
        process="uniform", width=32, layers=3, heads=2, mlp=128, time_scale=10.0, input_gain=25.0, film_blocks=1
    ),
)
# A pass predicts one position, not 32. So gradients are noisier, and the learning rate is lower.
MASKED = TRANSFORMER.but(model={"model": "masked"}, training={"steps": 6000, "learning_rate": 4e-3, "num_positions": 1})
ABLATION = {
    "energy": MASKED.but(
        model={"model": "energy", "fading": True}, training={"steps": 800, "batch_size": 192, "num_positions": 4}
    ),
    "masked": MASKED,
    "hollow": TRANSFORMER.but(training={"steps": 1_400}),
    # Its loss is that of x_0, which is of order 1 at all levels of noise.
    "leave-one-out": TRANSFORMER.but(model={"model": "leave-one-out"}, training={"steps": 2_000, "noise_weight": 0.0}),
}
LAZY = {"analytical": "lazy", "euler": "lazy-euler"}
"""The paper's samplers and their lazy versions, which have the same law at a lower cost."""
FEW_STEPS = "SDDM, 20 analytical steps"
"""The models of the row SDDM, sampled with the paper's step."""


def small() -> dict[str, Measured]:
    """What two CPU cores finish: minutes a cell."""
    rows = {
        "data": Measured(Fresh(), many=100_000),
        "PCD": Measured(Compared("PCD", 12_000, 128, {"chains": 500, "decay_steps": 12_000})),
        "ALOE+": Measured(Compared("ALOE+", 4_000, 128, {"dual_width": 512})),
        "EB-GFN": Measured(Compared("EB-GFN", 5_000, 64, {"data_share": 0.5, "decay_steps": 5_000})),
        "SDDM": Measured(Diffused(ENERGY_MLP), many=100_000),
        FEW_STEPS: Measured(Diffused(ENERGY_MLP.but(sampling={"steps": 20, "sampler": "analytical"}))),
    }
    for sampler in LAZY:
        rows |= {f"{name} + {sampler}": _sampled(recipe, sampler) for name, recipe in ABLATION.items()}
    return rows


def _sampled(recipe: Recipe, sampler: str) -> Measured:
    """How a transformer is sampled: lazily and with fewer repeats if each position costs a pass."""
    if recipe.training.num_positions is None:
        return Measured(Diffused(recipe.but(sampling={"sampler": sampler, "steps": 40})))
    steps, repeats = (40, 2) if recipe.model.model == "energy" else (100, 3)
    system = Diffused(recipe.but(sampling={"sampler": LAZY[sampler], "steps": steps}))
    return Measured(system, many=4_000 * repeats, repeats=repeats, held_out=200)


def paper() -> dict[str, Measured]:
    """The paper's number of steps and batch, for a GPU."""
    longer = {"steps": 300_000, "batch_size": 128, "learning_rate": 1e-3, "ema": 0.9999}
    rows = {}
    for name, row in small().items():
        system = row.system
        if isinstance(system, Diffused):
            recipe = system.recipe.but(training=longer, sampling={} if name == FEW_STEPS else {"steps": 100})
            if recipe.model.model != ENERGY_MLP.model.model:
                recipe = recipe.but(model={"width": 128, "heads": 4, "mlp": 512})
            row = replace(row, system=Diffused(recipe), many=100_000, repeats=10)
        elif isinstance(system, Compared):
            settings = {**system.settings, **({"decay_steps": 100_000} if "decay_steps" in system.settings else {})}
            row = replace(row, system=Compared(system.system, 100_000, 128, settings), many=100_000)
        rows[name] = row
    return rows


SCALES = {"small": small, "paper": paper}


class Synthetic(Densities):
    """`sddm reproduce synthetic`: the paper's Table 1 and its ablation."""

    def __init__(self, scale: str) -> None:
        super().__init__("synthetic", scale, SCALES[scale](), list(DENSITIES))

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(results, self.rows, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Data and samples of every row that has been run, and the reverse process of the energy on 2spirals.

        Some samples of each cell are kept beside the tables, so that a picture can be drawn again without the work
        folder. A picture is left unchanged if samples of one of its finished cells are missing.
        """
        finished = [Cell(r["row"], r["column"]) for r in results if r["seed"] == 0 and r["row"] != "data"]
        kept = {cell: folder / "samples" / f"{slug(cell.name)}.npy" for cell in finished}
        for cell, path in kept.items():
            if (whole := work / slug(f"{cell.name}-0") / SAMPLES).exists():
                keep_bits(load_file(whole)["tokens"][:KEPT], path)
        for picture, in_ablation in (("samples", False), ("ablation", True)):
            shown = {c: path for c, path in kept.items() if (c.row.partition(" + ")[0] in ABLATION) == in_ablation}
            if shown and all(path.exists() for path in shown.values()):
                rows = [row for row in self.rows if any(cell.row == row for cell in shown)]
                clouds = [[_points(shown.get(Cell(row, name)), Toy(name)) for name in DENSITIES] for row in rows]
                data = [Toy(name).points(KEPT, generator_of(0, "data in pictures", 0)).numpy() for name in DENSITIES]
                matrix(["data", *rows], list(DENSITIES), [data, *clouds], folder / f"{picture}.png")
        self._reverse("2spirals", work, folder)

    def _reverse(self, density: str, work: Path, folder: Path) -> None:
        system, toy = self.rows["SDDM"].system, Toy(density)
        assert isinstance(system, Diffused)
        trained = work / slug(f"{system.training}/{density}-0")
        if not (trained / MODEL).exists():
            return
        path, generator = Trajectory(), generator_of(0, "picture", 0)
        sampling = replace(system.recipe.sampling, steps=REVERSE_STEPS)
        sampling.sample(system.trained(toy, 0, trained), REVERSE_POINTS, generator=generator, callback=path)
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


def tables(results: list[dict[str, Any]], rows: Mapping[str, Measured], scale: str) -> str:
    """The figures of the first seed of each cell, as Markdown."""
    cells = {(r["row"], r["column"]): r for r in results if r["seed"] == 0}
    first = {place: result["figures"] for place, result in cells.items()}
    there = [row for row in rows if any((row, density) in first for density in DENSITIES)]

    def line(row: str, value: str, digits: int = 3) -> list[str]:
        there = [first.get((row, density), {}) for density in DENSITIES]
        known = [f[value] for f in there if value in f]
        shown = [with_error(f[value], f[value + "_standard_error"], digits) if value in f else "" for f in there]
        average = f"{mean(known):.{digits}f}" if len(known) == len(there) else ""
        return [row, *shown, average]

    def effort(row: str) -> list[str]:
        """For each cell, the rows of data that its training drew, and how long it took."""
        seen = f"{rows[row].system.rows_seen / 1e6:.2f} M, "
        results = [cells.get((row, density)) for density in DENSITIES]
        return [row, *["" if result is None else seen + _duration(result) for result in results]]

    def published(row: str, value: str) -> list[list[str]]:
        figures = PAPER.get(row) if value == "mmd" else None
        return [[f"paper: {row}", *[f"{v:.3f}" for v in figures], f"{mean(figures):.3f}"]] if figures else []

    def table(title: str, value: str, digits: int = 3) -> str:
        lines = [row for name in there for row in (line(name, value, digits), *published(name, value)) if any(row[1:])]
        return markdown([title, *DENSITIES, "mean"], lines)

    counts = grouped({name: f"{rows[name].repeats} times {rows[name].samples:,}" for name in there})
    many = grouped({name: f"{rows[name].many:,}" for name in there})
    recipes = {name: s.recipe for name in there if isinstance(s := rows[name].system, Diffused)}
    steps = grouped({n: f"{r.sampling.steps} {STEPS[r.sampling.sampler or '']}" for n, r in recipes.items()})
    trained = [effort(name) for name in there if rows[name].system.rows_seen]
    return "\n".join(
        [
            f"# Seven densities as 32 bits, {scale} scale\n",
            "MMD x 1e4 between samples and as many fresh points. "
            "The row `data` has fresh points for samples: the noise of the metric.\n",
            f"Sampling: {steps}.\n" if steps else "",
            f"The paper's protocol: mean and standard error over repeats. {counts}.\n",
            table("MMD x 1e4", "mmd"),
            f"Many samples at once. {many}.\n",
            table("MMD x 1e4", "mmd_many"),
            f"Distance in the plane of {PLANE_POINTS:,} samples (fewer where fewer were drawn): sum of (p - q)^2 "
            "over 32 x 32 cells, by the sum of q^2; p is the share of the samples in a cell, q that of fresh points.\n",
            table("distance", "plane"),
            "Bound on the negative log-likelihood of fresh points.\n",
            table("nats", "nats", 2),
            "Millions of rows of data that the training drew, and its seconds on one core; with <=, those of the whole "
            "cell.\n",
            markdown(["rows, seconds", *DENSITIES], trained),
            f"Every number comes from `sddm reproduce synthetic --scale {scale}`; a recipe serves all densities.\n",
        ]
    )


def _duration(result: dict[str, Any]) -> str:
    seconds = result["figures"].get("training_seconds")
    return f"<= {result['seconds']:.0f} s" if seconds is None else f"{seconds:.0f} s"
