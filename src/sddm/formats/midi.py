"""MIDI files, read: the notes of their tracks on a grid of steps.

    header    "MThd", the kind of file, the number of tracks, ticks in a quarter note
    track     "MTrk", its length in bytes, then events: how many ticks after the last one, and what happens

Files are read here byte by byte, and by no other library: a damaged file ends in a sentence, whatever it holds. Time is
in ticks, and a beat is a quarter note. So the grid does not depend on the tempo or on its changes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sddm import _checks
from sddm.formats.parts import Part
from sddm.formats.score import Note
from sddm.formats.unusable import UnusableError

MAX_BYTES = 10_000_000
MAX_TRACKS = 256
MAX_STEPS = 100_000
"""The most steps of a piece: at four a beat and 120 beats a minute, three hours and a half."""
MAX_STEPS_PER_BEAT = 480
MAX_NAME = 200
"""Longer names of tracks are cut."""
DRUMS = 9
"""The channel (from 0) whose pitches stand for drums."""
NOTE_OFF, NOTE_ON, PROGRAM, PRESSURE = 0x8, 0x9, 0xC, 0xD
"""What the upper half of an event's first byte says."""
META, SYSEX, ESCAPE = 0xFF, 0xF0, 0xF7
TRACK_NAME, END_OF_TRACK = 0x03, 0x2F


def read_parts(content: bytes, name: str, steps_per_beat: int) -> list[Part]:
    """The tracks of a MIDI file, with starts and ends of notes at the nearest steps of the grid; `name` is that of the
    file, for messages.

    - A note that would start and end at the same step lasts one step. Notes of no length at all are left out.
    - A track that plays on several channels is several parts. A track without notes is a part too.
    - A note that is struck again before it ends: the first to begin is the first to end. A note without an end lasts
      until its track ends.
    - Files of independent patterns (type 2), files that count frames of film instead of beats, and files beyond the
      limits of this module are refused by an `UnusableError`, as are damaged ones.
    """
    _checks.whole(steps_per_beat, "steps_per_beat", 1, MAX_STEPS_PER_BEAT)
    ticks, chunks = _chunks(content, name)
    parts: list[Part] = []
    for number, chunk in enumerate(chunks, start=1):
        try:
            track = _read_track(chunk)
        except IndexError:
            raise _damaged(name, f"track {number} ends in the middle of an event") from None
        except _SenselessError as error:
            raise _damaged(name, f"track {number} holds {error}") from None
        parts += _on_grid(track, ticks, steps_per_beat, name)
    return parts


class _SenselessError(Exception):
    """Bytes that no event begins with."""


class _Track(NamedTuple):
    name: str
    end: int
    programs: dict[int, int]
    """By channel: the instrument of its first note."""
    notes: dict[int, list[tuple[int, int, int]]]
    """By channel: starts and ends in ticks, and pitches."""


def _damaged(name: str, what: str) -> UnusableError:
    return UnusableError("damaged", f"{name!r} is damaged or cut off: {what}. Save it again.")


def _chunks(content: bytes, name: str) -> tuple[int, list[bytes]]:
    """Ticks in a quarter note, and the bytes of each track."""
    if len(content) > MAX_BYTES:
        raise UnusableError(
            f"over {MAX_BYTES // 10**6} MB", f"{name!r} is too large for a MIDI file: the limit is {MAX_BYTES} bytes."
        )
    if not content:
        raise UnusableError("empty", f"{name!r} is empty. Give a file that holds music.")
    if content[:4] != b"MThd":
        raise UnusableError("not MIDI", f"{name!r} is not a MIDI file: it does not begin with 'MThd'. Save it as MIDI.")
    if len(content) < 14 or (place := 8 + int.from_bytes(content[4:8], "big")) < 14:
        raise _damaged(name, "its header is not whole")
    kind, declared, ticks = struct.unpack(">HHH", content[8:14])
    if kind == 2:
        raise UnusableError(
            "independent patterns (type 2)",
            f"{name!r} is of type 2: independent patterns instead of one piece. Save it as type 0 or 1.",
        )
    if kind > 2:
        raise _damaged(name, f"its header says type {kind}, but there are types 0 to 2 only")
    if ticks == 0 or ticks & 0x8000:
        raise UnusableError(
            "time without beats",
            f"{name!r} has no beats: its header says {'0 ticks a beat' if ticks == 0 else 'frames of film (SMPTE)'}. "
            "Save it with ticks per quarter note.",
        )
    tracks: list[bytes] = []
    while place + 8 <= len(content):
        start, size = place + 8, int.from_bytes(content[place + 4 : place + 8], "big")
        whole = start + size <= len(content)
        if content[place : place + 4] == b"MTrk" and (whole or len(tracks) < declared):
            if not whole:
                raise _damaged(
                    name, f"track {len(tracks) + 1} should have {size} bytes, but {len(content) - start} are there"
                )
            tracks.append(content[start : start + size])
        place = start + size
        if len(tracks) > MAX_TRACKS:
            raise UnusableError(
                f"more than {MAX_TRACKS} tracks", f"{name!r} has more than {MAX_TRACKS} tracks, the most that are read."
            )
    if len(tracks) < declared:
        raise _damaged(name, f"its header says {declared} tracks, but {len(tracks)} are there")
    return ticks, tracks


