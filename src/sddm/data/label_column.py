"""A column of a table as the label of its rows."""

from __future__ import annotations

from dataclasses import replace

from sddm import _checks
from sddm.codecs import Columns, Encoded
from sddm.codecs.fields import Category
from sddm.token_array import TokenArray


def is_measured(encoded: Encoded, column: str) -> bool:
    """Whether a table has this column, and it holds numbers or dates, which can be read as categories too."""
    codec = encoded.codec
    if not isinstance(codec, Columns) or column not in codec.names:
        return False
    return not isinstance(codec.fields[codec.names.index(column)], Category)


def labelled_by(encoded: Encoded, column: str, name: str) -> Encoded:
    """A table whose column is the label of each row, and no longer one of its positions.

    The labels are numbered as the values of the column are, and called by them. name: of the table, for messages.

    >>> labelled_by(table, "species", "flowers.csv").label_names
    ['setosa', 'versicolor', 'virginica']
    """
    codec = encoded.codec
    if not isinstance(codec, Columns):
        raise ValueError(f"label_column={column!r} was given, but only tables and .npz files take this option.")
    _checks.require(
        column in codec.names,
        f"label_column is {column!r}, but {name} has no such column. It has {_checks.shown(codec.names)}.",
    )
    _checks.require(
        len(codec.names) > 1, f"label_column is {column!r}, but {name} has no other column to learn. Give one."
    )
    place = codec.names.index(column)
    field = codec.fields[place]
    if not isinstance(field, Category):
        raise ValueError(
            f"label_column is {column!r}, but that column of {name} is not a category. Name a column of few values."
        )
    others = [d for d in range(len(codec.names)) if d != place]
    before = codec.written_names.index(column)
    constants = [replace(each, place=each.place - (each.place > before)) for each in codec.constants]
    rows = (encoded.tokens if isinstance(encoded.tokens, TokenArray) else TokenArray(encoded.tokens))[:]
    return encoded._replace(
        tokens=rows[:, others],
        codec=Columns([codec.names[d] for d in others], [codec.values[d] for d in others], constants),
        labels=rows[:, place].tolist(),
        label_names=list(field.values),
    )
