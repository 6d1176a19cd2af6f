"""What a musician asks of a set of scores: their keys, their steps and leaps, their rhythm, what comes again.

Scores are arrays (num, voices, steps), as `sddm.codecs.Notes` decodes them: a pitch where a note begins, then HELD.
A figure of samples says little without the same figure of real music, so each can be taken of data against data.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Integer

from sddm import _checks
from sddm.formats.score import HELD, PITCHES, REST, sounding

Scores = Integer[np.ndarray, "num voices steps"]
Lines = Integer[np.ndarray, "lines steps"]
Histogram = Float64[np.ndarray, "values"]


def pitch_classes(scores: Scores) -> Histogram:
    """The share of each of the 12 pitch classes, from C on, among the notes."""
    lines = _lines(scores)
    return _shares(lines[_begins(lines)] % 12, 12)


def intervals(scores: Scores) -> Histogram:
    """The share of each interval from -127 to 127 semitones, from a note to the next one of its voice."""
    lines = _lines(scores)
    voice, step = np.nonzero(_begins(lines))
    leaps = np.diff(lines[voice, step].astype(np.int64))[voice[1:] == voice[:-1]]
    return _shares(leaps + PITCHES - 1, 2 * PITCHES - 1)


def note_lengths(scores: Scores) -> Histogram:
    """The share of notes of each length, from 0 steps on. What the end of the score cuts off is not counted in."""
    lines = _lines(scores)
    changes = lines != HELD
    changes[:, 0] = True
    starts = np.flatnonzero(changes)
    lengths = np.diff(starts, append=lines.size)
    return _shares(lengths[_begins(lines).ravel()[starts]], lines.shape[1] + 1)


def distance(p: Histogram, q: Histogram) -> float:
    """The Hellinger distance between two laws, 0 to 1; NaN if one of them is of no notes."""
    return float(np.sqrt(np.square(np.sqrt(p) - np.sqrt(q)).sum() / 2))


def repeated_bars(scores: Scores, bar: int = 16) -> float:
    """The share of bars that sound like an earlier bar of their score. Silent bars do not count.

    Bars are `bar` steps long from the start of the score on; a part of a bar at its end is left out.
    """
    _checks.whole(bar, "bar", 1)
    num, voices, steps = _checked(scores).shape
    bars = steps // bar
    whole = sounding(scores.reshape(-1, steps))[:, : bars * bar].reshape(num, voices, bars, bar)
    sounds = whole.transpose(0, 2, 1, 3).reshape(num * bars, voices * bar)
    _, content = np.unique(sounds, axis=0, return_inverse=True)
    place = np.stack([np.arange(num).repeat(bars), content.ravel()], axis=1)
    _, first = np.unique(place, axis=0, return_index=True)  # the first bar of each content in each score
    again = np.ones(num * bars, dtype=bool)
    again[first] = False
    heard = (sounds != REST).any(axis=1)
    return float(again[heard].mean()) if heard.any() else float("nan")


def _checked(scores: Scores) -> Scores:
    _checks.require(
        isinstance(scores, np.ndarray) and scores.ndim == 3 and scores.size > 0,
        f"scores must be an array (num, voices, steps), but it has shape {np.shape(scores)}. Use codec.decode(tokens).",
    )
    return scores


def _lines(scores: Scores) -> Lines:
    return _checked(scores).reshape(-1, scores.shape[2])


def _begins(lines: Lines) -> Bool[np.ndarray, "lines steps"]:
    return lines < PITCHES


def _shares(values: Integer[np.ndarray, "notes"], num: int) -> Histogram:
    counts = np.bincount(values, minlength=num).astype(np.float64)
    return counts / counts.sum() if counts.sum() else np.full(num, np.nan)
