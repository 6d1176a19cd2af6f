"""The parts of a piece, and which of them are the melody or the voices of a score."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Integer

from sddm.formats.score import Note, Score, from_notes, voice_names
from sddm.formats.unusable import UnusableError

MELODIES = ("melody", "vocal", "lead", "solo", "sing")
"""What the names of tracks that hold a melody often contain."""


class Part(NamedTuple):
    """What one track plays on one channel."""

    name: str
    program: int
    """The instrument, from 0: that of the first note."""
    drums: bool
    notes: list[Note]
    """In the order of their starts."""
    end: int
    """The step at which the track ends."""
    empty: int = 0
    """How many notes of no length were left out."""


def melody(parts: Sequence[Part], track: str | int | None = None, name: str = "file") -> Integer[np.ndarray, "steps"]:
    """One voice: the first part that `track` names (see `named`), or the most melodic one.

    The most melodic part has the largest product of the share of the piece's steps in which exactly one of its notes
    sounds, and of its median pitch. Parts whose names contain "melody" or the like (`MELODIES`) come before all others.
    Drums and parts without notes are no melodies.

    In a part with chords, a note ends where the next one begins, and of notes that begin together the highest stays.
    """
    steps = length(parts)
    return from_notes(max(_melodic(parts, track, name), key=lambda part: _melodiousness(part, steps)).notes, steps)


def voices(parts: Sequence[Part], count: int, track: str | int | None = None, name: str = "file") -> Score:
    """A score of `count` voices; an `UnusableError` if there are fewer. `find_voices` says how they are found."""
    found = find_voices(parts, count, track, name)
    there = [notes for notes in found if notes is not None]
    if len(there) < count:
        raise UnusableError(
            "too few voices", f"{name!r} has {len(there)} voices, but {count} are needed. Ask for fewer voices."
        )
    return np.stack([from_notes(notes, length(parts)) for notes in there])


def find_voices(
    parts: Sequence[Part], count: int, track: str | int | None = None, name: str = "file"
) -> list[list[Note] | None]:
    """The notes of each voice, from the highest to the lowest; None for voices that the piece does not have.

    - Tracks that are called like the voices are these, also where they are silent, if all voices are there, or if no
      other track has notes.
    - Otherwise the first `count` parts are the voices, ordered by their median pitch. Drums and parts without notes are
      none.
    - If there are fewer parts, all their notes are split by pitch, as those of a chorale for the piano: each note, the
      highest first, takes the first free voice below those of higher notes that sound, or a higher one if otherwise too
      few were left for the lower notes.
    """
    names = voice_names(count)
    called = {} if track is not None else _called(parts, names)
    others = any(part.notes and not part.drums and part.name.lower() not in names for part in parts)
    if len(called) == count or (called and not others):
        return [called[voice].notes if voice in called else None for voice in names]
    melodic = _melodic(parts, track, name)
    if len(melodic) >= count:
        return [part.notes for part in sorted(melodic[:count], key=_median_pitch, reverse=True)]
    return _split(sorted(note for part in melodic for note in part.notes), count)


def named(parts: Sequence[Part], track: str | int, name: str = "file") -> list[Part]:
    """The parts with notes whose names contain `track`, in whatever case, or the part of this number, from 1."""
    number = int(track) if isinstance(track, int) or track.strip().isdecimal() else None
    if number is None:
        found = [part for part in parts if str(track).lower() in part.name.lower()]
    else:
        found = list(parts[number - 1 : number]) if number > 0 else []
    found = [part for part in found if part.notes]
    if not found:
        there = [f"{i} ({part.name!r})" for i, part in enumerate(parts, start=1) if part.notes]
        raise UnusableError(
            f"no track {track!r} with notes",
            f"{name!r} has no track {track!r} with notes. Those with notes are {', '.join(there[:16]) or 'none'}.",
        )
    return found


def length(parts: Sequence[Part]) -> int:
    """How many steps a piece has."""
    return max((part.end for part in parts), default=0)


def _melodic(parts: Sequence[Part], track: str | int | None, name: str) -> list[Part]:
    """The parts from which voices are taken: at least one, each with notes."""
    if track is not None:
        return named(parts, track, name)
    found = [part for part in parts if part.notes and not part.drums]
    if not found:
        only_drums = any(part.notes for part in parts)
        raise UnusableError(
            "drums only" if only_drums else "no notes",
            f"{name!r} holds {'drums only' if only_drums else 'no notes'}. Give a piece with a melody.",
        )
    return found


def _melodiousness(part: Part, steps: int) -> tuple[bool, float]:
    starts, ends, _ = _columns(part.notes)
    changes = np.zeros(steps + 1, dtype=np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, ends, -1)
    alone = int((changes.cumsum() == 1).sum())
    return any(word in part.name.lower() for word in MELODIES), alone / steps * _median_pitch(part)


def _median_pitch(part: Part) -> float:
    return float(np.median(_columns(part.notes)[2]))


def _columns(notes: Sequence[Note]) -> Int64[np.ndarray, "3 notes"]:
    return np.array(notes, dtype=np.int64).T


def _called(parts: Sequence[Part], names: Sequence[str]) -> dict[str, Part]:
    """The parts that are called like voices; of several with one name, the first with notes."""
    found: dict[str, Part] = {}
    for part in parts:
        name = part.name.lower()
        if name in names and not part.drums and (name not in found or not found[name].notes):
            found[name] = part
    return found


def _split(notes: Sequence[Note], count: int) -> list[list[Note] | None]:
    """Notes split by pitch, into as many voices as sound together at most, but no more than `count`."""
    events = sorted([(note.start, 1) for note in notes] + [(note.end, -1) for note in notes])
    width = min(count, int(np.cumsum([change for _, change in events]).max()))
    found: list[list[Note]] = [[] for _ in range(width)]
    for _, together in groupby(sorted(notes, key=lambda note: (note.start, -note.pitch)), lambda note: note.start):
        new = list(together)
        for number, note in enumerate(new, start=1):
            last = [voice[-1] if voice and voice[-1].end > note.start else None for voice in found]
            free = [voice for voice in range(width) if last[voice] is None]
            higher = [voice for voice, held in enumerate(last) if held is not None and held.pitch >= note.pitch]
            if free:  # a note more than there are voices is left out
                below = next((voice for voice in free if voice > max(higher, default=-1)), free[-1])
                lowest = free[max(0, len(free) - 1 - (len(new) - number))]  # below it are voices for the lower notes
                found[min(below, lowest)].append(note)
    return [*found, *[None] * (count - width)]
