"""Every random draw of the library: uniforms from one stream or one stream a sample, and categories from uniforms.

A category is drawn by inverting the cumulative distribution in float64 with a single uniform, so that its law is right
for 50,000 states and for states of probability 1e-9. (Gumbel noise in float32 has no values beyond about 17, so that a
state of probability 1e-8 is drawn too rarely or never.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Integer, UInt64
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22
"""How many float64 numbers a chunked draw holds at once (32 MiB)."""
AHEAD = 512
"""How many uniforms of a sample are drawn at once."""
IN_CACHE = 1 << 17
"""How many numbers of a shuffle are computed at once."""
MIX = np.array([0x2545F4914F6CDD1D, 0x9B03738712FAD5C9], dtype=np.uint64)
"""Odd constants with irregular bits, which mix numbers with keys."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: its multiples are spread evenly."""
DRAWN_AT_ONCE = 1 << 24
"""A shuffle of more numbers than this is computed, not drawn: it would take seconds and 8 bytes a number."""


@runtime_checkable
class Randomness(Protocol):
    """A source of uniforms and Poisson counts for a batch."""

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Float64 uniforms in [0, 1) of this shape; the first axis is the batch."""

    def poisson(self, mean: Tensor) -> Tensor:
        """Poisson counts with these means; the first axis is the batch."""

    def of(self, rows: Int[Tensor, "rows"]) -> Randomness:
        """The source for some rows of the batch."""


class Stream:
    """One generator for the whole batch (None: torch's own)."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = generator

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        source = self.generator.device if self.generator is not None else device
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64, device=source).to(device)

    def poisson(self, mean: Tensor) -> Tensor:
        source = self.generator.device if self.generator is not None else mean.device
        return torch.poisson(mean.to(source), generator=self.generator).to(mean.device)

    def of(self, rows: Int[Tensor, "rows"]) -> Stream:
        return self


class StreamPerSample:
    """One generator a row, so that a sample depends on its own seed and not on the batch it was made in.

    Uniforms are drawn ahead, `AHEAD` a row at a time: a call of the generator costs more than the numbers it
    gives. The numbers are the same.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._ahead, self._least = torch.empty(len(self.generators), 0, dtype=torch.float64), AHEAD

    def of(self, rows: Int[Tensor, "rows"]) -> StreamPerSample:
        """The new source draws nothing ahead, since its unused numbers would be lost."""
        some = StreamPerSample(())
        some.generators = [self.generators[row] for row in rows.tolist()]
        some._ahead, some._least = self._ahead.new_empty(len(rows), 0), 0
        return some

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        num = prod(shape[1:])
        missing = num - self._ahead.shape[1]
        if missing > 0:
            more = max(missing, self._least)
            rows = [torch.rand(more, generator=g, dtype=torch.float64) for g in self.generators]
            self._ahead = torch.cat([self._ahead, torch.stack(rows)], dim=1)
        drawn, self._ahead = self._ahead[:, :num], self._ahead[:, num:]
        return drawn.reshape(*shape).to(device)

    def poisson(self, mean: Tensor) -> Tensor:
        rows = [torch.poisson(row, generator=g) for row, g in zip(mean.cpu(), self.generators, strict=True)]
        return torch.stack(rows).to(mean.device)


class Shuffle:
    """0 .. num - 1 in random order. If num is large, each is computed when needed, by a cipher with random keys.

    The cipher is a Feistel network, a permutation of 0 .. 4^k - 1 >= num. A number out of the range is enciphered again
    until it is inside, which makes it a permutation of 0 .. num - 1 as well.
    """

    def __init__(self, num: int, generator: torch.Generator) -> None:
        self.num, self.order = num, None
        if num <= DRAWN_AT_ONCE:
            self.order = torch.randperm(num, generator=generator)
            return
        self._bits = ((num - 1).bit_length() + 1) // 2
        self._keys = torch.randint(2**62, (8,), generator=generator).numpy().astype(np.uint64)

    def __call__(self, places: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """The numbers at these places of the order."""
        if self.order is not None:
            return self.order[places]
        numbers = np.empty(len(places), dtype=np.int64)
        for first in range(0, len(places), IN_CACHE):
            some = slice(first, first + IN_CACHE)
            found = self._enciphered(places[some].numpy().astype(np.uint64))
            while len(outside := np.flatnonzero(found >= self.num)):
                found[outside] = self._enciphered(found[outside])
            numbers[some] = found
        return torch.from_numpy(numbers)

    def _enciphered(self, numbers: UInt64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
        bits, low = np.uint64(self._bits), np.uint64((1 << self._bits) - 1)
        left, right = numbers >> bits, numbers & low
        for key in self._keys:
            mixed = (right + key) * MIX[0]
            mixed ^= mixed >> np.uint64(29)
            mixed *= MIX[1]
            mixed >>= np.uint64(32)
            left, right = right, left ^ (mixed & low)
        return (left << bits) | right


def uniforms_of(rows: Integer[np.ndarray, "num dim"]) -> Float64[np.ndarray, "num dim"]:
    """A uniform in [0, 1) for each number, which follows from the numbers of its row, the row's place and its own.

    By splitmix64, so that the same rows give the same uniforms, whoever asks.
    """
    places = np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * GOLDEN
    keys = np.arange(len(rows), dtype=np.uint64) * GOLDEN
    for d, place in enumerate(places):
        keys = _split(keys ^ (rows[:, d].astype(np.uint64) + place))
    return np.stack([_split(keys + place) >> np.uint64(11) for place in places], axis=1) * 2.0**-53


def _split(numbers: UInt64[np.ndarray, "num"]) -> UInt64[np.ndarray, "num"]:
    """The finaliser of splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def seed_of(seed: int, purpose: str, number: int) -> int:
    """A seed of its own, below 2^63, for each purpose and number."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def draw_seeds(num: int, generator: torch.Generator | None) -> list[int]:
    """One seed for each sample, from the caller's generator."""
    device = generator.device if generator is not None else torch.device("cpu")
    seeds: list[int] = torch.randint(2**62, (num,), generator=generator, device=device).tolist()
    return seeds


