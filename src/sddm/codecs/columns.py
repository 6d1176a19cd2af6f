"""Rows of a table as tokens, one a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from sddm import _checks
from sddm._checks import shown
from sddm.codecs.base import MAX_LENGTH, Codec, ConditionReaders, Encoded, Readers, Tokens, Writers
from sddm.codecs.characters import Characters
from sddm.codecs.excerpt import Excerpt
from sddm.codecs.fields import Category, Drawn, Field, Number, Places, Spans
from sddm.codecs.kinds import EVERY, Constant, chosen, found_of
from sddm.codecs.wanted import Wanted, wanted
from sddm.formats.records import TEXT, as_lines, as_table, read_jsonl, read_table, write_jsonl
from sddm.formats.tables import Table, check_names, column_of, read_csv, read_parquet, write_csv, write_parquet
from sddm.formats.text import readable
from sddm.randomness import uniforms_of

TABLES: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".tsv": read_csv,
    ".jsonl": read_table,
}
"""How tables are read."""
TOLD = 200
"""The report of a table has a line for each of so many columns at most."""


class Columns(Codec):
    """A table: position d is the column names[d], and values[d] is what its tokens mean: a `Field`, or the texts of a
    category. constants: columns of one value, which have no position and are written back.

    Numbers and dates are drawn inside their bins when tokens are decoded. What is drawn follows from the tokens of the
    row and from its number, so the same samples give the same file.

    >>> found = Columns.of(["age", "sex"], [[31, 47, None], ["F", "M", "F"]])
    >>> found.codec.table(found.tokens)
    """

    ordered = True

    def __init__(
        self, names: Sequence[str], values: Sequence[Sequence[str] | Field], constants: Sequence[Constant] = ()
    ) -> None:
        self.names, self.constants = list(names), list(constants)
        self.fields = [each if isinstance(each, Field) else Category.plain(each) for each in values]
        self.values = [_plain(field) for field in self.fields]
        _checks.require(
            0 < len(self.names) == len(self.fields) == len(set(self.names)),
            f"names must hold one name for each column of values, all different, but it holds {shown(self.names)} "
            f"for {len(self.fields)} columns.",
        )
        _checks.require(
            len(self.names) <= MAX_LENGTH,
            f"The table has {len(self.names)} columns, but at most {MAX_LENGTH} are possible. Drop some.",
        )
        for name, field in zip(self.names, self.fields, strict=True):
            _check_field(name, field)
        self.sizes = [field.size for field in self.fields]
        self.num_states = max(self.sizes)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        columns: Sequence[Sequence[Any] | np.ndarray],
        kinds: str | Mapping[str, str] | None = None,
    ) -> Encoded:
        """The tokens and the codec of raw values, a sequence a column, and a report with what each column is.

        columns: texts, numbers, truth values and dates, of Python or numpy; None and NaN are missing.
        kinds: what columns are, where that is not to be found from their values: see `sddm.codecs.kinds`.
        """
        return cls._found_in(_raw(names, columns), chosen(kinds))

    @classmethod
    def _found_in(cls, table: Table, kinds: Mapping[str, str], like: Codec | None = None) -> Encoded:
        """The tokens of a table, by a codec that is found from it or by one that is known."""
        if isinstance(like, Columns):
            try:
                return Encoded(like._tokens_of(table), like)
            except ValueError as error:
                source = f"{table.source!r} holds what the model was not trained on"
                raise ValueError(f"{source}: {error} Name other data.") from error
        _checks.require(
            len(table.names) <= MAX_LENGTH,
            f"The table has {len(table.names)} columns, but at most {MAX_LENGTH} are possible. Drop some.",
        )
        for name in kinds:
            _checks.require(
                name == EVERY or name in table.names,
                f"kinds names a column {name!r}, which the data do not have. They have {shown(table.names)}.",
            )
        names: list[str] = []
        constants: list[Constant] = []
        fields, tokens, told = [], [], []
        for name, column in zip(table.names, table.columns, strict=True):
            found = found_of(name, column, kinds.get(name, kinds.get(EVERY)))
            told.append(f"{name}: {found.told}.")
            if found.constant is not None:
                constants.append(Constant(name, found.constant, len(names) + len(constants), column.type))
            if found.field is not None and found.tokens is not None:
                names.append(name)
                fields.append(found.field)
                tokens.append(found.tokens.astype(np.min_scalar_type(found.field.size - 1)))
        _checks.require(
            len(names) > 0,
            f"Nothing is left to learn in {table.source}. {' '.join(told[:3])} Give columns that vary.",
        )
        report = told[:TOLD] + [f"And {len(told) - TOLD} columns more."] * (len(told) > TOLD)
        return Encoded(np.stack(tokens, axis=1), cls(names, fields, constants), report="\n".join(report))

    @property
    def arguments(self) -> dict[str, Any]:
        """As they were before there were constants, if there are none."""
        return {name: value for name, value in super().arguments.items() if name != "constants" or value}

    @property
    def written_names(self) -> list[str]:
        """The columns of a file of samples: also the constants, each in its place."""
        names = list(self.names)
        for constant in self.constants:
            names.insert(constant.place, constant.name)
        return names

    def encode(self, values: Sequence[Sequence[Any]]) -> Tokens:
        columns = list(zip(*values, strict=True))
        if len(columns) != len(self.names):
            raise ValueError(f"values must hold rows of {len(self.names)} fields, but they hold {len(columns)}.")
        table = Table(self.names, [column_of(column) for column in columns], "values")
        return torch.from_numpy(self._tokens_of(table).astype(np.int64))

    def decode(self, tokens: Tokens) -> list[list[str]]:
        return [list(row) for row in zip(*self._texts(tokens), strict=True)]

    def table(self, tokens: Tokens) -> dict[str, list[Any]]:
        """Columns of Python values, constants included: numbers, texts, truth values and dates; None if missing."""
        columns = {
            name: field.values_of(texts)
            for name, field, texts in zip(self.names, self.fields, self._texts(tokens), strict=True)
        }
        columns |= {constant.name: [constant.value] * len(tokens) for constant in self.constants}
        return {name: columns[name] for name in self.written_names}

    def _texts(self, tokens: Tokens) -> list[list[str]]:
        """What is written in each column."""
        rows = self.check(tokens).numpy()
        uniforms = uniforms_of(rows)
        return [self._column(d, rows[:, d], uniforms[:, d]) for d in range(len(self.names))]

    def _column(self, d: int, tokens: Places, uniforms: Drawn) -> list[str]:
        return self.fields[d].texts(tokens, uniforms)

    def _tokens_of(self, table: Table) -> Int64[np.ndarray, "rows dim"]:
        """The tokens of a table that has these columns, in any order, and maybe others."""
        missing = [name for name in self.names if name not in table.names]
        _checks.require(
            not missing, f"{table.source} has no column {missing[0] if missing else ''!r}. It has {shown(table.names)}."
        )
        columns = [table.columns[table.names.index(name)] for name in self.names]
        return np.stack([self.known(d, column.texts)[column.codes] for d, column in enumerate(columns)], axis=1)

    def known(self, d: int, texts: Sequence[str]) -> Int64[np.ndarray, "texts"]:
        """The tokens of texts in a column."""
        try:
            return self.fields[d].tokens(texts)
        except ValueError as error:
            raise ValueError(f"Column {self.names[d]!r} {error}") from None

    def usual_known(self, length: int) -> str | None:
        """Nothing, or any of the columns, so that samples of conditions are what the model was trained for."""
        return "nothing@1+scattered" if length > 1 else None

    @classmethod
    def files(cls) -> Readers:
        def reader(read: Callable[[Path], Table]) -> Callable[..., Encoded]:
            def encoded(path: Path, kinds: str | None = None, like: Codec | None = None) -> Encoded:
                return cls._found_in(read(path), chosen(kinds), like)

            return encoded

        def objects(path: Path, kinds: str | None = None, like: Codec | None = None) -> Encoded:
            names, rows = read_jsonl(path)
            if names == [TEXT] and kinds is None and not isinstance(like, Columns):
                return Characters.of_rows(as_lines(rows, path), repr(str(path)))
            return cls._found_in(as_table(names, rows, path), chosen(kinds), like)

        return {**{ending: reader(read) for ending, read in TABLES.items()}, ".jsonl": objects}

    def translated(self, tokens: Tokens, source: Codec, name: str) -> Tokens:
        _checks.require(
            not isinstance(source, Columns) or source.names == self.names,
            f"{name} has the columns {', '.join(getattr(source, 'names', []))}, but the model was trained on "
            f"{', '.join(self.names)}. Name a table with these, in this order.",
        )
        return super().translated(tokens, source, name)

    def writers(self) -> Writers:
        return {
            ".csv": self._write_csv,
            ".parquet": self._write_parquet,
            ".tsv": self._write_csv,
            ".jsonl": self._write_jsonl,
            **super().writers(),
        }

    def _write_csv(self, tokens: Tokens, path: Path) -> None:
        columns = self._texts(tokens)
        for constant in self.constants:
            columns.insert(constant.place, [constant.text] * len(tokens))
        write_csv(self.written_names, zip(*columns, strict=True), path)

    def _write_parquet(self, tokens: Tokens, path: Path) -> None:
        storage = {name: field.storage for name, field in zip(self.names, self.fields, strict=True)}
        storage |= {constant.name: constant.storage for constant in self.constants}
        columns = self._written(tokens)
        write_parquet(list(columns), list(columns.values()), [storage[name] for name in columns], path)

    def _write_jsonl(self, tokens: Tokens, path: Path) -> None:
        columns = self._written(tokens)
        for name, field in zip(self.names, self.fields, strict=True):
            if isinstance(field, Number) and field.places == 0:  # with as few decimals as each number needs
                columns[name] = [_short(value) for value in columns[name]]
        write_jsonl(columns, path)

    def _written(self, tokens: Tokens) -> dict[str, list[Any]]:
        """The values of a file whose columns have types: in those of text, a missing value has its own sign."""
        columns = self.table(tokens)
        for name, field, texts in zip(self.names, self.fields, self._texts(tokens), strict=True):
            if field.storage == "text":
                columns[name] = [text or (None if field.missing == "" else text) for text in texts]
        return columns

    def condition_readers(self) -> ConditionReaders:
        return {**dict.fromkeys(TABLES, self._rows_of), **super().condition_readers()}

    def _rows_of(self, path: Path) -> list[list[int]]:
        rows: list[list[int]] = self.where(condition=path).rows.tolist()
        return rows

    def where(self, *tests: str, condition: str | Path | None = None) -> Wanted:
        """Samples whose columns pass tests, such as "age>=40" or "sex=F", and of which the rows of a file are known.

        >>> wanted = model.codec.where("age>=40", "income not missing")
        >>> wanted.codec.table(model.sample(16, condition=wanted.condition))
        """
        if condition is None:
            return wanted(self, tests)
        path = Path(condition)
        read = TABLES.get(path.suffix.lower())
        if read is None:
            return wanted(self, tests, self.read_condition(path, len(self.names)))
        readable(path)
        return wanted(self, tests, read(path))

    def given(self, names: Sequence[str], columns: Sequence[Sequence[Any] | np.ndarray], *tests: str) -> Wanted:
        """Samples of which some fields are given, a sequence of raw values a column; None is to be generated."""
        return wanted(self, tests, _raw(names, columns))

    def excerpt(self, path: Path, length: int, *rules: Any, **options: Any) -> Excerpt:
        rows = super().excerpt(path, length, *rules, **options)  # which checks them
        return self.where(condition=path) if path.suffix.lower() in TABLES else rows

    def completing(self, spans: Mapping[int, Spans], texts: Mapping[int, Sequence[str | None]]) -> Columns:
        """The codec of samples of which more is given than their tokens: see `Completing`."""
        return Completing(self.names, self.values, self.constants, spans, texts)


class Completing(Columns):
    """Writes samples of a condition.

    spans: by position, where numbers lie, in steps.
    given_texts: by position, what was given in each row, or in all; None where nothing was.
    """

    def __init__(
        self,
        names: Sequence[str],
        values: Sequence[Sequence[str] | Field],
        constants: Sequence[Constant],
        spans: Mapping[int, Spans],
        given_texts: Mapping[int, Sequence[str | None]],
    ) -> None:
        super().__init__(names, values, constants)
        self.spans, self.given_texts = spans, given_texts

    def _column(self, d: int, tokens: Places, uniforms: Drawn) -> list[str]:
        drawn, given = self.fields[d].texts(tokens, uniforms, self.spans.get(d)), self.given_texts.get(d)
        if given is None:
            return drawn
        _checks.require(
            len(given) in (1, len(drawn)), f"{len(given)} rows were given, but there are {len(drawn)} samples of them."
        )
        rows = given if len(given) == len(drawn) else [*given] * len(drawn)
        return [text if known is None else known for text, known in zip(drawn, rows, strict=True)]


def _raw(names: Sequence[str], columns: Sequence[Sequence[Any] | np.ndarray]) -> Table:
    """A table of raw values."""
    check_names(list(names), "names")
    _checks.require(
        len(names) == len(columns) and len(set(map(len, columns))) == 1 and len(columns[0]) > 0,
        f"columns must hold a sequence of values for each of the {len(names)} names, all of one length.",
    )
    found = []
    for name, values in zip(names, columns, strict=True):
        try:
            found.append(column_of(values))
        except TypeError as error:
            raise TypeError(f"Column {name!r} {error}") from None
    return Table(list(names), found, "The table")


def _short(value: Any) -> Any:
    """A fraction without decimals as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_field(name: str, field: Field) -> None:
    if isinstance(field, Category) and not len(set(field.values)) == len(field.values) > 0:
        raise ValueError(f"The values of column {name!r} must differ: {shown(field.values)}.")
    told = f", {field.values[0]!r}" if isinstance(field, Category) else ""
    _checks.require(
        field.size > 1, f"Column {name!r} has only one value{told}: there is nothing to learn in it. Drop it."
    )


def _plain(field: Field) -> list[str] | Field:
    """A category as the list of its values, if that says all: so were tables saved when all columns were categories."""
    if not isinstance(field, Category) or field.arguments != Category.plain(field.values).arguments:
        return field
    return field.values
