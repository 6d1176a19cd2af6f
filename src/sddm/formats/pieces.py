"""Many MIDI files as windows of equal length, and a report of what was left out, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

from sddm.formats.archive import members
from sddm.formats.midi import MAX_BYTES, read_parts
from sddm.formats.parts import Part, melody, voices
from sddm.formats.score import HELD, PITCHES, REST, Score, sounding
from sddm.formats.unusable import LeftOut, UnusableError

ENDINGS = (".mid", ".midi")
Named = tuple[str, bytes | UnusableError]
"""The name of a file, and what it holds or why it cannot be read."""


@dataclass
class Kept(LeftOut):
    """How many files gave how many windows, and what was left out."""

    files: int = 0
    rows: int = 0
    rest: int = 0
    """Steps after the last whole windows of files."""
    silent: int = 0
    """Windows without a note, left out."""
    empty: int = 0
    """Notes of no length, left out."""

    @property
    def whole(self) -> bool:
        """Whether nothing was left out but what follows the last window of a file."""
        return not (self.left_out or self.silent or self.empty)

    @property
    def text(self) -> str:
        """All of it in one paragraph."""
        files = self.files + self.left_out.total()
        said = [f"{self.files} of {files} files of music gave {self.rows} windows."]
        if self.left_out:
            said.append(f"Files left out: {self.reasons}.")
        others = {
            "windows without a note": self.silent,
            "notes of no length": self.empty,
            "steps after the last whole windows": self.rest,
        }
        others = {what: number for what, number in others.items() if number}
        if others:
            said.append(f"Left out as well: {', '.join(f'{number} {what}' for what, number in others.items())}.")
        return " ".join(said)


class Windows(NamedTuple):
    """Scores of equal length."""

    scores: Integer[np.ndarray, "num voices steps"]
    groups: list[int]
    """The number of the file of each."""
    kept: Kept


@dataclass(frozen=True)
class Selection:
    """What is taken from each file."""

    window: int
    steps_per_beat: int = 4
    voices: int = 1
    track: str | int | None = None

    def parts(self, content: bytes, name: str) -> list[Part]:
        return read_parts(content, name, self.steps_per_beat)

    def score(self, parts: list[Part], name: str) -> Score:
        if self.voices == 1:
            return melody(parts, self.track, name)[None]
        return voices(parts, self.voices, self.track, name)


def of_file(path: Path) -> Iterator[Named]:
    with path.open("rb") as file:
        yield str(path), file.read(MAX_BYTES + 1)


def of_folder(paths: Iterable[Path]) -> Iterator[Named]:
    """The names and the contents of files, and why those that cannot be read are not."""
    for path in paths:
        try:
            with path.open("rb") as file:
                yield path.name, file.read(MAX_BYTES + 1)
        except OSError as error:
            yield path.name, UnusableError("unreadable", f"{str(path)!r} cannot be read ({error.strerror}).")


def of_archive(path: Path) -> Iterator[Named]:
    return members(path, ENDINGS, MAX_BYTES)


def windows(files: Iterable[Named], selection: Selection, source: str | None) -> Windows:
    """Windows of all files that can be used; a ValueError with the reasons if there are none. `source` is what holds
    the files; None if there is a single one, which then says itself why it cannot be used.

    Windows do not overlap, and what follows the last whole one is left out. A file of at least half a window is one
    window, filled up with rests. A note that goes on from one window to the next begins anew.
    """
    kept, found, groups = Kept(), [], []
    for number, (name, content) in enumerate(files):
        try:
            if isinstance(content, UnusableError):
                raise content
            parts = selection.parts(content, name)
            rows = _cut(selection.score(parts, name), selection.window, name)
        except UnusableError as error:
            if source is None:
                raise
            kept.leave_out(name, error.reason)
            continue
        heard = (rows < PITCHES).any(axis=(1, 2))
        kept.files += 1
        kept.rows += int(heard.sum())
        kept.silent += int((~heard).sum())
        kept.empty += sum(part.empty for part in parts)
        kept.rest += max(0, max(part.end for part in parts) - len(rows) * selection.window)
        found.append(rows[heard])
        groups += [number] * int(heard.sum())
    if not kept.rows:
        raise ValueError(
            f"None of the {kept.left_out.total()} files of {source} can be used: {kept.reasons}."
            if kept.left_out
            else f"{source} holds no MIDI files. Give some that end in {' or '.join(ENDINGS)}."
        )
    return Windows(np.concatenate(found), groups, kept)


def _cut(score: Score, window: int, name: str) -> Integer[np.ndarray, "num voices window"]:
    count, steps = score.shape
    num = steps // window
    if num == 0:
        if 2 * steps < window:
            raise UnusableError(
                "shorter than half a window",
                f"{name!r} has {steps} steps, less than half a window of {window}. Choose a smaller window.",
            )
        score, num = np.pad(score, ((0, 0), (0, window - steps)), constant_values=REST), 1
    begins = np.arange(num) * window
    score = score.copy()
    score[:, begins] = np.where(score[:, begins] == HELD, sounding(score)[:, begins], score[:, begins])
    rows = score[:, : num * window].reshape(count, num, window).transpose(1, 0, 2)
    if not (rows < PITCHES).any():
        raise UnusableError("no notes", f"{name!r} has no notes in windows of {window} steps. Give another file.")
    return rows
