"""Rows of tokens, which may be larger than memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor

from sddm.formats import arrays

PIECE = 1 << 20
"""How many tokens of an array are processed at once."""
HASHED_WHOLE, HASHED_OF_PIECE = 1 << 26, 1 << 12
"""A fingerprint hashes all tokens up to this number; of more, the sum of each piece and this many bytes at its end."""


class TokenArray:
    """Rows of tokens (num, dim) in the smallest type that holds them, or in a file; indexing returns int64.

    A large file is mapped into memory and read row by row, so at most a piece of it is in memory at any time.

    >>> tokens = TokenArray(np.load("large.npy", mmap_mode="r"))
    >>> tokens[:16]                                # a tensor (16, dim), as is tokens[torch.tensor([3, 1, 4])]
    >>> tokens[:]                                  # all rows, as int64
    """

    def __init__(self, values: np.ndarray | Tensor, name: str = "tokens") -> None:
        array = arrays.whole_numbers(values, name)
        self._mapping = getattr(values, "_mmap", None) if array.nbytes > arrays.MAPPED_FROM else None
        self.values = array
        self._chosen: Tensor | None = None
        self._gaps: Tensor | None = None
        extremes, hasher = [], blake2b(digest_size=16)
        for piece in self.pieces():  # one pass for all that has to be known: a cold file is slow to read
            extremes.append((piece.min(), piece.max()))
            if array.size > HASHED_WHOLE:
                _add_summary(hasher, piece, array.dtype)
        self._summary, self._summarised = hasher.digest(), array.dtype
        self.low, self.high = int(min(low for low, _ in extremes)), int(max(high for _, high in extremes))
        """The smallest and the largest token of the array, which also bound those of its views."""
        if self._mapping is None:
            self.values = np.array(array, np.result_type(*map(np.min_scalar_type, (self.low, self.high))), order="C")

    @property
    def in_file(self) -> bool:
        """Whether rows are read from a file when they are needed."""
        return self._mapping is not None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.values.shape[1]

    def __len__(self) -> int:
        if self._chosen is not None:
            return len(self._chosen)
        return len(self.values) - (0 if self._gaps is None else len(self._gaps))

    def __getitem__(self, rows: int | slice | Tensor) -> Int[Tensor, "*num dim"]:
        if isinstance(rows, int):
            return self[torch.tensor([range(len(self))[rows]])][0]
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)))
        elif rows.dtype == torch.bool:
            rows = rows.nonzero().squeeze(1)
        return torch.from_numpy(self._read(self._places(rows).numpy()).astype(np.int64))

    def select(self, rows: Int[Tensor, "num"]) -> TokenArray:
        """A view of some rows."""
        return self._view(_chosen=self._places(rows), _gaps=None)

    def without(self, rows: Int[Tensor, "num"]) -> TokenArray:
        """A view of all rows except these, in ascending order. It stores these row numbers only."""
        if len(self) == len(self.values):
            return self._view(_gaps=rows - torch.arange(len(rows)))
        return self.select(torch.ones(len(self), dtype=torch.bool).index_fill(0, rows, False).nonzero().squeeze(1))

    def pieces(self) -> Iterator[np.ndarray]:
        """All rows in order, a million tokens at a time, in their stored type."""
        size = max(1, PIECE // self.shape[1])
        for first in range(0, len(self), size):
            last = min(first + size, len(self))
            whole = len(self) == len(self.values)
            yield self._read(slice(first, last) if whole else self._places(torch.arange(first, last)).numpy())

    def highest(self) -> Int64[np.ndarray, "dim"]:
        """The largest token at each position."""
        found = np.full(self.shape[1], self.low, dtype=np.int64)
        for piece in self.pieces():
            np.maximum(found, piece.max(axis=0), out=found)
        return found

    def digest_into(self, hasher: Any) -> None:
        """Add the tokens to a hash: all, or the sum and the end of each piece. Any changed token changes the hash."""
        if prod(self.shape) <= HASHED_WHOLE:
            for piece in self.pieces():
                hasher.update(np.ascontiguousarray(piece, "<i8").data)
            return
        kind = np.min_scalar_type(self.high).newbyteorder("<")
        if len(self) == len(self.values) and kind == self._summarised:
            hasher.update(self._summary)
            return
        own = blake2b(digest_size=16)
        for piece in self.pieces():
            _add_summary(own, piece, kind)
        hasher.update(own.digest())

    def _view(self, **rows: Tensor | None) -> TokenArray:
        view = object.__new__(TokenArray)
        view.__dict__.update(self.__dict__, **rows)
        return view

    def _places(self, rows: Int[Tensor, "num"]) -> Int[Tensor, "num"]:
        """The rows of the array behind rows of this view."""
        if self._chosen is not None:
            return self._chosen[rows]
        # Before row r of the view stand as many of the left-out rows l_0 < l_1 < ... as have l_i - i <= r.
        return rows if self._gaps is None else rows + torch.searchsorted(self._gaps, rows, right=True)

    def _read(self, rows: slice | np.ndarray) -> np.ndarray:
        """Some rows: a view of those in memory, or a copy from a mapped file, whose pages are then released."""
        if self._mapping is None:
            return self.values[rows]
        found = np.array(self.values[rows])
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)
        return found


def _add_summary(hasher: Any, piece: np.ndarray, kind: np.dtype[Any]) -> None:
    """Add the sum and the end of a piece, in this type, to a hash."""
    data = np.ascontiguousarray(piece, kind).reshape(-1).view(np.uint8)
    words = data[: len(data) // 8 * 8].view("<u8")
    hasher.update(int(words.sum(dtype=np.uint64)).to_bytes(8, "little"))
    hasher.update(data[-HASHED_OF_PIECE:].data)
