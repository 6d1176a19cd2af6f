"""Whole numbers as tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch.nn.utils.rnn import pad_sequence

from sddm import _checks
from sddm.codecs.base import Codec, ConditionReaders, Encoded, Readers, Tokens, Writers, beginning
from sddm.codecs.excerpt import BLANK
from sddm.formats.arrays import LENGTHS, integers, read_array, whole_numbers, write_array
from sddm.formats.text import read_lines
from sddm.token_array import TokenArray


class Integers(Codec):
    """Whole numbers: token i is the number i + offset.

    ragged: rows have different lengths, which the model is told. Then `decode` gives an array for each row, and
        `num_states` stands behind the ends of rows.

    In conditions -1, '_' and '?' are blanks (and, if numbers may be negative, offset - 1 in place of -1).
    """

    def __init__(self, num_states: int, offset: int = 0, ragged: bool = False) -> None:
        self.num_states = _checks.whole(num_states, "num_states", 2)
        self.offset = _checks.whole(offset, "offset", -(2**31))
        self.ragged = ragged

    @property
    def arguments(self) -> dict[str, Any]:
        """Without `ragged` where it is not used, as older versions described the same codec."""
        return {name: value for name, value in super().arguments.items() if name != "ragged" or value}

    @property
    def blank(self) -> int:
        """What stands for an unknown number."""
        return min(self.offset, 0) - 1

    def encode(self, values: Int[np.ndarray, "num dim"] | Sequence[Any]) -> Tokens:
        if not self.ragged:
            return self.check(integers(values, "values") - self.offset)
        rows = [integers(np.asarray(row)[None], "a row of values")[0] - self.offset for row in values]
        for row in rows:
            _checks.tokens(row[None], self.num_states, "a row of values")
        return pad_sequence(rows, batch_first=True, padding_value=self.num_states)

    def decode(self, tokens: Tokens) -> Int64[np.ndarray, "num dim"] | list[np.ndarray]:
        if self.ragged:
            return [np.array(row, dtype=np.int64) + self.offset for row in self.rows(tokens)]
        return self.check(tokens).numpy() + self.offset

    @classmethod
    def files(cls) -> Readers:
        def read(path: Path, key: str | None = None) -> Encoded:
            return cls.numbered(read_array(path, key), None, path.name)

        return {".npy": lambda path: read(path), ".npz": read}

    @classmethod
    def of_array(cls, values: Any, num_states: int | None, name: str, lengths: Sequence[int] | None = None) -> Encoded:
        """An array or a tensor of whole numbers, of which so many of each row exist, if that is said."""
        if lengths is None:
            return cls.numbered(values, num_states, name)
        _checks.require(
            all(1 <= length <= values.shape[1] for length in lengths),
            f"{LENGTHS!r} of {name} must lie between 1 and the {values.shape[1]} positions of a row.",
        )
        return cls.of_rows([row[:length] for row, length in zip(values, lengths, strict=True)], num_states, name)

    @classmethod
    def of_rows(cls, rows: Sequence[Any], num_states: int | None, name: str) -> Encoded:
        """Rows of whole numbers from 0 to num_states - 1 (None: the largest), whose lengths may differ."""
        _checks.require(len(rows) > 0, f"{name} holds no rows. Give at least one.")
        arrays = [whole_numbers(np.asarray(row)[None], f"A row of {name}")[0] for row in rows]
        return cls.joined(np.concatenate(arrays), [len(row) for row in arrays], num_states, name)

    @classmethod
    def joined(
        cls, numbers: Int[np.ndarray, "all"], lengths: Sequence[int], num_states: int | None, name: str
    ) -> Encoded:
        """The same of rows of these lengths, one after the other in an array."""
        longest = max(lengths)
        if min(lengths) == longest:
            return cls.numbered(numbers.reshape(-1, longest), num_states, name)
        codec = cls(cls.numbered(numbers[None], num_states, name).codec.num_states, ragged=True)
        _checks.require(
            int(numbers.max()) < codec.num_states,
            f"{name} holds {int(numbers.max())}, but num_states is {codec.num_states}.",
        )
        tokens = np.full((len(lengths), longest), codec.num_states)
        tokens[np.arange(longest) < np.array(lengths)[:, None]] = numbers
        return Encoded(tokens, codec, lengths=lengths)

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
        array = {".npz": self._write_ragged} if self.ragged else {".npy": self._write_array}
        return {
            **array,
            ".txt": partial(self._write_lines, between=" "),
            ".csv": partial(self._write_lines, between=","),
        }

    def _write_array(self, tokens: Tokens, path: Path) -> None:
        write_array(np.asarray(self.decode(tokens)), path)

    def _write_ragged(self, tokens: Tokens, path: Path) -> None:
        """Rows that are filled up with 0, and their lengths."""
        rows = [torch.from_numpy(row) for row in self.decode(tokens)]
        values = pad_sequence(rows, batch_first=True).numpy()
        with path.open("wb") as file:
            np.savez(file, tokens=values, lengths=np.array([len(row) for row in rows]))  # under the name LENGTHS

    def _write_lines(self, tokens: Tokens, path: Path, between: str) -> None:
        path.write_text("".join(between.join(map(str, row.tolist())) + "\n" for row in self.decode(tokens)))

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