def _read_track(data: bytes) -> _Track:
    """The notes of a track; an IndexError if the bytes end within an event."""
    name, place, now, status, kind, channel = "", 0, 0, 0, 0, 0
    program = [0] * 16
    programs: dict[int, int] = {}
    notes: dict[int, list[tuple[int, int, int]]] = {}
    sounding: dict[int, deque[int]] = {}  # by 128 * channel + pitch: when the notes began that have not ended
    while place < len(data):
        if data[place] < 0x80:  # this loop takes nearly all the time of reading a file
            now += data[place]
            place += 1
        else:
            ticks, place = _quantity(data, place)
            now += ticks
        event = data[place]
        if event >= SYSEX:
            place, text = _system_event(data, place)
            if text is None:
                break
            name = name or text
            continue
        if event >= 0x80:  # otherwise the kind and the channel are those of the last event
            status, kind, channel = event, event >> 4, event & 15
            place += 1
        first = data[place]
        if kind in (PROGRAM, PRESSURE):
            second = 0
            place += 1
        else:
            second = data[place + 1]
            place += 2
        if (first | second) > 127 or status == 0:
            raise _SenselessError("numbers where an event should begin, or the reverse")
        if kind == NOTE_ON and second > 0:
            programs.setdefault(channel, program[channel])
            sounding.setdefault(channel << 7 | first, deque()).append(now)
        elif kind in (NOTE_ON, NOTE_OFF):
            if begun := sounding.get(channel << 7 | first):
                notes.setdefault(channel, []).append((begun.popleft(), now, first))
        elif kind == PROGRAM:
            program[channel] = first
    for key, begun in sounding.items():
        notes.setdefault(key >> 7, []).extend((start, now, key & 127) for start in begun)
    return _Track(name, now, programs, notes)


def _system_event(data: bytes, place: int) -> tuple[int, str | None]:
    """The place after an event that is no music, and the name that it gives to the track; None at the track's end."""
    event, kind = data[place], data[place + 1]
    if event not in (META, SYSEX, ESCAPE):
        raise _SenselessError(f"the byte {event}, which begins no event of a file")
    size, start = _quantity(data, place + (2 if event == META else 1))
    if start + size > len(data):
        raise IndexError
    named = event == META and kind == TRACK_NAME
    ended = event == META and kind == END_OF_TRACK
    return start + size, None if ended else _text(data[start : start + size]) if named else ""


def _quantity(data: bytes, place: int) -> tuple[int, int]:
    """A number of one to four bytes, all but the last of which have their highest bit set, and the place after it."""
    number = 0
    for after in range(place + 1, place + 5):
        byte = data[after - 1]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, after
    raise _SenselessError("a number of more than four bytes")


def _text(raw: bytes) -> str:
    raw = raw[:MAX_NAME]
    try:
        return raw.decode().strip("\0 ")
    except UnicodeDecodeError:
        return raw.decode("latin-1").strip("\0 ")


def _on_grid(track: _Track, ticks: int, steps_per_beat: int, name: str) -> Iterator[Part]:
    def step(tick: Any) -> Any:
        return (2 * tick * steps_per_beat + ticks) // (2 * ticks)

    end = step(track.end)
    for channel, notes in sorted(track.notes.items()):
        start, stop, pitch = np.array(notes, dtype=np.int64).T
        lasting = stop > start
        first = step(start[lasting])
        last = np.maximum(step(stop[lasting]), first + 1)
        longest = int(last.max(initial=0))
        if longest > MAX_STEPS:
            raise UnusableError(
                f"longer than {MAX_STEPS} steps",
                f"{name!r} has a note at step {longest}, but at most {MAX_STEPS} steps are read. Shorten the piece.",
            )
        rows = np.stack([first, last, pitch[lasting]], axis=1)
        rows = rows[np.lexsort(rows.T[::-1])]
        yield Part(
            track.name,
            track.programs[channel],
            channel == DRUMS,
            list(map(Note._make, rows.tolist())),
            longest if end > MAX_STEPS else max(end, longest),
            int((~lasting).sum()),
        )
    if not track.notes:
        yield Part(track.name, 0, False, [], 0 if end > MAX_STEPS else end)
