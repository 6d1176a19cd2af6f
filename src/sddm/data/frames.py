"""Tables of pandas and polars as columns of values, and back with some values changed.

Neither package is imported here unless an object comes from it. A missing value is None, whatever it is in the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sddm.formats.tables import check_names, text_of


def comes_from(value: Any, package: str, *names: str) -> bool:
    """Whether the type of a value, or one that it extends, is one of these classes of a package."""
    return any(kind.__module__.split(".")[0] == package and kind.__name__ in names for kind in type(value).__mro__)


def is_frame(value: Any) -> bool:
    return comes_from(value, "pandas", "DataFrame") or comes_from(value, "polars", "DataFrame")


def is_series(value: Any) -> bool:
    return comes_from(value, "pandas", "Series") or comes_from(value, "polars", "Series")


class Frames(NamedTuple):
    """What has to be known of the tables of a package."""

    names: Callable[[Any], list[Any]]
    values: Callable[[Any, int], list[Any]]
    """The values of a column, by its place."""
    python_type: Callable[[Any, int], type | None]
    """The type of the values of a column; None if that of the column does not tell."""
    changed: Callable[[Any, Mapping[int, list[Any]]], Any]
    """A copy with other values in some columns, which keep their types."""


def of_package(frame: Any) -> Frames:
    return POLARS if comes_from(frame, "polars", "DataFrame") else PANDAS


def names_of(frame: Any) -> list[str]:
    """The names of the columns, as text."""
    names = [str(name) for name in of_package(frame).names(frame)]
    check_names(names, "data")
    return names


def columns_of_frame(frame: Any) -> list[list[Any]]:
    """The values of each column."""
    values = of_package(frame).values
    return [[_or_none(value) for value in values(frame, place)] for place in range(len(names_of(frame)))]


def filled(frame: Any, values: Mapping[str, Sequence[Any]]) -> Any:
    """The same table with these values, by column, where it has none. All else is kept: the order of rows and columns,
    the index, the types of the columns, and columns for which there are no values."""
    package, changed = of_package(frame), {}
    for place, (name, column) in enumerate(zip(names_of(frame), columns_of_frame(frame), strict=True)):
        if None in column and name in values:
            alike = _maker(name, column, package.python_type(frame, place))
            changed[place] = [
                alike(new) if value is None else value for value, new in zip(column, values[name], strict=True)
            ]
    return package.changed(frame, changed)


def _maker(name: str, column: list[Any], python_type: type | None) -> Callable[[Any], Any]:
    """What makes a value of a column's type: the one that looks alike and is there, or a new one."""
    seen = {text_of(value): value for value in column if value is not None}
    kinds = {type(value) for value in column if value is not None}
    kind = python_type or (kinds.pop() if len(kinds) == 1 else None)

    def alike(value: Any) -> Any:
        text = text_of(value)
        if text in seen:
            return seen[text]
        try:
            return value if value is None or kind is None else _as_type(kind, value)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(
                f"Column {name!r} holds values of type {getattr(kind, '__name__', kind)}, but in the data that the "
                f"model was trained on it also held {text!r}. Convert the column to text."
            ) from error

    return alike


def _as_type(kind: Any, value: Any) -> Any:
    """A value as another type; a ValueError if it is none of that type."""
    if type(value) is kind:
        return value
    if kind is bool:
        return ["false", "true"].index(text_of(value).lower()) == 1
    if kind is str or hasattr(kind, "fromisoformat"):
        return kind(text_of(value)) if kind is str else kind.fromisoformat(text_of(value))
    made = kind(value)
    if isinstance(value, float) and made != value:
        raise ValueError(value)
    return made


def _or_none(value: Any) -> Any:
    """None for what stands for a missing value: not a number, not a time, NA of pandas."""
    if value is None or comes_from(value, "pandas", "NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and value != value else value


def _pandas_type(frame: Any, place: int) -> type | None:
    series = frame.iloc[:, place]
    known: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float}
    if getattr(series.dtype, "kind", "O") == "M":
        known["M"] = sys.modules["pandas"].Timestamp
    return known.get(getattr(series.dtype, "kind", "O"))


def _pandas_changed(frame: Any, columns: Mapping[int, list[Any]]) -> Any:
    pandas, copy = sys.modules["pandas"], frame.copy()
    for place, values in columns.items():
        kind = frame.iloc[:, place].dtype
        if isinstance(kind, pandas.CategoricalDtype):
            new = [value for value in dict.fromkeys(values) if value not in kind.categories]
            kind = pandas.CategoricalDtype([*kind.categories, *new], kind.ordered) if new else kind
        copy.isetitem(place, pandas.array(values, dtype=kind))
    return copy


def _polars_type(frame: Any, place: int) -> type | None:
    """None for a column without any value, which has no type."""
    kind: type = frame.dtypes[place].to_python()
    return None if kind is type(None) else kind


def _polars_changed(frame: Any, columns: Mapping[int, list[Any]]) -> Any:
    polars = sys.modules["polars"]
    types = [None if _polars_type(frame, d) is None else kind for d, kind in enumerate(frame.dtypes)]
    return frame.with_columns([polars.Series(frame.columns[d], values, types[d]) for d, values in columns.items()])


PANDAS = Frames(
    names=lambda frame: list(frame.columns),
    values=lambda frame, place: frame.iloc[:, place].tolist(),
    python_type=_pandas_type,
    changed=_pandas_changed,
)
POLARS = Frames(
    names=lambda frame: list(frame.columns),
    values=lambda frame, place: frame.to_series(place).to_list(),
    python_type=_polars_type,
    changed=_polars_changed,
)
