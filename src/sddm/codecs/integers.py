"""Whole numbers as tokens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int64

from sddm import _checks
from sddm.codecs.base import Codec, ConditionReaders, Encoded, Readers, Tokens, Writers, beginning
from sddm.codecs.excerpt import BLANK
from sddm.formats.arrays import integers, read_array, write_array
from sddm.formats.text import read_lines
from sddm.token_array import TokenArray


class Integers(Codec):
    """Whole numbers: token i is the number i + offset.

    In conditions -1, '_' and '?' are blanks (and, if numbers may be negative, offset - 1 in place of -1).
    """

    def __init__(self, num_states: int, offset: int = 0) -> None:
        self.num_states = _checks.whole(num_states, "num_states", 2)
        self.offset = _checks.whole(offset, "offset", -(2**31))

    @property
    def blank(self) -> int:
        """What stands for an unknown number."""
        return min(self.offset, 0) - 1

    def encode(self, values: Int[np.ndarray, "num dim"]) -> Tokens:
        return self.check(integers(values, "values") - self.offset)

    def decode(self, tokens: Tokens) -> Int64[np.ndarray, "num dim"]:
        return self.check(tokens).numpy() + self.offset

    @classmethod
    def files(cls) -> Readers:
        def read(path: Path, key: str | None = None) -> Encoded:
            return cls.numbered(read_array(path, key), None, path.name)

        return {".npy": lambda path: read(path), ".npz": read}

    @classmethod
    def numbered(cls, values: Any, num_states: int | None, name: str) -> Encoded:
        """An array or a tensor of whole numbers from 0 to num_states - 1 (None: the largest)."""
        tokens = TokenArray(values, name)
        low, high = tokens.low, tokens.high
        _checks.require(
            low >= 0, f"{name} must not hold negative numbers, but its smallest is {low}. Number the values from 0."
        )
        if num_states is None:
            _checks.require(low < high, f"All tokens of {name} equal {low}: there is nothing to learn. Give others.")
            num_states = high + 1
        return Encoded(tokens, cls(num_states))

    def writers(self) -> Writers:
        return {
            ".npy": lambda tokens, path: write_array(self.decode(tokens), path),
            ".txt": lambda tokens, path: np.savetxt(path, self.decode(tokens), fmt="%d", delimiter=" "),
            ".csv": lambda tokens, path: np.savetxt(path, self.decode(tokens), fmt="%d", delimiter=","),
        }

    def condition_readers(self) -> ConditionReaders:
        def from_array(path: Path) -> list[list[int]]:
            return [[self._token(v, str(path)) for v in row] for row in integers(read_array(path), str(path)).tolist()]

        def from_text(path: Path) -> list[list[int]]:
            return [self._parse(line, str(path)) for line in read_lines(path)]

        return {".npy": from_array, ".txt": from_text, ".csv": from_text}

    def read_prefix(self, text: str, length: int) -> Tokens:
        return beginning(self._parse(text, "prefix") if text.strip() else [], length)

    def _parse(self, line: str, source: str) -> list[int]:
        fields = [field.strip() for field in line.split(",")] if "," in line else line.split()
        return [BLANK if field in ("", "_", "?") else self._token(_number(field, source), source) for field in fields]

    def _token(self, value: int, source: str) -> int:
        blank = self.blank
        low, high = self.offset, self.offset + self.num_states - 1
        if value != blank and not low <= value <= high:
            raise ValueError(f"{source!r} holds {value}, but the numbers are {low} to {high}, and {blank} is a blank.")
        return BLANK if value == blank else value - self.offset


def _number(field: str, source: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", field):
        raise ValueError(f"{source!r} holds {field!r} where a whole number is expected. A blank is '_' or '?'.")
    return int(field)
