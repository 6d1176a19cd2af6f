"""Rules by name, as options of the command line and of saved configurations: "prefix", "prefix:32", "prefix:8:64"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from sddm import _checks

Rule = TypeVar("Rule")
Table = Mapping[str, Callable[..., Rule]]


def from_text(text: str, table: Table[Rule], option: str) -> Rule:
    """The rule of a table that a text names, with the numbers that follow the name as its arguments."""
    name, *arguments = text.split(":")
    _checks.one_of(name, option, table)
    try:
        return table[name](*map(_number, arguments))
    except TypeError as error:
        raise ValueError(f"{option} is {text!r}, which is more, less or other than {name} needs.") from error


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
