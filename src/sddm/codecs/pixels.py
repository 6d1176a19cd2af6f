"""Pictures as tokens: the level of each channel of each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from sddm import _checks
from sddm.codecs.base import MAX_LENGTH, Codec, ConditionReaders, Encoded, Readers, Tokens, Writers
from sddm.codecs.excerpt import BLANK
from sddm.codecs.integers import Integers
from sddm.formats import pictures as files
from sddm.formats.arrays import LABELS, integers, read_array, read_labels, write_array
from sddm.formats.sheet import CHANNELS, Pictures, sheet, write_picture, written_here

VALUES = 256
"""How many values a channel of a pixel has in a file."""


class Pixels(Codec):
    """Pictures: position `(row * width + column) * channels + channel` holds the level of this channel of this pixel.

        level = value * levels // 256           value = 255 * level / (levels - 1), rounded up

    With 256 levels, every picture is decoded to itself. With fewer, black and white are. Rounded up, a value always has
    the level that it was made from: `encode(decode(tokens)) == tokens`.

    channels: 3 for red, green and blue, or 1 for grey.
    levels: how many values a token can have.

    >>> Pixels(1, 2, channels=1, levels=4).decode(torch.tensor([[0, 2]])).tolist()
    [[[[0], [170]]]]
    """

    pictures = True

    def __init__(self, height: int, width: int, channels: int = 3, levels: int = VALUES) -> None:
        self.height, self.width = _checks.whole(height, "height", 1), _checks.whole(width, "width", 1)
        self.channels, self.levels = _checks.whole(channels, "channels", 1), _checks.whole(levels, "levels", 2, VALUES)
        _checks.require(channels in CHANNELS, f"channels must be 1 (grey) or 3 (colour), but it is {channels}.")
        self.num_states, self.length = levels, height * width * channels
        _checks.require(
            self.length <= MAX_LENGTH,
            f"{self.shape} have {self.length} positions, but at most {MAX_LENGTH} are possible. Make them smaller with "
            "size, or grey.",
        )
        self._level_of = (np.arange(VALUES) * levels // VALUES).astype(np.uint8)
        self._value_of = (-(-np.arange(levels) * (VALUES - 1) // (levels - 1))).astype(np.uint8)

    @property
    def shape(self) -> str:
        """What the pictures are like, for messages."""
        return f"{'colour' if self.channels == 3 else 'grey'} pictures of {self.height} x {self.width} pixels"

    def encode(self, values: Pictures) -> Tokens:
        return torch.from_numpy(self.compact(values).astype(np.int64))

    def compact(self, values: Pictures) -> UInt8[np.ndarray, "num dim"]:
        """What `encode` returns, in bytes. With 256 levels it shares the memory, or the file, of the pictures."""
        shape = (self.height, self.width, self.channels)
        _checks.require(
            isinstance(values, np.ndarray) and values.dtype == np.uint8 and values.shape[1:] == shape,
            f"values must be an array of uint8 of shape (num, {', '.join(map(str, shape))}), one picture a row, but it "
            f"is {getattr(values, 'dtype', type(values).__name__)} of shape {np.shape(values)}.",
        )
        rows = values.reshape(len(values), self.length)
        return rows if self.levels == VALUES else self._level_of[rows]

    def decode(self, tokens: Tokens) -> Pictures:
        return self._value_of[self.check(tokens).numpy()].reshape(-1, self.height, self.width, self.channels)

    def check(self, tokens: Tokens) -> Tokens:
        tokens = super().check(tokens)
        _checks.require(
            tokens.shape[1] == self.length,
            f"tokens has {tokens.shape[1]} positions, but {self.shape} have {self.length}.",
        )
        return tokens

    def translated(self, tokens: Tokens, source: Codec, name: str) -> Tokens:
        if isinstance(source, Pixels) and source.shape != self.shape:
            options = f" --size {self.width}" * (self.width == self.height) + " --grey" * (self.channels == 1)
            raise ValueError(
                f"{name} holds {source.shape}, but the model was trained on {self.shape}. "
                + (f"Read it with{options}, or name other data." if options else "Name other data.")
            )
        return super().translated(tokens, source, name)

    def usual_grid(self, length: int) -> tuple[int, int] | None:
        """A row of the grid is a row of pixels; a column is a channel of a column of pixels."""
        return self.height, self.width * self.channels

    # ---- reading

    @classmethod
    def files(cls) -> Readers:
        """Arrays with an axis for pictures, rows, columns and perhaps channels; tokens have two axes. An .npz file may
        have a second array `labels`, with a number for each row."""

        def read_one(path: Path, size: int | None = None, levels: int | None = None, grey: bool = False) -> Encoded:
            return read(path, None, size, levels, grey)

        def read(
            path: Path, key: str | None = None, size: int | None = None, levels: int | None = None, grey: bool = False
        ) -> Encoded:
            array = read_array(path, key)
            labels = read_labels(path, len(array)) if array.ndim and key != LABELS else None
            name = repr(str(path)) if array.ndim in (3, 4) else path.name
            return cls.of_array(array, name, None, size, levels, grey)._replace(labels=labels)

        return {".npy": read_one, ".npz": read}

    @classmethod
    def of_array(
        cls,
        array: np.ndarray | Tensor,
        name: str,
        num_states: int | None = None,
        size: int | None = None,
        levels: int | None = None,
        grey: bool = False,
    ) -> Encoded:
        """Pictures, if the array has three or four axes, and rows of tokens otherwise."""
        if array.ndim in (3, 4):
            _checks.require(num_states is None, "num_states is for tokens, but pictures have levels. Give levels.")
            array = array.numpy() if isinstance(array, Tensor) else array
            return cls.of_pictures(_last_axis_channels(array, name), size, levels, grey)
        _checks.require(
            (size, levels, grey) == (None, None, False),
            f"size, levels and grey are for pictures (num, height, width, channels), but {name!r} holds "
            f"an array of shape {tuple(array.shape)}. Leave them out.",
        )
        return Integers.numbered(array, num_states, name)

    @classmethod
    def folders(cls) -> Readers:
        def read(
            paths: Sequence[Path], size: int | None = None, levels: int | None = None, grey: bool = False
        ) -> Encoded:
            size = files.usual_size(paths) if size is None else _checks.whole(size, "size", 1)
            cls(size, size, 1 if grey else 3, levels or VALUES)  # checks all of it before the long work
            squares = files.read_squares(paths, size, grey)
            read = cls.of_pictures(squares.pictures, None, levels, grey, squares.labels, squares.report)
            return read._replace(label_names=squares.classes or None)

        return dict.fromkeys(files.ENDINGS, read)

    @classmethod
    def of_pictures(
        cls,
        pictures: Pictures,
        size: int | None = None,
        levels: int | None = None,
        grey: bool = False,
        labels: Sequence[int] | None = None,
        report: str = "",
    ) -> Encoded:
        """Pictures as tokens; as squares of `size` pixels, if it is given."""
        levels = VALUES if levels is None else levels
        if size is not None:
            cls(_checks.whole(size, "size", 1), size, 1 if grey else pictures.shape[3], levels)
        pictures = files.resized(pictures, size, grey)
        height, width, channels = pictures.shape[1:]
        codec = cls(height, width, channels, levels)
        return Encoded(codec.compact(pictures), codec, labels=labels, report=report)

    # ---- conditions

    def condition_readers(self) -> ConditionReaders:
        """A picture is unknown where it is fully transparent, and an array of pictures where it holds -1."""
        return {".png": self._known_of_picture, ".npy": self._known_of_array}

    def _known_of_picture(self, path: Path) -> list[list[int]]:
        colours, opacity = files.read_known(path)
        height, width = opacity.shape
        _checks.require(
            (height, width) == (self.height, self.width),
            f"{str(path)!r} has {height} x {width} pixels, but samples are {self.shape}. Resize it.",
        )
        values = files.resized(colours[None], None, self.channels == 1).astype(np.int64)
        values[0, opacity == 0] = BLANK
        return self._tokens_of(values)

    def _known_of_array(self, path: Path) -> list[list[int]]:
        array = read_array(path)
        if array.ndim == 2:
            return integers(array, str(path)).tolist()
        array = array[..., None] if array.ndim == 3 else array
        _checks.require(
            array.shape[1:] == (self.height, self.width, self.channels) and array.dtype.kind in "iu",
            f"{str(path)!r} must hold whole numbers of shape (num, {self.height}, {self.width}, {self.channels}), but "
            f"it holds {array.dtype} of shape {array.shape}.",
        )
        low, high = int(array.min(initial=0)), int(array.max(initial=0))
        _checks.require(
            low >= BLANK and high < VALUES,
            f"{str(path)!r} must hold values from 0 to 255, and {BLANK} as a blank, but it holds values from {low} to "
            f"{high}.",
        )
        return self._tokens_of(array.astype(np.int64))

    def _tokens_of(self, values: Int[np.ndarray, "num *shape"]) -> list[list[int]]:
        """Tokens of values from 0 to 255, and blanks."""
        tokens = np.where(values == BLANK, BLANK, self._level_of[values].astype(np.int64))
        return tokens.reshape(len(values), -1).tolist()

    # ---- writing

    def writers(self) -> Writers:
        return {
            ".png": lambda tokens, path: sheet(self.decode(tokens), path),
            ".npy": lambda tokens, path: write_array(self.decode(tokens), path),
        }

    def is_folder(self, path: Path) -> bool:
        """A sheet has all samples; the files of a folder have one each, pixel for pixel."""
        return path.suffix == ""

    def write_single(self, tokens: Tokens, path: Path) -> None:
        write_picture(self.decode(tokens)[0], path)

    def wrote(self, path: Path) -> bool:
        return path.stem.isdecimal() and path.suffix == self.default_ending and written_here(path)


def _last_axis_channels(array: np.ndarray, name: str) -> Pictures:
    """Pictures (num, height, width, channels) as a file may hold them."""
    _checks.require(
        array.dtype == np.uint8 and array.size > 0,
        f"{name} holds {array.dtype} of shape {array.shape}. Pictures are uint8 (num, height, width, channels): "
        "convert them with array.astype('uint8'). Tokens are (num, dim): reshape them, for example with "
        f"array.reshape({len(array)}, -1).",
    )
    if array.ndim == 3:
        return array[..., None]
    first = array.shape[1] in CHANNELS and array.shape[3] not in CHANNELS
    _checks.require(
        array.shape[3] in CHANNELS,
        f"{name} has shape {array.shape}, but the channels of pictures, 1 or 3, are the last axis: (num, height, "
        f"width, channels). Save {'array.transpose(0, 2, 3, 1)' if first else 'red, green and blue, or grey, alone'}.",
    )
    return array
