"""What the tokens of one column of a table mean: categories, or bins of numbers and of dates.

A bin is a stretch of whole numbers, from its low to its high end: a number with two decimals counts in hundredths, a
date in days. What is drawn inside a bin is uniform on it. So a drawn number has the decimals of the data, and its token
is the bin again. If values can be missing, token 0 stands for that.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, Integer

from sddm import _checks
from sddm._checks import shown
from sddm.config import Configurable

MARKS = frozenset({"na", "n/a", "nan", "null", "?", "<na>", "nat"})
"""Usual signs of a missing value, in lower case; an empty field is one everywhere."""
EXACT = 10**15
"""Numbers are kept to so many steps: float64 tells such whole numbers apart, and writes them without rounding."""
NUMBER = re.compile(r"[ ]*[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ ]*")
"""A decimal number. One that begins with 0 and another digit is a code, such as 02134."""
Spans = Sequence[tuple[int, int]]
"""Stretches of whole numbers, from the first to the last of each."""
Drawn = Float64[np.ndarray, "rows"]
Places = Integer[np.ndarray, "rows"]


def is_mark(text: str) -> bool:
    """Whether a text is a usual sign of a missing value."""
    return text == "" or text.strip().lower() in MARKS


def value_of(text: str, type: str) -> Any:
    """A text as a value of a type, a name of `sddm.formats.tables.STORAGE`; itself if the type has no other values."""
    if type in ("date", "time", "utc"):
        time = datetime.fromisoformat(text)
        return time.date() if type == "date" else time
    if type == "truth":
        return text == "true"
    return int(text) if type == "whole" else float(text) if type == "real" else text


class Field(Configurable, ABC):
    """What the tokens of a column mean."""

    kind: str
    """What the column holds, for the user."""
    size: int
    """How many tokens there are."""
    missing: str | None
    """How a missing value is written; None if none is ever missing. Otherwise it is token 0."""

    @abstractmethod
    def tokens(self, texts: Sequence[str]) -> Int64[np.ndarray, "rows"]:
        """The tokens of texts; a ValueError, whose sentence goes on after the column's name, if one has none."""

    @abstractmethod
    def texts(self, tokens: Places, uniforms: Drawn, spans: Spans | None = None) -> list[str]:
        """What is written for tokens; numbers are drawn by a uniform each, inside the spans if there are some."""

    @abstractmethod
    def value(self, text: str) -> Any:
        """A text as a Python value."""

    @property
    @abstractmethod
    def storage(self) -> str:
        """As which type a column is written where columns have types: see `sddm.formats.tables.STORAGE`."""

    @abstractmethod
    def told(self) -> str:
        """What the tokens are, for the user."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Field) and other.arguments == self.arguments

    __hash__ = None  # type: ignore[assignment]

    def values_of(self, texts: Sequence[str]) -> list[Any]:
        """Texts as Python values; None where one is missing."""
        return [None if text == self.missing else self.value(text) for text in texts]

    def is_missing(self, text: str) -> bool:
        """Whether a text stands for a missing value in this column."""
        return text == self.missing or is_mark(text)

    def is_blank(self, text: str) -> bool:
        """Whether a text gives nothing in a condition: it is empty, or a '?' that stands for nothing here."""
        return text == "" or (text == "?" and self.missing != "?")


class Category(Field):
    """Token i is the text values[i].

    missing: the one of the values that stands for a missing one.
    stored: the type of the values, if the source had types: see `sddm.formats.tables.STORAGE`.
    """

    kind = "category"

    def __init__(self, values: Sequence[str], missing: str | None = None, stored: str = "") -> None:
        self.values, self.missing, self.stored = list(values), missing, stored
        self.size = len(self.values)
        self._known = {value: token for token, value in enumerate(self.values)}

    @classmethod
    def plain(cls, values: Sequence[str]) -> Category:
        """Texts of a source without types, in which the empty one, if there is one, stands for a missing value."""
        return cls(values, "" if "" in values else None)

    def tokens(self, texts: Sequence[str]) -> Int64[np.ndarray, "rows"]:
        return np.array([self._token(text) for text in texts], dtype=np.int64)

    def _token(self, text: str) -> int:
        if text in self._known:
            return self._known[text]
        if self.missing is None or not is_mark(text):
            raise ValueError(f"has no value {text!r}. Its values are {shown(self.values)}.")
        return self._known[self.missing]

    def is_missing(self, text: str) -> bool:
        return text == self.missing or (text not in self._known and is_mark(text))

    def is_blank(self, text: str) -> bool:
        return super().is_blank(text) and (text == "" or text not in self._known)

    def texts(self, tokens: Places, uniforms: Drawn, spans: Spans | None = None) -> list[str]:
        return [self.values[token] for token in tokens.tolist()]

    def value(self, text: str) -> Any:
        return value_of(text, self.stored)

    @property
    def storage(self) -> str:
        return self.stored or "text"

    def told(self) -> str:
        present = [value for value in self.values if value != self.missing]
        return f"{len(present)} value{'s' * (len(present) != 1)}: {shown(present)}"


class Binned(Field):
    """Token i, after that of missing values, is a number of steps from lows[i] to highs[i]; the outermost are open."""

    def __init__(self, lows: Sequence[int], highs: Sequence[int], missing: str | None = None, stored: str = "") -> None:
        self.lows, self.highs, self.missing, self.stored = list(lows), list(highs), missing, stored
        ends = [end for bounds in zip(self.lows, self.highs, strict=True) for end in bounds]
        _checks.require(
            len(ends) > 0 and ends == sorted(ends) and len(set(self.lows)) == len(set(self.highs)) == len(self.lows),
            f"bins must follow each other, but they have the low ends {shown(self.lows)}.",
        )
        self.first = int(missing is not None)
        """The token of the first bin."""
        self.size = self.first + len(self.lows)
        self._low_ends, self._high_ends = np.array(self.lows, dtype=np.int64), np.array(self.highs, dtype=np.int64)
        gaps = self._low_ends[1:] - self._high_ends[:-1]
        self._starts = self._low_ends[1:] - gaps // 2  # what lies between two bins goes to the nearer one

    @abstractmethod
    def steps(self, texts: Sequence[str]) -> Int64[np.ndarray, "rows"]:
        """The numbers of steps of texts, none of which is missing."""

    def counted(self, texts: Sequence[str]) -> list[Decimal]:
        """The same without rounding to whole steps."""
        return [Decimal(step) for step in self.steps(texts).tolist()]

    @abstractmethod
    def text(self, step: int) -> str:
        """How a number of steps is written."""

    def bins(self, steps: Int64[np.ndarray, "rows"]) -> Int64[np.ndarray, "rows"]:
        """The tokens of numbers of steps."""
        return self.first + np.searchsorted(self._starts, steps, side="right")

    def tokens(self, texts: Sequence[str]) -> Int64[np.ndarray, "rows"]:
        gone = np.array([self.is_missing(text) for text in texts], dtype=bool)
        if self.missing is None and gone.any():
            raise ValueError(f"has no missing values, but {texts[int(gone.argmax())]!r} stands for one.")
        found = np.zeros(len(texts), dtype=np.int64)
        found[~gone] = self.bins(self.steps([text for text, is_gone in zip(texts, gone, strict=True) if not is_gone]))
        return found

    def texts(self, tokens: Places, uniforms: Drawn, spans: Spans | None = None) -> list[str]:
        missing = self.missing if self.first else None
        places = np.maximum(tokens.astype(np.int64) - self.first, 0)
        drawn = self._within(places, uniforms, spans) if spans is not None else self._anywhere(places, uniforms)
        gone = tokens < self.first
        return [
            missing if is_gone and missing is not None else self.text(step)
            for step, is_gone in zip(drawn.tolist(), gone.tolist(), strict=True)
        ]

    def _anywhere(self, places: Places, uniforms: Drawn) -> Int64[np.ndarray, "rows"]:
        low, high = self._low_ends[places], self._high_ends[places]
        return np.minimum(low + (uniforms * (high - low + 1)).astype(np.int64), high)

    def _within(self, places: Places, uniforms: Drawn, spans: Spans) -> Int64[np.ndarray, "rows"]:
        drawn = self._anywhere(places, uniforms)
        for place in np.unique(places):
            inside, rows = self.part(int(place), spans), places == place
            if inside:
                sizes = np.cumsum([0] + [high - low + 1 for low, high in inside])
                steps = np.minimum((uniforms[rows] * sizes[-1]).astype(np.int64), sizes[-1] - 1)
                span = np.searchsorted(sizes, steps, side="right") - 1
                drawn[rows] = np.array([low for low, _ in inside])[span] + steps - sizes[span]
        return drawn

    def part(self, place: int, spans: Spans) -> list[tuple[int, int]]:
        """What the spans leave of a bin."""
        return overlaps(spans, (self.lows[place], self.highs[place]))

    def shares(self, spans: Spans) -> Float64[np.ndarray, "size"]:
        """The share of each token's bin that lies in the spans."""
        kept = np.zeros(self.size)
        for place, (low, high) in enumerate(zip(self.lows, self.highs, strict=True)):
            inside = sum(last - first + 1 for first, last in self.part(place, spans))
            kept[self.first + place] = inside / (high - low + 1)
        return kept

    def told(self) -> str:
        own = sum(low == high for low, high in zip(self.lows, self.highs, strict=True))
        drawn = "a bin for each value" if own == len(self.lows) else "values are drawn inside a bin"
        number = f"{len(self.lows)} bin{'s' * (len(self.lows) > 1)}"
        return f"{self.text(self.lows[0])} to {self.text(self.highs[-1])}, {number} ({drawn})"


