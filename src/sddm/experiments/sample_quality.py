"""How far samples of melodies, molecules and image codes are from data, by figures for which some hundred are enough.

All figures have errors over samples. Hellinger distances of samples of equal law are above 0: compare them with that of
as many rows of the data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float64, Int, UInt8
from torch import Tensor

from sddm.codecs import Characters
from sddm.experiments.corpora import Corpus
from sddm.metrics import MoleculeQuality, features, fid, kid, music
from sddm.metrics.jackknife import jackknife

Estimates = dict[str, tuple[float, float]]
"""Figures by name, each with its standard error over the samples."""
Tokens = Int[Tensor, "num dim"]
REFERENCE, BY_INCEPTION = 2_000, 500
"""Rows of the test set that samples are compared with, and those of them by Inception features."""
GROUPS = 20
"""Of samples, one of which the jackknife leaves out at a time."""
PATCHES = 2
"""Patches of a picture, in each direction."""


@dataclass(frozen=True)
class Shown:
    """A figure in a table."""

    name: str
    title: str
    factor: float = 1.0
    higher: bool = False
    """Whether higher is better."""


class Quality(ABC):
    """What is measured of samples of a corpus. What comes of the data is computed once."""

    shown: tuple[Shown, ...]
    """The first one decides which way of sampling is the best."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    @abstractmethod
    def measure(self, tokens: Tokens) -> Estimates:
        """The figures of samples."""

    def slowly(self, tokens: Tokens) -> Estimates:
        """More figures, which take longer than the samples; none unless overridden."""
        return {}

    @property
    def data(self) -> Tokens:
        return self.corpus.test.tokens[:REFERENCE]


LAWS = {
    "pitch_classes": music.pitch_classes,
    "intervals": music.intervals,
    "note_lengths": music.note_lengths,
}
"""Of the notes of some scores."""


class OfMelodies(Quality):
    """The Hellinger distances of what occurs among notes, from note to note, and of how long notes are."""

    shown = (
        Shown("notes", "Hellinger distance of notes: the mean of the three below"),
        Shown("pitch_classes", "Hellinger distance of pitch classes"),
        Shown("intervals", "Hellinger distance of intervals from note to note"),
        Shown("note_lengths", "Hellinger distance of note lengths"),
    )

    @cached_property
    def of_data(self) -> dict[str, Float64[np.ndarray, "values"]]:
        scores = np.asarray(self.corpus.test.codec.decode(self.data))
        return {name: law(scores) for name, law in LAWS.items()}

    def measure(self, tokens: Tokens) -> Estimates:
        scores, groups = np.asarray(self.corpus.test.codec.decode(tokens)), torch.arange(len(tokens)) % GROUPS

        def distance(name: str, some: Tensor) -> float:
            return music.distance(LAWS[name](scores[some.numpy()]), self.of_data[name])

        def mean(some: Tensor) -> float:
            return sum(distance(name, some) for name in LAWS) / len(LAWS)

        each = {name: jackknife(partial(distance, name), groups) for name in LAWS}
        return {"notes": jackknife(mean, groups), **each}


class OfMolecules(Quality):
    """Which characters follow which, and how many samples are molecules: any, and new ones."""

    shown = (
        Shown("pairs", "Hellinger distance of pairs of neighbouring characters"),
        Shown("valid", "share of valid molecules", higher=True),
        Shown("fresh", "share of valid molecules that are new and were not sampled before", higher=True),
    )

    @cached_property
    def quality(self) -> MoleculeQuality:
        train = self.corpus.train
        return MoleculeQuality(train.codec.decode(train.tokens[:]))  # type: ignore[arg-type]

    def measure(self, tokens: Tokens) -> Estimates:
        made = self.quality.measure(self.corpus.train.codec.decode(tokens))  # type: ignore[arg-type]
        fresh = made.valid * made.unique * made.novel if made.valid else 0.0
        of_data, groups = self.pairs(self.data), torch.arange(len(tokens)) % GROUPS
        return {
            "pairs": jackknife(lambda some: music.distance(self.pairs(tokens[some]), of_data), groups),
            "valid": (made.valid, made.valid_error),
            "fresh": (fresh, math.sqrt(fresh * (1 - fresh) / len(tokens))),
        }

    def pairs(self, tokens: Tokens) -> Float64[np.ndarray, "values"]:
        """How often each value follows each one; the end follows the last character."""
        codec, states = self.corpus.train.codec, self.corpus.num_states
        assert isinstance(codec, Characters)
        left, right = tokens[:, :-1], tokens[:, 1:]
        pairs = (states * left + right)[left != codec.pad]
        counts = torch.bincount(pairs, minlength=states**2).double()
        return np.asarray(counts / counts.sum())


class OfCodes(Quality):
    """The Fréchet distance of colours and of roughness of patches, after the tokenizer; by Inception features, KID.

    Both sets are decoded codes, so that what the tokenizer loses is in neither figure.
    """

    shown = (
        Shown("frechet", "Fréchet distance of the colours and the roughness of patches, less its bias"),
        Shown("kid", "KID x 1000 by Inception features", 1000.0),
    )

    @cached_property
    def of_data(self) -> tuple[Float64[Tensor, "num features"], Float64[Tensor, "features"]]:
        """The features of the data and their standard deviations, which are the units."""
        values = patches(self.pictures(self.data))
        units = values.std(0).clamp_min(1e-6)
        return values / units, units

    def measure(self, tokens: Tokens) -> Estimates:
        values, units = self.of_data
        found = fid(patches(self.pictures(tokens)) / units, values)
        return {"frechet": (found.corrected, found.standard_error)}

    def slowly(self, tokens: Tokens) -> Estimates:
        found = kid(features(self.pictures(tokens)), features(self.pictures(self.data[:BY_INCEPTION])))
        return {"kid": (found.value, found.standard_error)}

    def pictures(self, tokens: Tokens) -> UInt8[np.ndarray, "num height width channels"]:
        return np.asarray(self.corpus.test.codec.decode(tokens))


def patches(pictures: UInt8[np.ndarray, "num height width channels"]) -> Float64[Tensor, "num features"]:
    """Of each quarter of a picture, the mean colour, and the mean difference between neighbouring pixels each way."""
    values = torch.as_tensor(pictures).double() / 255

    def means(of: Tensor) -> Tensor:
        return rearrange(of, "n (r h) (c w) k -> n (r c) h w k", r=PATCHES, c=PATCHES).mean((2, 3)).flatten(1)

    across = (values - values.roll(1, dims=2)).abs().mean(3, keepdim=True)
    down = (values - values.roll(1, dims=1)).abs().mean(3, keepdim=True)
    across[:, :, 0], down[:, 0] = 0, 0  # the first pixels have no neighbour there
    return torch.cat([means(values), means(across), means(down)], dim=1)


KINDS: dict[str, type[Quality]] = {"melodies": OfMelodies, "molecules": OfMolecules, "image codes": OfCodes}
"""By the kind of the data."""
