"""What the columns of a table are: found from their values, or as the user says, and told before training.

| kind | a column | its tokens |
|---|---|---|
| whole number, number | all values are decimal numbers | bins by quantiles |
| date | all values have one of the forms of dates | bins by quantiles |
| category | any other values | one a value |
| identifier | texts, or whole numbers of a stretch, that differ from row to row | none: it is left out |
| constant | one value | none: it is written back in samples |
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from sddm import _checks
from sddm._checks import shown
from sddm.codecs.fields import EXACT, NUMBER, Category, Date, Field, Number, dates, is_mark, steps_of, value_of
from sddm.formats.tables import Distinct, in_order
from sddm.formats.text import readable

MAX_VALUES = 10_000
"""A column with more distinct values than this is a measurement or a label of rows, not a category."""
MOST_BINS, ROWS_A_BIN, ROWS_A_VALUE = 64, 20, 5
"""There are at most so many bins by quantiles, of so many rows on average; a column with no more distinct values than
that has a bin for each, if there are so many rows a value on average."""
FEW_ROWS = 20
"""In fewer rows, values may all differ by chance, and no column is taken for an identifier."""
UNIQUE, DENSE = 0.95, 1.1
"""Texts are identifiers if this share of them differ; whole numbers if all differ and span no more than so many times
their number, or the column has the name of one."""
LABEL = re.compile(r"(?:^|[\W_])(?:id|uuid|guid|key|index|row)$|(?-i:(?<=[a-z])I[dD]$)", re.IGNORECASE)
LARGEST_WHOLE = 4 * 10**18
"""Whole numbers below this are kept as they are."""
KINDS = ("category", "number", "date", "drop")
EVERY = "*"
"""Stands for every column that is not named."""
DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y")
CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f")
FORMS = (*DAYS, *(f"{day}{sep}{clock}{zone}" for day, sep, clock, zone in product(DAYS, " T", CLOCKS, ("", "Z", "%z"))))
"""The forms of dates that are recognised; the first that suits every value of a column is taken."""
DAY = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T][0-9:.]+(Z|[+-][0-9:]+)?)?")
PLAIN = re.compile(r"[-+.0-9eE \n]*")
CODE = re.compile(r"^ *[+-]?0[0-9]", re.MULTILINE)


@dataclass(frozen=True)
class Constant:
    """A column of one value: its name, how the value is written, its place in the table, and the type of the value."""

    name: str
    text: str
    place: int
    stored: str = ""

    @property
    def storage(self) -> str:
        return self.stored or "text"

    @property
    def value(self) -> Any:
        """As a Python value."""
        return None if is_mark(self.text) else value_of(self.text, self.stored)


class Found(NamedTuple):
    """What a column was found to be."""

    told: str
    """For the user, what it is, and what will be done with it."""
    field: Field | None = None
    tokens: Int64[np.ndarray, "rows"] | None = None
    constant: str | None = None
    """The text of the one value."""


def chosen(kinds: str | Mapping[str, str] | None) -> dict[str, str]:
    """The kinds of columns by their names, from "age=number,id=drop", from JSON, or from the path of a .json file."""
    if isinstance(kinds, str):
        kinds = _from_text(kinds)
    found = dict(kinds or {})
    for name, kind in found.items():
        _checks.require(
            isinstance(kind, str) and (kind in KINDS or (kind.startswith("date:") and "%" in kind)),
            f"kinds says that {name!r} is {kind!r}, but a column is one of {', '.join(KINDS)}, or a date of a form, "
            "such as date:%d/%m/%Y.",
        )
    return found


def _from_text(text: str) -> dict[str, str]:
    if text.endswith(".json"):
        readable(Path(text), "Name a file with the kinds of columns, or give them as age=number,id=drop.")
        source, text = repr(text), Path(text).read_text(encoding="utf-8")
    elif not text.startswith("{"):
        parts = [part.rpartition("=") for part in text.split(",")]
        for name, _, _ in parts:
            _checks.require(
                name.strip() != "", f"kinds is {text!r}, but it must be such as age=number,id=drop, or a .json file."
            )
        return {name.strip(): kind.strip() for name, _, kind in parts}
    else:
        source = "kinds"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f'{source} is not valid JSON: {error}. Write it as {{"age": "number"}}.') from None
    _checks.require(isinstance(found, dict), f'{source} must be an object, such as {{"age": "number", "id": "drop"}}.')
    return dict(found)


class _Parts(NamedTuple):
    """The distinct texts of a column, those that are missing apart."""

    present: Int64[np.ndarray, "some"]
    gone: Int64[np.ndarray, "others"]
    texts: list[str]
    """Those that are present."""
    measured: _Measured | None
    """The same as numbers or dates, if they are."""


class _Measured(NamedTuple):
    """Texts as numbers of steps, and the class of their bins."""

    steps: Int64[np.ndarray, "some"]
    make: partial[Number] | partial[Date]


def found_of(name: str, column: Distinct, kind: str | None = None) -> Found:
    """What a column is: as was said or, if nothing was, from its values."""
    if kind == "drop":
        return Found("left out, as kinds says")
    counts = np.bincount(column.codes, minlength=len(column.texts))
    parts = _parted(name, column, kind)
    texts, missing = parts.texts, int(counts[parts.gone].sum())
    sign = column.texts[parts.gone[counts[parts.gone].argmax()]] if missing else None
    if len(texts) + bool(missing) == 1 and kind != "category":
        told = f"constant, {shown(texts)}; not learnt, written back" if texts else "all missing; not learnt, left empty"
        return Found(told, constant=texts[0] if texts else sign)
    weights = counts[parts.present]
    if kind is None and _differ(name, parts, int(weights.sum())):
        return Found(f"identifier, {len(texts)} different values in {int(weights.sum())} rows; left out")
    tokens = np.zeros(len(column.texts), dtype=np.int64)
    field: Field
    if parts.measured is None:
        _check_few(name, texts)
        values = in_order(texts)
        field = Category(values if sign is None else [sign, *values], sign, column.type)
        tokens[parts.present] = field.tokens(texts)
    else:
        steps, make = parts.measured
        field = make(*bins(*_summed(steps, weights)), missing=sign, stored=column.type)
        tokens[parts.present] = field.bins(steps)
    told = f"{field.kind}, {field.told()}" + (f"; {missing} missing" if missing else "")
    return Found(told, field, tokens[column.codes])


def bins(steps: Int64[np.ndarray, "distinct"], counts: Int64[np.ndarray, "distinct"]) -> tuple[list[int], list[int]]:
    """The low and the high ends of bins, for ascending numbers that occur so often.

    A bin for each number, if there are few; else a number with the weight of a bin or more has a bin of its own, and
    stretches of the others have equal weights. A bin ends with the smallest and the largest number in it.
    """
    num = int(counts.sum())
    if len(steps) <= MOST_BINS and num >= ROWS_A_VALUE * len(steps):
        return steps.tolist(), steps.tolist()
    most = min(max(num // ROWS_A_BIN, 2), MOST_BINS)
    heavy = counts * most >= num
    light = np.where(heavy, 0, counts)
    each = max(light.sum() / max(most - int(heavy.sum()), 1), 1.0)
    part = ((np.cumsum(light) - light / 2) // each).astype(np.int64)
    changes = (np.diff(part) > 0) | heavy[1:] | heavy[:-1]
    starts = np.flatnonzero(np.r_[True, changes])
    starts = starts[_large(starts, light, heavy, each / 2)]
    ends = np.r_[starts[1:], len(steps)] - 1
    return steps[starts].tolist(), steps[ends].tolist()


def _large(
    starts: Int64[np.ndarray, "bins"],
    light: Int64[np.ndarray, "distinct"],
    heavy: Bool[np.ndarray, "distinct"],
    least: float,
) -> Bool[np.ndarray, "bins"]:
    """Which bins begin where they do; a smaller one joins the one before it, if neither is a heavy number."""
    weights = np.add.reduceat(light, starts)
    joins = (weights < least) & ~heavy[starts]
    joins[0] = False
    joins[1:] &= ~heavy[starts[:-1]]
    return ~joins


def _parted(name: str, column: Distinct, kind: str | None) -> _Parts:
    """Which texts stand for a missing value. The empty one does. The other marks do where all others are numbers, or
    are dates; in a category they do if no field is empty, and if two other values are left. Whoever says that a column
    is a category means all of its texts but the empty one."""
    empty = np.array([text == "" for text in column.texts], dtype=bool)
    marks = np.array([is_mark(text) for text in column.texts], dtype=bool)
    others = [text for text, is_one in zip(column.texts, marks.tolist(), strict=True) if not is_one]
    if kind == "category":
        measured, gone = None, empty
    else:
        measured = _measured(others, kind, column.type) if others else None
        if measured is None and kind is not None and others:
            raise ValueError(f"Column {name!r} is said to be a {kind}, but {_first_other(others, kind)!r} is none.")
        if measured is None and kind is None and others:
            _check_not_mixed(name, others)
        gone = marks if measured is not None or (not empty.any() and len(others) > 1) or not others else empty
    texts = [text for text, is_gone in zip(column.texts, gone.tolist(), strict=True) if not is_gone]
    return _Parts(np.flatnonzero(~gone), np.flatnonzero(gone), texts, measured)


def _measured(texts: list[str], kind: str | None, type: str) -> _Measured | None:
    """Texts as numbers or as dates, if they are all such, and this is not ruled out."""
    if kind in (None, "number") and type != "truth" and (found := _numbers(texts)) is not None:
        return found
    if kind is None or kind.startswith("date"):
        _, _, asked = (kind or "").partition(":")
        for form in [asked] if asked else _forms(texts[0]):
            with contextlib.suppress(ValueError):
                return _Measured(dates(texts, form), partial(Date, form=form))
    return None


def _numbers(texts: list[str]) -> _Measured | None:
    joined = "\n".join(texts)  # much faster than one by one
    if not PLAIN.fullmatch(joined) or CODE.search(joined):
        return None
    try:
        largest = float(np.abs(np.array([float(text) for text in texts])).max())
    except ValueError:
        return None
    if not math.isfinite(largest):
        return None
    whole = not any(character in joined for character in ".eE")
    needed, places = (0, None) if whole else _decimals(texts)
    most = math.floor(math.log10(EXACT / largest)) if largest > 0 else needed
    if not (whole and largest < LARGEST_WHOLE):
        needed, places = min(needed, most), 0 if places and needed > most else places
    return _Measured(steps_of(texts, needed), partial(Number, decimals=needed, places=places))


def _decimals(texts: list[str]) -> tuple[int, int]:
    """How many decimals numbers need, and how many all of them are written with, 0 if this differs."""
    needed, written = 0, set()
    for text in texts:
        if "e" in text or "E" in text:
            exponent = Decimal(text.strip()).normalize().as_tuple().exponent
            needed, places = max(needed, -int(exponent)), 0
        else:
            _, _, part = text.strip().partition(".")
            needed, places = max(needed, len(part.rstrip("0"))), len(part)
        written.add(places)
    return needed, written.pop() if len(written) == 1 else 0


def _forms(text: str) -> list[str]:
    """The forms of dates that a text may have."""
    return [form for form in FORMS if DAY.fullmatch(text) and _suits(text, form)]


def _suits(text: str, form: str) -> bool:
    try:
        return len(dates([text], form)) == 1
    except ValueError:
        return False


def _first_other(texts: list[str], kind: str) -> str:
    """The first text that is not of a kind."""
    return next((text for text in texts if _measured([text], kind, "") is None), texts[0])


def _check_not_mixed(name: str, texts: list[str]) -> None:
    """Refuse many numbers, or dates, with something else among them, which are neither measured nor a category."""
    if len(texts) <= MOST_BINS:
        return
    form = next((forms[0] for text in texts[:MOST_BINS] if (forms := _forms(text))), None)
    for kind, fits in (("number", NUMBER.fullmatch), ("date", lambda text: form is not None and _suits(text, form))):
        others = [text for text in texts if not fits(text)]
        if others and 2 * len(others) < len(texts):
            raise ValueError(
                f"Column {name!r} has {len(texts) - len(others)} different {kind}s, but also {others[0]!r}. Correct "
                f"it, or empty the field if the {kind} is missing, or choose --kinds {name}=category or {name}=drop."
            )


def _differ(name: str, parts: _Parts, num: int) -> bool:
    """Whether the values of a column name its rows."""
    if num < FEW_ROWS:
        return False
    if parts.measured is None:
        return len(parts.texts) >= UNIQUE * num
    steps, make = parts.measured
    if make.keywords.get("places", 0) is not None or len(np.unique(steps)) < num:
        return False
    dense = int(steps.max()) - int(steps.min()) < DENSE * num
    return dense or LABEL.search(name) is not None


def _check_few(name: str, texts: list[str]) -> None:
    _checks.require(
        len(texts) <= MAX_VALUES,
        f"Column {name!r} has {len(texts)} distinct values, more than {MAX_VALUES}: it is not a category. "
        f"Drop it with --kinds {name}=drop, or put its values into groups.",
    )


def _summed(
    steps: Int64[np.ndarray, "texts"], counts: Int64[np.ndarray, "texts"]
) -> tuple[Int64[np.ndarray, "distinct"], Int64[np.ndarray, "distinct"]]:
    """The distinct numbers in ascending order, and how often each occurs: 1 and 1.0 are one."""
    found, places = np.unique(steps, return_inverse=True)
    return found, np.bincount(places, weights=counts, minlength=len(found)).astype(np.int64)
