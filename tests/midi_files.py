"""MIDI files made by hand, byte by byte, and scores drawn by hypothesis."""

import struct

import numpy as np
from hypothesis import strategies as st

from sddm.formats.score import HELD, REST, normal

END = b"\xff\x2f\x00"


def quantity(number):
    digits = [number & 127]
    while number := number >> 7:
        digits.append(number & 127 | 128)
    return bytes(reversed(digits))


def on(pitch, velocity=80, channel=0):
    return bytes([0x90 | channel, pitch, velocity])


def off(pitch, channel=0):
    return bytes([0x80 | channel, pitch, 64])


def named(name):
    return b"\xff\x03" + quantity(len(name)) + name


def chunk(content, kind=b"MTrk"):
    return kind + struct.pack(">I", len(content)) + content


def track(*events, end=0):
    """Events as (ticks since the one before, bytes); the track ends `end` ticks after the last."""
    return chunk(b"".join(quantity(ticks) + event for ticks, event in events) + quantity(end) + END)


def tune(*pitches, ticks=120, channel=0, name=b""):
    """A track of notes one after the other."""
    notes = [((0, on(pitch, 80, channel)), (ticks, off(pitch, channel))) for pitch in pitches]
    return track((0, named(name)), *(event for pair in notes for event in pair))


def midi(*tracks, kind=1, ticks=480, declared=None):
    number = len(tracks) if declared is None else declared
    return b"MThd" + struct.pack(">IHHH", 6, kind, number, ticks) + b"".join(tracks)


VOICES, STEPS = st.integers(1, 5), st.integers(1, 24)


@st.composite
def scores(draw, voices=VOICES, steps=STEPS, held=True):
    """Scores in their one notation, with notes struck again, rests and silent voices."""
    shape = draw(voices), draw(steps)
    few = st.sampled_from([60, 60, REST, HELD, HELD]) if held else st.sampled_from([60, 61, REST])
    entries = st.one_of(few, st.integers(0, HELD if held else REST))
    lines = st.one_of(st.lists(entries, min_size=shape[1], max_size=shape[1]), st.just([REST] * shape[1]))
    return normal(np.array([draw(lines) for _ in range(shape[0])]))
