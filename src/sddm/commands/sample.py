"""sddm sample: from a trained model to a file of samples, in parts, so that a long job can go on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from tqdm import tqdm

from sddm import _checks, _files
from sddm.codecs import BLANK, MAX_LENGTH, Codec, Integers
from sddm.commands import runs
from sddm.commands.runs import Flat
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.errors import BadCheckpointError
from sddm.formats.text import readable
from sddm.randomness import draw_seeds
from sddm.recipe import SamplingConfig
from sddm.training.config import MAX_SEED
from sddm.training.devices import accelerator, claimed
from sddm.training.heartbeat import noticing_lost_processes

MOST = {"num": 10_000_000, "seed": MAX_SEED, "length": MAX_LENGTH}
"""Numbers above which a typing error is more likely than intent, or memory ends."""
FEW = 16
"""How many samples are made if no number is given."""


@dataclass(frozen=True)
class SampleCommand:
    """Generate samples from a trained model.

    The same seed gives the same samples, whatever the batch size and the number of processes. A job with --out that was
    interrupted goes on where it stopped when the same command is given again.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run or of a saved model, or a repository of the hub."""
    num: int | None = None
    """How many samples: 16, or 1 for a file that holds one sample (.mid), unless given."""
    seed: int = 0
    """Seed of the samples."""
    condition: Path | None = None
    """A file with what is known of the samples and blanks elsewhere: one row for all samples, or a row for each. Blank
    is -1 in arrays, '_' in lines of text, an empty field in tables, a fully transparent pixel in pictures. Or a MIDI
    file, of which --give, --fill and --keep-voice say what is kept."""
    give: int | None = None
    """Music: keep the first so many steps of the condition, and generate what follows."""
    fill: str | None = None
    """Music: generate these bars of the condition, counted from 1, and keep the others: 8:12, or 2,4,6:8. The samples
    are as long as the condition."""
    keep_voice: str | None = None
    """Music: keep these voices of the condition, by name or number, and generate the others: soprano, or 1,4. The
    samples are as long as the condition, unless --give is given as well."""
    track: str | None = None
    """Music: the track of the condition that holds the melody, or the voices, by its name or number."""
    prefix: str | None = None
    """The beginning of every sample: text, or numbers separated by commas."""
    label: str | None = None
    """The label of the samples, by its number or its name, for a model that was trained with labels. See --guidance."""
    length: int | None = None
    """Number of positions, for a model that takes any."""
    out: Path | None = None
    """File for the samples; its ending chooses the format (.npy, .txt, .csv, .parquet, .mid and .wav for music, .png).
    Without an ending: a folder with a .mid file for each sample of music, and a .png file for each picture; a .png file
    of pictures is a sheet with all of them. Printed if not given."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the file if it exists, or the folder if it holds nothing but samples."""
    batch_size: int = 256
    """Samples generated at once; with --out each batch is kept beside the file until the job is done."""
    sampling: Annotated[SamplingConfig, Flat] = field(default_factory=SamplingConfig)

    def __post_init__(self) -> None:
        for name, least in (("num", 1), ("batch_size", 1), ("seed", 0), ("length", 1)):
            if getattr(self, name) is not None:
                _checks.whole(getattr(self, name), name, least, MOST.get(name))
        _checks.require(self.condition is None or self.prefix is None, "Give --condition or --prefix, not both.")
        kept = [name for name in ("give", "fill", "keep_voice", "track") if getattr(self, name) is not None]
        _checks.require(
            self.condition is not None or not kept,
            f"{' and '.join(kept)} says what is taken of a condition. Name its file with --condition.",
        )

    @property
    def many(self) -> int:
        """How many samples, also if no number was given."""
        return FEW if self.num is None else self.num


