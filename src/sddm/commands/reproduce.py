"""sddm reproduce: the paper's tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sddm import _checks
from sddm.errors import StoppedError
from sddm.experiments import EXPERIMENTS
from sddm.experiments.runner import reproduce


@dataclass(frozen=True)
class ReproduceCommand:
    """Fill a table of the paper, cell by cell.

    Finished cells are kept: a second call goes on where the first one stopped, in the middle of a training if need be.
    Results are JSON, Markdown tables and pictures in the folder --out.
    """

    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="|".join(EXPERIMENTS))]
    """synthetic: the tables of the seven densities; steps and training: the distance of its energy row from the data,
    by number of sampling steps and by time of training; learning, objectives and orders: recipes, losses and orders of
    sampling on real sequences; samplers and samplers-trained: every sampler by the number of evaluations, of a known
    law and of trained models; tables: how far systems are from the known laws of tables, also of rare combinations;
    music and music-steps: completions of melodies by several systems; chorales: one model that harmonises, fills and
    completes; images and images-steps: pictures, by their codes and by their pixels; guidance: digits of a wanted
    label, by how strongly the model follows it."""
    scale: Literal["small", "paper"] = "small"
    """small: what two CPU cores finish, minutes a cell; paper: the paper's sizes and steps, for a GPU."""
    cells: tuple[str, ...] = ()
    """Only these: names of rows or columns, or patterns such as 'SDDM/*' and '*/moons'."""
    repeats: int = 1
    """Independent trainings a cell, each with its own seed."""
    out: Path = Path("results")
    """Folder for the results."""
    work: Path = Path("runs/reproduce")
    """Folder for checkpoints and samples on the way."""

    def __post_init__(self) -> None:
        if self.experiment not in EXPERIMENTS:
            raise ValueError(f"There is no experiment {self.experiment!r}. Choose one of {', '.join(EXPERIMENTS)}.")
        _checks.whole(self.repeats, "repeats", 1, 1_000)


def run(command: ReproduceCommand) -> None:
    experiment = EXPERIMENTS[command.experiment](command.scale)
    work = command.work / f"{experiment.family}-{command.scale}"
    try:
        reproduce(experiment, command.out, work, command.cells, command.repeats)
    except StoppedError as stop:
        raise StoppedError(f"{stop} The same command goes on from there.", stop.signal) from stop