def categorical(weights: Float[Tensor, "*shape states"], randomness: Randomness) -> Int[Tensor, "*shape"]:
    """Draw y with probability weights[y] / sum(weights), by inverse CDF in float64, in chunks.

    The weights need not be normalised. States of weight 0 are never drawn; a row of zeros is an error of the caller.
    """
    return invert_cdf(weights, randomness.uniform(weights.shape[:-1], weights.device))


def invert_cdf(weights: Float[Tensor, "*shape states"], uniforms: Float64[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """The smallest y whose cumulative weight exceeds u times the total."""
    states = weights.shape[-1]
    rows = weights.reshape(-1, states)
    chunk = max(1, CHUNK_ELEMENTS // states)
    parts = zip(rows.split(chunk), uniforms.reshape(-1, 1).split(chunk), strict=True)
    drawn = torch.cat([_invert_rows(w, u) for w, u in parts])
    # Comparisons with NaN are false, so the search runs past the end.
    if drawn.numel() and int(drawn.max()) >= states:
        raise ValueError("The model predicts NaN, so nothing can be drawn. Did its training diverge?")
    return drawn.reshape(weights.shape[:-1])


def _invert_rows(weights: Float[Tensor, "rows states"], u: Float64[Tensor, "rows 1"]) -> Int[Tensor, "rows"]:
    cumulative = weights.cumsum(dim=1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # u * total may round up to the total itself, which would point past the last state of positive weight.
    target = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)


def stratified_times(
    batch: int, generator: torch.Generator | None = None, device: torch.device | str = "cpu"
) -> Float64[Tensor, "batch"]:
    """t_i = (k_i + u_i) / B: one uniform time in each of B equal strata of [0, 1], the strata k in random order.

    So each row's time is uniform. Without the random order, the first row of a fixed batch would never be noisy.
    """
    source, where = Stream(generator), torch.device(device)
    strata = source.uniform((batch,), where).argsort()
    return (strata + source.uniform((batch,), where)) / batch


def random_positions(
    batch: int,
    length: int,
    num: int,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    given: Bool[Tensor, "batch dim"] | None = None,
) -> Int[Tensor, "batch num"]:
    """Draw `num` of `length` positions a row without replacement; given positions come last."""
    keys = Stream(generator).uniform((batch, length), torch.device(device))
    if given is not None:
        keys = keys + given
    return keys.topk(num, dim=1, largest=False, sorted=True).indices
