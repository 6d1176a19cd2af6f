"""Which sampler is best with few evaluations of a trained network: melodies, molecules and image codes.

`sddm reproduce samplers-trained`. The same model serves all ways of sampling in a column. Its errors are in all figures
of the column, so ways are compared with each other, and the floor says what as many rows of the data have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sddm import _files
from sddm.experiments import images, music
from sddm.experiments.corpora import Corpus, corpus
from sddm.experiments.experiment import Cell, Experiment, Row, with_error
from sddm.experiments.learning import recipes
from sddm.experiments.sample_quality import KINDS, Quality
from sddm.experiments.sampler_report import FLOOR, Point, curves, tables
from sddm.experiments.systems import Drawn, Source, System
from sddm.experiments.timed import TimedDiffusion
from sddm.experiments.tokenized import TOKENIZERS
from sddm.experiments.ways import DEFAULT, WAYS, counted
from sddm.recipe import ModelConfig, Recipe
from sddm.samplers import sample
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of
from sddm.training.diffusion import DiffusionLearner

EVALUATIONS = (8, 16, 32)
USUAL = 100
"""Steps of the default, if no number is given."""
CODES = "image codes"
NOISES = ("uniform", "absorbing")
MINUTES = {"small": 5.0, "paper": 480.0}
MANY = {
    "small": {"melodies": 48, "molecules": 150, CODES: 200},
    "paper": {"melodies": 2_000, "molecules": 10_000, CODES: 5_000},
}
"""Samples of a cell."""
BY_INCEPTION = (DEFAULT, "analytical, pilot grid", "trapezoidal")
"""Ways whose samples of image codes are measured by Inception features as well, under uniform noise."""
ONE_EACH = {"first hitting": ("molecules", CODES)}
"""Ways that ask for one position after the other, and the columns in which that is affordable."""
BATCH, PILOT_SHARE, PILOT_ROUNDS = 32, 4, 3
"""Samples drawn at once; one pilot sample for so many samples, and how often it improves a grid."""


@dataclass(frozen=True)
class Unwatched(TimedDiffusion):
    """A diffusion whose loss on held-out rows is not taken on the way, which would double the time."""

    def learner(self, source: Corpus, config: TrainingConfig) -> DiffusionLearner:
        return DiffusionLearner(self.recipe.model.build(source.train, config.seed), config)


@dataclass(frozen=True)
class Sampled(System):
    """Samples of a trained model in a way, with so many evaluations of the network."""

    way: str
    evaluations: int | None
    """None: as many as there are positions."""
    model: TimedDiffusion | None = None
    """What is sampled, which depends on the column."""

    @property
    def training(self) -> str:
        assert self.model is not None
        return self.model.training

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert self.model is not None
        assert isinstance(source, Corpus)
        diffusion = self.model.trained(source, seed, folder)
        evaluations, pilots = self.evaluations or source.length, max(2, num // PILOT_SHARE)
        options = WAYS[self.way].options(diffusion, evaluations, pilots, PILOT_ROUNDS) | {"batch_size": BATCH}
        with counted(diffusion) as count:
            tokens = sample(diffusion, num, generator=generator_of(seed, "samples", 0), **options)
        return Drawn(tokens, model=diffusion, evaluations=count.rows / num)


@dataclass(frozen=True)
class OtherData(System):
    """Rows of the data that are not among those of the comparison."""

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert isinstance(source, Corpus)
        rows = torch.randperm(len(source.validation), generator=generator_of(seed, "data as samples", 0))
        return Drawn(source.validation.tokens[rows[:num]])


@dataclass(frozen=True)
class Judged(Row):
    """Samples, and whether they are measured by Inception features as well."""

    inception: bool = False


class TrainedSamplers(Experiment[Judged]):
    """`sddm reproduce samplers-trained`: distance from held-out data against evaluations of the network."""

    family = "samplers-trained"

    def __init__(self, scale: str) -> None:
        rows: dict[str, System] = {FLOOR: OtherData()}
        for way in WAYS:
            if way in ONE_EACH:
                rows[way] = Sampled(way, None)
            elif way != "in order":  # which is for models that were trained for it
                rows |= {f"{way}, {number} evaluations": Sampled(way, number) for number in EVALUATIONS}
        rows[f"{DEFAULT}, {USUAL} evaluations"] = Sampled(DEFAULT, USUAL)
        self.models, self.many = models(scale), MANY[scale]
        self._qualities: dict[str, Quality] = {}
        super().__init__(
            "samplers/trained", scale, {name: Judged(system, 0) for name, system in rows.items()}, list(self.models)
        )

    def source(self, column: str) -> Corpus:
        kind = kind_of(column)
        found = TOKENIZERS[self.scale].corpus() if kind == CODES else corpus(kind)
        return replace(found, name=kind)

    def row(self, cell: Cell) -> Judged:
        """With the model, the number of samples and the figures of the column."""
        system, inception = self.rows[cell.row].system, False
        if isinstance(system, Sampled):
            inception = cell.column == f"{CODES}, uniform" and system.way in BY_INCEPTION
            system = replace(system, model=self.models[cell.column])
        return Judged(system, self.many[kind_of(cell.column)], inception)

    def cells(self) -> list[Cell]:
        """A column after the other, so that what is known of its data is computed once."""
        return [Cell(row, column) for column in self.columns for row in self.rows if self._makes_sense(row, column)]

    def _makes_sense(self, row: str, column: str) -> bool:
        system = self.rows[row].system
        if not isinstance(system, Sampled):
            return True
        affordable = system.way not in ONE_EACH or kind_of(column) in ONE_EACH[system.way]
        return affordable and (column.endswith("absorbing") or not WAYS[system.way].masked)

    def measure(self, drawn: Drawn, source: Source, row: Judged, seed: int) -> dict[str, Any]:
        assert isinstance(source, Corpus)
        if source.name not in self._qualities:
            self._qualities[source.name] = KINDS[source.name](source)
        quality = self._qualities[source.name]
        found = quality.measure(drawn.tokens) | (quality.slowly(drawn.tokens) if row.inception else {})
        figures: dict[str, Any] = {name: value for name, (value, _) in found.items()}
        figures |= {f"{name}_standard_error": error for name, (_, error) in found.items()}
        return figures if drawn.evaluations is None else figures | {"evaluations": drawn.evaluations}

    def headline(self, figures: dict[str, Any]) -> str:
        names = [name for name in figures if f"{name}_standard_error" in figures]
        return ", ".join(f"{name} {with_error(figures[name], figures[f'{name}_standard_error'])}" for name in names)

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(self._points(results), self.many, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        curves(self._points(results), folder / "curves.png")

    def _points(self, results: list[dict[str, Any]]) -> list[Point]:
        systems = {name: row.system for name, row in self.rows.items()}
        return [
            Point(r["column"], system.way, system.evaluations, r["figures"])
            if isinstance(system := systems[r["row"]], Sampled)
            else Point(r["column"], FLOOR, None, r["figures"])
            for r in results
            if r["seed"] == 0
        ]


def kind_of(column: str) -> str:
    return column.rpartition(", ")[0]


def models(scale: str) -> dict[str, TimedDiffusion]:
    """What is trained for each column: hollow transformers, at the sizes of the experiments on the same data."""
    molecules = recipes(MINUTES[scale])["hollow, absorbing"]
    assert isinstance(molecules, TimedDiffusion)
    found = {"molecules": molecules.recipe}
    for kind, sized, grid in (("melodies", music.SCALES[scale], None), (CODES, images.SCALES[scale], images.GRID)):
        model = ModelConfig(width=sized.width, layers=sized.layers, film_blocks=0, grid=grid)
        found[kind] = Recipe(model, replace(sized.training, known=None))
    return {
        f"{kind}, {noise}": Unwatched(MINUTES[scale], found[kind].but(model={"process": noise}))
        for kind in KINDS
        for noise in NOISES
    }
