"""Tables of categories: csv and parquet files as a header and rows of text."""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from sddm import _checks
from sddm.formats.text import read_text

MAX_VALUES = 10_000
"""A column with more distinct values than this is a measurement or a label of rows, not a category."""

TAB = "\t"

Rows = list[list[str]]


def read_csv(path: Path) -> tuple[list[str], Rows]:
    """The header and the rows of a comma-separated file, or of a tab-separated one (.tsv); empty lines are dropped."""
    between = _delimiter(path)
    separators = "tabs" if between == TAB else "commas"
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True, delimiter=between)
    try:
        # The reader counts physical lines, also within quoted fields: that is what an editor shows.
        lines = [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise ValueError(
            f"{str(path)!r} is not valid csv near line {reader.line_num}: {error}. Check the quotes there."
        ) from None
    _checks.require(len(lines) > 0, f"{str(path)!r} holds empty lines only. Give a header and rows.")
    names = lines[0][1]
    _checks.require(
        len(names) > 1 or not set(names[0]) & (set(",;\t|") - {between}),
        f"The header of {str(path)!r} is one column, {names[0]!r}, which looks like several. Separate them by "
        f"{separators}.",
    )
    rows = [fields for _, fields in lines[1:]]
    _check(names, rows, path)
    for number, fields in lines[1:]:
        if len(fields) != len(names):
            raise ValueError(
                f"Line {number} of {str(path)!r} has {len(fields)} field{'s' * (len(fields) != 1)}, "
                f"but the header has {len(names)}. Correct the line, or quote fields that hold {separators}."
            )
    return names, rows


def read_parquet(path: Path) -> tuple[list[str], Rows]:
    """The header and the rows of a parquet file, every value as text and null as the empty text."""
    arrow = _pyarrow("pyarrow", path)
    try:
        with _pyarrow("pyarrow.parquet", path).ParquetFile(path) as file:
            table = file.read()
    except (arrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{str(path)!r} is damaged or not a parquet file ({reason}). Save it again.") from None
    _checks.require(table.num_columns > 0, f"{str(path)!r} has no columns.")
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(["" if value is None else value for value in column.cast(arrow.string()).to_pylist()])
        except (arrow.ArrowException, UnicodeDecodeError):
            raise ValueError(
                f"Column {name!r} of {str(path)!r} is of type {column.type}, which cannot be written as text. Drop it."
            ) from None
    rows = [list(row) for row in zip(*columns, strict=True)]
    _check(table.column_names, rows, path)
    return table.column_names, rows


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(_UnixLines(file), delimiter=_delimiter(path))
        writer.writerow(names)
        writer.writerows(rows)


def _delimiter(path: Path) -> str:
    return TAB if path.suffix.lower() == ".tsv" else ","


class _UnixLines:
    """Ends lines in LF. The writer itself uses CR LF, since only then does every Python quote fields with a CR."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def write_parquet(names: Sequence[str], rows: Rows, path: Path) -> None:
    arrow = _pyarrow("pyarrow", path)
    columns = [arrow.array(column, arrow.string()) for column in zip(*rows, strict=True)]
    _pyarrow("pyarrow.parquet", path).write_table(arrow.table(columns, names=list(names)), path)


def categories(names: Sequence[str], rows: Rows) -> list[list[str]]:
    """The distinct values of each column, sorted as numbers if all are numbers, else as text; missing ("") first."""
    found = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        values = set(column)
        _checks.require(
            len(values) <= MAX_VALUES,
            f"Column {name!r} has {len(values)} distinct values, more than {MAX_VALUES}: it is not a category. "
            "Drop it or put its values into bins.",
        )
        found.append(sorted(values, key=_as_number if all(map(_is_number, values - {""})) else None))
    return found


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _as_number(value: str) -> tuple[float, str]:
    return (float(value) if value else -math.inf), value


def _check(names: Sequence[str], rows: Rows, path: Path) -> None:
    for position, name in enumerate(names):
        _checks.require(
            name.strip() != "",
            f"The header of {str(path)!r} has no name for column {position + 1}. Give every column a name.",
        )
    name, times = Counter(names).most_common(1)[0]
    _checks.require(
        times == 1,
        f"The header of {str(path)!r} has the name {name!r} twice. Names must differ; is the header missing?",
    )
    _checks.require(len(rows) > 0, f"{str(path)!r} has a header but no rows. Give at least one row.")


def _pyarrow(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(
            f'{str(path)!r} is a parquet file, which needs pyarrow. Install it with pip install "sddm[tables]".'
        ) from None
