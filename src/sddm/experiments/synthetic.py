"""The seven densities as 32 bits: the paper's Table 1 and its ablation.

One recipe a row, the same for all seven densities. The metric's own noise stands beside every figure: data against
data, by the same protocol. Fresh data for the metric come from a stream of their own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from jaxtyping import Int
from safetensors.torch import load_file
from torch import Tensor

from sddm import _files
from sddm.data import DENSITIES, Toy
from sddm.diffusion import Diffusion
from sddm.experiments.pictures import matrix
from sddm.experiments.runner import Cell, slug
from sddm.experiments.tables import markdown, with_error
from sddm.fit import SCHEDULES
from sddm.likelihood import bound
from sddm.marginals import Energy, Hollow, LeaveOneOut, MarginalModel, Masked
from sddm.metrics import hamming_mmd
from sddm.networks import MLPEnergy
from sddm.processes import Uniform
from sddm.samplers import GRIDS, SAMPLERS, sample
from sddm.training import TrainingConfig, train
from sddm.training.batches import generator_of

UNIT = 1e4
"""MMD^2 is given in units of 1e-4."""
PICTURE_POINTS, SAMPLES = 20_000, "samples.safetensors"

PAPER = {
    "SDDM": (0.096, 0.040, 0.086, 0.150, 0.243, 0.225, 0.162),
    "energy + analytical": (0.250, 0.075, 0.267, 0.037, 0.323, 0.305, 0.383),
    "masked + analytical": (0.143, 0.080, 0.126, 0.064, 0.242, 0.116, 0.345),
    "hollow + analytical": (0.227, 0.052, 0.229, 0.117, 0.049, 0.201, 0.557),
    "energy + euler": (0.199, 0.022, 0.173, 0.095, 0.167, 0.287, 0.211),
    "masked + euler": (0.120, 0.028, 0.204, 0.195, 0.064, 0.086, 0.248),
    "hollow + euler": (0.179, 0.088, 0.077, 0.034, 0.288, 0.281, 0.148),
}
"""The paper's figures by row, in the order of `DENSITIES`."""


@dataclass(frozen=True)
class Recipe:
    """How a row is made: the same for every density."""

    model: str = "energy MLP"
    """A key of `MODELS`."""
    sampler: str = "analytical"
    """A key of `sddm.samplers.SAMPLERS`."""
    schedule: str = "log-square"
    """A key of `sddm.fit.SCHEDULES`."""
    left: float = 0.02
    """Share of the data left at T."""
    steps: int = 9_000
    """Training steps."""
    batch_size: int = 128
    """Rows a step, drawn afresh."""
    learning_rate: float = 5e-3
    """Peak learning rate."""
    num_positions: int | None = 8
    """Positions a row that the loss evaluates."""
    ema: float = 0.999
    """Decay of the averaged weights."""
    sampling_steps: int = 30
    """Steps of the reverse process."""
    grid: str = "time"
    """A key of `sddm.samplers.GRIDS`."""
    samples: int = 4_000
    """Samples of one MMD of the paper's protocol."""
    repeats: int = 10
    """MMDs of the paper's protocol, whose mean is reported."""
    many: int = 100_000
    """Samples of the one large MMD."""
    held_out: int = 1_000
    """Fresh points on which the likelihood bound is estimated."""


def _energy_mlp(process: Uniform, length: int) -> MarginalModel:
    return Energy(MLPEnergy(length, time_scale=10.0, input_gain=4.0))


SIZES: dict[str, Any] = {"width": 64, "layers": 3, "heads": 2, "mlp": 256}
MODELS: dict[str, Any] = {
    "energy MLP": _energy_mlp,
    "energy": lambda process, length: Energy.for_process(process, length, **SIZES),
    "masked": lambda process, length: Masked.for_process(process, length, **SIZES),
    "hollow": lambda process, length: Hollow.for_process(process, length, **SIZES),
    "leave-one-out": lambda process, length: LeaveOneOut.for_process(process, length, **SIZES),
}

