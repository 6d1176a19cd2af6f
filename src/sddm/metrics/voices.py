"""How well four voices are led: within what can be sung, not across each other, without parallel fifths and octaves.

Scores are arrays (num, voices, steps), the highest voice first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float64, Integer

from sddm import _checks
from sddm.formats.score import PITCHES, REST, sounding

Scores = Integer[np.ndarray, "num voices steps"]
RANGES = ((60, 81), (53, 74), (48, 69), (36, 64))
"""The lowest and the highest note of soprano (C4 to A5), alto (F3 to D5), tenor (C3 to A4) and bass (C2 to E4)."""
OCTAVE, FIFTH = 0, 7
"""Intervals in semitones, up to octaves."""


def outside_ranges(scores: Scores, ranges: Sequence[tuple[int, int]] = RANGES) -> float:
    """The share of notes that are lower or higher than their voice can sing."""
    _checks.require(
        scores.shape[1] == len(ranges), f"scores have {scores.shape[1]} voices, but ranges has {len(ranges)}."
    )
    low, high = (np.array(ends)[:, None] for ends in zip(*ranges, strict=True))
    begins = scores < PITCHES
    outside = begins & ((scores < low) | (scores > high))
    return _share(int(outside.sum()), int(begins.sum()))


def voice_crossings(scores: Scores) -> float:
    """The share of the steps in which a voice sounds below the next lower voice, over all pairs of neighbours."""
    sounds = _sounding(scores)
    upper, lower = sounds[:, :-1], sounds[:, 1:]
    both = (upper != REST) & (lower != REST)
    return _share(int((both & (upper < lower)).sum()), int(both.sum()))


def parallel_fifths(scores: Scores) -> float:
    """How often, in 100 changes of the chord, two voices a fifth apart move in one direction to another fifth."""
    return _parallels(scores, FIFTH)


def parallel_octaves(scores: Scores) -> float:
    """How often, in 100 changes of the chord, two voices in unison or octaves move on in one direction as such."""
    return _parallels(scores, OCTAVE)


def chords(scores: Scores) -> Float64[np.ndarray, "values"]:
    """The share of each interval, from unison to 11 semitones and without octaves, between voices that sound at once,
    over all pairs of voices and all steps."""
    sounds = _sounding(scores).astype(np.int64)
    pairs = [(sounds[:, one], sounds[:, other]) for one, other in combinations(range(sounds.shape[1]), 2)]
    apart = [(upper - lower)[(upper != REST) & (lower != REST)] % 12 for upper, lower in pairs]
    counts = np.bincount(np.concatenate(apart), minlength=12).astype(np.float64)
    return counts / counts.sum() if counts.sum() else np.full(12, np.nan)


def _parallels(scores: Scores, interval: int) -> float:
    """The chord changes wherever the pitch of some voice does, from one step to the next."""
    sounds = _sounding(scores).astype(np.int64)
    sings = (sounds[..., 1:] != REST) & (sounds[..., :-1] != REST)
    moves = np.sign(np.diff(sounds, axis=2)) * sings
    found = 0
    for one, other in combinations(range(sounds.shape[1]), 2):
        apart = np.abs(sounds[:, one] - sounds[:, other]) % 12 == interval
        together = (moves[:, one] == moves[:, other]) & (moves[:, one] != 0)
        found += int((together & apart[:, 1:] & apart[:, :-1]).sum())
    changes = int((np.diff(sounds, axis=2) != 0).any(axis=1).sum())
    return 100 * _share(found, changes)


def _sounding(scores: Scores) -> Scores:
    num, voices, steps = scores.shape
    return sounding(scores.reshape(-1, steps)).reshape(num, voices, steps)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
