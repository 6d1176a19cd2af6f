"""Arrays of whole numbers: numpy's files, read without ever running a pickle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks

INTEGERS = (
    torch.bool,
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32),
)
"""The types whose every value is also an int64."""


def read_array(path: Path, key: str | None = None) -> np.ndarray:
    """The array of an .npy file, or the one called `key` of an .npz file (None: the only one)."""
    with path.open("rb") as file:
        loaded = _reading(path, lambda: np.load(file, allow_pickle=False))
        if isinstance(loaded, np.ndarray):
            _checks.require(key is None, f"key={key!r} was given, but {str(path)!r} holds one array without a name.")
            return loaded
        names = loaded.files
        _checks.require(len(names) > 0, f"{str(path)!r} holds no arrays. Save one with numpy.savez.")
        _checks.require(
            key is not None or len(names) == 1,
            f"{str(path)!r} holds {len(names)} arrays: {_listed(names)}. Choose one with key.",
        )
        chosen = names[0] if key is None else key
        _checks.require(chosen in names, f"{str(path)!r} has no array {chosen!r}. It holds {_listed(names)}.")
        array = _reading(path, lambda: loaded[chosen])
        _checks.require(isinstance(array, np.ndarray), f"{chosen!r} of {str(path)!r} is not an array.")
        return array


def write_array(array: np.ndarray, path: Path) -> None:
    """Save an array under exactly this path (numpy itself would add .npy to a path that ends in .NPY)."""
    with path.open("wb") as file:
        np.save(file, array)


def integers(value: Any, name: str) -> Int[Tensor, "num dim"]:
    """A copy of a two-dimensional array of whole numbers as int64 tokens on the CPU; `name` is for the sentences."""
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
    _checks.require(
        len(shape) == 2,
        f"{name} must have shape (num, dim), one sample a row, but it has shape {shape}. {_reshape_hint(shape)}",
    )
    _checks.require(0 not in shape, f"{name} is empty: it has shape {shape}. Give at least one row and one position.")
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.int64, copy=True).contiguous()
    return torch.from_numpy(np.array(value, dtype=np.int64, order="C"))


def _reshape_hint(shape: tuple[int, ...]) -> str:
    if len(shape) < 2:
        return "Reshape it, for example with array.reshape(-1, dim) for sequences of length dim."
    return f"Reshape it, for example with array.reshape({shape[0]}, -1)."


def _listed(names: list[str], most: int = 8) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def _reading(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # a damaged file makes numpy raise errors of a dozen kinds
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{str(path)!r} holds Python objects or is not a numpy file. Pickles can run code and are not read: "
            "save an array of whole numbers with numpy.save."
            if "pickle" in reason
            else f"{str(path)!r} is damaged or not a numpy file ({type(error).__name__}: {reason}). Save it again."
        ) from None
