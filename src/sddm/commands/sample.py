"""sddm sample: from a trained model to a file of samples, in parts, so that a long job can go on."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import tyro
from torch import Tensor
from tqdm import tqdm

from sddm import _checks, _files
from sddm.commands import runs
from sddm.conditions import Condition
from sddm.data import MAX_LENGTH
from sddm.data.decoders import Decoder, Integers
from sddm.data.text import readable
from sddm.diffusion import Diffusion
from sddm.randomness import draw_seeds
from sddm.samplers import GRIDS, SAMPLERS, Corrector, ReverseStep, sample
from sddm.samplers.grids import check_grid
from sddm.training.config import MAX_SEED
from sddm.training.devices import accelerator, noticing_lost_processes

SETTINGS = "settings.json"
MOST = {"num": 10_000_000, "steps": 1_000_000, "corrector": 1_000, "seed": MAX_SEED, "length": MAX_LENGTH}
"""Numbers beyond which a slip of the finger is likelier than a wish, or memory ends."""
MILD = 1e6
"""Temperatures and factors beyond this, or below its inverse, change nothing more until they overflow."""


@dataclass(frozen=True)
class SampleCommand:
    """Generate samples from a trained model.

    The same seed gives the same samples, whatever the batch size and the number of processes. A job that was
    interrupted goes on where it stopped when the same command is given again.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run or of a saved model, or a repository of the hub."""
    num: int = 16
    """How many samples."""
    steps: int = 100
    """Steps of the reverse process."""
    sampler: Literal["euler", "analytical", "sweep", "lazy", "lazy-euler", "tau-leaping", "exact"] | None = None
    """How to step; analytical wherever the model and the process allow it, else euler."""
    grid: Literal["time", "log-share", "share"] = "share"
    """How the steps are spaced: equal in time, in the logarithm of the data's share that is left, or in that share."""
    corrector: int = 0
    """Rounds of correction after each step."""
    corrector_factor: float = 1.0
    """Length of a round of correction, as a multiple of the step's."""
    temperature: float = 1.0
    """Below 1, likely values become likelier; above 1, all become more alike."""
    seed: int = 0
    """Seed of the samples."""
    condition: Path | None = None
    """A file with what is known of the samples and blanks elsewhere: one row for all samples, or a row for each. Blank
    is -1 in arrays, '_' in lines of text, an empty field in tables."""
    prefix: str | None = None
    """The beginning of every sample: text, or numbers separated by commas."""
    length: int | None = None
    """Number of positions, for a model that takes any."""
    out: Path | None = None
    """File for the samples; its ending chooses the format (.npy, .txt, .csv, .parquet, .png for toys). Printed if not
    given."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the file if it exists."""
    batch_size: int = 256
    """Samples generated at once; each batch is kept on the disk until the job is done."""

    def __post_init__(self) -> None:
        for name, least in (("num", 1), ("steps", 1), ("batch_size", 1), ("seed", 0), ("corrector", 0), ("length", 1)):
            if getattr(self, name) is not None:
                _checks.whole(getattr(self, name), name, least, MOST.get(name))
        for name in ("temperature", "corrector_factor"):
            value = _checks.positive(getattr(self, name), name)
            _checks.require(
                1 / MILD <= value <= MILD, f"{name} must lie between {1 / MILD:g} and {MILD:g}, but it is {value:g}."
            )
        _checks.require(self.condition is None or self.prefix is None, "Give --condition or --prefix, not both.")


def run(command: SampleCommand) -> None:
    diffusion = runs.trained(command.run)
    decoder = diffusion.decoder or Integers(diffusion.process.num_states)
    step = None if command.sampler is None else SAMPLERS[command.sampler]()
    if step is not None:
        step.check(diffusion)
    length = _length(command, diffusion)
    times = check_grid(GRIDS[command.grid](diffusion.process, command.steps))
    condition = _condition(command, diffusion, decoder, length)
    if command.out is not None:
        decoder.check_ending(command.out)
        runs.check_file_place(command.out)
        _checks.require(
            command.overwrite or not command.out.exists(),
            f"{str(command.out)!r} exists. Name another file, or pass --overwrite.",
        )
    processes = accelerator()
    with noticing_lost_processes(processes.num_processes):
        diffusion = diffusion.to(processes.device)
        parts = _Parts(command, diffusion)
        if processes.is_main_process:
            parts.open()
        processes.wait_for_everyone()
        mine = [rows for i, rows in enumerate(parts.rows()) if i % processes.num_processes == processes.process_index]
        try:
            _generate(command, diffusion, step, times, condition, parts, mine, quiet=not processes.is_main_process)
        except BaseException:
            if processes.is_main_process and not parts.begun():
                parts.close()
            raise
        processes.wait_for_everyone()
    if processes.is_main_process:
        tokens = parts.joined()
        if command.out is None:
            _print(decoder, tokens)
        else:
            command.out.parent.mkdir(parents=True, exist_ok=True)
            with _files.replacing(command.out) as aside:
                decoder.write(tokens, aside)
            print(f"{command.num} samples in {command.out}", file=sys.stderr)
        parts.close()


