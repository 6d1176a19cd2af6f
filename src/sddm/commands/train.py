"""sddm train: from a file to a model."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from sddm import _checks
from sddm.commands import runs
from sddm.commands.runs import Flat
from sddm.data import Reading, load
from sddm.data.leaks import overlap
from sddm.errors import StoppedError
from sddm.fit import few_positions
from sddm.recipe import ModelConfig, suited
from sddm.training import TrainingConfig, train
from sddm.training.descent import share_of
from sddm.training.devices import accelerator, check_alike, claimed, on_main
from sddm.training.diffusion import check_config, measured
from sddm.training.heartbeat import noticing_lost_processes
from sddm.training.pace import checked_minutes, spoken, steps_in


@dataclass(frozen=True)
class TrainCommand:
    """Train a model of your data.

    States and length come from the data, the sizes of the model from how much there is. Everything that the run
    leaves is in one folder: the model, checkpoints, early samples, metrics.jsonl, and run.json with all options.
    """

    data: str
    """A file (.npy, .npz, .txt, .csv, .parquet, .mid), a folder of .txt or .mid files or of pictures, a .zip, or the
    name of a toy: 2spirals, 8gaussians, circles, moons, pinwheel, swissroll, checkerboard. The published sets
    molecules, moby-dick, tunes, alarm, insurance, child, hailfinder, cifar10, cifar10-test, digits and digits-test are
    downloaded once, by pip or npm; melodies and chorales are parsed once. An array has a sample a row (num, dim), or is
    of pictures (num, height, width, channels), a text has a sample a line (or see --window), a table a header.
    Sub-folders of pictures are labels, and so is the array `labels` of an .npz file."""
    out: Path | None = None
    """Folder of the run; runs/NAME for data called NAME if not given."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the run in --out after its newest checkpoint. Other options are those it was started with; a few, such
    as --steps and --save-every, may be given anew."""
    minutes: float | None = None
    """Train for about so many minutes, instead of a number of steps. How many fit in is measured before."""
    held_out: float = 0.1
    """Share of the rows that is not trained on: for the held-out loss, the likelihood bound, and `sddm evaluate`."""
    reading: Annotated[Reading, Flat] = field(default_factory=Reading)
    architecture: Annotated[ModelConfig, Flat] = field(default_factory=ModelConfig)
    training: Annotated[TrainingConfig, Flat] = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if self.minutes is not None:
            checked_minutes(self.minutes)

    def folder(self) -> Path:
        return self.out or Path("runs") / Path(self.data).stem


def run(command: TrainCommand) -> None:
    seed = command.training.seed
    data = load(command.data, seed=seed, **command.reading.given)
    rows, apart = data.split(command.held_out, seed)
    architecture, training = suited(command.architecture, command.training, rows)
    command = replace(command, architecture=architecture, training=training)
    diffusion = architecture.build(rows, seed)
    training = few_positions(diffusion, training)
    check_config(training, diffusion, data.length)
    share_of(training.batch_size, int(os.environ.get("WORLD_SIZE", "1")), training.accumulate)
    folder = command.folder()
    runs.check_folder(folder)
    job = accelerator()
    fingerprint = data.fingerprint()
    goes_on = command.resume and (folder / runs.RUN_FILE).exists()
    if goes_on:
        _check_minutes(command.minutes, folder)

    def begin() -> None:
        runs.begin(folder, command, fingerprint, data, diffusion)
        for line in (data.report, overlap(rows, apart)):
            if line:
                print(line, file=sys.stderr)
        parameters = sum(p.numel() for p in diffusion.parameters())
        told = f", {data.num_labels} labels" if diffusion.model.num_labels else ""
        print(
            f"{data.name}: {len(rows):,} rows to train on and {len(apart):,} held out, {data.length} positions, "
            f"{data.num_states} states{told}.\n{command.architecture.model} model with {parameters:,} parameters, "
            f"{training.steps:,} steps of {training.batch_size} rows. Folder: {folder}",
            file=sys.stderr,
        )

    with noticing_lost_processes(), claimed(job, folder):
        check_alike(job, {"data": fingerprint})
        cost = None
        if command.minutes is not None and not goes_on:
            cost = measured(diffusion, rows, training, apart)
            steps = steps_in(command.minutes, cost, training.evaluate_every).steps
            training = replace(training, steps=steps)
            command = replace(command, training=replace(command.training, steps=steps))
        on_main(job, begin)
        if not goes_on:  # a run that goes on soon says how long the rest will take
            cost = cost or measured(diffusion, rows, training, apart, training.steps // 20)
            seconds = cost.seconds(training.steps, training.evaluate_every)
            on_main(job, lambda: print(_announced(seconds, cost.step, command.minutes), file=sys.stderr))
        try:
            train(diffusion, rows, training, held_out=apart, out=folder, resume=command.resume, fingerprint=fingerprint)
        except StoppedError as stop:
            raise StoppedError(f"{stop} Go on with --resume.", stop.signal) from stop
    if job.is_main_process:
        codec = rows.codec
        out = "" if codec.text_ending else f" --out samples{'' if codec.single else codec.default_ending}"
        print(f"Done. Samples: sddm sample {folder} --num 16{out}. Score: sddm evaluate {folder}", file=sys.stderr)


def resumed(folder: Path) -> TrainCommand:
    """The options with which the run in a folder was started, to go on with."""
    options = runs.recorded(folder)["options"]
    sizes = options.pop("architecture")
    grid = sizes.pop("grid", None)
    sizes.setdefault("labels", False)  # older versions told no model of labels
    architecture = ModelConfig(**sizes, grid=None if grid is None else (grid[0], grid[1]))
    training, reading = TrainingConfig(**options.pop("training")), runs.reading(options)
    minutes, held_out = options.get("minutes"), options["held_out"]
    return TrainCommand(options["data"], folder, False, minutes, held_out, reading, architecture, training)


def _check_minutes(minutes: float | None, folder: Path) -> None:
    """Check that a run that goes on is not asked for another time: its learning rate follows its number of steps."""
    options = runs.recorded(folder)["options"]
    _checks.require(
        minutes == options.get("minutes"),
        f"minutes is {minutes}, but the run in {str(folder)!r} was started with {options.get('minutes')}, and "
        f"keeps its {options['training']['steps']} steps. Leave it out, or make the run longer with --steps.",
    )


def _announced(whole: float, step: float, minutes: float | None) -> str:
    """How long the training will take."""
    limit = "as --minutes asks" if minutes is not None else "--minutes limits it"
    return f"About {spoken(whole)} on this machine, by {1_000 * step:.3g} ms a step ({limit})."
