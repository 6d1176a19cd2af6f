"""The labels of rows as numbers from 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from sddm import _checks


def numbered(values: Any, rows: int) -> tuple[list[int], list[str] | None]:
    """The number of each row's label, and the names of the labels if they are names."""
    if not hasattr(values, "__iter__") or isinstance(values, (Mapping, set, frozenset)):
        raise TypeError(
            f"labels is a {type(values).__name__}. Give a number or a name for each row, or the name of a column."
        )
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    values = [value.item() if isinstance(value, (Tensor, np.generic)) else value for value in values]
    _checks.require(len(values) == rows, f"labels has {len(values)} entries, but data has {rows} rows. Give one a row.")
    if all(isinstance(value, str) for value in values):
        names = sorted(set(values))
        number = {name: place for place, name in enumerate(names)}
        return [number[value] for value in values], names
    for row, value in enumerate(values, start=1):
        if not isinstance(value, int):
            raise TypeError(
                f"The label of row {row} is {_checks.shown(value)}. Labels are whole numbers from 0, or names."
            )
    return [int(value) for value in values], None