class _Parts:
    """The batches of a job, each in a file of its own until all are there."""

    def __init__(self, command: SampleCommand, diffusion: Diffusion) -> None:
        settings = {k: str(v) for k, v in asdict(command).items() if k not in ("out", "overwrite")}
        weights = hashlib.blake2b(digest_size=16)
        for name, value in diffusion.state_dict().items():
            weights.update(name.encode())
            weights.update(value.cpu().contiguous().numpy().tobytes())
        self.settings = {**settings, "weights": weights.hexdigest()}
        self.num, self.size = command.num, command.batch_size
        name = hashlib.blake2b(json.dumps(self.settings).encode(), digest_size=8).hexdigest()
        near = command.out if command.out is not None else Path(tempfile.gettempdir()) / "sddm-samples"
        self.folder = near.with_name(f"{near.name}.{name}.parts")

    def open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _files.remove_leftovers(self.folder)
        _files.write_json(self.folder / SETTINGS, self.settings)

    def rows(self) -> list[slice]:
        return [slice(first, min(first + self.size, self.num)) for first in range(0, self.num, self.size)]

    def path(self, rows: slice) -> Path:
        return self.folder / f"rows-{rows.start:09d}-{rows.stop:09d}.npy"

    def begun(self) -> bool:
        """Whether a batch is there, to go on from."""
        return any(self.folder.glob("rows-*"))

    def joined(self) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([np.load(self.path(rows), allow_pickle=False) for rows in self.rows()]))

    def close(self) -> None:
        shutil.rmtree(self.folder)


def _generate(
    command: SampleCommand,
    diffusion: Diffusion,
    step: ReverseStep | None,
    times: Tensor,
    condition: Condition | None,
    parts: _Parts,
    mine: list[slice],
    quiet: bool,
) -> None:
    seeds = draw_seeds(command.num, torch.Generator().manual_seed(command.seed))
    corrector = Corrector(command.corrector, command.corrector_factor) if command.corrector else None
    alone = len(mine) == 1
    hidden = quiet or alone or not sys.stderr.isatty()
    for rows in tqdm(mine, desc="sampling", unit="batch", leave=False, disable=hidden):
        if parts.path(rows).exists():
            continue
        tokens = sample(
            diffusion,
            rows.stop - rows.start,
            sampler=step,
            corrector=corrector,
            condition=None if condition is None else condition.rows(rows),
            grid=times,
            length=command.length,
            temperature=command.temperature,
            seeds=seeds[rows],
            progress=None if alone and not quiet else False,
        )
        with _files.replacing(parts.path(rows)) as aside:
            np.save(aside, tokens.cpu().numpy())


def _length(command: SampleCommand, diffusion: Diffusion) -> int:
    length = command.length or diffusion.length
    if length is None:
        raise ValueError("length must be given: this model takes sequences of any length. Pass --length.")
    _checks.require(
        diffusion.length in (None, length),
        f"length is {length}, but the model was built for {diffusion.length} positions. Leave out --length.",
    )
    return length


def _condition(command: SampleCommand, diffusion: Diffusion, decoder: Decoder, length: int) -> Condition | None:
    if command.condition is None and command.prefix is None:
        return None
    if command.condition is not None:
        readable(command.condition, "Name a file with what is known of the samples.")
        known = decoder.read_condition(command.condition, length)
    else:
        known = decoder.read_prefix(command.prefix or "", length)
    if known.shape[0] == 1:
        known = known[0]
    condition = Condition.from_blanks(known)
    condition.for_samples(command.num, length, diffusion.process.num_states)
    return condition


def _print(decoder: Decoder, tokens: torch.Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"samples{decoder.text_ending}"
        decoder.write(tokens, path)
        sys.stdout.write(path.read_text(encoding="utf-8"))
