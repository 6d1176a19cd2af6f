"""Folders of encoded pictures, as `sddm encode` writes them: codes, labels and groups of the rows, the tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from sddm import _checks, _files
from sddm.codecs import Codes, Encoded
from sddm.formats.arrays import read_array, write_array
from sddm.tokenizers.vqgan import VQGAN

CODES_FILE, ABOUT_FILE, TOKENIZER = "codes.npy", "codes.json", "tokenizer"
NUMBERS = ("labels", "groups")
"""What is kept of the rows, each in an .npy file of its own, if the data have it."""
LEFT_BY = frozenset({CODES_FILE, ABOUT_FILE, TOKENIZER, *(f"{name}.npy" for name in NUMBERS)})
"""The names of all that such a folder holds."""
FORMAT = 1


def is_codes(path: Path) -> bool:
    """Whether this is such a folder."""
    return all(os.path.isfile(path / name) for name in (CODES_FILE, ABOUT_FILE))  # also False if the name is too long


def read_codes(path: Path) -> Encoded:
    """The codes of pictures, mapped into memory if there are many, and the codec with the tokenizer."""
    about = _about(path / ABOUT_FILE)
    tokenizer = VQGAN.from_pretrained(path / TOKENIZER)
    codec = Codes.of(tokenizer, about["height"], about["width"])
    tokens = read_array(path / CODES_FILE)
    _checks.require(
        tokens.ndim == 2 and tokens.shape[1] == codec.length,
        f"{str(path / CODES_FILE)!r} has shape {tokens.shape}, but pictures of {codec.height} x {codec.width} pixels "
        f"have {codec.length} codes each. Encode them again.",
    )
    numbers = {name: read_array(file) for name in NUMBERS if (file := path / f"{name}.npy").is_file()}
    return Encoded(tokens, codec, **{name: _row(values, path / name) for name, values in numbers.items()})


def write_codes(
    folder: Path,
    rows: int,
    pieces: Iterable[Tensor],
    codec: Codes,
    numbers: dict[str, Int64[Tensor, "num"]],
) -> None:
    """Write such a folder, from pieces of `rows` rows in all; numbers: labels and groups of the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = np.min_scalar_type(codec.num_states - 1)
    made = np.lib.format.open_memmap(folder / CODES_FILE, mode="w+", dtype=kind, shape=(rows, codec.length))
    first = 0
    for piece in pieces:
        made[first : first + len(piece)] = piece.numpy()
        first += len(piece)
    made.flush()
    for name, values in numbers.items():
        write_array(values.numpy(), folder / f"{name}.npy")
    codec.network.save_pretrained(folder / TOKENIZER)
    _files.write_json(folder / ABOUT_FILE, {"format": FORMAT, "height": codec.height, "width": codec.width})
    for file in folder.iterdir():
        _files.sync(file)


def _about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        _checks.require(about["format"] == FORMAT, "it was written by another version of sddm")
        return {name: _checks.whole(about[name], name, 1) for name in ("height", "width")}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}. Encode the pictures again.") from error


def _row(values: np.ndarray, path: Path) -> Any:
    _checks.require(
        values.ndim == 1 and values.dtype.kind in "iu", f"{str(path)!r} must hold one whole number a row, in a row."
    )
    return values.tolist()
