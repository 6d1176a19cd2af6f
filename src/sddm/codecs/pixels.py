"""Pictures as tokens: the level of each channel of each pixel."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import UInt8

from sddm import _checks
from sddm.codecs.base import Codec, Tokens, Writers
from sddm.formats.arrays import write_array

VALUES = 256
"""How many values a channel of a pixel has in a file."""
CHANNELS = (1, 3)

Pictures = UInt8[np.ndarray, "num height width channels"]


class Pixels(Codec):
    """Pictures: position `(row * width + column) * channels + channel` holds the level of this channel of this pixel.

        level = value * levels // 256

    A level is decoded to the middle of its values. With 256 levels, every picture is decoded to itself; with fewer,
    `encode(decode(tokens)) == tokens` still.

    channels: 3 for red, green and blue, or 1 for grey.
    levels: how many values a token can have.

    >>> Pixels(1, 2, channels=1, levels=4).decode(torch.tensor([[0, 3]])).tolist()
    [[[[31], [223]]]]
    """

    def __init__(self, height: int, width: int, channels: int = 3, levels: int = VALUES) -> None:
        self.height, self.width = _checks.whole(height, "height", 1), _checks.whole(width, "width", 1)
        self.channels, self.levels = _checks.whole(channels, "channels", 1), _checks.whole(levels, "levels", 2, VALUES)
        _checks.require(channels in CHANNELS, f"channels must be 1 (grey) or 3 (colour), but it is {channels}.")
        self.num_states, self.length = levels, height * width * channels
        self._level_of = (np.arange(VALUES) * levels // VALUES).astype(np.uint8)
        ends = np.searchsorted(self._level_of, np.arange(levels + 1))
        self._values = ((ends[:-1] + ends[1:] - 1) // 2).astype(np.uint8)

    def encode(self, values: Pictures) -> Tokens:
        return torch.from_numpy(self.compact(values).astype(np.int64))

    def compact(self, values: Pictures) -> UInt8[np.ndarray, "num dim"]:
        """What `encode` returns, in bytes. With 256 levels it shares the memory of the pictures."""
        shape = (self.height, self.width, self.channels)
        _checks.require(
            isinstance(values, np.ndarray) and values.dtype == np.uint8 and values.shape[1:] == shape,
            f"values must be an array of uint8 of shape (num, {', '.join(map(str, shape))}), one picture a row, but it "
            f"is {getattr(values, 'dtype', type(values).__name__)} of shape {np.shape(values)}.",
        )
        rows = values.reshape(len(values), self.length)
        return rows if self.levels == VALUES else self._level_of[rows]

    def decode(self, tokens: Tokens) -> Pictures:
        return self._values[self.check(tokens).numpy()].reshape(-1, self.height, self.width, self.channels)

    def check(self, tokens: Tokens) -> Tokens:
        tokens = super().check(tokens)
        _checks.require(
            tokens.shape[1] == self.length,
            f"tokens has {tokens.shape[1]} positions, but pictures of {self.height} x {self.width} pixels with "
            f"{self.channels} channel{'s' * (self.channels > 1)} have {self.length}.",
        )
        return tokens

    def writers(self) -> Writers:
        return {".npy": lambda tokens, path: write_array(self.decode(tokens), path)}
