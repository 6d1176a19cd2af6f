"""sddm sample: from a trained model to a file of samples, in parts, so that a long job can go on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from accelerate import Accelerator
from tqdm import tqdm

from sddm import _checks, _files
from sddm.codecs import BLANK, MAX_LENGTH, Codec, Excerpt
from sddm.commands import runs
from sddm.commands.lines import Lines
from sddm.commands.parts import Parts
from sddm.commands.runs import Flat
from sddm.commands.wishes import MOST_PARTICLES, Wish, wished
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.formats.text import readable
from sddm.randomness import draw_seeds
from sddm.recipe import SamplingConfig
from sddm.samplers.plan import chosen_length
from sddm.training.config import MAX_SEED
from sddm.training.devices import accelerator, claimed
from sddm.training.diffusion import codec_of
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
    """How many samples. Unless given, one for each row of the condition if it has several; else 16, or 1 for a file
    that holds one sample (.mid)."""
    seed: int = 0
    """Seed of the samples."""
    condition: Path | None = None
    """A file with what is known of the samples and blanks elsewhere: one row for all samples, or a row for each. Blank
    is -1 in arrays, '_' in lines of text, an empty field in tables, a fully transparent pixel in pictures. Or a MIDI
    file, of which --give, --fill and --keep-voice say what is kept."""
    where: tuple[str, ...] = ()
    """Tables: what columns shall be, each in quotes: "age>=40" "sex=F" "town in Bern|Basel" "income missing" "income
    not missing"; also <, <=, > and !=."""
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
    scaffold: str | None = None
    """Molecules: a part that every sample is to hold, as SMILES: c1ccncc1. A * marks an atom by which more is joined;
    unless there is one, it is any with a hydrogen. In half of the samples the scaffold is written first."""
    label: str | None = None
    """The label of the samples, by its number or its name, for a model that was trained with labels, or with
    --classifier. See --guidance."""
    classifier: str | None = None
    """A folder of `sddm train-classifier`, or one made by save_pretrained: its classifier of noised data guides a model
    that knows no labels to --label, as strongly as --guidance says, in steps of euler unless --sampler is given."""
    first_order: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With --classifier: one gradient of the classifier a step, instead of a question about every possible change."""
    reward: str | None = None
    """FILE.py:FUNCTION. The file is run as Python, with all rights that you have: name only files that you trust. The
    function gets tokens (num, positions) as a torch.Tensor, and returns a number for each row. Samples are drawn in
    proportion to p(x) exp(reward), each by --particles that the model draws side by side."""
    decoded: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With --reward: the function gets what the tokens stand for, such as lines of text or an array of pictures."""
    particles: int | None = None
    """With --reward: how many particles each sample is drawn by; 16 unless given. More cost more, and follow the reward
    more exactly."""
    length: int | None = None
    """Number of positions, for a model that takes any, or of one that was trained on rows of different lengths. Unless
    given, such a model draws a length for each sample."""
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
        if self.particles is not None:
            _checks.whole(self.particles, "particles", 1, MOST_PARTICLES)
        for name in ("decoded", "particles"):
            _checks.require(
                self.reward is not None or not getattr(self, name),
                f"{name} is for samples that a reward steers. Name its function with --reward FILE.py:FUNCTION.",
            )
        _checks.require(
            self.classifier is not None or not self.first_order,
            "first_order is for guidance by a classifier. Name its folder with --classifier.",
        )
        _checks.require(self.condition is None or self.prefix is None, "Give --condition or --prefix, not both.")
        _checks.require(self.prefix is None or not self.where, "Give --where or --prefix, not both.")
        _checks.require(
            self.scaffold is None or (self.condition is None and self.prefix is None and not self.where),
            "Give --scaffold or another condition, not both.",
        )
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
    codec = codec_of(diffusion)
    wish = wished(command, diffusion)
    length = chosen_length(diffusion, command.length)
    excerpt = _excerpt(command, codec, length)
    if command.num is None:
        alone = command.out is not None and command.out.suffix.lower() in codec.single
        rows = 1 if excerpt is None else len(excerpt.rows)
        command = replace(command, num=rows if rows > 1 else 1 if alone else FEW)
    condition = None if excerpt is None else _condition(command, diffusion, excerpt, length)
    if excerpt is not None and excerpt.codec is not None:
        codec = excerpt.codec
    _checks.require(
        command.out is not None or codec.text_ending is not None,
        f"Samples of this model are not text. Name a file for them with --out, such as samples{codec.default_ending}.",
    )
    if command.out is not None:
        codec.check_ending(command.out, command.many)
        check = runs.check_place if codec.is_folder(command.out) else runs.check_file_place
        check(command.out)
    processes = accelerator()
    with noticing_lost_processes(), _place(command, codec, processes) as folder:
        parts = Parts(folder, _job(command, diffusion, condition, wish))
        wish = wish.to(processes.device)
        starts = range(0, command.many, command.batch_size)
        batches = [slice(first, min(first + command.batch_size, command.many)) for first in starts]
        mine = batches[processes.process_index :: processes.num_processes]
        _generate(command, wish, condition, parts, mine, quiet=not processes.is_main_process)
        parts.gather(processes)
        if not processes.is_main_process:
            return
        tokens = torch.cat([parts.made_by_now(rows) for rows in batches])
        effective = [] if wish.reward is None else [parts.made_by_now(rows, "effective") for rows in batches]
        if excerpt is not None:
            tokens = excerpt.completed(tokens)
        if command.scaffold is not None:
            print(codec.held_scaffold(tokens, command.scaffold), file=sys.stderr)
        if command.out is None or folder is None:
            _print(codec, tokens)
        else:
            with _files.replacing(command.out) as aside:
                codec.write(tokens, aside)
                if command.out.is_dir():  # to be replaced, as was asked for
                    shutil.rmtree(command.out)
            given = None if excerpt is None else excerpt.given.expand_as(tokens)
            codec.write_beside(tokens, command.out, given)
            print(f"{command.many} sample{'s' * (command.many > 1)} in {command.out}", file=sys.stderr)
            shutil.rmtree(folder)
        if wish.reward is not None:
            print(wish.said(torch.cat(effective)), file=sys.stderr)


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


