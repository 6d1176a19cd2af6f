"""Bayesian networks in the Bayesian interchange format (.bif), read as variables with tables of probabilities.

    variable rain { type discrete [ 2 ] { no, yes }; }
    variable wet { type discrete [ 2 ] { no, yes }; }
    probability ( rain ) { table 0.8, 0.2; }
    probability ( wet | rain ) { (no) 0.9, 0.1; (yes) 0.1, 0.9; }

Comments, the block `network` and properties are skipped. A `table` is read only where there are no parents: programs
do not agree on the order of its numbers otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple, NoReturn

from sddm import _checks

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"]*"|[{}()\[\],;|]|[^\s{}()\[\],;|"]+', re.DOTALL)

Table = dict[tuple[str, ...], list[float]]


class Variable(NamedTuple):
    """A variable and its law given its parents."""

    name: str
    states: list[str]
    parents: list[str]
    table: Table
    """The probability of each state, for each combination of the parents' states."""


def read_bif(text: str, source: str) -> list[Variable]:
    """The variables in the order in which the file declares them; `source` names it in error messages."""
    return _Reader(text, source).variables()


class _Reader:
    """Goes through the words and signs of a file, one at a time."""

    def __init__(self, text: str, source: str) -> None:
        found = [match for match in TOKEN.finditer(text) if not match[0].startswith(("//", "/*"))]
        self.words, self.places = [match[0].strip('"') for match in found], [match.start() for match in found]
        self.text, self.source, self.at = text, source, 0

    def variables(self) -> list[Variable]:
        states: dict[str, list[str]] = {}
        laws: dict[str, tuple[list[str], Table]] = {}
        while self.at < len(self.words):
            block = self._next("a block")
            if block == "variable":
                name, values = self._variable()
                self._once(name, states)
                states[name] = values
            elif block == "probability":
                name, parents, table = self._probability()
                self._once(name, laws)
                laws[name] = parents, table
            elif block == "network":
                self._skip_to("{")
                self._skip_to("}")
            else:
                self._fail(f"{block!r} where 'network', 'variable' or 'probability' should stand")
        _checks.require(
            len(states) > 0, f"{self.source} declares no variables. Give a Bayesian network in the .bif format."
        )
        for name in sorted(states.keys() ^ laws.keys()):
            missing = "probability" if name in states else "variable"
            raise ValueError(f"{self.source} has no block {missing!r} for {name!r}. Each variable needs one of both.")
        return [Variable(name, values, *laws[name]) for name, values in states.items()]

    def _variable(self) -> tuple[str, list[str]]:
        """NAME { type discrete [ 2 ] { no, yes }; }"""
        name, states = self._next("a name"), []
        self._expect("{")
        while (word := self._next("'type' or '}'")) != "}":
            if word == "type":
                for expected in ("discrete", "["):
                    self._expect(expected)
                num = self._next("a number of states")
                for expected in ("]", "{"):
                    self._expect(expected)
                states = self._list("}")
                if num != str(len(states)):
                    self._fail(f"{len(states)} states of {name!r}, but {num} are announced")
            self._skip_to(";")
        if not states:
            self._fail(f"no 'type' of {name!r}")
        return name, states

    def _probability(self) -> tuple[str, list[str], Table]:
        """( NAME | PARENTS ) { (STATES) NUMBERS; ... }"""
        self._expect("(")
        name = self._next("a name")
        bar = self._next("'|' or ')'")
        if bar not in ("|", ")"):
            self._fail(f"{bar!r} where '|' or ')' should stand")
        parents = self._list(")") if bar == "|" else []
        self._expect("{")
        table: Table = {}
        while (word := self._next("a row or '}'")) != "}":
            if word == "property":
                self._skip_to(";")
                continue
            if word != ("(" if parents else "table"):
                given = "rows (STATES OF THE PARENTS) NUMBERS" if parents else "one row 'table NUMBERS'"
                self._fail(f"{word!r} in the law of {name!r}, which is read from {given}")
            states = tuple(self._list(")")) if parents else ()
            self._once(states, table)
            table[states] = self._numbers()
        return name, parents, table

    def _numbers(self) -> list[float]:
        words = self._list(";")
        try:
            return [float(word) for word in words]
        except ValueError:
            self._fail(f"{', '.join(words)!r} where numbers should stand")

    def _list(self, end: str) -> list[str]:
        """Words between commas, up to a sign."""
        words = [self._next("a word")]
        while (sign := self._next(f"',' or {end!r}")) == ",":
            words.append(self._next("a word"))
        if sign != end:
            self._fail(f"{sign!r} where ',' or {end!r} should stand")
        return words

    def _once(self, key: str | tuple[str, ...], known: Collection[str] | Collection[tuple[str, ...]]) -> None:
        if key in known:
            self._fail(f"{key!r} a second time")

    def _skip_to(self, sign: str) -> None:
        while self._next(repr(sign)) != sign:
            pass

    def _expect(self, word: str) -> None:
        found = self._next(repr(word))
        if found != word:
            self._fail(f"{found!r} where {word!r} should stand")

    def _next(self, expected: str) -> str:
        if self.at == len(self.words):
            raise ValueError(f"{self.source} ends where {expected} should stand. Is the file whole?")
        self.at += 1
        return self.words[self.at - 1]

    def _fail(self, found: str) -> NoReturn:
        line = self.text.count("\n", 0, self.places[self.at - 1]) + 1
        raise ValueError(f"Line {line} of {self.source} has {found}. Correct the line.")
