"""What is kept of a piece while the rest is generated: its beginning, all but some bars, some of its voices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool

from sddm import _checks
from sddm.formats.score import HELD, Score, sounding

BARS = re.compile(r"\s*([0-9]{1,6})\s*(?::\s*([0-9]{1,6})\s*)?")
"""A bar, or the first and the last of some bars."""


def kept(
    there: Bool[np.ndarray, "voices steps"],
    voices: Sequence[str],
    steps_per_bar: int,
    give: int | None = None,
    fill: str | None = None,
    keep_voice: str | None = None,
) -> Bool[np.ndarray, "voices steps"]:
    """What all rules keep of a piece, of which there are these voices in these steps; all of it without rules.

    give: the first so many steps.
    fill: all but these bars, counted from 1: "8:12" (both included) or several such, as in "2,4,6:8".
    keep_voice: these voices, by name or number: "soprano" or "1,4".
    """
    mask, steps = there.copy(), there.shape[1]
    if give is not None:
        _checks.whole(give, "give", 1)
        _checks.require(give <= steps, f"give is {give}, but the piece has {steps} steps. Give fewer.")
        mask[:, give:] = False
    if fill is not None:
        for first, last in _bars(fill, -(-steps // steps_per_bar)):
            mask[:, (first - 1) * steps_per_bar : last * steps_per_bar] = False
    if keep_voice is not None:
        named = [_voice(name, voices) for name in keep_voice.split(",")]
        heard = [name for name, voice in zip(voices, there, strict=True) if voice.any()]
        for missing in (voices[voice] for voice in named if voices[voice] not in heard):
            raise ValueError(
                f"keep_voice names the {missing}, but the piece has no notes for it: it has {_listed(heard)}."
            )
        mask[[voice not in named for voice in range(len(voices))]] = False
    _checks.require(bool(mask.any()), "Nothing of the piece is kept. Keep something, or give no condition.")
    return mask


def begun(score: Score, mask: Bool[np.ndarray, "voices steps"]) -> Score:
    """The score in which notes of which only the end is kept begin where that end does."""
    first = mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]
    return np.where(first & (score == HELD), sounding(score), score).astype(np.int16)


def _bars(text: str, bars: int) -> Iterator[tuple[int, int]]:
    """The first and the last bar of each span that a text names."""
    for part in text.split(","):
        match = BARS.fullmatch(part)
        if match is None:
            raise ValueError(f"fill names {part!r}. Name a bar, 8, or bars from the first to the last, 8:12.")
        first, last = int(match[1]), int(match[2] or match[1])
        _checks.require(first <= last, f"fill names bars {part!r}, but the first must not be after the last.")
        _checks.require(
            first >= 1 and last <= bars, f"fill names bars {part!r}, but the piece has bars 1 to {bars} only."
        )
        yield first, last


def _voice(name: str, voices: Sequence[str]) -> int:
    name = name.strip().lower()
    if name in voices:
        return voices.index(name)
    _checks.require(len(voices) > 1, f"keep_voice names {name!r}, but this music has one voice. Leave it out.")
    if not name.isdecimal() or not 1 <= int(name) <= len(voices):
        raise ValueError(f"keep_voice names {name!r}, but the voices are {', '.join(voices)}, or 1 to {len(voices)}.")
    return int(name) - 1


def _listed(names: Sequence[str]) -> str:
    return f"the {' and '.join(names)} only" if names else "none"
