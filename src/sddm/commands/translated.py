"""Rows of data in the tokens of a model that was trained on other data."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.data import Dataset
from sddm.diffusion import Diffusion


def translated(data: Dataset, rows: slice, diffusion: Diffusion) -> Int[Tensor, "rows dim"]:
    """Some rows of the data in the tokens of this model."""
    codec, length = diffusion.codec or data.codec, diffusion.length or data.length
    tokens = codec.padded_to(codec.translated(data.tokens[rows], data.codec, data.name), length)
    _checks.require(
        tokens.shape[1] == length,
        f"{data.name} has {tokens.shape[1]} positions a row, but the model was built for {length}. "
        "Name data of that length with --data, or the length of music and of texts with --window.",
    )
    return tokens
