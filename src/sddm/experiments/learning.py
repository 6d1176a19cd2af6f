"""What minutes of training give on real data: nats of rows never seen, and what people care about in samples.

`sddm reproduce learning` compares whole recipes with the left-to-right model, and `sddm reproduce objectives` compares
objectives on one network; all rows of a column train for the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from jaxtyping import Float64, Int
from safetensors.torch import load_file
from torch import Tensor, nn

from sddm import _files
from sddm.baselines import Autoregressive
from sddm.diffusion import Diffusion
from sddm.experiments.corpora import CORPORA, Corpus, corpus
from sddm.experiments.experiment import SAMPLES, Cell, Experiment, Row, estimated, markdown, slug, with_error
from sddm.experiments.pictures import progress_curves
from sddm.experiments.systems import Drawn, Source
from sddm.experiments.timed import LeftToRight, Timed, TimedDiffusion
from sddm.likelihood import bound, in_order
from sddm.metrics import MoleculeQuality, draw_molecules
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of

BOUND_ROWS, BOUND_TIMES = 250, 16
"""Rows of the bound, and times at which each is evaluated."""
SAMPLED, FEW_SAMPLES = 1_000, 16
"""Samples of a cell whose samples are measured, and of one whose samples are only kept to be looked at."""
MUON = TrainingConfig(optimizer="muon", learning_rate=5e-3)
SMALLER = "ordered hollow, width 64"
"""A row for the smallest of the data sets alone."""
LONGER = {"molecules-200k": 15 / 4, "alarm": 1 / 4}
"""Columns with more or less time than the others, as a multiple."""


class Learning(Experiment[Row]):
    """`sddm reproduce learning`: recipes beside the left-to-right model."""

    family = "learning"

    def __init__(self, scale: str) -> None:
        rows = {name: Row(system, SAMPLED) for name, system in recipes(8 if scale == "small" else 480).items()}
        super().__init__("learning", scale, rows, CORPORA)

    @property
    def drawn(self) -> Sequence[str]:
        """Rows whose molecules are drawn."""
        return list(self.rows)

    def source(self, column: str) -> Corpus:
        return corpus(column)

    def cells(self) -> list[Cell]:
        return [cell for cell in super().cells() if cell.row != SMALLER or cell.column == "alarm"]

    def recipe(self, cell: Cell) -> Timed:
        """The row's system with the column's minutes."""
        system = self.rows[cell.row].system
        assert isinstance(system, Timed)
        return system.lasting(LONGER.get(cell.column, 1) * system.minutes)

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        system, source = self.recipe(cell), self.source(cell.column)
        training = folder.parent / slug(f"{system.training}/{cell.column}-{seed}")
        drawn = system.draw(source, SAMPLED if _of_molecules(cell.column) else FEW_SAMPLES, seed, training)
        folder.mkdir(parents=True, exist_ok=True)
        _files.save_tensors(folder / SAMPLES, {"tokens": drawn.tokens})
        curve = [list(point) for point in system.curve(training, source.length)]
        return {
            **self.measure(drawn, source, self.rows[cell.row], seed),
            "training_seconds": drawn.training_seconds,
            "rows_seen": curve[-1][1] if curve else 0,
            "parameters": sum(p.numel() for p in drawn.model.parameters()) if isinstance(drawn.model, nn.Module) else 0,
            "curve": curve,
        }

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        """Nats of the rows to report on, exact and by the bound as far as the model has them; qualities of samples."""
        assert isinstance(source, Corpus)
        test = source.test.tokens[:]
        figures: dict[str, Any] = {"marks": source.marks}
        if (exact := _exact(drawn.model, test)) is not None:
            figures |= estimated("exact", exact)
            if source.log_prob is not None:
                figures |= estimated("exact_kl", exact + source.log_prob(test))
        if isinstance(drawn.model, Diffusion):
            some = test[:BOUND_ROWS]
            nats = bound(drawn.model, some, BOUND_TIMES, generator=generator_of(seed, "bound", 0)).nats.cpu()
            figures |= estimated("bound", nats)
            if source.log_prob is not None:
                figures |= estimated("bound_kl", nats + source.log_prob(some))
        if _of_molecules(source.name):
            quality = MoleculeQuality(source.train.codec.decode(source.train.tokens[:20_000]))  # type: ignore[arg-type]
            made = quality.measure(source.train.codec.decode(drawn.tokens))  # type: ignore[arg-type]
            figures |= made._asdict()
        return figures

    def headline(self, figures: dict[str, Any]) -> str:
        kinds = [f"{kind} {figures[kind]:.2f}" for kind in ("exact", "bound") if kind in figures]
        valid = [f"{figures['valid']:.1%} valid"] if "valid" in figures else []
        return ", ".join([*kinds, *valid])

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(results, self.rows, self.columns, self.name, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        for column in self.columns:
            lines = {r["row"]: r["figures"]["curve"] for r in results if r["column"] == column and r["seed"] == 0}
            if lines:
                progress_curves(lines, f"nats a held-out row of {column}", folder / f"{slug(column)}.png")
        for row in self.drawn:
            made = work / slug(f"{row}/molecules-0") / SAMPLES
            if made.exists():
                lines_of = corpus("molecules").train.codec.decode(load_file(made)["tokens"])
                draw_molecules(lines_of, folder / f"{slug(row)}-molecules.png")  # type: ignore[arg-type]


def recipes(minutes: float) -> dict[str, Timed]:
    """The left-to-right model, trained as usual and by our optimizer, and diffusions."""
    ordered = ModelConfig(process="absorbing", ordered=True, width=128, layers=3, film_blocks=0)
    independent = replace(ordered, ordered=False)
    usual = ModelConfig(process="uniform", width=128, layers=3, film_blocks=2)
    cross_entropy, sampling = replace(MUON, loss="x0-cross-entropy"), SamplingConfig(steps=64)
    return {
        "left to right, AdamW": LeftToRight(minutes, settings=TrainingConfig(learning_rate=2e-3)),
        "left to right, Muon": LeftToRight(minutes, settings=MUON),
        "ordered hollow": TimedDiffusion(minutes, Recipe(ordered, MUON)),
        SMALLER: TimedDiffusion(minutes, Recipe(replace(ordered, width=64, layers=2), replace(MUON, in_order=0.9))),
        "hollow, absorbing": TimedDiffusion(minutes, Recipe(independent, cross_entropy, sampling)),
        "hollow, uniform, AdamW": TimedDiffusion(minutes, Recipe(usual, TrainingConfig(learning_rate=1e-3), sampling)),
    }


OBJECTIVES = {
    "absorbing": (
        "ratio-matching",
        "conditional-ratio-matching",
        "x0-cross-entropy",
        "ct-elbo",
        "score-entropy",
        "mdlm",
    ),
    "uniform": ("ratio-matching", "conditional-ratio-matching", "x0-cross-entropy", "ct-elbo", "score-entropy", "udlm"),
}


class Objectives(Learning):
    """`sddm reproduce objectives`: one small hollow transformer, trained by every objective for the same time."""

    def __init__(self, scale: str) -> None:
        minutes = 0.5 if scale == "small" else 60.0
        rows = {
            f"{loss}, {process}": Row(
                TimedDiffusion(
                    minutes,
                    Recipe(
                        ModelConfig(process=process, width=64, layers=2, film_blocks=1),
                        replace(MUON, loss=loss),
                        SamplingConfig(steps=64),
                    ),
                ),
                SAMPLED,
            )
            for process, losses in OBJECTIVES.items()
            for loss in losses
        }
        Experiment.__init__(self, "learning/objectives", scale, rows, ["molecules"])

    @property
    def drawn(self) -> Sequence[str]:
        return []  # after so short a training, hardly any sample is a molecule


def _of_molecules(column: str) -> bool:
    return column.startswith("molecules")


def _exact(model: Any, rows: Int[Tensor, "num dim"]) -> Float64[Tensor, "num"] | None:
    if isinstance(model, Autoregressive):
        return -model.log_prob(rows).cpu()
    return in_order(model, rows).cpu() if isinstance(model, Diffusion) and model.model.ordered else None


def tables(
    results: list[dict[str, Any]], rows: Mapping[str, Row], columns: Sequence[str], name: str, scale: str
) -> str:
    """A table for each column; over several trainings, the mean and the standard error over these."""
    parts = [f"# {name}, {scale} scale\n"]
    for column in columns:
        cells = {row: [r for r in results if (r["row"], r["column"]) == (row, column)] for row in rows}
        cells = {row: found for row, found in cells.items() if found}
        if not cells:
            continue
        kl, molecules = column == "alarm", _of_molecules(column)
        header = ["row", "trainings", "seconds of one core", "rows seen", "nats a row, exact", "nats a row, bound"]
        header += ["KL from the law"] if kl else ["bits a character"]
        header += ["valid", "unique", "novel"] if molecules else []
        lines = []
        for row, found in cells.items():
            figures = [r["figures"] for r in found]
            seconds = mean(f["training_seconds"] for f in figures)
            seen = mean(f["rows_seen"] for f in figures)
            best = "exact" if "exact" in figures[0] else "bound"
            line = [row, str(len(found)), f"{seconds:.0f}", f"{seen:,.0f}"]
            line += [_shown(figures, "exact"), _shown(figures, "bound")]
            per_mark = 1 / (figures[0]["marks"] * math.log(2))
            line += [_shown(figures, f"{best}_kl") if kl else _shown(figures, best, per_mark)]
            if molecules:
                line += [_shown(figures, "valid"), *(f"{mean(f[k] for f in figures):.3f}" for k in ("unique", "novel"))]
            lines.append(line)
        parts += [f"## {column}\n", markdown(header, lines)]
    command = f"`sddm reproduce {'objectives' if 'objectives' in name else 'learning'} --scale {scale}`"
    parts.append(f"From {command}. Errors are over rows or samples or, with several trainings, over these.\n")
    return "\n".join(parts)


def _shown(figures: Sequence[dict[str, Any]], name: str, factor: float = 1.0) -> str:
    if name not in figures[0]:
        return ""
    values = [factor * f[name] for f in figures]
    if len(values) > 1:
        return with_error(mean(values), stdev(values) / len(values) ** 0.5)
    error = figures[0].get(f"{name}_standard_error", figures[0].get(f"{name}_error", math.nan))
    return with_error(values[0], factor * error)