def _job(command: SampleCommand, diffusion: Diffusion, condition: Condition | None, wish: Wish) -> str:
    """What decides the samples, as a digest."""
    elsewhere = ("run", "condition", "classifier", "out", "overwrite")
    options = {name: str(value) for name, value in asdict(command).items() if name not in elsewhere}
    tensors = {f"model.{name}": value for name, value in diffusion.state_dict().items()}
    if wish.classifier is not None:
        tensors |= {f"classifier.{name}": value for name, value in wish.classifier.state_dict().items()}
    if condition is not None:
        tensors |= {"condition.mask": condition.mask, "condition.values": condition.values}
        tensors |= {f"condition.range.{position}": weights for position, weights in condition.ranges.items()}
    return _files.digest([options, diffusion.config(), *wish.configs], tensors)


def _generate(
    command: SampleCommand,
    wish: Wish,
    condition: Condition | None,
    parts: Parts,
    mine: list[slice],
    quiet: bool,
) -> None:
    seeds = draw_seeds(command.many, torch.Generator().manual_seed(command.seed))
    grid = wish.sampling.times(wish.diffusion, command.length, command.seed)  # one for all batches
    alone = len(mine) == 1
    hidden = quiet or alone or not sys.stderr.isatty()
    told = Lines(sum(rows.stop - rows.start for rows in mine), hidden=quiet or sys.stderr.isatty())
    for rows in tqdm(mine, desc="sampling", unit="batch", leave=False, disable=hidden):
        num, found = rows.stop - rows.start, parts.read(rows) is not None
        if found:
            told.add(num, found)
            continue
        options: dict[str, Any] = {
            "condition": None if condition is None else condition.rows(rows),
            "length": command.length,
            "grid": grid,
            "seeds": seeds[rows],
        }
        if wish.reward is None:
            options |= {"callback": told, "progress": None if alone and not quiet else False}
            parts.write(rows, wish.sampled(num, **options).cpu())
        else:
            steered = wish.steered(num, **options)
            parts.write(rows, steered.tokens.cpu(), effective=steered.effective.T.contiguous().cpu())
        told.add(num)


def _excerpt(command: SampleCommand, codec: Codec, length: int) -> Excerpt | None:
    """What is known of the samples, if anything is."""
    if command.condition is not None:
        readable(command.condition, "Name a file with what is known of the samples.")
    if command.where:
        return codec.where(*command.where, condition=command.condition)
    if command.condition is not None:
        options: dict[str, Any] = {} if command.track is None else {"track": command.track}
        rules = command.give, command.fill, command.keep_voice
        return codec.excerpt(command.condition, length, *rules, **options)
    if command.scaffold is not None:
        known = codec.read_scaffold(command.scaffold, command.many, length, command.seed)
        return Excerpt(known, known)
    if command.prefix is None:
        return None
    known = codec.read_prefix(command.prefix, length)
    return Excerpt(known, known)


def _condition(command: SampleCommand, diffusion: Diffusion, excerpt: Excerpt, length: int) -> Condition:
    """What the model is given: the same for all samples, or a row for each."""
    known = excerpt.known(length)
    known = known[0] if known.shape[0] == 1 else known
    condition = Condition(known != BLANK, known, excerpt.ranges)
    condition.for_samples(command.many, length, diffusion.process.num_states)
    return condition


def _print(codec: Codec, tokens: torch.Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"samples{codec.text_ending}"
        codec.write(tokens, path)
        sys.stdout.write(path.read_text(encoding="utf-8"))
