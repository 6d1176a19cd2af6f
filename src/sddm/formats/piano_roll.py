"""Scores as pictures: time from left to right, pitch upwards, a colour a voice, and what was given in grey."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from sddm import _checks
from sddm.formats.score import PITCHES, Note, Score, checked, notes_of, voice_names

COLOURS = ("#c8553d", "#2a7f9e", "#d99a2b", "#5b8c5a", "#7d5ba6", "#a0522d")
"""Of the voices, from the highest; a score of more voices begins again."""
INK, GIVEN, SHADE, PAPER = "#22223b", "#55555f", "#e9e9ee", "#ffffff"
MARGIN = 2
"""Semitones above the highest and below the lowest note."""
LEAST_RANGE = 12
INCHES_A_STEP, INCHES_A_SEMITONE = 0.045, 0.055
WIDTHS, HEIGHTS = (5.0, 24.0), (1.3, 3.2)
"""The least and the greatest size of a roll, in inches."""
MAX_ROLLS = 16

Given = Bool[np.ndarray, "voices steps"]


def draw_roll(
    scores: Sequence[Score],
    path: Path,
    given: Given | Sequence[Given | None] | None = None,
    titles: Sequence[str] | None = None,
    steps_per_bar: int = 16,
) -> None:
    """Draw scores under one another into a .png file; of more than 16, the first.

    given: what was given of all scores or of each: its notes are grey, and where all voices were given, it is shaded.
    titles: a line above each.
    """
    if len(scores) > MAX_ROLLS:
        warnings.warn(f"The picture shows the first {MAX_ROLLS} of {len(scores)} pieces.")
    scores = [checked(score, "scores") for score in scores[:MAX_ROLLS]]
    _checks.require(len(scores) > 0, "scores must hold at least one score.")
    _checks.whole(steps_per_bar, "steps_per_bar", 1)
    masks = [given] * len(scores) if given is None or isinstance(given, np.ndarray) else list(given)[:MAX_ROLLS]
    titles = [""] * len(scores) if titles is None else list(titles)[:MAX_ROLLS]
    _checks.require(
        len(masks) == len(titles) == len(scores),
        f"given and titles must hold one entry for each of the {len(scores)} scores, but they hold {len(masks)} and "
        f"{len(titles)}.",
    )
    for score, mask in zip(scores, masks, strict=True):
        if mask is not None and mask.shape != score.shape:
            raise ValueError(f"given has shape {mask.shape}, but the score has shape {score.shape}. Give one as large.")
    _draw(scores, path, masks, titles, steps_per_bar)


def _draw(
    scores: Sequence[Score], path: Path, masks: Sequence[Given | None], titles: Sequence[str], steps_per_bar: int
) -> None:
    from matplotlib.figure import Figure  # slow to import, and only pictures need it

    ranges = [_range(score) for score in scores]
    heights = [float(np.clip((high - low) * INCHES_A_SEMITONE, *HEIGHTS)) for low, high in ranges]
    width = float(np.clip(max(score.shape[1] for score in scores) * INCHES_A_STEP, *WIDTHS))
    size = (width + 0.8, sum(heights) + 0.45 * len(scores) + 0.3)
    figure = Figure(figsize=size, facecolor=PAPER, layout="constrained")
    axes = figure.subplots(len(scores), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axis, score, pitches, mask, title in zip(axes, scores, ranges, masks, titles, strict=True):
        _roll(axis, score, pitches, mask, steps_per_bar)
        axis.set_title(title, fontsize=9, color=INK, loc="left")
    axes[-1].set_xlabel("bar", fontsize=8, color=INK)
    if len({len(score) for score in scores}) == 1 and len(scores[0]) > 1:
        _legend(axes[0], len(scores[0]), any(mask is not None and mask.any() for mask in masks))
    figure.savefig(path, dpi=130, format="png")


def _roll(axis: Any, score: Score, pitches: tuple[int, int], mask: Given | None, steps_per_bar: int) -> None:
    from matplotlib.collections import PolyCollection

    low, high = pitches
    steps = score.shape[1]
    mask = np.zeros(score.shape, dtype=bool) if mask is None else mask
    for start, end in _spans(np.logical_and.reduce(mask)):
        axis.axvspan(start, end, color=SHADE, lw=0, zorder=0)
    for pitch in range(low, high + 1):
        if pitch % 12 == 0:
            axis.axhline(pitch - 0.5, color=INK, alpha=0.25, lw=0.6, zorder=1)
    bars = range(0, steps + 1, steps_per_bar)
    axis.vlines(bars, low - 0.5, high + 0.5, color=INK, alpha=0.18, lw=0.6, zorder=1)
    for voice in reversed(range(len(score))):  # the highest voice above the others
        notes = notes_of(score[voice])
        known = [
            Note(note.start + start, note.start + end, note.pitch)
            for note in notes
            for start, end in _spans(mask[voice, note.start : note.end])
        ]
        for bars_of, colour in ((notes, COLOURS[voice % len(COLOURS)]), (known, GIVEN)):
            axis.add_collection(PolyCollection([_corners(note) for note in bars_of], facecolors=colour, zorder=3))
    axis.set(xlim=(0, max(1, steps)), ylim=(low - 0.5, high + 0.5))
    labels = [bar for bar in bars if bar < steps][:: max(1, -(-len(bars) // 32))]
    axis.set_xticks(labels, [str(bar // steps_per_bar + 1) for bar in labels], fontsize=7, color=INK, ha="left")
    named = [pitch for pitch in range(low, high + 1) if pitch % 12 == 0]
    axis.set_yticks(named, [f"C{pitch // 12 - 1}" for pitch in named], fontsize=7, color=INK)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def _corners(note: Note) -> list[tuple[float, float]]:
    left, right, low, high = note.start + 0.06, note.end - 0.06, note.pitch - 0.42, note.pitch + 0.42
    return [(left, low), (right, low), (right, high), (left, high)]


def _legend(axis: Any, voices: int, some_given: bool) -> None:
    from matplotlib.patches import Patch

    shown = min(voices, len(COLOURS))
    patches = [Patch(color=COLOURS[i], label=name) for i, name in enumerate(voice_names(voices)[:shown])]
    if some_given:
        patches.append(Patch(color=GIVEN, label="given"))
    axis.legend(
        handles=patches, fontsize=7, ncols=len(patches), loc="lower right", bbox_to_anchor=(1, 1), frameon=False
    )


def _range(score: Score) -> tuple[int, int]:
    """The lowest and the highest pitch that is shown; it holds at least one C."""
    pitches = score[score < PITCHES]
    low, high = (int(pitches.min()), int(pitches.max())) if pitches.size else (60, 60)
    low, high = max(0, low - MARGIN), min(PITCHES - 1, high + MARGIN)
    missing = max(0, LEAST_RANGE - (high - low))
    low = max(0, low - missing // 2)
    return low, min(PITCHES - 1, low + max(LEAST_RANGE, high - low))


def _spans(mask: Bool[np.ndarray, "steps"]) -> list[tuple[int, int]]:
    """Where a mask is true: starts and ends of the spans."""
    changes = np.flatnonzero(np.diff(mask.astype(int), prepend=0, append=0))
    return [(int(start), int(end)) for start, end in changes.reshape(-1, 2)]
