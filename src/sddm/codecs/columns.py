"""Rows of a table as tokens, one a column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from sddm import _checks
from sddm._checks import shown
from sddm.codecs.base import MAX_LENGTH, Codec, ConditionReaders, Encoded, Readers, Tokens, Writers
from sddm.codecs.characters import Characters
from sddm.codecs.excerpt import BLANK
from sddm.formats.records import TEXT, as_lines, as_rows, read_jsonl, write_jsonl
from sddm.formats.tables import Rows, categories, read_csv, read_parquet, write_csv, write_parquet


class Columns(Codec):
    """A table: position d is the column names[d], and its token i is the text values[d][i]."""

    ordered = True

    def __init__(self, names: Sequence[str], values: Sequence[Sequence[str]]) -> None:
        self.names, self.values = list(names), [list(column) for column in values]
        _checks.require(
            0 < len(self.names) == len(self.values) == len(set(self.names)),
            f"names must hold one name for each column of values, all different, but it holds {shown(self.names)} "
            f"for {len(self.values)} columns.",
        )
        _checks.require(
            len(self.names) <= MAX_LENGTH,
            f"The table has {len(self.names)} columns, but at most {MAX_LENGTH} are possible. Drop some.",
        )
        for name, column in zip(self.names, self.values, strict=True):
            if not len(set(column)) == len(column) > 0:
                raise ValueError(f"The values of column {name!r} must differ: {shown(column)}.")
            _checks.require(
                len(column) > 1,
                f"Column {name!r} has only one value, {column[0]!r}: there is nothing to learn in it. Drop it.",
            )
        self.sizes = [len(column) for column in self.values]
        self.num_states = max(self.sizes)
        self._tokens = [{value: token for token, value in enumerate(column)} for column in self.values]

    def encode(self, values: Sequence[Sequence[str]]) -> Tokens:
        columns = list(zip(*values, strict=True))
        if len(columns) != len(self.names):
            raise ValueError(f"values must hold rows of {len(self.names)} fields, but they hold {len(columns)}.")
        for d, column in enumerate(columns):
            for value in set(column):  # tables are long: check each value once, not in every row
                self.token(d, value)
        tokens = [[known[value] for value in column] for known, column in zip(self._tokens, columns, strict=True)]
        return torch.tensor(tokens).T.contiguous()

    def decode(self, tokens: Tokens) -> list[list[str]]:
        rows = self.check(tokens).tolist()
        return [[column[token] for column, token in zip(self.values, row, strict=True)] for row in rows]

    @classmethod
    def files(cls) -> Readers:
        def encoded(names: list[str], rows: Rows) -> Encoded:
            codec = cls(names, categories(names, rows))
            return Encoded(codec.encode(rows), codec)

        def objects(path: Path) -> Encoded:
            names, rows = read_jsonl(path)
            if names == [TEXT]:
                return Characters.of_rows(as_lines(rows, path), repr(str(path)))
            return encoded(names, as_rows(rows))

        return {
            ".csv": lambda path: encoded(*read_csv(path)),
            ".parquet": lambda path: encoded(*read_parquet(path)),
            ".tsv": lambda path: encoded(*read_csv(path)),
            ".jsonl": objects,
        }

    def translated(self, tokens: Tokens, source: Codec, name: str) -> Tokens:
        _checks.require(
            not isinstance(source, Columns) or source.names == self.names,
            f"{name} has the columns {', '.join(getattr(source, 'names', []))}, but the model was trained on "
            f"{', '.join(self.names)}. Name a table with these, in this order.",
        )
        return super().translated(tokens, source, name)

    def writers(self) -> Writers:
        return {
            ".csv": lambda tokens, path: write_csv(self.names, self.decode(tokens), path),
            ".parquet": lambda tokens, path: write_parquet(self.names, self.decode(tokens), path),
            ".tsv": lambda tokens, path: write_csv(self.names, self.decode(tokens), path),
            ".jsonl": lambda tokens, path: write_jsonl(self.names, self.decode(tokens), path),
            **super().writers(),
        }

    def condition_readers(self) -> ConditionReaders:
        return {**dict.fromkeys((".csv", ".tsv", ".jsonl"), self._known), **super().condition_readers()}

    def _known(self, path: Path) -> list[list[int]]:
        """Some of the columns, in any order; an empty field is a blank, and so is '?' where it is not a value."""
        names, rows = read_csv(path) if path.suffix.lower() != ".jsonl" else _records(path)
        for name in names:
            _checks.require(
                name in self.names,
                f"{str(path)!r} has a column {name!r}, which the data do not have. They have {shown(self.names)}.",
            )
        places = [self.names.index(name) for name in names]
        known = [[BLANK] * len(self.names) for _ in rows]
        for target, row in zip(known, rows, strict=True):
            for d, field in zip(places, row, strict=True):
                blank = field == "" or (field == "?" and field not in self._tokens[d])
                target[d] = BLANK if blank else self.token(d, field)
        return known

    def token(self, d: int, text: str) -> int:
        """The token of a value of column d."""
        if text not in self._tokens[d]:
            raise ValueError(f"Column {self.names[d]!r} has no value {text!r}. Its values are {shown(self.values[d])}.")
        return self._tokens[d][text]


def _records(path: Path) -> tuple[list[str], Rows]:
    names, rows = read_jsonl(path)
    return names, as_rows(rows)
