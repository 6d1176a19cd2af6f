"""Tables: csv, tsv and parquet files as columns of distinct values, both ways."""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from jaxtyping import Int32

from sddm import _checks
from sddm.formats.text import read_text

TAB = "\t"
LINES = 1 << 10
"""How many lines of a file are taken apart at once: few enough to stay in the cache of a processor."""
STORAGE = {
    "text": "string",
    "whole": "int64",
    "real": "float64",
    "truth": "bool_",
    "date": "date32",
    "time": "timestamp",
    "utc": "timestamp",
}
"""The types that columns are written as, by the names of arrow's."""


class Distinct(NamedTuple):
    """A column by its distinct values: row r holds texts[codes[r]]. A missing value is the empty text."""

    texts: list[str]
    codes: Int32[np.ndarray, "rows"]
    type: str = ""
    """The type of the values, a name of STORAGE; nothing if the source has no types, as a text file."""


class Table(NamedTuple):
    """The names and the columns of a table; `source` names it in error messages."""

    names: list[str]
    columns: list[Distinct]
    source: str

    @property
    def rows(self) -> int:
        return len(self.columns[0].codes)


class _Numbered(dict[Any, int]):
    """Gives each new key the next number."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return len(self) - 1


def read_csv(path: Path) -> Table:
    """The columns of a comma-separated file, or of a tab-separated one (.tsv); empty lines are dropped. Each distinct
    text is kept once."""
    text = read_text(path)
    nul = text.find("\0")
    _checks.require(
        nul < 0,
        f"Line {text.count(chr(10), 0, nul) + 1} of {str(path)!r} holds a NUL byte, which is no text. Save it again.",
    )
    reader, separators = _reader(text, path), _separators(path)
    try:
        names = next((fields for fields in reader if fields), None)
        if names is None:
            raise ValueError(f"{str(path)!r} holds empty lines only. Give a header and rows.")
        _checks.require(
            len(names) > 1 or not set(names[0]) & (set(",;\t|") - {_delimiter(path)}),
            f"The header of {str(path)!r} is one column, {names[0]!r}, which looks like several. Separate them by "
            f"{separators}.",
        )
        check_names(names, f"The header of {str(path)!r}")
        known: list[_Numbered] = [_Numbered() for _ in names]
        codes: list[list[np.ndarray]] = [[] for _ in names]
        while lines := list(islice(reader, LINES)):
            if set(map(len, lines)) != {len(names)}:
                lines = _even(lines, len(names), path)
            for numbers, found, fields in zip(known, codes, zip(*lines, strict=True), strict=False):
                found.append(np.fromiter(map(numbers.__getitem__, fields), np.int32, len(fields)))
    except csv.Error as error:
        # The reader counts physical lines, also within quoted fields: that is what an editor shows.
        raise ValueError(
            f"{str(path)!r} is not valid csv near line {reader.line_num}: {error}. Check the quotes there."
        ) from None
    _checks.require(len(codes[0]) > 0, f"{str(path)!r} has a header but no rows. Give at least one row.")
    columns = [Distinct(list(texts), np.concatenate(some)) for texts, some in zip(known, codes, strict=True)]
    return Table(names, columns, str(path))


def _even(lines: list[list[str]], width: int, path: Path) -> list[list[str]]:
    """The lines that are not empty; an error if one has more or fewer fields than the header."""
    lines = [fields for fields in lines if fields]
    if all(len(fields) == width for fields in lines):
        return lines
    reader = _reader(read_text(path), path)
    number, fields = next((reader.line_num, fields) for fields in reader if fields and len(fields) != width)
    raise ValueError(
        f"Line {number} of {str(path)!r} has {len(fields)} field{'s' * (len(fields) != 1)}, "
        f"but the header has {width}. Correct the line, or quote fields that hold {_separators(path)}."
    )


def _reader(text: str, path: Path) -> Any:
    return csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=_delimiter(path))


def _delimiter(path: Path) -> str:
    return TAB if path.suffix.lower() == ".tsv" else ","


def _separators(path: Path) -> str:
    """What stands between fields, for the user."""
    return "tabs" if _delimiter(path) == TAB else "commas"


def read_parquet(path: Path) -> Table:
    """The columns of a parquet file, every value as text and null as the empty text."""
    arrow = _pyarrow("pyarrow", path)
    try:
        with _pyarrow("pyarrow.parquet", path).ParquetFile(path) as file:
            table = file.read()
    except (arrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{str(path)!r} is damaged or not a parquet file ({reason}). Save it again.") from None
    _checks.require(table.num_columns > 0, f"{str(path)!r} has no columns.")
    check_names(table.column_names, f"The header of {str(path)!r}")
    _checks.require(table.num_rows > 0, f"{str(path)!r} has a header but no rows. Give at least one row.")
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(_from_arrow(column, arrow))
        except (arrow.ArrowException, UnicodeDecodeError, TypeError):
            raise ValueError(
                f"Column {name!r} of {str(path)!r} is of type {column.type}, which cannot be written as text. Drop it."
            ) from None
    return Table(table.column_names, columns, str(path))


def _from_arrow(column: Any, arrow: Any) -> Distinct:
    """A column of a parquet file; types that Python has no values for are cast to text."""
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("us", column.type.tz), safe=False)
    plain = (types.is_boolean, types.is_integer, types.is_floating, types.is_date, types.is_timestamp)
    decimal = types.is_decimal(column.type)
    if not any(is_of(column.type) for is_of in plain):
        column = column.cast(arrow.string())
    coded = column.dictionary_encode().combine_chunks()
    if types.is_floating(column.type):  # float32 and float16 are written with the digits that they have
        known = list(coded.dictionary.to_numpy(zero_copy_only=False))
    else:
        known = coded.dictionary.to_pylist()
    codes = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.int32)
    found = distinct_of([*known, None], codes)
    return found._replace(type="real") if decimal else found


def column_of(values: Sequence[Any] | np.ndarray) -> Distinct:
    """A column of raw values: str, int, float, bool, date, datetime or numbers of numpy; None and NaN are missing."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "iufb":
            numbers, codes = np.unique(values, return_inverse=True)
            return distinct_of(list(numbers), codes.astype(np.int32))
        return column_of((values.astype("datetime64[us]") if values.dtype.kind == "M" else values).tolist())
    if len(set(map(type, values)) - {type(None)}) > 1:  # 1, 1.0 and True are equal, but are written differently
        texts, type_ = _as_texts(values)
        return Distinct(*_numbered(texts), type_)
    try:
        known, codes = _numbered(values)
    except TypeError:
        raise TypeError(f"holds {values[0]!r}, which is no value of a table.") from None
    return distinct_of(known, codes)


