"""What the experiment on samplers of trained models shows: a table for each figure, what they say, and curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sddm.experiments.experiment import markdown, with_error
from sddm.experiments.pictures import panels
from sddm.experiments.sample_quality import KINDS, Shown
from sddm.experiments.ways import DEFAULT, WAYS, if_others

FLOOR = "data against data"
NEAR = 2.0
"""Standard errors of a difference within which two figures count as equal."""
TEXT = """\
Each column of the experiment is one model, trained for some minutes, and all its rows are samples of that model. The
best at a number of evaluations of the network is **bold**; those within two standard errors of it have a =. Errors are
those of the samples. In brackets: the evaluations a sample, if others. Pilot samples, which choose a grid or the
threshold of entropic steps once for a model, are not counted in. Without a number of evaluations: what the default does
if none is given, and one evaluation for each position.
"""


class Point(NamedTuple):
    """The figures of a cell."""

    column: str
    way: str
    evaluations: int | None
    """Those that were asked for; None if they follow from the data."""
    figures: dict[str, Any]

    def of(self, shown: Shown) -> tuple[float, float]:
        """A figure and its standard error, where less is better."""
        sign = -1 if shown.higher else 1
        return sign * self.figures[shown.name], self.figures[f"{shown.name}_standard_error"]

    def text(self, shown: Shown) -> str:
        value, error = self.of(shown)
        return with_error(shown.factor * abs(value) if shown.higher else shown.factor * value, shown.factor * error)


def tables(points: Sequence[Point], many: Mapping[str, int], scale: str) -> str:
    parts = [f"# samplers of trained models, {scale} scale\n", TEXT]
    for column, some in by_column(points).items():
        kind = column.rpartition(", ")[0]
        parts.append(f"## {column}\n\n{many[kind]:,} samples a cell.\n")
        for number, shown in enumerate(KINDS[kind].shown):
            having = [point for point in some if shown.name in point.figures]
            if having:
                parts += [f"### {shown.title}\n", _table(having, shown), _floor(having, shown)]
                parts += [] if number else [*verdicts(having, shown)]
    parts.append(f"From `sddm reproduce samplers-trained --scale {scale}`.\n")
    return "\n".join(part for part in parts if part)


def by_column(points: Sequence[Point]) -> dict[str, list[Point]]:
    columns = dict.fromkeys(point.column for point in points)
    return {column: [point for point in points if point.column == column] for column in columns}


def _numbers(points: Sequence[Point]) -> list[int]:
    """The numbers of evaluations at which ways can be compared: those that more than one way has."""
    found = [point.evaluations for point in points if point.evaluations is not None]
    return sorted({number for number in found if found.count(number) > 1})


def best(points: Sequence[Point], shown: Shown, number: int) -> Point:
    return min((p for p in points if p.evaluations == number), key=lambda point: point.of(shown)[0])


def apart(one: Point, other: Point, shown: Shown) -> tuple[float, float]:
    """How much worse one figure is than the other, and the standard error of the difference."""
    (value, error), (than, its_error) = one.of(shown), other.of(shown)
    return value - than, math.hypot(error, its_error)


def near(one: Point, other: Point, shown: Shown) -> bool:
    difference, error = apart(one, other, shown)
    return difference <= NEAR * error


def _table(points: Sequence[Point], shown: Shown) -> str:
    numbers, lines = _numbers(points), []
    leaders = {number: best(points, shown, number) for number in numbers}

    def cell(point: Point) -> str:
        asked = point.evaluations if point.evaluations in leaders else None
        leader, text = leaders.get(asked or 0), point.text(shown)
        if leader is not None:
            text = f"**{text}**" if point is leader else f"{text} =" if near(point, leader, shown) else text
        return text + if_others(point.figures["evaluations"], asked or 0)

    for way in WAYS:
        of_way = [point for point in points if point.way == way]
        at = [" ".join(cell(point) for point in of_way if point.evaluations == number) for number in numbers]
        more = ", ".join(cell(point) for point in of_way if point.evaluations not in numbers)
        if of_way:
            lines.append([way, *at, more])
    return markdown(["evaluations", *map(str, numbers), "without a number"], lines)


def _floor(points: Sequence[Point], shown: Shown) -> str:
    texts = [point.text(shown) for point in points if point.way == FLOOR]
    return f"As many rows of the data: {texts[0]}.\n" if texts else ""


def verdicts(points: Sequence[Point], shown: Shown) -> Iterator[str]:
    """What is best, and whether the default is as good, by the number of evaluations."""
    for number in _numbers(points):
        leader = best(points, shown, number)
        for usual in (point for point in points if (point.way, point.evaluations) == (DEFAULT, number)):
            difference, error = apart(usual, leader, shown)
            equal = "as good within errors" if near(usual, leader, shown) else "worse"
            yield (
                f"- At {number} evaluations the best is: {leader.way}. The default, {DEFAULT}, is {equal}"
                + (".\n" if usual is leader else f" (by {with_error(difference, error)}).\n")
            )


def curves(points: Sequence[Point], path: Path) -> None:
    """The first figure of each column against the evaluations that were used."""
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    floors: dict[str, float] = {}
    for column, some in by_column(points).items():
        shown = KINDS[column.rpartition(", ")[0]].shown[0]
        lines[column] = {}
        for point in some:
            if point.way == FLOOR and point.figures[shown.name] > 0:  # a corrected distance may be below
                floors[column] = point.figures[shown.name]
            elif point.way != FLOOR:
                here = (point.figures["evaluations"], point.figures[shown.name])
                lines[column].setdefault(point.way, []).append(here)
    drawn = {column: by_way for column, by_way in lines.items() if by_way}
    if drawn:
        panels(drawn, floors, ("evaluations a sample", "distance from held-out data"), path)
