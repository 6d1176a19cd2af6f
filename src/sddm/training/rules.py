"""Rules by name for each row of a step: what of it is known, and at what time it is noised.

Positions that are known stay clean and leave the loss, so that the model learns the others given these. Sampling with a
condition (a prefix, a hole to fill) asks for just that. No rule ever gives all positions of a row.

As options of the command line and of saved configurations, a rule is its name and its numbers: "prefix", "prefix:8:64".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from sddm import _checks
from sddm.randomness import Stream, categorical, stratified_times
from sddm.shapes import Times

Rule = TypeVar("Rule")
Table = Mapping[str, Callable[..., Rule]]


@runtime_checkable
class Known(Protocol):
    """A rule for what is known of a row."""

    def check(self, length: int) -> None:
        """Raise a ValueError if the rule does not fit rows of this length."""

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        """The positions that are known, for each of `num` rows."""


@dataclass(frozen=True)
class Nothing:
    """Nothing is known: the whole row is to be generated."""

    def check(self, length: int) -> None:
        pass

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        return torch.zeros(num, length, dtype=torch.bool)


@dataclass(frozen=True)
class Prefix:
    """The first positions: `least` of them, or any number from `least` to `most`, or (neither given) any number."""

    least: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        for value, name, lowest in ((self.least, "least", 0), (self.most, "most", self.least or 0)):
            if value is not None:
                _checks.whole(value, f"{name} of a known prefix", lowest)

    def check(self, length: int) -> None:
        _leave_some(self.most or self.least or 0, length)

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        least = self.least or 0
        most = self.most if self.most is not None else length - 1 if self.least is None else least
        return torch.arange(length) < torch.randint(least, most + 1, (num, 1), generator=generator)


@dataclass(frozen=True)
class Spans:
    """Every other one of `pieces` spans, into which the row is cut at random places; the first is known half the time.

    So a row may have a hole, several, or a known middle.
    """

    pieces: int = 3

    def __post_init__(self) -> None:
        _checks.whole(self.pieces, "pieces of known spans", 2)

    def check(self, length: int) -> None:
        if self.pieces > length:
            raise ValueError(f"Known spans need {self.pieces} pieces, but rows have {length} positions only.")

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        places = torch.rand(num, length - 1, generator=generator).topk(self.pieces - 1, dim=1).indices
        cuts = torch.zeros(num, length - 1, dtype=torch.int64).scatter(1, places, 1)
        first = torch.randint(2, (num, 1), generator=generator)
        return (F.pad(cuts, (1, 0)).cumsum(1) + first) % 2 == 1


@dataclass(frozen=True)
class Scattered:
    """Each position with probability `share`, independently; if it is not given, each row has a share of its own, drawn
    uniformly. If all positions would be known, one of them is not."""

    share: float | None = None

    def __post_init__(self) -> None:
        if self.share is not None:
            _checks.finite(self.share, "share of known positions")
            if not 0 < self.share < 1:
                raise ValueError(f"share of known positions must lie between 0 and 1, but it is {self.share:g}.")

    def check(self, length: int) -> None:
        _leave_some(1, length)

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        share = torch.rand(num, 1, generator=generator) if self.share is None else self.share
        known = torch.rand(num, length, generator=generator) < share
        left_out = torch.randint(length, (num, 1), generator=generator)
        return known & ~(known.all(1, keepdim=True) & (torch.arange(length) == left_out))


@dataclass(frozen=True)
class Mask:
    """These positions, in every row: such as one voice of four."""

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        _checks.require(len(self.positions) > 0, "A known mask names no position. Name one, or leave it out.")
        for position in self.positions:
            _checks.whole(position, "position of a known mask", 0)

    @classmethod
    def from_text(cls, text: str | int) -> Mask:
        """From positions and ranges with their ends: "0-31,48", or "0-255/4" for every fourth from 0 on."""
        positions: list[int] = []
        for part in str(text).split(","):
            span, _, step = part.partition("/")
            first, _, last = span.partition("-")
            _checks.require(
                all(number.isdecimal() for number in (first, last or first, step or "1")) and step != "0",
                f"A known mask is given by positions and ranges, such as 0-31,48 or 0-255/4, but it is {text!r}.",
            )
            positions += range(int(first), int(last or first) + 1, int(step or 1))
        return cls(tuple(positions))

    def check(self, length: int) -> None:
        _checks.require(
            max(self.positions) < length,
            f"A known mask names position {max(self.positions)}, but rows have positions 0 to {length - 1}.",
        )
        _leave_some(len(set(self.positions)), length)

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        return torch.zeros(length, dtype=torch.bool).index_fill(0, torch.tensor(self.positions), True).expand(num, -1)


@dataclass(frozen=True)
class Mixture:
    """One of several rules for each row, with probabilities in proportion to the weights.

    >>> Mixture((Nothing(), Prefix(), Spans()), (2.0, 1.0, 1.0))
    """

    rules: tuple[Known, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _checks.require(
            len(self.rules) == len(self.weights) > 0,
            f"A mixture needs a weight for each rule, but has {len(self.rules)} rules and {len(self.weights)} weights.",
        )
        for weight in self.weights:
            _checks.positive(weight, "weight in a mixture")

    def check(self, length: int) -> None:
        for rule in self.rules:
            rule.check(length)

    def draw(self, num: int, length: int, generator: torch.Generator) -> Bool[Tensor, "num length"]:
        weights = torch.tensor(self.weights, dtype=torch.float64).expand(num, -1)
        chosen = categorical(weights, Stream(generator))
        drawn = torch.stack([rule.draw(num, length, generator) for rule in self.rules])
        return drawn[chosen, torch.arange(num)]


@runtime_checkable
class TimeRule(Protocol):
    """A rule for the times of a batch."""

    def draw(self, num: int, generator: torch.Generator, device: torch.device) -> Times:
        """A time in [0, T] for each of `num` rows."""


@dataclass(frozen=True)
class Stratified:
    """Uniform on [low, T]. The losses of some models have no finite variance at t = 0; tauLDR takes low = 0.01."""

    low: float = 0.0

    def __post_init__(self) -> None:
        _checks.share(self.low, "The lowest time")

    def draw(self, num: int, generator: torch.Generator, device: torch.device) -> Times:
        return self.low + (1 - self.low) * stratified_times(num, generator, device)


@dataclass(frozen=True)
class OnGrid:
    """One of T/N, 2T/N, ..., T, each with the same probability: the times of a chain of N steps, as in D3PM."""

    points: int

    def __post_init__(self) -> None:
        _checks.whole(self.points, "number of times", 1)

    def draw(self, num: int, generator: torch.Generator, device: torch.device) -> Times:
        points = (stratified_times(num, generator, device) * self.points).floor().clamp(max=self.points - 1)
        return (points + 1) / self.points


KNOWN: Table[Known] = {
    "nothing": Nothing,
    "prefix": Prefix,
    "spans": Spans,
    "scattered": Scattered,
    "mask": Mask.from_text,
}
TIMES: Table[TimeRule] = {"uniform": Stratified, "grid": OnGrid}


def from_text(text: str, table: Table[Rule], option: str) -> Rule:
    """The rule of a table that a text names, with the numbers that follow the name as its arguments."""
    name, *arguments = text.split(":")
    _checks.one_of(name, option, table)
    try:
        return table[name](*map(_number, arguments))
    except TypeError as error:
        raise ValueError(f"{option} is {text!r}, but {name} takes other numbers, or more or fewer of them.") from error


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def known_from_text(text: str) -> Known:
    """One rule, or a mixture: "prefix:32", "nothing@2+prefix+spans:5" (with twice the weight for nothing)."""
    parts = [part.partition("@") for part in text.split("+")]
    rules = tuple(from_text(rule, KNOWN, "known") for rule, _, _ in parts)
    if len(rules) == 1 and not parts[0][1]:
        return rules[0]
    try:
        return Mixture(rules, tuple(float(weight) if at else 1.0 for _, at, weight in parts))
    except ValueError as error:
        raise ValueError(f"known is {text!r}, but a weight after @ must be a number above 0. ({error})") from error


def _leave_some(known: int, length: int) -> None:
    _checks.require(
        known < length,
        f"{known} positions of a row cannot be known when it has {length}: nothing would be left to learn.",
    )
