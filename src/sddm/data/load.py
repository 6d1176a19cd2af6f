"""Data by name: one of the toys, or a file or a folder whose ending says how it is read."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from sddm import _checks
from sddm.codecs import Encoded, Points, file_readers, folder_readers
from sddm.data.dataset import Dataset
from sddm.data.toys import DENSITIES, Toy
from sddm.formats.text import readable

TOY_POINTS = 100_000
"""How many points are drawn from a toy."""


def load(source: str | Path, *, window: int | None = None, key: str | None = None, seed: int = 0) -> Dataset:
    """Read a file or the files of a folder, or draw points from the toy of that name.

    `window` cuts a text into windows of so many characters (without it, a line is a sequence); `key` names an array
    of an .npz file; `seed` is that of a toy's points. Rows from one file of a folder are a group.

    >>> load("checkerboard")
    >>> load("shakespeare.txt", window=256)
    """
    if not isinstance(source, (str, Path)):
        raise TypeError(f"source must be a path or the name of a toy, but it is a {type(source).__name__}.")
    read = _reader(Path(source), seed)
    options = {name: value for name, value in (("window", window), ("key", key)) if value is not None}
    for name, value in options.items():
        able = [ending for ending, reader in file_readers().items() if _takes(reader, name)]
        _checks.require(
            _takes(read, name), f"{name}={value!r} was given, but only {', '.join(able)} files are read with one."
        )
    try:
        return Dataset(*read(**options), name=Path(source).name)
    except MemoryError:
        raise ValueError(
            f"{str(source)!r} needs more memory than there is. Give fewer rows, or save tokens as an .npy file, which "
            "is read from the disk as rows are needed."
        ) from None


def _reader(path: Path, seed: int) -> Callable[..., Encoded]:
    """The function that reads what is there, without its first arguments."""
    if str(path) in DENSITIES:
        return partial(_toy, str(path), _checks.whole(seed, "seed", 0))
    if os.path.isdir(path):  # False for a name that is too long, too
        return _reader_of_folder(path)
    readable(path, f"The toys are {', '.join(DENSITIES)}.")
    ending, readers = path.suffix.lower(), file_readers()
    _checks.require(
        ending in readers,
        f"{str(path)!r} ends in {ending!r}, but data are read from files that end in {', '.join(readers)}.",
    )
    return partial(readers[ending], path)


def _reader_of_folder(path: Path) -> Callable[..., Encoded]:
    readers = folder_readers()
    found = {ending: [p for p in sorted(path.rglob("*")) if p.suffix.lower() == ending] for ending in readers}
    kinds = [ending for ending, paths in found.items() if paths]
    if not kinds:
        raise IsADirectoryError(
            f"{str(path)!r} is a directory. Give the path of a file in it, or a folder of {', '.join(readers)} files."
        )
    _checks.require(
        len(kinds) == 1,
        f"{str(path)!r} holds files that end in {' and in '.join(kinds)}. "
        "Keep those of one kind in a folder of their own.",
    )
    for file in found[kinds[0]]:
        readable(file)
    return partial(readers[kinds[0]], found[kinds[0]])


def _toy(name: str, seed: int) -> Encoded:
    return Encoded(Toy(name).tokens(TOY_POINTS, torch.Generator().manual_seed(seed)), Points(name))


def _takes(read: Callable[..., Encoded], name: str) -> bool:
    return name in inspect.signature(read).parameters
