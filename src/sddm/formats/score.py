"""Music on a grid of steps, as numbers: when each voice begins a note, goes on with it, or rests.

A score is an array (voices, steps). An entry from 0 to 127 is a note of that pitch which begins in this step, `HELD`
goes on with the note before, and `REST` is silence. Nothing that fits the grid is lost. The piano roll of the paper,
`sounding`, has the pitch itself in every step of a note, so that a note that is struck again looks like one long note.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer

from sddm import _checks

PITCHES = 128
"""Pitches are those of MIDI: 60 is the middle C."""
REST, HELD = 128, 129

Score = Integer[np.ndarray, "voices steps"]


VOICES = ("soprano", "alto", "tenor", "bass")
"""What four voices are called, from high to low."""


class Note(NamedTuple):
    """A note from one step to another, which it does not reach."""

    start: int
    end: int
    pitch: int


def normal(score: Score) -> Score:
    """The same music in its one notation: HELD only where a note goes on."""
    score = np.array(score, dtype=np.int16)
    sounds = sounding(score)
    score[(score == HELD) & (sounds == REST)] = REST
    return score


def sounding(score: Score) -> Score:
    """What sounds in each step: a pitch, or REST. HELD where nothing was struck before is REST."""
    score = np.asarray(score, dtype=np.int16)
    struck = score != HELD
    last = np.maximum.accumulate(np.where(struck, np.arange(score.shape[1]), -1), axis=1)
    return np.where(last < 0, REST, np.take_along_axis(score, np.maximum(last, 0), axis=1)).astype(np.int16)


def merged(sounds: Score) -> Score:
    """The score in which equal neighbours are one long note."""
    sounds = np.asarray(sounds, dtype=np.int16)
    score = sounds.copy()
    score[:, 1:][(sounds[:, 1:] == sounds[:, :-1]) & (sounds[:, 1:] != REST)] = HELD
    return score


def notes_of(voice: Integer[np.ndarray, "steps"]) -> list[Note]:
    """The notes of one voice, in their order."""
    voice = normal(voice[None])[0]
    begins = np.flatnonzero(voice < PITCHES)
    changes = np.flatnonzero(voice != HELD)
    ends = np.append(changes, len(voice))[np.searchsorted(changes, begins, side="right")]
    return [Note(int(b), int(e), int(voice[b])) for b, e in zip(begins, ends, strict=True)]


def from_notes(notes: Iterable[Note], steps: int) -> Integer[np.ndarray, "steps"]:
    """One voice of this many steps. A note ends where the next one begins; of notes that begin together the highest
    stays, and of notes of one pitch the longest. What lies beyond the end is cut off."""
    voice = np.full(steps, REST, dtype=np.int16)
    kept = sorted((note.start, note.pitch, note.end) for note in notes if 0 <= note.start < min(steps, note.end))
    if kept:
        starts, pitches, ends = np.array(kept, dtype=np.int64).T
        last = np.append(starts[1:] != starts[:-1], True)
        starts, pitches, ends = starts[last], pitches[last], ends[last]
        lengths = np.minimum(ends, np.append(starts[1:], steps)) - starts
        first = np.cumsum(lengths) - lengths
        voice[np.arange(lengths.sum()) + np.repeat(starts - first, lengths)] = HELD
        voice[starts] = pitches
    return voice


def transposed(score: Score, semitones: int) -> Score:
    """The same music higher or lower. It must stay within the pitches that there are."""
    moved = np.where(np.asarray(score) < PITCHES, np.asarray(score) + semitones, score)
    if ((moved != score) & ((moved < 0) | (moved >= PITCHES))).any():
        raise ValueError(f"The music has pitches that cannot be moved by {semitones} semitones: they are 0 to 127.")
    return moved.astype(np.int16)


def voice_names(voices: int) -> list[str]:
    """What the voices of a score are called."""
    return list(VOICES) if voices == len(VOICES) else [f"voice {number + 1}" for number in range(voices)]


def checked(score: Any, name: str = "score") -> Score:
    """Check that an array is a score."""
    values = np.asarray(score)
    _checks.require(
        values.ndim == 2 and len(values) > 0 and values.dtype.kind in "iu",
        f"{name} must be an array (voices, steps) of whole numbers, but it is of {values.dtype} and has shape "
        f"{values.shape}.",
    )
    _checks.require(
        bool(((values >= 0) & (values <= HELD)).all()),
        f"{name} must hold pitches 0 to {PITCHES - 1}, {REST} for a rest and {HELD} for a note that goes on, but it "
        "holds other numbers.",
    )
    return values.astype(np.int16)