SMALL = Recipe()
TRANSFORMER = replace(SMALL, batch_size=64, learning_rate=2e-3, num_positions=None, many=20_000)
ABLATION = {
    "energy": replace(TRANSFORMER, model="energy", steps=6_000, num_positions=2, batch_size=64, many=4_000, repeats=4),
    "masked": replace(TRANSFORMER, model="masked", steps=8_000, num_positions=1, batch_size=256, many=4_000, repeats=4),
    "hollow": replace(TRANSFORMER, model="hollow", steps=4_000),
    "leave-one-out": replace(TRANSFORMER, model="leave-one-out", steps=6_000),
}


def small() -> dict[str, Recipe]:
    """What two CPU cores finish: minutes a cell."""
    rows = {"SDDM": SMALL}
    for sampler in ("analytical", "euler"):
        for name, recipe in ABLATION.items():
            rows[f"{name} + {sampler}"] = replace(recipe, sampler=sampler)
    return rows


def paper() -> dict[str, Recipe]:
    """The paper's number of steps and batch, for a GPU."""
    return {
        name: replace(recipe, steps=300_000, batch_size=128, ema=0.9999, sampling_steps=100, many=100_000, repeats=10)
        for name, recipe in small().items()
    }


SCALES = {"small": small, "paper": paper}


class Synthetic:
    """`sddm reproduce synthetic`."""

    def __init__(self, scale: str) -> None:
        self.name = "synthetic" if scale == "small" else f"synthetic-{scale}"
        self.scale, self.recipes = scale, SCALES[scale]()

    def cells(self) -> list[Cell]:
        return [Cell(row, density) for row in self.recipes for density in DENSITIES]

    def recipe(self, cell: Cell) -> dict[str, Any]:
        return asdict(self.recipes[cell.row])

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        recipe, toy = self.recipes[cell.row], Toy(cell.column)
        model = trained(recipe, toy, seed, folder)
        num = max(recipe.many, recipe.samples * recipe.repeats)
        step = SAMPLERS[recipe.sampler]()
        tokens = sample(
            model,
            num,
            steps=recipe.sampling_steps,
            sampler=step,
            grid=GRIDS[recipe.grid],
            generator=generator_of(seed, "samples", 0),
        )
        figures = measure(tokens, toy, recipe, seed)
        held_out = toy.tokens(recipe.held_out, generator_of(seed, "held out", 0))
        nats = bound(model, held_out, 32, generator=generator_of(seed, "bound", 0)).nats
        figures |= {"nats": float(nats.mean()), "nats_standard_error": float(nats.std() / len(nats) ** 0.5)}
        _files.save_tensors(folder / SAMPLES, {"tokens": tokens[:PICTURE_POINTS].to(torch.uint8)})
        return figures

    def headline(self, figures: dict[str, Any]) -> str:
        return (
            f"MMD x 1e4 {with_error(figures['mmd'], figures['mmd_standard_error'])} "
            f"(data {with_error(figures['data'], figures['data_standard_error'])}), at {figures['many']} samples "
            f"{with_error(figures['mmd_many'], figures['mmd_many_standard_error'])}"
        )

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(results, self.recipes, self.scale))


def picture(experiment: Synthetic, work: Path, path: Path) -> None:
    """Data, and samples of every row that has been run, on every density."""
    rows: dict[str, list[Any]] = {"data": []}
    for density in DENSITIES:
        toy = Toy(density)
        rows["data"].append(toy.decode(toy.tokens(PICTURE_POINTS, generator_of(0, "picture", 0))).numpy())
        for row in experiment.recipes:
            kept = work / slug(f"{row}/{density}-0") / SAMPLES
            points = toy.decode(load_file(kept)["tokens"].long()).numpy() if kept.exists() else None
            rows.setdefault(row, []).append(points)
    shown = {row: clouds for row, clouds in rows.items() if any(points is not None for points in clouds)}
    matrix(list(shown), list(DENSITIES), list(shown.values()), path)


def diffusion(recipe: Recipe, toy: Toy) -> Diffusion:
    process = Uniform(toy.num_states, SCHEDULES[recipe.schedule]).leaving(recipe.left)
    return Diffusion(process, MODELS[recipe.model](process, toy.length))