def overlaps(spans: Spans, other: tuple[int, int]) -> list[tuple[int, int]]:
    """What each span has in common with another one."""
    both = [(max(low, other[0]), min(high, other[1])) for low, high in spans]
    return [(low, high) for low, high in both if low <= high]


class Number(Binned):
    """Bins of numbers: a step is 10^-decimals.

    places: how many decimals are written; None for whole numbers, 0 for as few as a number needs.
    """

    def __init__(
        self,
        lows: Sequence[int],
        highs: Sequence[int],
        decimals: int = 0,
        places: int | None = None,
        missing: str | None = None,
        stored: str = "",
    ) -> None:
        super().__init__(lows, highs, missing, stored)
        self.decimals, self.places = decimals, places
        self.kind = "number" if places is not None else "whole number"

    def steps(self, texts: Sequence[str]) -> Int64[np.ndarray, "rows"]:
        for text in texts:
            if not NUMBER.fullmatch(text):
                raise ValueError(f"holds numbers, but {text!r} is none.")
        return steps_of(texts, self.decimals)

    def counted(self, texts: Sequence[str]) -> list[Decimal]:
        self.steps(texts)  # which checks them
        return [Decimal(text.strip()).scaleb(self.decimals) for text in texts]

    def text(self, step: int) -> str:
        if self.decimals <= 0:
            return str(step * 10**-self.decimals) + (f".{'0' * self.places}" if self.places else "")
        digits = f"{abs(step):0{self.decimals + 1}d}"
        whole, part = digits[: -self.decimals], digits[-self.decimals :]
        part = part.rstrip("0").ljust(self.places or 0, "0")
        return "-" * (step < 0) + whole + ("." + part if part else "")

    def value(self, text: str) -> Any:
        if self.stored == "text":
            return text
        number = Decimal(text.strip())
        return int(number) if self.storage == "whole" and number == int(number) else float(number)

    @property
    def storage(self) -> str:
        return "text" if self.stored == "text" else "whole" if self.places is None else "real"


