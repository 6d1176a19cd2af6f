"""A tune or a chorale as notes, read by music21. Repeats of tunes are played.

Times are whole numbers of ticks. There are `TICKS` in a quarter note, so that triplets, quintuplets and septuplets of
all usual notes are exact.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32

TICKS = 1680
"""Ticks in a quarter note: a multiple of 48, of 5 and of 7."""
VOICES = 4
"""Of a chorale."""
ABC = (2, 1, 0)
"""The version of the notation. By earlier ones music21 ends an accidental at its note, instead of at the bar line."""

Notes = Int32[np.ndarray, "notes 4"]


class Piece(NamedTuple):
    """What is kept of a tune or of a chorale."""

    name: str
    """Its collection, its file and its number there: "oneills1850/1001-1030.abc 1003"."""
    notes: Notes
    """Voice, start, end and pitch of each note, voice by voice, in their order. Times are in ticks."""
    length: int
    """The end of its last note or rest, in ticks."""
    reason: str
    """Why it cannot be used; empty if it can."""


class Sound(NamedTuple):
    """A note of a bar, or a rest."""

    start: int
    end: int
    pitch: int | None
    """None is a rest."""
    tied: bool
    """Whether the next note goes on with it."""


class Bar(NamedTuple):
    """A bar as it is written."""

    sounds: list[Sound]
    length: int
    begins_repeat: bool = False
    ends_repeat: bool = False
    endings: tuple[int, ...] = ()
    """The rounds in which it is played, if it stands below a bracket; otherwise it is played in all of them."""


class _Unusable(Exception):  # noqa: N818
    """The reason is the message."""


def read_tune(job: tuple[str, str]) -> Piece:
    """A tune from its name and its text in ABC notation.

    Repeats are played, with their first and second endings. Grace notes, ornaments and chord symbols are left out.
    """
    name, text = job

    def voices() -> list[list[Bar]]:
        handler = importlib.import_module("music21.abcFormat").ABCHandler(abcVersion=ABC)
        handler.process(text)
        score = importlib.import_module("music21.abcFormat.translate").abcToStreamScore(handler)
        _require(len(score.parts) == 1, "of more than one voice")
        return [played(_bars(score.parts[0]))]

    return _piece(name, voices)


def read_chorale(job: tuple[str, str]) -> Piece:
    """A chorale from its name and the path of its file, each bar once. What is not of four voices is not used."""
    name, path = job

    def voices() -> list[list[Bar]]:
        score = importlib.import_module("music21.converter").parseFile(Path(path), forceSource=True, storePickle=False)
        _require(len(score.parts) == VOICES, f"not of {VOICES} voices")
        return [_bars(part) for part in score.parts]

    return _piece(name, voices)


def played(bars: Sequence[Bar]) -> list[Bar]:
    """The bars in the order in which they are played.

    A repeat goes back to the last sign that begins one, or else to where the last one ended, or to the start.
    """
    order: list[Bar] = []
    first, now, turn = 0, 0, 1
    while now < len(bars):
        bar = bars[now]
        if bar.begins_repeat and now != first:
            first, turn = now, 1
        if not bar.endings or turn in bar.endings:
            order.append(bar)
            following = bars[now + 1].endings if now + 1 < len(bars) else ()
            if bar.ends_repeat and (turn == 1 or turn + 1 in following):
                now, turn = first, turn + 1
                continue
            if bar.ends_repeat or (turn > 1 and bar.endings and bar.endings != following):
                first, turn = now + 1, 1
        now += 1
    return order


def _bars(part: Any) -> list[Bar]:
    measures = list(part.getElementsByClass("Measure")) or [part]
    starts = [_ticks(measure.offset) for measure in measures]
    ends = [*starts[1:], starts[-1] + _ticks(measures[-1].highestTime)]
    return [_bar(measure, end - start) for measure, start, end in zip(measures, starts, ends, strict=True)]


def _bar(measure: Any, length: int) -> Bar:
    sounds: list[Sound] = []
    for event in measure.flatten().notesAndRests:
        if event.duration.isGrace or "Harmony" in event.classes:
            continue
        _require(event.isNote or event.isRest, "of chords")
        pitch = event.pitch.midi if event.isNote else None
        tied = event.tie is not None and event.tie.type in ("start", "continue")
        start = _ticks(event.offset)
        if event.isNote:
            _require(all(sound.pitch is None or sound.end <= start for sound in sounds), "of notes that overlap")
        sounds.append(Sound(start, _ticks(event.offset + event.quarterLength), pitch, tied))
    lines = [getattr(measure, side, None) for side in ("leftBarline", "rightBarline")]
    begins, ends = (getattr(line, "direction", "") for line in lines)
    brackets = measure.getSpannerSites("RepeatBracket")
    endings = tuple(number for bracket in brackets for number in bracket.numberRange)
    return Bar(sounds, length, begins == "start", ends == "end", endings)


def _piece(name: str, read: Callable[[], list[list[Bar]]]) -> Piece:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what music21 takes for granted in a piece
        try:
            voices = [_notes(bars) for bars in read()]
        except _Unusable as reason:
            return Piece(name, np.zeros((0, 4), np.int32), 0, str(reason))
        except Exception:  # music21 raises errors of many kinds for what it does not understand
            return Piece(name, np.zeros((0, 4), np.int32), 0, "not understood by music21")
    notes = [(voice, *note) for voice, (notes, _) in enumerate(voices) for note in notes]
    return Piece(name, np.array(notes, np.int32), max(length for _, length in voices), "")


def _notes(bars: Sequence[Bar]) -> tuple[list[tuple[int, int, int]], int]:
    """Start, end and pitch of the notes of a voice, tied notes as one, and the end of the last bar."""
    notes: list[tuple[int, int, int]] = []
    here, tied = 0, False
    for bar in bars:
        for sound in bar.sounds:
            start, end = here + sound.start, here + sound.end
            if sound.pitch is not None and tied and notes[-1][1:] == (start, sound.pitch):
                notes[-1] = (notes[-1][0], end, sound.pitch)
            elif sound.pitch is not None:
                notes.append((start, end, sound.pitch))
            tied = sound.tied and sound.pitch is not None
        here += bar.length
    _require(len(notes) > 0, "without notes")
    return notes, here


def _ticks(quarters: Any) -> int:
    return round(quarters * TICKS)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise _Unusable(reason)
