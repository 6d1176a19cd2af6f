"""The law of the lengths of rows, which a diffusion of rows of different lengths draws from first.

    p(x) = p(n) p(x^1 ... x^n | n)

p(n) is the histogram of the rows' lengths, smoothed: with N rows,

    p(n) = N / (N + 1) sum_m (count_m / N) k_h(n | m)  +  1 / (N + 1) * 1 / most,

where k_h(. | m) is a triangle that reaches h lengths to either side of m, cut to 1 .. most. Its width h is the one that
predicts the length of each row best from those of the others. So many rows keep their histogram, few rows get a smooth
law, and no length up to the longest has probability 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from sddm import _checks
from sddm.config import Configurable

WIDTHS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""The widths of the triangle to choose from."""
Law = Float64[np.ndarray, "most"]


class Lengths(Configurable):
    """A law of lengths from 1 to `most`, from how many rows had each: counts[n - 1] rows had the length n.

    >>> Lengths.of(torch.tensor([3, 3, 4]), most=5).log_prob(torch.tensor([3, 5])).exp()
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = [_checks.whole(count, f"counts[{place}]", 0) for place, count in enumerate(counts)]
        _checks.require(sum(self.counts) > 0, "counts must hold how many rows have each length, but it holds no row.")
        self.most = len(self.counts)
        self.law = torch.from_numpy(_smoothed(np.array(self.counts, dtype=np.float64)))

    @classmethod
    def of(cls, lengths: Int[Tensor, "rows"], most: int) -> Lengths:
        """The law of the lengths of these rows."""
        low, high = int(lengths.min()), int(lengths.max())
        _checks.require(
            low >= 1 and high <= most, f"lengths must lie between 1 and {most}, but they span {low} to {high}."
        )
        return cls(torch.bincount(lengths, minlength=most + 1)[1:].tolist())

    def log_prob(self, lengths: Int[Tensor, "rows"]) -> Float64[Tensor, "rows"]:
        """log p(n) of each."""
        return self.law.log().to(lengths.device)[lengths - 1]

    def draw(
        self, uniforms: Float64[Tensor, "rows"], least: Int[Tensor, "rows"] | None = None
    ) -> Int64[Tensor, "rows"]:
        """A length for each uniform in [0, 1), given that it is at least this."""
        shorter = torch.cat([self.law.new_zeros(1), self.law.cumsum(0)])  # the probability of n or less
        below = shorter[0] if least is None else shorter[least.clamp(min=1) - 1]
        drawn = torch.searchsorted(shorter[1:], below + uniforms * (shorter[-1] - below), right=True) + 1
        return drawn.clamp(max=self.most)


def _smoothed(counts: Law) -> Law:
    """The law by the triangle under which each row is most likely given the others."""
    num, even = counts.sum(), 1 / len(counts)
    best, chosen = -np.inf, counts
    for width in WIDTHS:
        if width >= len(counts):
            break
        spread, own = _spread(counts, width)
        without = (spread - own).clip(0) / max(num - 1, 1)  # the others' prediction at each length
        score = float((counts * np.log((1 - 1 / num) * without + even / num)).sum())
        if score > best:
            best, chosen = score, spread
    law: Law = (chosen + even) / (num + 1)
    return law / law.sum()


def _spread(counts: Law, width: int) -> tuple[Law, Law]:
    """sum_m count_m k(n | m), and k(n | n), at each n."""
    triangle = 1 - np.abs(np.arange(-width, width + 1)) / (width + 1)
    inside = np.convolve(np.ones_like(counts), triangle)[width : width + len(counts)]  # what of each one is not cut off
    spread = np.convolve(counts / inside, triangle)[width : width + len(counts)]
    return spread, 1 / inside