def trained(recipe: Recipe, toy: Toy, seed: int, folder: Path) -> Diffusion:
    """The model of a cell, trained on a stream of fresh points; goes on from a checkpoint in the folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = diffusion(recipe, toy)
    config = TrainingConfig(
        recipe.steps,
        recipe.batch_size,
        recipe.learning_rate,
        ema=recipe.ema,
        num_positions=recipe.num_positions,
        seed=seed,
        save_every=2_000,
        evaluate_every=10**9,
        keep=1,
    )

    def rows(step: int) -> Int[Tensor, "batch dim"]:
        return toy.tokens(recipe.batch_size, generator_of(seed, "training data", step))

    return train(fresh, rows, config, out=folder, resume=True)


def measure(tokens: Int[Tensor, "num dim"], toy: Toy, recipe: Recipe, seed: int) -> dict[str, Any]:
    """MMD by the paper's protocol and of many samples, each beside data against data, with standard errors."""
    fresh = (generator_of(seed, "fresh data", number) for number in range(10**6))

    def draw(num: int) -> Int[Tensor, "num dim"]:
        return toy.tokens(num, next(fresh))

    pieces = tokens[: recipe.samples * recipe.repeats].split(recipe.samples)
    ours = [hamming_mmd(piece, draw(recipe.samples)).value * UNIT for piece in pieces]
    floor = [hamming_mmd(draw(recipe.samples), draw(recipe.samples)).value * UNIT for _ in pieces]
    large, data = (hamming_mmd(x, draw(recipe.many)) for x in (tokens[: recipe.many], draw(recipe.many)))
    return {
        "mmd": mean(ours),
        "mmd_standard_error": stdev(ours) / len(ours) ** 0.5,
        "data": mean(floor),
        "data_standard_error": stdev(floor) / len(floor) ** 0.5,
        "many": recipe.many,
        "mmd_many": large.value * UNIT,
        "mmd_many_standard_error": large.standard_error * UNIT,
        "data_many": data.value * UNIT,
        "data_many_standard_error": data.standard_error * UNIT,
    }


def _counts(recipes: dict[str, Recipe]) -> str:
    """How many samples each row's figures come from."""
    told = [f"{name}: {r.repeats} times {r.samples:,}, many is {r.many:,}" for name, r in recipes.items()]
    return "; ".join(told) + "."


def tables(results: list[dict[str, Any]], recipes: dict[str, Recipe], scale: str) -> str:
    """The figures of the first seed of each cell, as Markdown."""
    first = {(r["row"], r["column"]): r["figures"] for r in reversed(results) if r["seed"] == 0}
    rows = [row for row in recipes if any((row, density) in first for density in DENSITIES)]

    def line(name: str, row: str, value: str, digits: int = 3) -> list[str]:
        cells = [first.get((row, density)) for density in DENSITIES]
        shown = ["" if f is None else with_error(f[value], f[value + "_standard_error"], digits) for f in cells]
        return [name, *shown]

    def published(row: str) -> list[list[str]]:
        return [[f"paper: {row}", *[f"{value:.3f}" for value in PAPER[row]]]] if row in PAPER else []

    header = ["MMD x 1e4", *DENSITIES]
    protocol = [part for row in rows for part in (line(row, row, "mmd"), *published(row))]
    data = [line("data against data", row, "data") for row in rows[:1]]
    large = [line(row, row, "mmd_many") for row in rows]
    large += [line("data against data", row, "data_many") for row in rows[:1]]
    nats = [line(row, row, "nats", 2) for row in rows]
    command = f"`sddm reproduce synthetic --scale {scale}`"
    return "\n".join(
        [
            f"# Seven densities as 32 bits, {scale} scale\n",
            f"The paper's protocol: samples against as many fresh points; mean, standard error. {_counts(recipes)}\n",
            markdown(header, [*protocol, *data]),
            "Many samples at once:\n",
            markdown(header, large),
            "Bound on the negative log-likelihood of fresh points, nats:\n",
            markdown(["nats", *DENSITIES], nats),
            f"Every number comes from {command}; nothing was chosen for a density alone.\n",
        ]
    )
