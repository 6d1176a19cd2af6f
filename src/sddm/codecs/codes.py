"""Pictures as the codes of a tokenizer, which the codec carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Int, UInt8
from PIL import Image
from torch import Tensor

from sddm import _checks
from sddm.codecs.base import Codec, ConditionReaders, Tokens, Writers
from sddm.codecs.excerpt import BLANK
from sddm.codecs.pixels import Pixels
from sddm.formats.arrays import integers, read_array, write_array
from sddm.formats.sheet import sheet
from sddm.tokenizers.sizes import VQGANSizes
from sddm.tokenizers.vqgan import VQGAN

Pictures = UInt8[np.ndarray, "num height width channels"]


class Codes(Codec):
    """Pictures of `height` x `width` pixels: position `row * columns + column` holds the code of one patch.

    tokenizer: the sizes of the network, whose weights are fresh until others are loaded.

    >>> codec = Codes.of(VQGAN.from_pretrained("runs/tokenizer/model"), 32, 32)
    >>> codec.decode(codec.encode(pictures))       # uint8 (num, 32, 32, 3); in between (num, 64)
    """

    network: VQGAN

    def __init__(self, height: int, width: int, tokenizer: VQGANSizes) -> None:
        self.height, self.width = _checks.whole(height, "height", 1), _checks.whole(width, "width", 1)
        self.tokenizer = _checks.instance(tokenizer, VQGANSizes, "tokenizer")
        self.num_states = tokenizer.codes
        self.grid = tokenizer.grid(height, width)
        with torch.random.fork_rng(devices=[]):  # so that nobody's draws depend on it
            self.network = VQGAN(tokenizer).requires_grad_(False).eval()

    @classmethod
    def of(cls, tokenizer: VQGAN, height: int, width: int) -> Codes:
        """The codec with this network."""
        codec = cls(height, width, tokenizer.sizes)
        codec.network = tokenizer
        return codec

    @property
    def length(self) -> int:
        """How many positions a picture has."""
        return self.grid[0] * self.grid[1]

    def usual_grid(self, length: int) -> tuple[int, int] | None:
        return self.grid

    def encode(self, values: Pictures) -> Tokens:
        shape = (self.height, self.width, self.tokenizer.channels)
        _checks.require(
            isinstance(values, np.ndarray) and values.dtype == np.uint8 and values.shape[1:] == shape,
            f"values must be an array of uint8 of shape (num, {', '.join(map(str, shape))}), one picture a row, but it "
            f"is {getattr(values, 'dtype', type(values).__name__)} of shape {np.shape(values)}.",
        )
        return self.network.encode(torch.from_numpy(np.ascontiguousarray(values))).flatten(1)

    def decode(self, tokens: Tokens) -> Pictures:
        rows, columns = self.grid
        grids = rearrange(self.check(tokens), "num (rows columns) -> num rows columns", rows=rows, columns=columns)
        return self.network.decode(grids).numpy()

    def check(self, tokens: Tokens) -> Tokens:
        tokens = super().check(tokens)
        _checks.require(
            tokens.shape[1] == self.length,
            f"tokens has {tokens.shape[1]} positions, but pictures of {self.height} x {self.width} pixels have "
            f"{self.length} codes, one for each {self.tokenizer.factor} x {self.tokenizer.factor}.",
        )
        return tokens

    def translated(self, tokens: Tokens, source: Codec, name: str) -> Int[Tensor, "num codes"]:
        """Pictures that are given pixel by pixel are encoded."""
        if not isinstance(source, Pixels):
            return super().translated(tokens, source, name)
        try:
            return self.encode(source.decode(tokens))
        except ValueError as error:
            raise ValueError(f"{name} holds what the model was not trained on: {error} Name other data.") from error

    def writers(self) -> Writers:
        return {
            ".png": lambda tokens, path: sheet(self.decode(tokens), path),
            ".npy": lambda tokens, path: write_array(self.decode(tokens), path),
        }

    def condition_readers(self) -> ConditionReaders:
        return {
            ".png": lambda path: self._with_holes(path).tolist(),
            ".npy": lambda path: integers(read_array(path), str(path)).tolist(),
        }

    def _with_holes(self, path: Path) -> Tokens:
        """The codes of a picture. Those of patches with fully transparent pixels are blank, and the encoder, which sees
        more than a patch, sees the mean colour of the others in place of these pixels."""
        picture = _coloured(path, self.tokenizer.channels)
        _checks.require(
            picture.shape[:2] == (self.height, self.width),
            f"{str(path)!r} has {picture.shape[0]} x {picture.shape[1]} pixels, but the model makes pictures of "
            f"{self.height} x {self.width}. Enlarge or cut it.",
        )
        values, seen = picture[..., :-1], picture[..., -1] > 0
        if not seen.any():
            return torch.full((1, self.length), BLANK)
        filled = np.where(seen[..., None], values, values[seen].mean(axis=0).round().astype(np.uint8))
        size = self.tokenizer.factor
        whole = seen.reshape(self.grid[0], size, self.grid[1], size).all(axis=(1, 3))
        known = torch.from_numpy(whole.reshape(1, self.length))
        return self.encode(filled[None]).masked_fill(~known, BLANK)


def _coloured(path: Path, channels: int) -> UInt8[np.ndarray, "height width channels"]:
    """A picture's channels, and in one more how opaque its pixels are."""
    _checks.require(channels in (1, 3), f"Pictures of {channels} channels cannot be read from .png files.")
    try:
        with Image.open(path, formats=["PNG"]) as image:
            return np.array(image.convert("RGBA" if channels == 3 else "LA"))
    except Exception as error:  # a damaged file makes Pillow raise errors of many kinds
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{str(path)!r} is damaged or not a .png picture ({reason}). Save it again.") from None
