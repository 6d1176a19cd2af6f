"""What samples of a table shall be: fields that are given, and columns that shall lie in a range.

A test names a column and says what its values shall be:

    age>=40    age<60    sex=F    sex!=F    town in Bern|Basel    income missing    income not missing

Bounds are numbers or dates, as they stand in the table. All tests hold at once, and a value that is missing passes
none of them but `missing`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from sddm import _checks
from sddm._checks import shown
from sddm.codecs.base import Tokens
from sddm.codecs.excerpt import BLANK, Excerpt
from sddm.codecs.fields import Binned, Field, Spans, overlaps
from sddm.conditions import Condition
from sddm.formats.tables import Table

if TYPE_CHECKING:
    from sddm.codecs.columns import Columns

COMPARED = re.compile(r"\s*(<=|>=|!=|==|=|<|>)(.*)", re.DOTALL)
OTHER = re.compile(r"\s+(in\s(?P<values>.*)|(?P<present>not\s+)?missing\s*)", re.DOTALL)
FURTHEST = 9 * 10**18
"""No number of steps is larger."""


@dataclass(frozen=True)
class Wanted(Excerpt):
    """Rows of a table, blank where something is generated, with the ranges of columns, and the codec that writes
    samples of them: fields as they were given, and numbers inside their ranges.

    >>> wanted = codec.where("age>=40", "sex=F")
    >>> tokens = model.sample(16, condition=wanted.condition)
    >>> wanted.codec.table(tokens)
    """

    @property
    def condition(self) -> Condition:
        """For the sampler: the same for all samples if there is one row, else one for each."""
        rows = self.rows[0] if len(self.rows) == 1 else self.rows
        return Condition(rows != BLANK, rows, self.ranges)


class Allowed(NamedTuple):
    """What tests leave of a column."""

    weights: Float64[np.ndarray, "size"]
    """Of each token, the share of its values."""
    spans: Spans
    """Of numbers and dates, the steps."""
    text: str | None
    """What it shall equal, as it was given."""


def wanted(codec: Columns, tests: Sequence[str], given: Table | Tokens | None = None) -> Wanted:
    """What tests and rows of given fields say. An empty field of a table is a blank, and so is '?', where it does not
    stand for anything in its column."""
    texts: dict[int, list[str | None]] = {}
    if isinstance(given, Table):
        tokens, texts = _given(codec, given)
    elif given is not None:
        tokens = given.numpy().copy()
    else:
        tokens = np.full((1, len(codec.names)), BLANK)
    ranges, spans = {}, {}
    for d, own in _by_column(codec, tests).items():
        name, column, told = codec.names[d], codec.fields[d], " and ".join(repr(test) for test, _ in own)
        allowed = _allowed(name, column, own)
        _checks.require(
            bool(allowed.weights.any()),
            f"where: no value of column {name!r} satisfies {told}. It holds {column.told()}.",
        )
        blank, before = tokens[:, d] == BLANK, texts.get(d, [None] * len(tokens))
        for row in np.flatnonzero(~blank).tolist():
            _checks.require(
                _fits(column, int(tokens[row, d]), before[row], allowed),
                f"where: row {row + 1} of the condition gives column {name!r} a value that does not satisfy {told}. "
                "Change one of the two.",
            )
        possible = np.flatnonzero(allowed.weights)
        if len(possible) == 1:
            tokens[blank, d] = possible[0]
        elif blank.any():
            ranges[d] = torch.from_numpy(allowed.weights / allowed.weights.max())
        if allowed.text is not None:
            texts[d] = [allowed.text] * len(tokens)
        elif isinstance(column, Binned):
            spans[d] = allowed.spans
    rows = torch.from_numpy(tokens.astype(np.int64))
    return Wanted(rows, rows, 0, ranges, codec.completing(spans, texts))


def _given(codec: Columns, table: Table) -> tuple[Int64[np.ndarray, "rows dim"], dict[int, list[str | None]]]:
    """The tokens of a table of some of the columns, blanks included, and the texts of numbers and dates in it."""
    tokens = np.full((table.rows, len(codec.names)), BLANK, dtype=np.int64)
    texts: dict[int, list[str | None]] = {}
    for name, column in zip(table.names, table.columns, strict=True):
        _checks.require(
            name in codec.names or name in codec.written_names,
            f"{table.source!r} has a column {name!r}, which the data do not have. They have {shown(codec.names)}.",
        )
        if name not in codec.names:  # a constant, which is as it is
            continue
        d = codec.names.index(name)
        blank = [codec.fields[d].is_blank(text) for text in column.texts]
        known = [text for text, is_blank in zip(column.texts, blank, strict=True) if not is_blank]
        found = np.full(len(blank), BLANK, dtype=np.int64)
        found[~np.array(blank, dtype=bool)] = codec.known(d, known)
        tokens[:, d] = found[column.codes]
        if isinstance(codec.fields[d], Binned):
            written = [None if is_blank else text.strip() for text, is_blank in zip(column.texts, blank, strict=True)]
            texts[d] = [written[code] for code in column.codes.tolist()]
    return tokens, texts


def _by_column(codec: Columns, tests: Sequence[str]) -> dict[int, list[tuple[str, re.Match[str]]]]:
    """The tests of each column, as they were given and taken apart."""
    found: dict[int, list[tuple[str, re.Match[str]]]] = {}
    for test in tests:
        text = test.strip()
        for name in sorted(codec.written_names, key=len, reverse=True):
            match = text.startswith(name) and (COMPARED.fullmatch(text, len(name)) or OTHER.fullmatch(text, len(name)))
            if match:
                break
        else:
            raise ValueError(
                f"where: {test!r} is no test of a column. Write a column, of {shown(codec.names)}, and what it shall "
                "be: age>=40, sex=F, sex!=F, town in Bern|Basel, income missing."
            )
        _checks.require(name in codec.names, f"where: column {name!r} has the same value in every row. Leave it out.")
        found.setdefault(codec.names.index(name), []).append((test, match))
    return found


def _allowed(name: str, column: Field, tests: Sequence[tuple[str, re.Match[str]]]) -> Allowed:
    """What all tests of a column leave of it."""
    weights, spans, text = np.ones(column.size), [(-FURTHEST, FURTHEST)], None
    for test, match in tests:
        parts = match.groupdict()
        if "values" in parts and parts["values"] is None:
            weights *= _of_missing(name, column, parts["present"] is None)
            continue
        sign, values = ("in", parts["values"].split("|")) if "values" in parts else (match[1], [match[2]])
        values = [value.strip() for value in values]
        if column.missing is not None:
            weights[0] = 0
        try:
            if isinstance(column, Binned):
                spans = [both for each in _spans(sign, column.counted(values)) for both in overlaps(spans, each)]
                if sign in ("=", "=="):
                    weights *= np.arange(column.size) == column.tokens(values)
                    text = values[0]
            else:
                weights *= _named(sign, column, values)
        except ValueError as error:
            raise ValueError(f"where: {test!r} cannot be tested, as column {name!r} {error}") from None
    if isinstance(column, Binned):
        shares = column.shares(spans) if text is None else float(len(spans) > 0)
        weights *= np.where(np.arange(column.size) < column.first, 1.0, shares)
    return Allowed(weights, spans, text)


def _of_missing(name: str, column: Field, is_missing: bool) -> Bool[np.ndarray, "size"]:
    """The token of missing values, or all others."""
    _checks.require(column.missing is not None or not is_missing, f"where: column {name!r} is never missing.")
    first = (np.arange(column.size) == 0) & (column.missing is not None)
    return first if is_missing else ~first


def _named(sign: str, column: Field, values: Sequence[str]) -> Bool[np.ndarray, "size"]:
    """The tokens of a category that a test allows."""
    if sign[0] in "<>":
        raise ValueError("holds categories, which have no order. Use =, != or in.")
    named = np.isin(np.arange(column.size), column.tokens(values))
    return ~named if sign == "!=" else named


def _spans(sign: str, numbers: Sequence[Decimal]) -> Spans:
    """The whole numbers that compare so with a number, or that are among several."""
    if sign in ("in", "=", "=="):
        return [(int(number), int(number)) for number in sorted(set(numbers)) if sign != "in" or number == int(number)]
    number = numbers[0]
    below, above = math.ceil(number) - 1, math.floor(number) + 1
    spans = {
        "<": [(-FURTHEST, below)],
        "<=": [(-FURTHEST, math.floor(number))],
        ">": [(above, FURTHEST)],
        ">=": [(math.ceil(number), FURTHEST)],
        "!=": [(-FURTHEST, below), (above, FURTHEST)],
    }
    return spans[sign]


def _fits(column: Field, token: int, text: str | None, allowed: Allowed) -> bool:
    """Whether a given value passes the tests of its column."""
    if not isinstance(column, Binned) or text is None or column.is_missing(text):
        return bool(allowed.weights[token] > 0)
    number = column.counted([text])[0]
    if allowed.text is not None:
        return number == column.counted([allowed.text])[0]
    return any(low <= number <= high for low, high in allowed.spans)