def steps_of(texts: Sequence[str], decimals: int) -> Int64[np.ndarray, "rows"]:
    """Numbers in steps of 10^-decimals. Whole numbers that float64 would round are read one by one."""
    numbers = np.array([float(text) for text in texts])
    if decimals == 0 and bool((np.abs(numbers) > EXACT).any()):
        bounds = np.iinfo(np.int64)
        whole = [int(Decimal(text).to_integral_value()) for text in texts]
        return np.array([min(max(number, bounds.min), bounds.max) for number in whole], dtype=np.int64)
    with np.errstate(over="ignore"):
        scaled = numbers * 10.0**decimals if decimals >= 0 else numbers / 10.0**-decimals
    return np.rint(np.clip(scaled, -9e18, 9e18)).astype(np.int64)


class Date(Binned):
    """Bins of dates or times: a step is a day, a minute, a second or a microsecond, the smallest part of the form."""

    kind = "date"

    def __init__(
        self, lows: Sequence[int], highs: Sequence[int], form: str, missing: str | None = None, stored: str = ""
    ) -> None:
        self.form = form
        super().__init__(lows, highs, missing, stored)

    def steps(self, texts: Sequence[str]) -> Int64[np.ndarray, "rows"]:
        return dates(texts, self.form)

    def text(self, step: int) -> str:
        return self._time(step).strftime(self.form)

    def value(self, text: str) -> Any:
        if self.stored == "text":
            return text
        time = self._time(int(self.steps([text])[0]))
        return time.date() if self.storage == "date" else time

    def _time(self, step: int) -> datetime:
        return _epoch(self.form) + step * unit(self.form)

    @property
    def storage(self) -> str:
        if self.stored == "text":
            return "text"
        if unit(self.form) >= timedelta(days=1):
            return "date"
        return "utc" if "%z" in self.form else "time"

    def told(self) -> str:
        return f"read as {self.form}, {super().told()}"


def unit(form: str) -> timedelta:
    """The smallest part of a date that a form writes."""
    if "%f" in form:
        return timedelta(microseconds=1)
    if "%S" in form or "%T" in form:
        return timedelta(seconds=1)
    return timedelta(minutes=1) if "%M" in form else timedelta(hours=1) if "%H" in form else timedelta(days=1)


def dates(texts: Sequence[str], form: str) -> Int64[np.ndarray, "rows"]:
    """Dates in steps from 1970 on; a ValueError if one has not this form."""
    epoch, step, parse = _epoch(form), unit(form), _parser(texts, form)
    found = np.empty(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        try:
            time = parse(text)
            if time.year < 1000:  # not written with four digits everywhere
                raise ValueError
        except (ValueError, OverflowError):
            raise ValueError(f"holds dates of the form {form}, but {text!r} is none.") from None
        found[row] = (time - epoch) // step
    return found


def _parser(texts: Sequence[str], form: str) -> Any:
    """How texts of a form are read: ISO's forms by a faster function, if all have the length of that form."""
    if not form.startswith("%Y-%m-%d") or "Z" in form:
        return lambda text: datetime.strptime(text, form)
    written = {len(_epoch(form).replace(microsecond=1).strftime(form).replace("+0000", "+00:00"))}
    between = form[8:9]
    if {len(text) for text in texts} != written or any(text[10:11] != between for text in texts):
        return lambda text: datetime.strptime(text, form)
    return datetime.fromisoformat


def _epoch(form: str) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc if "%z" in form else None)
