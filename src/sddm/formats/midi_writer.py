"""MIDI files, written: a score as a file with a track a voice, which any music program opens."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sddm import _checks
from sddm.formats.midi import (
    DRUMS,
    END_OF_TRACK,
    MAX_STEPS,
    MAX_STEPS_PER_BEAT,
    MAX_TRACKS,
    META,
    NOTE_OFF,
    NOTE_ON,
    PROGRAM,
    TRACK_NAME,
)
from sddm.formats.score import Score, checked, notes_of, voice_names

TICKS = 480
"""About how many ticks a beat has."""
VELOCITY = 80
TEMPO, TIME_SIGNATURE = 0x51, 0x58
TEMPOS = (4, 1_000)
"""The lowest and the highest tempo, in beats a minute."""


def midi_bytes(
    score: Score,
    steps_per_beat: int = 4,
    tempo: float = 120.0,
    beats_per_bar: int = 4,
    names: Sequence[str] | None = None,
    program: int = 0,
) -> bytes:
    """A MIDI file, a track a voice. `read_parts` finds the same notes in it, and the same length."""
    score = checked(score)
    names = voice_names(len(score)) if names is None else names
    _checks.whole(steps_per_beat, "steps_per_beat", 1, MAX_STEPS_PER_BEAT)
    _checks.whole(beats_per_bar, "beats_per_bar", 1, 255)
    _checks.whole(program, "program", 0, 127)
    check_tempo(tempo)
    _checks.require(len(names) == len(score), f"names must hold {len(score)} names, but it holds {len(names)}.")
    _checks.require(len(score) <= MAX_TRACKS, f"score has {len(score)} voices, but at most {MAX_TRACKS} are written.")
    _checks.require(
        score.shape[1] <= MAX_STEPS, f"score has {score.shape[1]} steps, but at most {MAX_STEPS} are written."
    )
    unit = max(1, TICKS // steps_per_beat)
    tracks = []
    for voice, (line, name) in enumerate(zip(score, names, strict=True)):
        channel = [c for c in range(16) if c != DRUMS][voice % 15]
        events = [(0, _meta(TRACK_NAME, name.encode()))]
        if voice == 0:
            events.append((0, _meta(TEMPO, round(60e6 / tempo).to_bytes(3, "big"))))
            events.append((0, _meta(TIME_SIGNATURE, bytes([beats_per_bar, 2, 24, 8]))))
        events.append((0, bytes([PROGRAM << 4 | channel, program])))
        for note in notes_of(line):
            events.append((note.start * unit, bytes([NOTE_ON << 4 | channel, note.pitch, VELOCITY])))
            events.append((note.end * unit, bytes([NOTE_OFF << 4 | channel, note.pitch, VELOCITY])))
        events.append((len(line) * unit, _meta(END_OF_TRACK, b"")))
        tracks.append(_track(events))
    return b"".join([b"MThd", struct.pack(">IHHH", 6, 1, len(tracks), unit * steps_per_beat), *tracks])


def check_tempo(tempo: float) -> float:
    """Check a number of beats a minute."""
    low, high = TEMPOS
    _checks.finite(tempo, "tempo")
    _checks.require(
        low <= tempo <= high, f"tempo must lie between {low} and {high} beats a minute, but it is {tempo:g}."
    )
    return float(tempo)


def write_midi(score: Score, path: Path, **options: Any) -> None:
    """Write what `midi_bytes` returns; the options are its other arguments."""
    path.write_bytes(midi_bytes(score, **options))


def _track(events: Sequence[tuple[int, bytes]]) -> bytes:
    """A track of events, each with the tick at which it happens."""
    body, now = [], 0
    for tick, event in events:
        body += [_as_quantity(tick - now), event]
        now = tick
    content = b"".join(body)
    return b"MTrk" + len(content).to_bytes(4, "big") + content


def _meta(kind: int, content: bytes) -> bytes:
    return bytes([META, kind]) + _as_quantity(len(content)) + content


def _as_quantity(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))
