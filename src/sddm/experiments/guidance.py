"""Guidance: handwritten digits of a wanted label, by how strongly the model follows the label.

`sddm reproduce guidance` trains one model that is told the labels of some rows, and samples it at several strengths of
guidance; the same model without labels is also guided by a classifier of noised digits. A network that has learnt from
other clean digits says how many samples show what was asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _files
from sddm.conditions import Condition
from sddm.data import Dataset
from sddm.diffusion import Diffusion
from sddm.experiments import guidance_report
from sddm.experiments.corpora import Corpus
from sddm.experiments.digits import DIGITS, of_each_label, parts, wanted
from sddm.experiments.experiment import SAMPLES, Experiment, Row, estimated, slug
from sddm.experiments.recogniser import Recogniser, trained_recogniser
from sddm.experiments.systems import Drawn, Source, System
from sddm.experiments.timed import TimedDiffusion, TimedTraining
from sddm.marginals import Classified
from sddm.metrics import fid
from sddm.metrics.u_statistic import Within
from sddm.networks import Classifier, Places, Sizes
from sddm.noised_classifier import NoisedClassifier
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of
from sddm.training.classifier import ClassifierLearner

TEST_SET = "test digits"
REFERENCE = 4_000
"""Test digits that samples are compared with; the row of test digits holds others."""
GUIDANCE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, -1.0)
STRENGTHS = (1.0, 2.0, 4.0)
"""Of the label, and of the classifier."""


@dataclass(frozen=True)
class HeldOutDigits(System):
    """Rows that no model was trained on."""

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert isinstance(source, Corpus)
        return Drawn(of_each_label(source.test, num))


@dataclass(frozen=True)
class Told(TimedDiffusion):
    """A diffusion that is asked for the wanted labels."""

    def sample(self, model: Any, num: int, seed: int, condition: Condition | None = None) -> Int[Tensor, "num dim"]:
        options = {"condition": condition, "generator": generator_of(seed, "samples", 0)}
        return self.recipe.sampling.sample(model, num, labels=wanted(num, model.model.num_labels), **options)


@dataclass(frozen=True)
class TimedClassifier(TimedTraining):
    """A classifier of digits noised by the process of a model."""

    model: ModelConfig = field(default_factory=ModelConfig)
    sizes: Sizes = field(default_factory=Sizes)
    settings: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def config(self) -> TrainingConfig:
        return self.settings

    def learner(self, source: Corpus, config: TrainingConfig) -> ClassifierLearner:
        process = self.model.build(source.train, config.seed).process
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            places = Places(source.length, self.model.grid)
            network = Classifier(process.num_symbols, source.train.num_labels, places, self.sizes)
        return ClassifierLearner(NoisedClassifier(process, network), config, held_out=source.validation)


@dataclass(frozen=True)
class ByClassifier(Told):
    """The same diffusion, whose labels are left out, guided to the wanted ones by the gradient of a classifier."""

    strength: float = 1.0
    classifier: TimedClassifier = field(default_factory=lambda: TimedClassifier(1.0))

    def trained(self, source: Corpus, seed: int, folder: Path) -> Diffusion:
        made = super().trained(source, seed, folder)
        classifier = self.classifier.trained(source, seed, folder / slug(self.classifier.training))
        guided = Classified(made.model, classifier, self.strength, first_order=True)
        return Diffusion(made.process, guided, made.codec, made.label_names)


@dataclass(frozen=True)
class Sized:
    """The sizes of a scale."""

    side: int
    levels: int
    minutes: float
    """Of training: of the model, and of the classifier of noised digits."""
    minutes_of_classifier: float
    width: int
    layers: int
    steps: int
    """Of sampling."""
    batch: int
    many: int
    """Samples of a row."""
    judge: TrainingConfig
    """The training of the recogniser."""

    def rows(self) -> dict[str, Row]:
        """One training at every strength of guidance, and by the classifier."""
        systems: dict[str, System] = {TEST_SET: HeldOutDigits()}
        for guidance in GUIDANCE:
            recipe = self._recipe(SamplingConfig(guidance=guidance))
            systems[guidance_report.guided(guidance)] = Told(self.minutes, recipe)
        recipe = self._recipe(SamplingConfig(sampler="euler"))
        classifier = self._classifier(recipe.model)
        for strength in STRENGTHS:
            by = ByClassifier(self.minutes, recipe, strength, classifier)
            systems[guidance_report.classified(strength)] = by
        return {name: Row(system, self.many) for name, system in systems.items()}

    def _recipe(self, sampling: SamplingConfig) -> Recipe:
        model = ModelConfig(
            "leave-one-out",
            "absorbing",
            width=self.width,
            layers=self.layers,
            film_blocks=0,
            grid=(self.side, self.side),
            labels=True,
        )
        return Recipe(model, self._training, replace(sampling, steps=self.steps))

    def _classifier(self, model: ModelConfig) -> TimedClassifier:
        width = self.width // 2
        sizes = Sizes(width, max(1, self.layers - 1), max(1, width // 32), 4 * width)
        return TimedClassifier(self.minutes_of_classifier, model, sizes, self._training)

    @property
    def _training(self) -> TrainingConfig:
        return TrainingConfig(batch_size=self.batch, optimizer="muon", learning_rate=5e-3)


JUDGE = TrainingConfig(steps=1_500, batch_size=128, learning_rate=2e-3, save_every=500, keep=1)
SCALES = {
    "small": Sized(14, 4, 25.0, 5.0, 128, 3, 50, 32, 500, JUDGE),
    "paper": Sized(28, 16, 2_880.0, 240.0, 384, 8, 200, 128, 4_000, replace(JUDGE, steps=10_000)),
}


class Guidance(Experiment[Row]):
    """`sddm reproduce guidance`: how many samples show the wanted digit, and how varied they are."""

    family = "guidance"

    def __init__(self, scale: str) -> None:
        self.sized = SCALES[scale]
        super().__init__("guidance", scale, self.sized.rows(), [DIGITS])

    def source(self, column: str) -> Corpus:
        return parts(self.sized.side, self.sized.levels).corpus

    def run(self, cell: Any, seed: int, folder: Path) -> dict[str, Any]:
        apart = parts(self.sized.side, self.sized.levels).apart
        self.recogniser = trained_recogniser(apart, self.sized.judge, folder.parent / "recogniser")
        return super().run(cell, seed, folder)

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        """The share of samples that are recognised, how varied they are, and how far their features are from data's."""
        assert isinstance(source, Corpus)
        labels = wanted(len(drawn.tokens), source.test.num_labels)
        data = of_each_label(source.test, REFERENCE, skipped=row.many)
        seen, features = self.recogniser.judged(drawn.tokens)
        distance = fid(features, self.recogniser.judged(data)[1])
        made, of_data = spread(drawn.tokens, labels), spread(data, wanted(len(data), source.test.num_labels))
        return {
            **estimated("recognised", (seen == labels).double()),
            "spread": made.value / of_data.value,
            "spread_standard_error": made.standard_error / of_data.value,
            "frechet": distance.value,
            "frechet_standard_error": distance.standard_error,
            "frechet_corrected": distance.corrected,
            "recogniser_accuracy": accuracy(self.recogniser, source.test),
            "parameters": sum(p.numel() for p in drawn.model.parameters()) if isinstance(drawn.model, Diffusion) else 0,
        }

    def headline(self, figures: dict[str, Any]) -> str:
        return f"{figures['recognised']:.1%} recognised, spread {figures['spread']:.3f}"

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", guidance_report.table(results, self.sized, self.scale, REFERENCE))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Figures against the strength of guidance, and a sheet with a line of digits for each row."""
        guidance_report.curve(results, folder / "curve.png")
        data, lines = self.source(DIGITS).test, {}
        names = data.label_names or []
        for row in self.rows:
            made = work / slug(f"{row}/{DIGITS}-0") / SAMPLES
            if made.exists():
                lines[row] = np.asarray(data.codec.decode(_files.load_tensors(made)[1]["tokens"][: len(names)]))
        guidance_report.digits(lines, names, folder / "digits.png")


class Spread(NamedTuple):
    """The mean distance between two rows of one label."""

    value: float
    standard_error: float


def spread(tokens: Int[Tensor, "num dim"], labels: Int[Tensor, "num"]) -> Spread:
    """The mean over labels of the mean share of positions in which two rows of the label differ."""
    pairs = []
    for label in labels.unique():
        rows = tokens[labels == label]
        distances = torch.stack([(rows != row).double().mean(1) for row in rows])
        pairs.append(Within(distances.sum(1), distances.square().sum()))
    error = math.sqrt(sum(of_label.variance for of_label in pairs)) / len(pairs)
    return Spread(mean(of_label.mean for of_label in pairs), error)


def accuracy(recogniser: Recogniser, data: Dataset) -> float:
    """The share of rows whose label is recognised."""
    assert data.labels is not None
    return float((recogniser.judged(data.tokens[:])[0] == data.labels).double().mean())
