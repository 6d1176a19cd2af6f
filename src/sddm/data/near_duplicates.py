"""Which melodies are variants of one another, whatever their key and their rhythm.

A collection of folk music holds many tunes several times: under another title, in another key, with other ornaments.
A model that has learned one of them knows much of the others. So variants must not be parted by a split.

The shingles of a melody are the runs of `RUN` intervals between successive notes of different pitch. Intervals are the
same in every key, and neither dots nor repeated notes change them. Two melodies are variants if of the shingles of one
of them, the one that has fewer, at least the share `SHARED` is in the other. Variants of variants form one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Integer, UInt64

from sddm import _checks
from sddm.formats.score import REST, sounding

RUN = 12
"""The intervals of a shingle: about two bars of eighth notes."""
SHARED = 0.15
"""The least share of common shingles of two variants.

In music21's corpus most pairs of reels and jigs that share 15 to 20% are one tune (Mason Laddie and Mason's Cap). Of
those that share less than 10%, few are: they have a turn in common. From 10% on chains of pairs make large groups.
"""
COMMON = 100
"""A shingle in more melodies than this is a formula, such as a scale, and says nothing about kinship."""

Line = Integer[np.ndarray, "_"]
"""A voice of a score, of any number of steps."""
Groups = Int64[np.ndarray, "melodies"]


class Variants(NamedTuple):
    """Pairs of melodies by their places, and the share of their shingles that is common to both."""

    first: Int64[np.ndarray, "pairs"]
    second: Int64[np.ndarray, "pairs"]
    shared: np.ndarray


def pitches_of(voice: Line) -> Line:
    """The pitches of a voice in their order, each change once: rests and repeated notes are left out."""
    sounds = sounding(voice[None])[0].astype(np.int64)
    sounds = sounds[sounds != REST]
    return sounds[np.flatnonzero(np.diff(sounds, prepend=-1))]


def variants(melodies: Sequence[Line], shared: float = SHARED, run: int = RUN) -> Variants:
    """All pairs of melodies, given as their pitches, that are variants of one another.

    The time is nearly linear in the number of melodies: only those that have a shingle in common are compared.
    """
    _checks.require(0 < shared <= 1, f"shared must lie above 0 and at most at 1, but it is {shared}.")
    codes, owners = _shingles(melodies, _checks.whole(run, "run", 2))
    sizes = np.bincount(owners, minlength=len(melodies))
    _, shingle, occurrences = np.unique(codes, return_inverse=True, return_counts=True)
    order = np.argsort(shingle, kind="stable")  # the owners of a shingle stand together, in their order
    starts = np.cumsum(occurrences) - occurrences
    pairs = [np.empty(0, np.int64)]
    for count in range(2, min(COMMON, int(occurrences.max(initial=0))) + 1):
        together = owners[order[starts[occurrences == count][:, None] + np.arange(count)]]
        one, other = np.triu_indices(count, 1)
        pairs.append((together[:, one] * len(melodies) + together[:, other]).ravel())
    pair, common = np.unique(np.concatenate(pairs), return_counts=True)
    first, second = np.divmod(pair, max(1, len(melodies)))
    share = common / np.minimum(sizes[first], sizes[second])
    kept = share >= shared
    return Variants(first[kept], second[kept], share[kept])


def joined(groups: Groups, first: Int64[np.ndarray, "pairs"], second: Int64[np.ndarray, "pairs"]) -> Groups:
    """Groups numbered from 0 in which both members of each pair are in one group, as are those of each group before."""
    _, groups = np.unique(groups, return_inverse=True)
    parent = list(range(int(groups.max(initial=-1)) + 1))

    def root(group: int) -> int:
        while parent[group] != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    for one, other in zip(groups[first].tolist(), groups[second].tolist(), strict=True):
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    roots = np.array([root(group) for group in range(len(parent))], dtype=np.int64)
    return np.unique(roots[groups], return_inverse=True)[1].astype(np.int64)


def _shingles(
    melodies: Sequence[Line], run: int
) -> tuple[UInt64[np.ndarray, "shingles"], Int64[np.ndarray, "shingles"]]:
    """A number for each different shingle of each melody, and the place of that melody.

    The number is a random linear form of the intervals modulo 2^64: a few million shingles are told apart by it. A
    melody of fewer notes than a shingle needs is one shingle, filled up by intervals that no melody has.
    """
    weights = np.random.RandomState(0).randint(0, 2**63, run, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    codes, owners = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for place, pitches in enumerate(melodies):
        leaps = np.diff(pitches.astype(np.int64))
        leaps = np.append(leaps, np.full(max(0, run - len(leaps)), 1_000)).astype(np.uint64)
        of_melody = np.unique(np.dot(np.lib.stride_tricks.sliding_window_view(leaps, run), weights))
        codes.append(of_melody)
        owners.append(np.full(len(of_melody), place))
    return np.concatenate(codes), np.concatenate(owners)
