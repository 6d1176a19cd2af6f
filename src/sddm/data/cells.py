"""Tables that a program holds: columns of values, in which None is missing, to tokens and back.

All that depends on the codec of tables is here; `objects` and `frames` know of values alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from sddm import _checks
from sddm.codecs import BLANK, Codec, Columns, Encoded
from sddm.codecs.base import Tokens
from sddm.formats.tables import categories

MISSING = ""
"""The text of a missing value."""


def table_of(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Encoded:
    """The rows of a table as tokens, one a column; a missing value is a value of its own."""
    check_names(names)
    rows = [list(row) for row in zip(*_texts(names, columns), strict=True)]
    _checks.require(len(rows) > 0, "data is a table without rows. Give at least two.")
    codec = Columns(names, categories(names, rows))
    return Encoded(codec.encode(rows), codec)


def known_cells(codec: Codec, names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Tokens:
    """The tokens of a table with the columns of the codec, in any order; BLANK where a value is missing."""
    codec = columns_of(codec)
    check_names(names)
    for name in names:
        _checks.require(
            name in codec.names,
            f"data has a column {name!r}, which the model does not know. It knows {_checks.shown(codec.names)}.",
        )
    for name in codec.names:
        _checks.require(name in names, f"data has no column {name!r}. Add it; where a value is missing, leave a gap.")
    found = dict(zip(names, _texts(names, columns), strict=True))
    rows = list(zip(*(found[name] for name in codec.names), strict=True))
    _checks.require(len(rows) > 0, "data is a table without rows. Give at least one.")
    return torch.tensor(
        [[BLANK if text == MISSING else codec.token(d, text) for d, text in enumerate(row)] for row in rows]
    )


def cells(codec: Codec, tokens: Tokens) -> dict[str, list[Any]]:
    """What tokens stand for, by the name of the column."""
    codec = columns_of(codec)
    columns = zip(*codec.decode(tokens), strict=True)
    return {name: list(column) for name, column in zip(codec.names, columns, strict=True)}


def present(codec: Codec) -> Bool[Tensor, "dim states"]:
    """The values of each column that are not missing."""
    codec = columns_of(codec)
    allowed = torch.zeros(len(codec.names), codec.num_states, dtype=torch.bool)
    for d, values in enumerate(codec.values):
        allowed[d, : len(values)] = torch.tensor([value != MISSING for value in values])
    return allowed


def columns_of(codec: Codec) -> Columns:
    """The codec, if it is that of a table."""
    if not isinstance(codec, Columns):
        raise ValueError(
            f"data is a table, but the model was trained on {type(codec).__name__.lower()}. Give data of that kind."
        )
    return codec


def check_names(names: Sequence[str]) -> None:
    _checks.require(len(names) > 0, "data is a table without columns. Give at least one.")
    name, times = Counter(names).most_common(1)[0]
    _checks.require(times == 1, f"data has {times} columns called {name!r}. Give each a name of its own.")


def text_of(value: Any, name: str) -> str:
    """A value as text; whole numbers look alike, whatever their type."""
    if value is None or value != value:
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    kind: Any = type(value)
    if hasattr(value, "__len__") or (kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__):
        raise TypeError(
            f"Column {name!r} holds a {type(value).__name__}, but a table has one number, text or date in each place. "
            "Drop the column, or turn its values into text."
        )
    return str(value)


def _texts(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [[text_of(value, name) for value in column] for name, column in zip(names, columns, strict=True)]