def distinct_of(values: list[Any], codes: Int32[np.ndarray, "rows"]) -> Distinct:
    """The column whose row r holds values[codes[r]]; each text once, and only those that a row holds."""
    texts, type_ = _as_texts(values)
    known, numbers = _numbered(texts)
    codes = numbers[codes]
    used = np.bincount(codes, minlength=len(known)) > 0
    kept = (np.cumsum(used) - 1).astype(np.int32)
    return Distinct([text for text, is_used in zip(known, used.tolist(), strict=True) if is_used], kept[codes], type_)


def _numbered(values: Sequence[Any]) -> tuple[list[Any], Int32[np.ndarray, "rows"]]:
    """The distinct values, and the number of each value among them."""
    known = _Numbered()
    codes = np.fromiter(map(known.__getitem__, values), np.int32, len(values))
    return list(known), codes


def text_of(value: Any) -> str:
    """A raw value as text; the empty one if it is missing."""
    return _as_texts([value])[0][0]


def _as_texts(values: Sequence[Any]) -> tuple[list[str], str]:
    """Raw values as texts, and their common type; times have microseconds if one of them needs these."""
    names = {kind: _name_of(kind) for kind in dict.fromkeys(map(type, values))}
    times = [value for value in values if names[type(value)] == "time" and value == value]
    part = "microseconds" if any(time.microsecond for time in times) else "seconds"
    write: dict[str, Callable[[Any], str]] = {
        "": lambda value: "",
        "truth": lambda value: "true" if value else "false",
        "whole": lambda value: str(int(value)),
        "real": lambda value: str(value) if value == value else "",
        "text": str,
        "date": lambda value: value.isoformat(),
        "time": lambda value: _in_utc(value).isoformat(" ", part) if value == value else "",
    }
    aware = {time.tzinfo is not None for time in times}
    found = {"utc" if name == "time" and True in aware else name for name in names.values() if name}
    if found == {"whole", "real"}:
        found = {"real"}
    type_ = "text" if len(found) > 1 or len(aware) > 1 else found.pop() if found else ""
    return [write[names[type(value)]](value) for value in values], type_


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is None else time.astimezone(timezone.utc)


def _name_of(kind: type) -> str:
    """The name in STORAGE of a Python type; nothing for those of missing values."""
    if kind is type(None) or kind.__name__ in ("NAType", "NaTType"):
        return ""
    for kinds, name in (
        ((bool, np.bool_), "truth"),
        ((int, np.integer), "whole"),
        ((float, np.floating, Decimal), "real"),
        ((str,), "text"),
        ((datetime,), "time"),
        ((date,), "date"),
    ):
        if issubclass(kind, kinds):
            return name
    raise TypeError(f"holds a value of type {kind.__name__}, but a table has texts, numbers, truth values and dates.")


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(_UnixLines(file), delimiter=_delimiter(path))
        writer.writerow(names)
        writer.writerows(rows)


class _UnixLines:
    """Ends lines in LF. The writer itself uses CR LF, since only then does every Python quote fields with a CR."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def write_parquet(names: Sequence[str], columns: Sequence[list[Any]], storage: Sequence[str], path: Path) -> None:
    """Columns of Python values of these types, names of STORAGE."""
    arrow = _pyarrow("pyarrow", path)
    arrays = []
    for values, name in zip(columns, storage, strict=True):
        options = {"time": ("us",), "utc": ("us", "UTC")}.get(name, ())
        arrays.append(arrow.array(values, getattr(arrow, STORAGE[name])(*options)))
    _pyarrow("pyarrow.parquet", path).write_table(arrow.table(arrays, names=list(names)), path)


def in_order(values: Iterable[str]) -> list[str]:
    """Texts in the order of numbers if all are numbers, else in that of text; the empty one comes first."""
    values = list(values)
    return sorted(values, key=_as_number if all(_is_number(value) for value in values if value) else None)


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _as_number(value: str) -> tuple[float, str]:
    return (float(value) if value else -math.inf), value


def check_names(names: Sequence[str], owner: str) -> None:
    """Check that every column has a name of its own."""
    _checks.require(len(names) > 0, f"{owner} has no columns.")
    for position, name in enumerate(names):
        _checks.require(name.strip() != "", f"{owner} has no name for column {position + 1}. Give every column a name.")
    name, times = Counter(names).most_common(1)[0]
    _checks.require(times == 1, f"{owner} has the name {name!r} twice. Names must differ; is the header missing?")


def _pyarrow(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(
            f'{str(path)!r} is a parquet file, which needs pyarrow. Install it with pip install "sddm[tables]".'
        ) from None
