"""sddm evaluate: how well a trained model knows data that it was not trained on."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from jaxtyping import Int
from torch import Tensor

from sddm import _checks, _files
from sddm.commands import runs
from sddm.commands.runs import Flat
from sddm.data import Dataset, Reading, load
from sddm.diffusion import Diffusion
from sddm.likelihood import REPLICATES, bound, check_times, in_order
from sddm.metrics import Figure, compare, left_out, text_figures
from sddm.samplers import sample
from sddm.training.batches import generator_of
from sddm.training.config import MAX_SEED

MOST = {"num_times": 10_000, "samples": 1_000_000, "steps": 1_000_000, "seed": MAX_SEED}
"""Numbers above which a typing error is more likely than intent, or memory does not suffice."""
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


def run(command: EvaluateCommand) -> dict[str, Any]:
    if command.out is not None:
        runs.check_file_place(command.out)
    diffusion = runs.trained(command.run).to("cuda" if torch.cuda.is_available() else "cpu")
    training, data = _data(command)
    _checks.require(len(data) >= 2, "There is one row to score, but an error bar needs two. Name more with --data.")
    every = max(1, len(data) // command.rows)
    rows = _taken(data, slice(0, every * command.rows, every), diffusion).to(diffusion.device)
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
    known = None if training is None else _taken(training, slice(COMPARED // data.length), diffusion)
    for figure in text_figures(scores, rows, diffusion.codec or data.codec, known):
        figures |= figure.saved()
        print(f"{figure} ({scored})")
    if command.samples:
        figures["samples"] = command.samples
        for figure in _compare(command, diffusion, data, known):
            figures |= figure.saved()
            print(f"{figure} ({command.samples} samples)")
    if command.out is not None:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        _files.write_json(command.out, figures)
        print(f"Figures in {command.out}", file=sys.stderr)
    return figures


def _compare(command: EvaluateCommand, diffusion: Diffusion, data: Dataset, known: Tensor | None) -> list[Figure]:
    tokens = _taken(data, slice(max(command.samples, COMPARED // data.length)), diffusion)
    generator = generator_of(command.seed, "samples", 0)
    labels = _labels(data, torch.randint(len(data), (command.samples,), generator=generator), diffusion)
    length = tokens.shape[1] if diffusion.lengths is None else None
    options: dict[str, Any] = {"steps": command.steps, "length": length, "labels": labels}
    made = sample(diffusion, command.samples, generator=generator, **options).cpu()
    codec = diffusion.codec or data.codec
    for note in left_out(made, tokens, codec):
        print(note, file=sys.stderr)
    return compare(made, tokens, codec, known)


def _data(command: EvaluateCommand) -> tuple[Dataset | None, Dataset]:
    """The training rows and the held-out rows of the run, or all rows of another file."""
    folder = Path(command.run)
    if command.data is not None:
        return None, load(command.data, seed=command.seed + 1_000_000, **command.reading.given)
    if not (folder / runs.RUN_FILE).is_file():
        raise ValueError("data must be given with --data: this model does not know what was held out.")
    value = runs.recorded(folder)
    options = value["options"]
    seed = options["training"]["seed"]
    data = load(options["data"], seed=seed, **runs.reading(options).given)
    if data.fingerprint() != value["data"]["fingerprint"]:
        raise ValueError(f"{options['data']!r} is not what it was when the run was started. Name the data with --data.")
    return data.split(options["held_out"], seed)


def _labels(data: Dataset, rows: Int[Tensor, "rows"], diffusion: Diffusion) -> Int[Tensor, "rows"] | None:
    """The labels of some rows, if both the data and the model know labels."""
    if data.labels is None or not diffusion.model.num_labels:
        return None
    return data.labels[rows].to(diffusion.device)


def _taken(data: Dataset, rows: slice, diffusion: Diffusion) -> torch.Tensor:
    """Some rows of the data in the tokens of this model."""
    codec, length = diffusion.codec or data.codec, diffusion.length or data.length
    tokens = codec.padded_to(codec.translated(data.tokens[rows], data.codec, data.name), length)
    _checks.require(
        tokens.shape[1] == length,
        f"{data.name} has {tokens.shape[1]} positions a row, but the model was built for {length}. "
        "Name data of that length with --data, or the length of music and of texts with --window.",
    )
    return tokens