def run(command: SampleCommand) -> None:
    diffusion = runs.trained(command.run)
    codec = diffusion.codec or Integers(diffusion.process.num_states)
    command.sampling.check(diffusion)
    label = _label(command, diffusion)
    length = _length(command, diffusion)
    if command.num is None:
        alone = command.out is not None and command.out.suffix.lower() in codec.single
        command = replace(command, num=1 if alone else FEW)
    condition, written = _condition(command, diffusion, codec, length)
    _checks.require(
        command.out is not None or codec.text_ending is not None,
        f"Samples of this model are not text. Name a file for them with --out, such as samples{codec.default_ending}.",
    )
    if command.out is not None:
        codec.check_ending(command.out, command.many)
        if not codec.is_folder(command.out):
            runs.check_file_place(command.out)
        runs.check_place(command.out)
    processes = accelerator()
    with noticing_lost_processes(), _place(command, codec, processes) as folder:
        diffusion = diffusion.to(processes.device)
        parts = _Parts(folder, _job(command, diffusion, condition))
        starts = range(0, command.many, command.batch_size)
        batches = [slice(first, min(first + command.batch_size, command.many)) for first in starts]
        mine = batches[processes.process_index :: processes.num_processes]
        _generate(command, diffusion, condition, label, parts, mine, quiet=not processes.is_main_process)
        parts.gather(processes)
        if not processes.is_main_process:
            return
        tokens = torch.cat([parts.made_by_now(rows) for rows in batches])[:, :written]
        if command.out is None or folder is None:
            _print(codec, tokens)
        else:
            with _files.replacing(command.out) as aside:
                codec.write(tokens, aside)
                if command.out.is_dir():  # to be replaced, as was asked for
                    shutil.rmtree(command.out)
            given = None if condition is None else condition.mask[..., :written].expand_as(tokens)
            codec.write_beside(tokens, command.out, given)
            print(f"{command.many} sample{'s' * (command.many > 1)} in {command.out}", file=sys.stderr)
            shutil.rmtree(folder)


@contextmanager
def _place(command: SampleCommand, codec: Codec, processes: Accelerator) -> Iterator[Path | None]:
    """The folder of the job's batches, beside the output and locked; None if there is no output file."""
    out = command.out
    folder = None if out is None else out.with_name(f"{out.name}.parts")
    with claimed(processes, folder, out):
        try:
            if out is not None:
                _check_free(out, codec, command.overwrite)
            yield folder
        finally:
            if folder is not None and processes.is_main_process and not any(folder.glob("rows-*")):
                shutil.rmtree(folder, ignore_errors=True)


def _check_free(out: Path, codec: Codec, overwrite: bool) -> None:
    """Raise an error if what exists would be replaced, unless that was asked for, and samples are all that is lost."""
    for path in (out, *codec.beside(out)):
        _checks.require(
            overwrite or not path.exists(), f"{str(path)!r} exists. Name another file, or pass --overwrite."
        )
    if out.is_dir():
        other = next((path.name for path in sorted(out.iterdir()) if not codec.wrote(path)), None)
        _checks.require(
            other is None,
            f"{str(out)!r} holds what is no sample, such as {other!r}, and is not replaced. Name another folder.",
        )


def _job(command: SampleCommand, diffusion: Diffusion, condition: Condition | None) -> str:
    """What decides the samples, as a digest."""
    options = {k: str(v) for k, v in asdict(command).items() if k not in ("run", "condition", "out", "overwrite")}
    tensors = {f"model.{name}": value for name, value in diffusion.state_dict().items()}
    if condition is not None:
        tensors |= {"condition.mask": condition.mask, "condition.values": condition.values}
    return _files.digest([options, diffusion.config()], tensors)


