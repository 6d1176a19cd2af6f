"""sddm train-tokenizer: from pictures to a network that turns them into a few tokens, and back."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from sddm.commands import runs
from sddm.commands.runs import Flat
from sddm.data import Reading, load
from sddm.errors import StoppedError
from sddm.tokenizers import VQGAN, Perceptual
from sddm.tokenizers.config import TokenizerConfig
from sddm.tokenizers.learner import fresh, pixels_of, train_tokenizer
from sddm.training.descent import share_of
from sddm.training.devices import accelerator, check_alike, claimed, on_main
from sddm.training.heartbeat import noticing_lost_processes


@dataclass(frozen=True)
class TrainTokenizerCommand:
    """Train a tokenizer of your pictures: a VQGAN, which turns each patch of 4 x 4 pixels into one of 512 codes.

    Everything that the run leaves is in one folder: the tokenizer, checkpoints, sheets of held-out pictures above their
    reconstructions, metrics.jsonl, and run.json with all options. `sddm encode` makes tokens with it.
    """

    data: str
    """Pictures: a folder of them, an .npy array of uint8 (num, height, width, channels), or the name of a published
    set. Height and width are multiples of a patch's."""
    out: Path = Path("runs/tokenizer")
    """Folder of the run."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the run in --out after its newest checkpoint. Other options are those it was started with; a few, such
    as --steps and --save-every, may be given anew."""
    held_out: float = 0.1
    """Share of the pictures that is not trained on, for the error of their reconstructions."""
    perceptual: Path | None = None
    """The weights of VGG16 (.safetensors, or a state dict in .pth), for a loss that measures what the eye sees. Without
    a file that loss is off."""
    reading: Annotated[Reading, Flat] = field(default_factory=Reading)
    training: Annotated[TokenizerConfig, Flat] = field(default_factory=TokenizerConfig)


def run(command: TrainTokenizerCommand) -> None:
    training, folder = command.training, command.out
    data = load(command.data, seed=training.seed, **command.reading.given)
    pixels = pixels_of(data)
    tokenizer = fresh(data, training)
    rows, apart = data.split(command.held_out, training.seed)
    perceptual = None if command.perceptual is None else Perceptual.from_file(command.perceptual)
    runs.check_folder(folder)
    job, fingerprint = accelerator(), data.fingerprint()
    share_of(training.batch_size, job.num_processes, 1)

    def begin() -> None:
        runs.begin(folder, command, fingerprint, data, tokenizer)
        grid = tokenizer.sizes.grid(pixels.height, pixels.width)
        parameters = sum(weight.numel() for weight in tokenizer.parameters())
        lines = [data.report] * bool(data.report)
        lines += ["No --perceptual file: the loss by VGG16 is off."] * (perceptual is None)
        lines += [
            f"{data.name}: {len(rows):,} pictures to train on and {len(apart):,} held out, of {pixels.height} x "
            f"{pixels.width} pixels; {grid[0]} x {grid[1]} codes each, one of {tokenizer.sizes.codes}.",
            f"VQGAN with {parameters:,} parameters, {training.steps:,} steps of {training.batch_size} pictures. "
            f"Folder: {folder}",
        ]
        print("\n".join(lines), file=sys.stderr)

    with noticing_lost_processes(), claimed(job, folder):
        check_alike(job, {"data": fingerprint})
        on_main(job, begin)
        try:
            train_tokenizer(
                rows,
                training,
                perceptual=perceptual,
                held_out=apart,
                out=folder,
                resume=command.resume,
                fingerprint=fingerprint,
            )
        except StoppedError as stop:
            raise StoppedError(f"{stop} Go on with --resume.", stop.signal) from stop
    if job.is_main_process:
        print(f"Done. Codes: sddm encode {folder} --data {command.data} --out codes", file=sys.stderr)


def resumed(folder: Path) -> TrainTokenizerCommand:
    """The options with which the run in a folder was started, to go on with."""
    options = runs.recorded(folder, VQGAN)["options"]
    training, reading = TokenizerConfig(**options["training"]), runs.reading(options)
    perceptual = None if options["perceptual"] is None else Path(options["perceptual"])
    return TrainTokenizerCommand(options["data"], folder, False, options["held_out"], perceptual, reading, training)
