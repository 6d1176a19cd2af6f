"""Tables that a program holds: columns of values, in which None is missing, to tokens and back.

All that depends on the codec of tables is here; `objects` and `frames` know of values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from sddm import _checks
from sddm.codecs import Category, Codec, Columns, Encoded
from sddm.codecs.base import Tokens
from sddm.codecs.fields import Field
from sddm.formats.tables import check_names


def table_of(names: Sequence[str], columns: Sequence[Sequence[Any]], kinds: str | None = None) -> Encoded:
    """The rows of a table as tokens, one for each column that is learnt; a missing value is a value of its own."""
    check_names(names, "data")
    _checks.require(len(columns[0]) > 0, "data is a table without rows. Give at least two.")
    return Columns.of(names, columns, kinds)


def known_cells(codec: Codec, names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Tokens:
    """The tokens of a table that has the columns of the codec, in any order, and maybe others; BLANK where a value is
    missing."""
    codec = columns_of(codec)
    check_names(names, "data")
    for name in codec.names:
        _checks.require(name in names, f"data has no column {name!r}. Add it; where a value is missing, leave a gap.")
    _checks.require(len(columns[0]) > 0, "data is a table without rows. Give at least one.")
    found = dict(zip(names, columns, strict=True))
    learnt = [_as_learnt(field, found[name]) for name, field in zip(codec.names, codec.fields, strict=True)]
    return codec.given(codec.names, learnt).rows


def cells(codec: Codec, tokens: Tokens) -> dict[str, list[Any]]:
    """What tokens stand for, by the name of the column: Python values. Columns of one value are among them."""
    return columns_of(codec).table(tokens)


def present(codec: Codec) -> Bool[Tensor, "dim states"]:
    """The values of each column that are not missing."""
    codec = columns_of(codec)
    allowed = torch.arange(codec.num_states) < torch.tensor(codec.sizes)[:, None]
    allowed[:, 0] &= torch.tensor([field.missing is None for field in codec.fields])
    return allowed


def columns_of(codec: Codec) -> Columns:
    """The codec, if it is that of a table."""
    if not isinstance(codec, Columns):
        raise ValueError(
            f"data is a table, but the model was trained on {type(codec).__name__.lower()}. Give data of that kind."
        )
    return codec


def _as_learnt(field: Field, values: Sequence[Any]) -> Sequence[Any]:
    """Numbers that are categories as the codec writes them: pandas makes fractions of whole numbers where some are
    missing, in the data to learn or in those with gaps."""
    if not isinstance(field, Category) or field.storage not in ("whole", "real"):
        return values
    if field.storage == "real":
        return [float(value) if isinstance(value, int) else value for value in values]
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