class _Parts:
    """The batches of a job until all are there: files in a folder, so that the job can go on, or tensors in memory."""

    def __init__(self, folder: Path | None, job: str) -> None:
        self.folder, self.job = folder, job
        self.made: dict[int, Tensor] = {}

    def read(self, rows: slice) -> Tensor | None:
        """A batch; None if it is not there, is damaged or was made by another job."""
        if self.folder is None:
            return self.made.get(rows.start)
        try:
            metadata, tensors = _files.load_tensors(self._path(rows))
        except ValueError:
            return None
        return tensors["tokens"] if metadata.get("state") == self.job else None

    def made_by_now(self, rows: slice) -> Tensor:
        tokens = self.read(rows)
        if tokens is None:
            raise BadCheckpointError(f"{self._path(rows)} was deleted or damaged. Give the same command again.")
        return tokens

    def write(self, rows: slice, tokens: Tensor) -> None:
        if self.folder is None:
            self.made[rows.start] = tokens
        else:
            _files.save_tensors(self._path(rows), {"tokens": tokens}, self.job)

    def gather(self, processes: Accelerator) -> None:
        """Wait until every process has made its batches, and hand over those in memory."""
        processes.wait_for_everyone()
        if self.folder is None and processes.num_processes > 1:
            self.made = dict(gather_object(list(self.made.items())))

    def _path(self, rows: slice) -> Path:
        return Path(self.folder or "", f"rows-{rows.start:09d}-{rows.stop:09d}.safetensors")


def _generate(
    command: SampleCommand,
    diffusion: Diffusion,
    condition: Condition | None,
    label: int | None,
    parts: _Parts,
    mine: list[slice],
    quiet: bool,
) -> None:
    seeds = draw_seeds(command.many, torch.Generator().manual_seed(command.seed))
    alone = len(mine) == 1
    hidden = quiet or alone or not sys.stderr.isatty()
    for rows in tqdm(mine, desc="sampling", unit="batch", leave=False, disable=hidden):
        if parts.read(rows) is not None:
            continue
        num = rows.stop - rows.start
        tokens = command.sampling.sample(
            diffusion,
            num,
            condition=None if condition is None else condition.rows(rows),
            length=command.length,
            labels=None if label is None else torch.full((num,), label),
            seeds=seeds[rows],
            progress=None if alone and not quiet else False,
        )
        parts.write(rows, tokens.cpu())


def _label(command: SampleCommand, diffusion: Diffusion) -> int | None:
    """The number of the label that was asked for."""
    names, known = diffusion.label_names or [], diffusion.model.num_labels
    if command.label is None:
        _checks.require(
            command.sampling.guidance == 1.0,
            f"guidance is {command.sampling.guidance:g}, but there is no label to follow. Name one with --label.",
        )
        return None
    _checks.require(bool(known), "label was given, but this model was trained without labels. Leave it out.")
    number = names.index(command.label) if command.label in names else -1
    if number < 0 and command.label.isdecimal():
        number = int(command.label)
    _checks.require(
        0 <= number < (known or 0),
        f"label is {command.label!r}, but the model knows 0 to {(known or 1) - 1}"
        + (f", called {_checks.shown(names)}." if names else "."),
    )
    return number


def _length(command: SampleCommand, diffusion: Diffusion) -> int:
    length = command.length or diffusion.length
    if length is None:
        raise ValueError("length must be given: this model takes sequences of any length. Pass --length.")
    _checks.require(
        diffusion.length in (None, length),
        f"length is {length}, but the model was built for {diffusion.length} positions. Leave out --length.",
    )
    return length


def _condition(command: SampleCommand, diffusion: Diffusion, codec: Codec, length: int) -> tuple[Condition | None, int]:
    """What is given, and how many positions of each sample are written."""
    written = length
    if command.condition is None and command.prefix is None:
        return None, written
    if command.condition is not None:
        readable(command.condition, "Name a file with what is known of the samples.")
        options = {} if command.track is None else {"track": command.track}
        known = codec.read_condition(command.condition, length, **options)
        known = codec.kept(known, command.give, command.fill, command.keep_voice)
        written = known.shape[1]
        known = torch.nn.functional.pad(known, (0, length - written), value=BLANK)
    else:
        known = codec.read_prefix(command.prefix or "", length)
    if known.shape[0] == 1:
        known = known[0]
    condition = Condition.from_blanks(known)
    condition.for_samples(command.many, length, diffusion.process.num_states)
    return condition, written


def _print(codec: Codec, tokens: torch.Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"samples{codec.text_ending}"
        codec.write(tokens, path)
        sys.stdout.write(path.read_text(encoding="utf-8"))
