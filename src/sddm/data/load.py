"""Data by name: one of the toys, or a file whose ending says how it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from sddm import _checks
from sddm.data.arrays import read_array
from sddm.data.dataset import MAX_LENGTH, Dataset
from sddm.data.decoders import Characters, Columns, Points
from sddm.data.tables import Rows, categories, read_csv, read_parquet
from sddm.data.text import read_sequences, read_windows, readable
from sddm.data.toys import DENSITIES, Toy

TOY_POINTS = 100_000
"""How many points are drawn from a toy."""


def load(source: str | Path, *, window: int | None = None, key: str | None = None, seed: int = 0) -> Dataset:
    """Read a file, or draw points from the toy of that name.

    `window` cuts a text into windows of so many characters (without it, a line is a sequence); `key` names an array
    of an .npz file; `seed` is that of a toy's points.

    >>> load("checkerboard")
    >>> load("shakespeare.txt", window=256)
    """
    if not isinstance(source, (str, Path)):
        raise TypeError(f"source must be a path or the name of a toy, but it is a {type(source).__name__}.")
    toys = ", ".join(DENSITIES)
    path = Path(source)
    ending = path.suffix.lower()
    _checks.require(
        window is None or ending == ".txt", f"window={window} was given, but only .txt files are cut into windows."
    )
    _checks.require(key is None or ending == ".npz", f"key={key!r} was given, but only .npz files have keys.")
    if str(source) in DENSITIES:
        return _toy(str(source), _checks.whole(seed, "seed", 0))
    readable(path, f"The toys are {toys}.")
    _checks.require(
        ending in READERS,
        f"{str(path)!r} ends in {ending!r}, but data are read from files that end in {', '.join(READERS)}.",
    )
    try:
        return READERS[ending](path, window, key)
    except MemoryError:
        raise ValueError(
            f"{str(path)!r} needs more memory than there is. Give fewer rows, or save tokens as an .npy file, which is "
            "read from the disk as rows are needed."
        ) from None


def _toy(name: str, seed: int) -> Dataset:
    return Dataset(Toy(name).tokens(TOY_POINTS, torch.Generator().manual_seed(seed)), Points(name), name)


def _array(path: Path, window: int | None, key: str | None) -> Dataset:
    return Dataset.from_tokens(read_array(path, key), name=path.name)


def _text(path: Path, window: int | None, key: str | None) -> Dataset:
    rows = read_sequences(path) if window is None else read_windows(path, window)
    alphabet = "".join(sorted(set("".join(rows))))
    _checks.require(
        len(alphabet) > 1,
        f"{str(path)!r} holds one character only, {alphabet!r}: there is nothing to learn. Give another text.",
    )
    decoder = Characters(alphabet, padded=len({len(row) for row in rows}) > 1)
    return Dataset(decoder.encode(rows), decoder, path.name)


def _csv(path: Path, window: int | None, key: str | None) -> Dataset:
    return _table(*read_csv(path), path)


def _parquet(path: Path, window: int | None, key: str | None) -> Dataset:
    return _table(*read_parquet(path), path)


def _table(names: list[str], rows: Rows, path: Path) -> Dataset:
    _checks.require(
        len(names) <= MAX_LENGTH,
        f"{str(path)!r} has {len(names)} columns, but at most {MAX_LENGTH} are possible. Drop some.",
    )
    decoder = Columns(names, categories(names, rows))
    return Dataset(decoder.encode(rows), decoder, path.name)


READERS: dict[str, Callable[[Path, int | None, str | None], Dataset]] = {
    ".npy": _array,
    ".npz": _array,
    ".txt": _text,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""How a file is read, by its ending: add one here to read another format."""
