"""What is kept of a piece while the rest is generated: its beginning, all but some bars, some of its voices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool

from sddm import _checks

BARS = re.compile(r"\s*([0-9]{1,6})\s*(?::\s*([0-9]{1,6})\s*)?")
"""A bar, or the first and the last of some bars."""


def kept(
    steps: int,
    voices: Sequence[str],
    steps_per_bar: int,
    give: int | None = None,
    fill: str | None = None,
    keep_voice: str | None = None,
) -> Bool[np.ndarray, "voices steps"]:
    """What all rules keep of a piece with these voices; everything if there are no rules.

    give: the first so many steps.
    fill: all but these bars, counted from 1: "8:12" (both included) or several such, as in "2,4,6:8".
    keep_voice: these voices, by name or number: "soprano" or "1,4".
    """
    mask = np.ones((len(voices), steps), dtype=bool)
    if give is not None:
        _checks.whole(give, "give", 1)
        _checks.require(give <= steps, f"give is {give}, but a piece has {steps} steps. Give fewer.")
        mask[:, give:] = False
    if fill is not None:
        for first, last in _bars(fill, -(-steps // steps_per_bar)):
            mask[:, (first - 1) * steps_per_bar : last * steps_per_bar] = False
    if keep_voice is not None:
        named = [_voice(name, voices) for name in keep_voice.split(",")]
        mask[[voice not in named for voice in range(len(voices))]] = False
    if (give, fill, keep_voice) != (None, None, None):
        _checks.require(not mask.all(), "All of the piece is kept. Leave something to generate.")
        _checks.require(bool(mask.any()), "Nothing of the piece is kept. Keep something, or give no condition.")
    return mask


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
    if not name.isdecimal() or not 1 <= int(name) <= len(voices):
        raise ValueError(f"keep_voice names {name!r}, but the voices are {', '.join(voices)}, or 1 to {len(voices)}.")
    return int(name) - 1
