"""Pieces of music as windows of steps: put on the grid, cut, filtered, and grouped with their variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int16, Int64

from sddm.data.music_pieces import TICKS, Piece
from sddm.data.near_duplicates import joined, pitches_of, variants
from sddm.formats.score import HELD, PITCHES, REST, Score, sounding

STEP = TICKS // 4
"""A sixteenth note."""
OFF_GRID = 0.05
"""The largest share of notes of a piece that may be moved to the grid."""
FEWEST_PITCHES, LONGEST, MOST_SILENT = 5, 64, 0.5
"""A melody has at least this many pitches, no note or rest of more steps, and no larger share of rests."""


class Windows(NamedTuple):
    """Windows of pieces, and what became of the others."""

    scores: Int16[np.ndarray, "windows voices steps"]
    groups: Int64[np.ndarray, "windows"]
    """Windows of one piece or of variants of it are in one group."""
    report: str
    """What was kept and what was not, and why."""


def on_grid(piece: Piece, voices: int) -> tuple[Score, str]:
    """The piece in steps; and the reason if it cannot be used, which leaves an empty score.

    Starts and ends go to the nearest step, halves to the later one. A note that is left without a step is dropped.
    """
    none = np.zeros((voices, 0), np.int16)
    if piece.reason:
        return none, piece.reason
    if (piece.notes[:, 1:3] % STEP != 0).any(axis=1).mean() > OFF_GRID:
        return none, f"more than {OFF_GRID:.0%} of its notes off the grid"
    steps = (piece.length + STEP // 2) // STEP
    voice, pitch = piece.notes[:, 0], piece.notes[:, 3]
    starts, ends = ((piece.notes[:, column] + STEP // 2) // STEP + voice * steps for column in (1, 2))
    score = np.full(voices * steps, REST, np.int16)
    lengths = ends - starts
    held = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    score[held] = HELD
    score[starts[lengths > 0]] = pitch[lengths > 0]
    return score.reshape(voices, steps), ""


def trivial(window: Score) -> str:
    """Why a window of a melody says little; empty if it does not."""
    sounds = sounding(window)[0]
    if len(np.unique(sounds[sounds != REST])) < FEWEST_PITCHES:
        return f"with fewer than {FEWEST_PITCHES} pitches"
    if (sounds == REST).mean() > MOST_SILENT:
        return "with more rests than notes"
    changes = np.flatnonzero((window[0] < PITCHES) | (np.diff(sounds, prepend=-1) != 0))
    if np.diff(changes, append=len(sounds)).max() > LONGEST:
        return f"with a note or a rest of more than {LONGEST} steps"
    half = len(sounds) // 2
    return "of one half that is played twice" if np.array_equal(sounds[:half], sounds[half:]) else ""


def silent(window: Score) -> str:
    """Why a window of several voices says little; empty if it does not."""
    return "with a voice that mostly rests" if (sounding(window) == REST).mean(axis=1).max() > MOST_SILENT else ""


def cut(
    pieces: Sequence[Piece], voices: int, window: int, hop: int, dull: Callable[[Score], str], noun: str
) -> Windows:
    """The windows of all pieces, each window once, and a report in which a piece is called by this noun."""
    left_out: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    kept: dict[bytes, tuple[Score, int]] = {}
    for number, piece in enumerate(pieces):
        score, reason = on_grid(piece, voices)
        if reason or score.shape[1] < window:
            left_out[reason or f"shorter than {window} steps"] += 1
            continue
        for part in _parts(score, window, hop):
            sounds = sounding(part).tobytes()
            if reason := dull(part) or ("that are there already" if sounds in kept else ""):
                dropped[reason] += 1
            else:
                kept[sounds] = part, number
    if not kept:
        raise ValueError(f"No {noun} has a window of {window} steps that can be used. Give a shorter window.")
    scores = np.stack([part for part, _ in kept.values()])
    owners = np.array([number for _, number in kept.values()], np.int64)
    first, second, _ = variants([pitches_of(part[0]) for part in scores])
    groups = joined(owners, first, second)
    left_out["without a window that can be used"] = len(pieces) - left_out.total() - len(np.unique(owners))
    return Windows(scores, groups, "\n".join(_report(pieces, owners, groups, left_out, dropped, window, noun)))


def _parts(score: Score, window: int, hop: int) -> Iterator[Score]:
    """Windows of a score. A note that goes on at the start of a window begins there."""
    sounds = sounding(score)
    for start in range(0, score.shape[1] - window + 1, hop):
        part = score[:, start : start + window].copy()
        part[:, 0] = sounds[:, start]
        yield part


def _report(
    pieces: Sequence[Piece],
    owners: Int64[np.ndarray, "windows"],
    groups: Int64[np.ndarray, "windows"],
    left_out: Counter[str],
    dropped: Counter[str],
    window: int,
    noun: str,
) -> Iterator[str]:
    used = np.unique(owners)
    collections = Counter(piece.name.partition("/")[0] for piece in pieces)
    kept = Counter(pieces[number].name.partition("/")[0] for number in used)
    parts = ", ".join(f"{name} {kept[name]:,} of {total:,}" for name, total in collections.items())
    yield f"{len(used):,} of {len(pieces):,} {noun}s are used: {parts}."
    yield f"Left out are {noun}s: {_counted(left_out)}."
    sizes = np.bincount(groups)
    largest = len(np.unique(owners[groups == sizes.argmax()]))
    yield (
        f"{len(owners):,} windows of {window} steps are in {len(sizes):,} groups, each a {noun} with its variants; the "
        f"largest holds {sizes.max():,} windows of {largest:,} {noun}s."
    )
    yield f"Left out are windows: {_counted(dropped)}."


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common() if count) or "none"
