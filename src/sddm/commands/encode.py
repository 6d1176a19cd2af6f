"""sddm encode: from pictures to the codes of a tokenizer, in parts, so that a long job can go on."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from tqdm import tqdm

from sddm import _checks, _files
from sddm.codecs import Codes
from sddm.commands import runs
from sddm.commands.parts import Parts
from sddm.commands.runs import Flat
from sddm.data import Dataset, Reading, load
from sddm.data.codes import LEFT_BY, NUMBERS, is_codes, write_codes
from sddm.tokenizers.learner import pixels_of
from sddm.tokenizers.vqgan import VQGAN

BATCH = 4_096


@dataclass(frozen=True)
class EncodeCommand:
    """Encode pictures by a tokenizer.

    The folder holds the codes, the labels of the pictures if there are any, and the tokenizer. `sddm train` with this
    folder as --data trains a model of the codes, whose samples are pictures. A job that was interrupted goes on where
    it stopped when the same command is given again.
    """

    tokenizer: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER")]
    """Folder of a run of `sddm train-tokenizer` or of a saved tokenizer, or a repository of the hub."""
    data: str
    """Pictures, as for `sddm train-tokenizer`."""
    out: Path = Path("codes")
    """Folder for the codes."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the folder if it holds codes."""
    batch_size: int = BATCH
    """Pictures of a part; each part is kept beside the folder until the job is done."""
    seed: int = 0
    """Seed of data that are drawn."""
    reading: Annotated[Reading, Flat] = field(default_factory=Reading)

    def __post_init__(self) -> None:
        _checks.whole(self.batch_size, "batch_size", 1)


def run(command: EncodeCommand) -> None:
    out = command.out
    _check_free(out, command.overwrite)
    tokenizer = runs.trained_tokenizer(command.tokenizer)
    data = load(command.data, seed=command.seed, **command.reading.given)
    rows, columns = encode(data, tokenizer, out, command.batch_size).grid
    print(
        f"{len(data):,} pictures as {rows} x {columns} codes in {out}. Model: sddm train --data {out}", file=sys.stderr
    )


def encode(data: Dataset, tokenizer: VQGAN, out: Path, batch_size: int = BATCH) -> Codes:
    """Write the codes of pictures into a folder, in place of what is there, and return their codec."""
    pixels = pixels_of(data)
    _checks.require(
        pixels.channels == tokenizer.sizes.channels,
        f"{data.name} has pictures of {pixels.channels} channels, but the tokenizer was trained on "
        f"{tokenizer.sizes.channels}. Name others.",
    )
    codec = Codes.of(tokenizer.to("cuda" if torch.cuda.is_available() else "cpu"), pixels.height, pixels.width)
    folder = out.with_name(f"{out.name}.parts")
    job = _files.digest([data.fingerprint(), tokenizer.config(), batch_size], tokenizer.state_dict())
    with _files.locked(folder, out):
        parts = Parts(folder, job)
        places = [slice(i, min(i + batch_size, len(data))) for i in range(0, len(data), batch_size)]
        for rows in tqdm(places, desc="encoding", unit="part", disable=not sys.stderr.isatty()):
            if parts.read(rows) is None:
                parts.write(rows, _encoded(data, rows, codec))
        with _files.replacing(out) as aside:
            numbers = {name: values for name in NUMBERS if (values := getattr(data, name)) is not None}
            pieces = (parts.made_by_now(rows) for rows in places)
            write_codes(aside, len(data), pieces, codec, numbers)
            if out.is_dir():  # to be replaced, as was asked for
                shutil.rmtree(out)
        shutil.rmtree(folder)
    return codec


def _encoded(data: Dataset, rows: slice, codec: Codes) -> torch.Tensor:
    """The codes of some rows, in a type that is small on the disk."""
    pictures = np.ascontiguousarray(data.codec.decode(data.tokens[rows]))
    return codec.encode(pictures).to(torch.int32)


def _check_free(out: Path, overwrite: bool) -> None:
    """Raise an error if what exists would be replaced, unless that was asked for, and codes are all that is lost."""
    runs.check_place(out)
    _checks.require(overwrite or not out.exists(), f"{str(out)!r} exists. Name another folder, or pass --overwrite.")
    if out.exists():
        _checks.require(
            is_codes(out) and {path.name for path in out.iterdir()} <= LEFT_BY,
            f"{str(out)!r} holds what `sddm encode` did not write, and is not replaced. Name another folder.",
        )
