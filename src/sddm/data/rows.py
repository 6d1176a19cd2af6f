"""Arrays, lists of rows, texts and columns by name, as rows of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sddm import _checks
from sddm.codecs import Characters, Encoded, Integers, Pixels
from sddm.codecs.characters import INSIDE, SEPARATE
from sddm.data.cells import table_of
from sddm.data.labels import numbered
from sddm.formats.text import check_lines, unix_lines, windows

WINDOW = 128
"""How many characters a row of a text without lines has, unless it is said."""


def of_array(
    array: np.ndarray | Tensor,
    num_states: int | None = None,
    size: int | None = None,
    levels: int | None = None,
    grey: bool = False,
) -> Encoded:
    """Rows of tokens, pictures (num, height, width, channels), or strings."""
    if isinstance(array, np.ma.MaskedArray):
        _checks.require(not np.ma.is_masked(array), "data has masked entries. Leave out the rows that have one.")
    if isinstance(array, np.ndarray) and array.dtype.kind == "U" and array.ndim == 1:
        return of_strings(array.tolist())
    if isinstance(array, np.ndarray) and array.dtype.kind in "OSUV":
        raise TypeError(
            f"data is an array of {array.dtype}, but tokens are whole numbers. Give a list of rows, a list of strings, "
            "or a DataFrame."
        )
    if isinstance(array, Tensor):
        _checks.require(array.layout == torch.strided, "data is a sparse tensor. Give data.to_dense().")
        array = array.detach().cpu()
    return Pixels.of_array(array, "data", num_states, size, levels, grey)


def of_strings(rows: Sequence[str], lengths: str = INSIDE) -> Encoded:
    """Lines of text, each a row."""
    _checks.require(len(rows) > 0, "data holds no strings. Give at least two.")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, str):
            raise TypeError(f"String {number} of data is {_checks.shown(row)}, no text. Give strings alone.")
        _checks.require(row != "", f"String {number} of data is empty. Leave it out.")
    check_lines(rows, "data", lambda row: f"String {row + 1} of data", "Give one text and window=N")
    return Characters.of_rows(rows, "data", lengths=lengths)


def of_text(text: str, window: int | None = None, lengths: str = INSIDE) -> Encoded:
    """One text: its lines, or windows of it, as of a .txt file. A text without lines is cut into windows."""
    text = unix_lines(text)
    lines = [line for line in text.split("\n") if line]
    if window is None and len(lines) == 1:
        window = WINDOW
    if window is None:
        return of_strings(lines, lengths)
    return Characters.of_rows(windows(text, window, 2, "data"), "data", lengths=lengths)


def of_list(
    rows: Sequence[Any],
    num_states: int | None = None,
    column: str | None = None,
    kinds: str | None = None,
    lengths: str | None = None,
    **pictures: Any,
) -> Encoded:
    """Rows of whole numbers, which may have different lengths; strings; dictionaries; or arrays."""
    _checks.require(len(rows) > 0, "data is empty. Give a list with at least two rows.")
    first = rows[0]
    if isinstance(first, Mapping):
        _checks.require(lengths is None, f"lengths={lengths!r} is for rows, but data is a table. Leave it out.")
        return of_columns(_columns_of_records(rows), column, kinds)
    _checks.require(kinds is None, "kinds is for the columns of a table, but data has none. Leave it out.")
    _checks.require(column is None, f"labels={column!r} names a column, but data has none. Give a label for each row.")
    if isinstance(first, str):
        _checks.require(num_states is None, "num_states is for numbers, but data holds strings. Leave it out.")
        return of_strings(rows, lengths or INSIDE)
    _checks.require(
        lengths in (None, SEPARATE), f"lengths={lengths!r} is for text, but data holds numbers. Leave it out."
    )
    if isinstance(first, (np.ndarray, Tensor)) and first.ndim > 1:
        return of_array(_stacked(rows), num_states, **pictures)
    return of_rows(rows, num_states)


def of_rows(rows: Sequence[Any], num_states: int | None = None) -> Encoded:
    """Rows of whole numbers. If they have different lengths, the law of these is learned apart."""
    lists = [_as_list(row, number) for number, row in enumerate(rows, start=1)]
    lengths = [len(row) for row in lists]
    _checks.require(min(lengths) > 0, f"Row {lengths.index(min(lengths)) + 1} of data is empty. Leave it out.")
    return Integers.joined(_whole(list(chain.from_iterable(lists)), lists), lengths, num_states, "data")


def _as_list(row: Any, number: int) -> list[Any]:
    if isinstance(row, (np.ndarray, Tensor)):
        _checks.require(row.ndim == 1, f"Row {number} of data has shape {tuple(row.shape)}, but a row has one axis.")
        return list(row.tolist())
    if isinstance(row, (list, tuple, range)):
        return list(row)
    if isinstance(row, (int, float, np.number)):
        raise TypeError(
            f"Row {number} of data is {_checks.shown(row)}, a number. Each row is a list of numbers; "
            "if data is one row, give [data] with more like it."
        )
    raise TypeError(
        f"Row {number} of data is a {type(row).__name__}. Each row is a list of whole numbers, or a string."
    )


def _whole(flat: list[Any], rows: Sequence[Sequence[Any]]) -> np.ndarray:
    """All numbers of all rows; an error names the first that is none."""
    if all(type(value) in (int, bool, np.bool_) or isinstance(value, np.integer) for value in flat):
        try:
            return np.array(flat, dtype=np.int64)
        except OverflowError:
            raise ValueError(
                f"data holds {max(flat, key=abs)}, which is too large for a token. Number the values from 0 without "
                "gaps."
            ) from None
    for number, row in enumerate(rows, start=1):
        for value in row:
            if not isinstance(value, (int, np.integer, np.bool_)):
                advice = {
                    "NoneType": "Rows to train on have no gaps; sddm fills them afterwards: model.fill(rows).",
                    "str": "Give a DataFrame, or join the parts of a row to one string.",
                    "list": "A row is one list of numbers: flatten it.",
                }.get(type(value).__name__, "Tokens are whole numbers: number the values from 0.")
                raise TypeError(f"Row {number} of data holds {_checks.shown(value)}. {advice}")
    raise AssertionError("every value is a whole number")


def _stacked(rows: Sequence[Any]) -> np.ndarray:
    arrays = [row.detach().cpu().numpy() if isinstance(row, Tensor) else np.asarray(row) for row in rows]
    shapes = sorted({array.shape for array in arrays})
    _checks.require(
        len(shapes) == 1,
        f"data holds arrays of different shapes, such as {shapes[0]} and {shapes[-1]}. Bring them to one shape.",
    )
    return np.stack(arrays)


def of_columns(
    columns: Mapping[str, Sequence[Any]], column: str | None = None, kinds: str | None = None, table: bool = False
) -> Encoded:
    """Columns by name: rows of tokens if one of them is called so, text if there is nothing but a column
    `text`, and a table otherwise, or if `kinds` says what its columns are. One column may hold the labels."""
    table = table or kinds is not None
    _checks.require(len(columns) > 0, "data is a table without columns. Give at least one.")
    _checks.require(
        column is None or column in columns,
        f"labels={column!r} names no column of data. It has {_checks.shown(list(columns))}.",
    )
    others = {name: values for name, values in columns.items() if name != column}
    _checks.require(len(others) > 0, f"data has no column beside {column!r}, which holds the labels. Give more.")
    tokens = None if table else next((name for name in ("input_ids", "tokens") if name in others), None)
    if tokens is not None:
        encoded = of_rows(others[tokens])
    elif not table and others.keys() == {"text"}:
        encoded = of_strings(others["text"])
    else:
        encoded = table_of(list(others), list(others.values()), kinds)
    if column is None:
        return encoded
    numbers, names = numbered(columns[column], len(encoded.tokens))
    return encoded._replace(labels=numbers, label_names=names)


def _columns_of_records(records: Sequence[Any]) -> dict[str, list[Any]]:
    """Dictionaries, one a row, as columns."""
    names = list(records[0])
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping):
            raise TypeError(f"Row {number} of data is a {type(record).__name__}, but the first is a dictionary.")
        _checks.require(
            record.keys() == records[0].keys(),
            f"Row {number} of data has the keys {_checks.shown(list(record))}, but the first row has "
            f"{_checks.shown(names)}. Give all rows the same keys, and None where a value is missing.",
        )
    return {str(name): [record[name] for record in records] for name in names}
