"""sddm evaluate: how well a trained model knows data that it was not trained on."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
import tyro
from jaxtyping import Int
from torch import Tensor

from sddm import _checks, _files
from sddm.codecs import Codec
from sddm.commands import runs
from sddm.commands.runs import Flat
from sddm.commands.translated import translated
from sddm.data import Dataset, Reading, load
from sddm.diffusion import Diffusion
from sddm.likelihood import REPLICATES, bound, check_times, in_order
from sddm.metrics import Figure, compare, left_out, text_figures
from sddm.report import ENDINGS, LEAST_ROWS, measured, of_table, target_of, write_report
from sddm.samplers import sample
from sddm.training.batches import generator_of
from sddm.training.config import MAX_SEED

if TYPE_CHECKING:
    from sddm.codecs import Columns

MOST = {"num_times": 10_000, "samples": 1_000_000, "steps": 1_000_000, "seed": MAX_SEED}
"""Numbers above which a typing error is more likely than intent, or memory does not suffice."""
Tokens = Int[Tensor, "num dim"]
COMPARED = 10_000_000
"""How many tokens of the data enter the comparison with samples, if there are fewer samples."""


@dataclass(frozen=True)
class EvaluateCommand:
    """Score a trained model: likelihood bound, and its samples against data.

    A model that was trained with labels is scored on rows given their labels, if the data have some.

    The error of the bound is that of the rows as a sample of all data.
    Without --data the held-out rows of the run are used, which the model has not been trained on.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run or of a saved model, or a repository of the hub."""
    data: str | None = None
    """A file or a toy to score on; with a saved model, which has no held-out rows, it is needed."""
    rows: int = 500
    """At most this many rows enter the bound."""
    num_times: int = 32
    """Times at which the bound is evaluated for each row (a multiple of 8)."""
    samples: int = 1_000
    """How many samples to compare with the data; 0 for none."""
    steps: int | None = None
    """Steps of the reverse process for these samples: 100 if not given, or for an ordered model one a position."""
    seed: int = 0
    """Seed of the times, the noise and the samples."""
    out: Path | None = None
    """A .json file for the figures."""
    report: Path | None = None
    """A .html or .png file for a report on the samples of a model of a table, beside data against data: columns, pairs,
    what tells samples from data, what they are good for, and distances to training rows."""
    target: str | None = None
    """The column that the report predicts from the others; the last one of at most 20 values unless given."""
    reading: Annotated[Reading, Flat] = field(default_factory=Reading)

    def __post_init__(self) -> None:
        for name, least in (("rows", 2), ("num_times", REPLICATES), ("samples", 0), ("steps", 1), ("seed", 0)):
            if getattr(self, name) is not None:
                _checks.whole(getattr(self, name), name, least, MOST.get(name))
        check_times(self.num_times)
        if 0 < self.samples < 4:
            raise ValueError(f"samples must be 0 or at least 4, but it is {self.samples}.")
        _checks.require(
            self.data is not None or not self.reading.given,
            f"Options such as {', '.join(self.reading.given)} say how a file is read. Name the file with --data.",
        )
        if self.out is not None and self.out.suffix != ".json":
            raise ValueError(f"out must end in .json, but it is {str(self.out)!r}.")
        if self.report is None:
            _checks.require(self.target is None, "target is a column of a report. Name a file with --report.")
            return
        if self.report.suffix not in ENDINGS:
            raise ValueError(f"report must end in {' or '.join(ENDINGS)}, but it is {str(self.report)!r}.")
        _checks.require(
            self.samples >= LEAST_ROWS,
            f"A report needs at least {LEAST_ROWS} samples, but samples is {self.samples}. Raise --samples.",
        )


def run(command: EvaluateCommand) -> dict[str, Any]:
    for path in (command.out, command.report):
        if path is not None:
            runs.check_file_place(path)
    diffusion = runs.trained(command.run).to("cuda" if torch.cuda.is_available() else "cpu")
    train, data = _data(command, diffusion)
    known = None if train is None else translated(train, slice(COMPARED // data.length), diffusion)
    reported = None if command.report is None else _reported(command, diffusion, known, data)
    _checks.require(len(data) >= 2, "There is one row to score, but an error bar needs two. Name more with --data.")
    every = max(1, len(data) // command.rows)
    rows = translated(data, slice(0, every * command.rows, every), diffusion).to(diffusion.device)
    labels = _labels(data, torch.arange(0, every * command.rows, every)[: len(rows)], diffusion)
    generator = generator_of(command.seed, "bound", 0)
    estimate = bound(diffusion, rows, command.num_times, labels=labels, generator=generator)
    scores, per_bit = estimate.nats, float(estimate.free.double().mean()) * math.log(2)
    bits = (scores / per_bit).cpu()  # their spread holds both: that of the rows, and the error of each row's estimate
    score = Figure("bits_per_dim", "bound on held-out data", float(bits.mean()), float(bits.std() / len(bits) ** 0.5))
    figures: dict[str, Any] = {**score.saved(), "nats_per_row": float(scores.mean()), "rows": len(rows)}
    scored = f"{len(rows)} rows" + (", given their labels" if labels is not None else "")
    print(f"{score} bits per dimension ({scored})")
    if diffusion.model.ordered:
        scores = in_order(diffusion, rows, labels=labels)
        exact = (scores / per_bit).cpu()
        spread = float(exact.std() / len(exact) ** 0.5)
        score = Figure("bits_per_dim_in_order", "exact on held-out data, left to right", float(exact.mean()), spread)
        figures |= score.saved()
        print(f"{score} bits per dimension ({scored})")
    for figure in text_figures(scores, rows, diffusion.codec or data.codec, known):
        figures |= figure.saved()
        print(f"{figure} ({scored})")
    if command.samples:
        figures["samples"] = command.samples
        made, tokens = _drawn(command, diffusion, data)
        for figure in _compare(made, tokens, diffusion.codec or data.codec, known):
            figures |= figure.saved()
            print(f"{figure} ({command.samples} samples)")
        if reported is not None:
            figures["report"] = _report(command, reported, made, tokens)
    if command.out is not None:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        _files.write_json(command.out, figures)
        print(f"Figures in {command.out}", file=sys.stderr)
    return figures


def _drawn(command: EvaluateCommand, diffusion: Diffusion, data: Dataset) -> tuple[Tokens, Tokens]:
    """Samples, and the data that they are compared with."""
    tokens = translated(data, slice(max(command.samples, COMPARED // data.length)), diffusion)
    generator = generator_of(command.seed, "samples", 0)
    labels = _labels(data, torch.randint(len(data), (command.samples,), generator=generator), diffusion)
    length = tokens.shape[1] if diffusion.lengths is None else None
    options: dict[str, Any] = {"steps": command.steps, "length": length, "labels": labels}
    return sample(diffusion, command.samples, generator=generator, **options).cpu(), tokens


def _compare(made: Tokens, tokens: Tokens, codec: Codec, known: Tokens | None) -> list[Figure]:
    for note in left_out(made, tokens, codec):
        print(note, file=sys.stderr)
    return compare(made, tokens, codec, known)


class _Reported(NamedTuple):
    """What a report needs beside samples and held-out rows."""

    codec: Columns
    train: Tokens
    target: int


def _reported(command: EvaluateCommand, diffusion: Diffusion, known: Tokens | None, data: Dataset) -> _Reported:
    """Check that there can be a report, before any work is done."""
    codec = of_table(diffusion.codec or data.codec)
    if known is None:
        raise ValueError(
            f"A report needs the rows that the model was trained on, but {command.run!r} is not the folder of a run. "
            "Name the folder that `sddm train` printed."
        )
    target = target_of(codec, command.target)
    _checks.require(
        len(data) >= LEAST_ROWS,
        f"A report needs at least {LEAST_ROWS} held-out rows, but there are {len(data)}. Name more data with --data.",
    )
    return _Reported(codec, known, target)


def _report(command: EvaluateCommand, reported: _Reported, made: Tokens, held_out: Tokens) -> dict[str, Any]:
    """Measure, print and write the report."""
    assert command.report is not None
    found = measured(made, reported.train, held_out, reported.codec, reported.target, command.seed)
    for figure in found.figures:
        print(figure)
    write_report(found, f"Samples of {command.run} beside data", command.report)
    print(f"Report in {command.report}", file=sys.stderr)
    return found.saved()


def _data(command: EvaluateCommand, diffusion: Diffusion) -> tuple[Dataset | None, Dataset]:
    """The training rows of the run, where they are needed, and its held-out rows or all rows of another file."""
    folder, train = Path(command.run), None
    if (folder / runs.RUN_FILE).is_file() and (command.data is None or command.report is not None):
        value = runs.recorded(folder)
        options = value["options"]
        seed = options["training"]["seed"]
        data = load(options["data"], seed=seed, **runs.reading(options).given)
        if data.fingerprint() != value["data"]["fingerprint"]:
            raise ValueError(
                f"{options['data']!r} is not what it was when the run was started. Name the data with --data."
            )
        train, data = data.split(options["held_out"], seed)
    elif command.data is None:
        raise ValueError("data must be given with --data: this model does not know what was held out.")
    if command.data is not None:
        data = load(command.data, seed=command.seed + 1_000_000, like=diffusion.codec, **command.reading.given)
    return train, data


def _labels(data: Dataset, rows: Int[Tensor, "rows"], diffusion: Diffusion) -> Int[Tensor, "rows"] | None:
    """The labels of some rows, if both the data and the model know labels: by their names, if they have names."""
    if data.labels is None or not diffusion.model.num_labels:
        return None
    labels, own, names = data.labels[rows], diffusion.label_names, data.label_names
    if own is not None and names is not None and own != names:
        strange = [names[label] for label in labels.unique().tolist() if names[label] not in own]
        _checks.require(
            not strange,
            f"{data.name} has the labels {_checks.shown(strange)}, but the model knows {_checks.shown(own)}. Name "
            "data with these.",
        )
        labels = torch.tensor([own.index(names[label]) for label in labels.tolist()])
    return labels.to(diffusion.device)
