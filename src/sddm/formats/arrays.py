"""Arrays of whole numbers: numpy's files, read without ever running a pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks

LABELS = "labels"
"""The name of the array of an .npz file that holds a label for each row of the other."""
LENGTHS = "lengths"
"""The same of one that says how many positions of each row exist."""
INTEGERS = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32)
"""The types whose every value is also an int64."""
MAGIC = np.lib.format.MAGIC_PREFIX
"""How an .npy file begins."""
MAPPED_FROM = 1 << 26
"""Larger .npy files (in bytes) are read when their rows are needed. Smaller ones are copied: they may change later."""
LARGEST_ARCHIVED = 1 << 31
"""The most bytes of an array in an .npz file, which has to be read as a whole."""


def read_array(path: Path, key: str | None = None, labels: str = LABELS) -> np.ndarray:
    """The array of an .npy file, mapped into memory if it is large, or the one called `key` of an .npz file (None: the
    only one beside that of the labels and `lengths`)."""
    with path.open("rb") as file:
        loaded = _reading(path, lambda: _load(path, file))
        if isinstance(loaded, np.ndarray):
            _checks.require(key is None, f"key={key!r} was given, but {str(path)!r} holds one array without a name.")
            return loaded
        names = loaded.files
        _checks.require(len(names) > 0, f"{str(path)!r} holds no arrays. Save one with numpy.savez.")
        others = [name for name in names if name not in (labels, LENGTHS)] or names
        if key is None and len(others) != 1:
            raise ValueError(f"{str(path)!r} holds {len(names)} arrays: {_checks.shown(names)}. Choose one with key.")
        chosen = others[0] if key is None else key
        _checks.require(chosen in names, f"{str(path)!r} has no array {chosen!r}. It holds {_checks.shown(names)}.")
        declared = _reading(path, lambda: _archived_bytes(loaded.zip, chosen))
        _checks.require(
            declared <= LARGEST_ARCHIVED,
            f"{chosen!r} of {str(path)!r} has {declared} bytes, but at most {LARGEST_ARCHIVED} are read from an .npz "
            "file, which has to fit into memory. Save the array with numpy.save: an .npy file may be larger.",
        )
        array = _reading(path, lambda: loaded[chosen])
        _checks.require(isinstance(array, np.ndarray), f"{chosen!r} of {str(path)!r} is not an array.")
        return array


def read_numbers(path: Path, name: str, rows: int, needed: bool = False) -> list[int] | None:
    """The array of this name, such as `labels` or `lengths`, of an .npz file beside an array of so many rows, if it has
    one; it is an error if one that is needed is missing."""
    with path.open("rb") as file:
        loaded = _reading(path, lambda: _load(path, file))
        there = not isinstance(loaded, np.ndarray) and name in loaded.files and len(loaded.files) > 1
        if not there and not needed:
            return None
    array = read_array(path, name)
    _checks.require(
        array.shape == (rows,),
        f"{name!r} of {str(path)!r} has shape {array.shape}, but it must hold one number for each of the {rows} rows.",
    )
    numbers: list[int] = integers(array[:, None], f"{name!r} of {str(path)!r}")[:, 0].tolist()
    return numbers


def _load(path: Path, file: BufferedIOBase) -> Any:
    mapped = _declared_bytes(file, path.stat().st_size) > MAPPED_FROM
    file.seek(0)
    return np.load(path, mmap_mode="r", allow_pickle=False) if mapped else np.load(file, allow_pickle=False)


def _archived_bytes(archive: zipfile.ZipFile, name: str) -> int:
    member = next(info for info in archive.infolist() if info.filename in (name, f"{name}.npy"))
    with archive.open(member) as file:
        return _declared_bytes(file, member.file_size)


def _declared_bytes(file: IO[bytes] | BufferedIOBase, size: int) -> int:
    """How many bytes the header of an .npy file declares; an error if the file, of this size, holds fewer."""
    if file.read(len(MAGIC)) != MAGIC:
        return 0
    old = file.read(2) == b"\x01\x00"
    shape, _, kind = (np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0)(file)
    declared, there = prod(shape) * kind.itemsize, size - file.tell()
    if declared > there and not kind.hasobject:
        raise ValueError(f"it declares {declared} bytes, but has {there}")
    return declared


def write_array(array: np.ndarray, path: Path) -> None:
    """Save an array under exactly this path (numpy itself would add .npy to a path that ends in .NPY)."""
    with path.open("wb") as file:
        np.save(file, array)


def integers(value: Any, name: str) -> Int[Tensor, "num dim"]:
    """A copy of a two-dimensional array of whole numbers as int64 tokens on the CPU; `name` is for error messages."""
    return torch.from_numpy(np.array(whole_numbers(value, name), dtype=np.int64, order="C"))


def whole_numbers(value: Any, name: str) -> np.ndarray:
    """A two-dimensional array or tensor of whole numbers as an array, which shares its memory where it can."""
    if isinstance(value, np.ndarray):
        kind, whole = str(value.dtype), value.dtype.kind in "biu" and value.dtype != np.uint64
    elif isinstance(value, Tensor):
        kind, whole = str(value.dtype), value.dtype in INTEGERS
    else:
        raise TypeError(
            f"{name} must be a numpy array or a torch tensor, but it is a {type(value).__name__}. Use numpy.asarray."
        )
    if not whole:
        raise TypeError(
            f"{name} must hold whole numbers (bool, int8 to int64, uint8 to uint32), but it holds {kind}. "
            "Tokens are class indices; convert with .astype('int64') if that is what they are."
        )
    shape = tuple(value.shape)
    target = "-1, dim) for sequences of length dim" if len(shape) < 2 else f"{shape[0]}, -1)"
    _checks.require(
        len(shape) == 2,
        f"{name} must have shape (num, dim), one sample a row, but it has shape {shape}. "
        f"Reshape it, for example with array.reshape({target}.",
    )
    _checks.require(0 not in shape, f"{name} is empty: it has shape {shape}. Give at least one row and one position.")
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _reading(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # a damaged file makes numpy raise errors of a dozen kinds
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{str(path)!r} holds Python objects or is not a numpy file. Pickles can run code and are not read: "
            "save an array of whole numbers with numpy.save."
            if "pickle" in reason or "Python objects" in reason
            else f"{str(path)!r} is damaged or not a numpy file ({type(error).__name__}: {reason}). Save it again."
        ) from None
