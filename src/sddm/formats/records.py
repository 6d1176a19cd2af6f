"""JSON lines: an object a line, all with the same keys."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sddm import _checks
from sddm.formats.tables import Table, column_of, text_of
from sddm.formats.text import read_lines

TEXT = "text"
"""Objects with this key alone are lines of text; others are rows of a table."""


def read_jsonl(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The keys, and the values of each object: text, numbers, truth values or None."""
    names: list[str] = []
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        where = f"Line {number} of {str(path)!r}"
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError(f'{where} is not JSON. Write an object a line, such as {{"a": 1}}.') from None
        _checks.require(isinstance(record, dict) and len(record) > 0, f"{where} is no object with keys and values.")
        names = names or list(record)
        _checks.require(
            record.keys() == set(names),
            f"{where} has the keys {_checks.shown(list(record))}, but the first has {_checks.shown(names)}. Give all "
            "objects the same keys, and null where a value is missing.",
        )
        for name, value in record.items():
            _checks.require(
                not isinstance(value, (list, dict)) and (not isinstance(value, float) or math.isfinite(value)),
                f"{where} holds {_checks.shown(value)} under {name!r}, but a table has one number or text in each "
                "place. Drop the key.",
            )
        rows.append([record[name] for name in names])
    return names, rows


def as_lines(rows: Sequence[Sequence[Any]], path: Path) -> list[str]:
    """Lines of text, if the objects have the key `text` alone."""
    for number, row in enumerate(rows, start=1):
        _checks.require(
            isinstance(row[0], str) and row[0] != "", f"Line {number} of {str(path)!r} has no text. Leave it out."
        )
    return [row[0] for row in rows]


def as_table(names: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> Table:
    """The columns, whose numbers and truth values keep their types."""
    return Table(list(names), [column_of(column) for column in zip(*rows, strict=True)], str(path))


def read_table(path: Path) -> Table:
    """The objects of a file as rows of a table, whatever their keys."""
    return as_table(*read_jsonl(path), path)


def write_jsonl(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Columns of Python values, a row an object; dates are written as text."""
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*columns.values(), strict=True):
            record = dict(zip(columns, row, strict=True))
            file.write(json.dumps(record, ensure_ascii=False, default=text_of) + "\n")


def write_texts(texts: Sequence[str], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({TEXT: text}, ensure_ascii=False) + "\n" for text in texts)
