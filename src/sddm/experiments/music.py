"""Music: what follows the first 32 steps of a melody, by SDDM and by the systems that it is compared with.

`sddm reproduce music` fills the paper's Table 3 with the tunes of music21's corpus, all systems on the same rows, sizes
and minutes of training. `sddm reproduce music-steps` completes by the same models in 10 to 500 evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _files
from sddm.baselines import Autoregressive
from sddm.baselines.tauldr import recipe as tauldr
from sddm.codecs import Notes
from sddm.conditions import Condition
from sddm.data.leaks import leaks
from sddm.experiments.corpora import Corpus, corpus
from sddm.experiments.experiment import Cell, Experiment, Row, slug
from sddm.experiments.music_report import (
    FIRST,
    MUSICAL,
    Gallery,
    Setting,
    bits_curves,
    by_sampler,
    table_of_steps,
    tables,
)
from sddm.experiments.pictures import curves, progress_curves
from sddm.experiments.systems import Drawn, Source
from sddm.experiments.timed import LeftToRight, Timed, TimedD3PM, TimedDiffusion
from sddm.likelihood import in_order
from sddm.metrics import compare, hellinger, outlier_fraction
from sddm.metrics.scores import MUSIC
from sddm.networks import Sizes
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of

SHOWN = 3
"""Completions in a picture."""
GIVEN, RUNS = 32, 5
"""Steps that are given, and completions of each test row, as in the paper."""
TUNES, FEWER, SCORED, TIMES = 60, 24, 100, 16
"""Test rows that are completed (fewer where the number of evaluations varies), and rows whose bound is taken at so many
times, in the small setting."""


@dataclass(frozen=True)
class Sized:
    """What all systems have in common."""

    minutes: float
    width: int
    layers: int
    steps: int
    """Evaluations of the network in sampling, without those of correctors."""
    batch: int = 64

    @property
    def training(self) -> TrainingConfig:
        return TrainingConfig(batch_size=self.batch, optimizer="muon", learning_rate=5e-3, known=f"prefix:{GIVEN}")

    def diffusion(self, model: ModelConfig, sampling: SamplingConfig, **training: Any) -> TimedDiffusion:
        model = replace(model, width=self.width, layers=self.layers, film_blocks=0)
        settings = replace(self.training, **training)
        steps = None if sampling.sampler == "in-order" else self.steps  # in order, a step for each position
        return TimedDiffusion(self.minutes, Recipe(model, settings, replace(sampling, steps=steps)))

    def tauldr(self, process: str, rounds: int) -> TimedDiffusion:
        """With its own process, loss, times and sampler; the optimizer is that of all rows."""
        known = tauldr(Notes().num_states, process, rounds)
        own = {"loss": known.training.loss, "times": known.training.times}
        return self.diffusion(known.model, known.sampling, **own)

    def systems(self) -> dict[str, Timed]:
        """The rows of the table."""
        paper = ModelConfig("hollow", "uniform", "constant")
        analytical = SamplingConfig(sampler="analytical")
        sizes = Sizes(self.width, self.layers, max(1, self.width // 32), 4 * self.width)
        d3pm = ModelConfig("leave-one-out", "uniform", width=self.width, layers=self.layers, film_blocks=0)
        return {
            FIRST: self.diffusion(paper, analytical),
            "SDDM, schedule 1 - sqrt(cos)": self.diffusion(replace(paper, schedule="sqrt-cosine"), analytical),
            "SDDM, leave-one-out, 1 - sqrt(cos)": self.diffusion(
                replace(paper, model="leave-one-out", schedule="sqrt-cosine"), analytical
            ),
            "SDDM, ordered": self.diffusion(
                ModelConfig("hollow", "absorbing", ordered=True), SamplingConfig(sampler="in-order")
            ),
            "tauLDR-0 birth-death": self.tauldr("birth-death", 0),
            "tauLDR-0 uniform": self.tauldr("uniform", 0),
            "tauLDR-2 uniform": self.tauldr("uniform", 2),
            "D3PM uniform": TimedD3PM(self.minutes, d3pm, self.training, taken=self.steps),
            "left to right": LeftToRight(self.minutes, sizes, replace(self.training, known=None)),
        }


SCALES = {"small": Sized(10.0, 128, 2, 100, batch=32), "paper": Sized(2_880.0, 256, 6, 1_000)}


class Music(Experiment[Row]):
    """`sddm reproduce music`: completions of melodies, beside the paper's Table 3."""

    family = "music"
    runs, scored = RUNS, SCORED

    def __init__(self, scale: str) -> None:
        rows = {name: Row(system, TUNES) for name, system in SCALES[scale].systems().items()}
        super().__init__("music", scale, rows, ["melodies"])

    def source(self, column: str) -> Corpus:
        return corpus(column)

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        row, source = self.rows[cell.row], self.source(cell.column)
        system = row.system
        assert isinstance(system, Timed)
        training = folder.parent / slug(f"{system.training}/{cell.column}-{seed}")
        model = system.trained(source, seed, training)
        truth = source.test.tokens[: row.many].repeat_interleave(self.runs, dim=0)
        tokens = system.sample(model, len(truth), seed, given(truth))
        folder.mkdir(parents=True, exist_ok=True)
        _files.save_tensors(folder / "completions.safetensors", {"tokens": tokens, "truth": truth})
        return {
            **self.measure(Drawn(tokens, model=model), source, row, seed),
            "parameters": sum(p.numel() for p in model.parameters()),
            "curve": [list(point) for point in system.curve(training, source.length)],
        }

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        """The paper's two metrics for each row, what a musician would ask, and the bits of a note of unseen rows."""
        assert isinstance(source, Corpus)
        codec, truth = source.test.codec, source.test.tokens[: len(drawn.tokens) // self.runs]
        repeated = truth.repeat_interleave(self.runs, dim=0)
        distance = hellinger(drawn.tokens, repeated, source.num_states).view(-1, self.runs)
        outliers = outlier_fraction(drawn.tokens, repeated).view(-1, self.runs)
        figures: dict[str, Any] = {
            "hellinger": distance.mean(1).tolist(),
            "outliers": outliers.mean(1).tolist(),
            "groups": tunes(source, len(truth)).tolist(),
            "runs": {"hellinger": distance.mean(0).tolist(), "outliers": outliers.mean(0).tolist()},
            "leaks": str(leaks(source.train, source.test)),
        }
        for figure in compare(drawn.tokens, source.test.tokens[:], codec):
            figures[figure.name] = figure.value
        if self.scored:
            nats = nats_of(drawn.model, source.test.tokens[: self.scored], seed)
            bits = nats / (math.log(2) * (source.length - GIVEN))
            figures |= {"bits": float(bits.mean()), "bits_standard_error": float(bits.std() / len(bits) ** 0.5)}
        return figures

    def headline(self, figures: dict[str, Any]) -> str:
        return f"Hellinger {mean(figures['hellinger']):.4f}, outliers {mean(figures['outliers']):.4f}"

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        test, half = self.source("melodies").test, slice(None, None, 2)
        others = test.tokens[1:][half]
        of_data = {name: MUSIC[name].measure(test.tokens[half], others, test.codec) for name in MUSICAL}
        _files.write_text(folder / "tables.md", tables(results, list(self.rows), self.setting, of_data))

    @property
    def setting(self) -> Setting:
        """What the words of the tables need to know."""
        systems = {name: row.system for name, row in self.rows.items()}
        exact = (name for name, s in systems.items() if isinstance(s, TimedDiffusion) and s.recipe.model.ordered)
        whole = (name for name, s in systems.items() if isinstance(s, LeftToRight))
        return Setting(self.name, self.scale, GIVEN, self.runs, self.scored, frozenset(exact), frozenset(whole))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Piano rolls of a beginning, the truth and completions, MIDI files of them, and the loss of trainings."""
        found = {r["row"]: r["figures"] for r in results if r["seed"] == 0}
        if lines := bits_curves(found, self.setting):
            progress_curves(lines, "bits a note of held-out melodies", folder / "loss.png")
        for row in self.rows:
            made = work / slug(f"{row}/melodies-0") / "completions.safetensors"
            if made.exists():
                tokens, truth = (_files.load_tensors(made)[1][name] for name in ("tokens", "truth"))
                gallery = Gallery(
                    folder / slug(row) / "completions.png", self.runs, SHOWN, "tune", "truth", "completion"
                )
                gallery.show(self.source("melodies").test.codec, tokens, truth, given(truth[:1]).mask[0])


class MusicSteps(Music):
    """`sddm reproduce music-steps`: how near completions come in 10 to 500 evaluations, by sampler."""

    runs, scored = 1, 0
    steps = (10, 20, 50, 100, 200, 500)

    def __init__(self, scale: str) -> None:
        systems = SCALES[scale].systems()
        rows = {}
        for name, system in sampled(systems).items():
            for steps in self.steps:
                rows[f"{name}, {steps} evaluations"] = Row(with_steps(system, steps), FEWER)
        Experiment.__init__(self, "music/steps", scale, rows, ["melodies"])

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", table_of_steps(results, self.steps, FEWER, self.setting))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        lines = {
            name: [(float(n), *value) for n, value in points.items()] for name, points in by_sampler(results).items()
        }
        if lines:
            curves(lines, None, ("evaluations of the network", "Hellinger distance"), folder / "curve.png")


def sampled(systems: Mapping[str, Timed]) -> dict[str, Timed]:
    """The models of the table with each of the samplers."""
    found: dict[str, Timed] = {"D3PM": systems["D3PM uniform"]}
    for row, samplers in ((FIRST, ("euler", "analytical", "tau-leaping")), ("tauLDR-0 uniform", ("tauldr",))):
        system = systems[row]
        assert isinstance(system, TimedDiffusion)
        for sampler in samplers:
            for rounds in (0, 1):
                recipe = system.recipe.but(sampling={"sampler": sampler, "corrector": rounds})
                name = f"{row}, {sampler}" + ", corrected" * rounds
                found[name] = replace(system, recipe=recipe)
    return found


def with_steps(system: Timed, evaluations: int) -> Timed:
    """The same system with this many evaluations of the network; a corrector round takes one of them."""
    if isinstance(system, TimedD3PM):
        return replace(system, taken=evaluations)
    assert isinstance(system, TimedDiffusion)
    steps = evaluations // (1 + system.recipe.sampling.corrector)
    return replace(system, recipe=system.recipe.but(sampling={"steps": steps}))


def given(rows: Int[Tensor, "num dim"]) -> Condition:
    """The first steps of each row."""
    return Condition((torch.arange(rows.shape[1]) < GIVEN).expand_as(rows), rows)


def tunes(source: Corpus, num: int) -> Int[Tensor, "num"]:
    """The tune of each of the first test rows."""
    return torch.arange(num) if source.test.groups is None else source.test.groups[:num]


def nats_of(model: Any, rows: Int[Tensor, "num dim"], seed: int) -> Float64[Tensor, "num"]:
    """The nats of what follows the given steps: exact if the model has them, and otherwise its bound."""
    condition = given(rows)
    if isinstance(model, Autoregressive):
        with torch.inference_mode():
            return model.surprise(rows)[:, GIVEN:].double().sum(1).clone()
    if model.model.ordered:
        return in_order(model, rows, given=condition.mask)
    generator = generator_of(seed, "bound", 0)
    bound = model.bound(rows, TIMES, given=condition.mask, generator=generator, batch_size=64)
    return torch.as_tensor(bound.nats)
