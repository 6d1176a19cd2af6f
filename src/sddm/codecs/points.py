"""Points of the plane as bits: a sign bit and a Gray code for each coordinate.

    x -> (1 if x < 0 else 0,  Gray(trunc(|x| * scale)))        16 bits a coordinate, 32 bits a point

The Gray code of a whole number m is m XOR (m >> 1): neighbouring numbers differ in a single bit, so that
neighbouring cells of the plane are at Hamming distance 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.codecs.base import Codec, Writers
from sddm.formats.arrays import write_array
from sddm.formats.tables import write_csv

COORDINATES = 2
MAGNITUDE_BITS = 15
LENGTH = COORDINATES * (1 + MAGNITUDE_BITS)


@dataclass(frozen=True)
class GrayCode:
    """Points (N, 2) as bits (N, 32) and back: for each coordinate the sign, then 15 bits, the highest first.

    A bit pattern stands for a cell of width 1/scale, and `decode` gives the middle of that cell. So
    `encode(decode(bits)) == bits` for all 2^32 patterns. The sign bit with magnitude zero ("negative zero")
    is no exception: it is the cell just below 0, it comes from -1/scale < x < 0 and decodes to -0.5/scale.
    The number -0.0 itself counts as 0. A coordinate with |x| * scale >= 2^15 does not fit and takes the
    largest magnitude, 2^15 - 1.

    >>> code = GrayCode(scale=100.0)
    >>> code.decode(code.encode(torch.tensor([[1.5, -0.25]], dtype=torch.float64)))
    tensor([[ 1.5050, -0.2550]], dtype=torch.float64)
    """

    scale: float
    """Cells per unit of length."""

    def __post_init__(self) -> None:
        _checks.positive(self.scale, "scale")

    def encode(self, points: Float[Tensor, "batch 2"]) -> Int[Tensor, "batch 32"]:
        """The bits of the cells that hold these points."""
        points = _checks.tensor(points, "points")
        if not points.is_floating_point():
            raise TypeError(f"points must be a floating-point tensor, but it is of {points.dtype}. Use .double().")
        _checks.require(
            points.ndim == 2 and points.shape[1] == COORDINATES,
            f"points must have shape (batch, {COORDINATES}), one point a row, but it has shape {tuple(points.shape)}.",
        )
        _checks.require(bool(torch.isfinite(points).all()), "points holds NaN or infinite coordinates. Drop them.")
        points = points.double()
        negative = (points < 0).long()
        magnitude = (points.abs() * self.scale).clamp(max=2**MAGNITUDE_BITS - 1).long()
        gray = magnitude ^ (magnitude >> 1)
        digits = (gray.unsqueeze(-1) >> _places(points.device)) & 1
        return torch.cat([negative.unsqueeze(-1), digits], dim=-1).flatten(start_dim=1)

    def decode(self, tokens: Int[Tensor, "batch 32"]) -> Float64[Tensor, "batch 2"]:
        """The middles of the cells that these bits name."""
        _checks.tokens(tokens, num_states=2, name="tokens", length=LENGTH)
        sign, digits = tokens.reshape(-1, COORDINATES, 1 + MAGNITUDE_BITS).split([1, MAGNITUDE_BITS], dim=-1)
        # A binary digit is the parity of the Gray digits from the highest down to it.
        binary = digits.cumsum(dim=-1) & 1
        magnitude = (binary << _places(tokens.device)).sum(dim=-1)
        middle = (magnitude.double() + 0.5) / self.scale
        return torch.where(sign.squeeze(-1) == 1, -middle, middle)


def _places(device: torch.device) -> Int[Tensor, "places"]:
    return torch.arange(MAGNITUDE_BITS - 1, -1, -1, device=device)


class Points(Codec):
    """Points of the plane as the bits of the toy `density`."""

    num_states = 2
    preview = 2_000

    def __init__(self, density: str) -> None:
        from sddm.data.toys import Toy  # here, because sddm.data imports sddm.codecs

        self.density, self.toy = density, Toy(density)

    def encode(self, values: Float64[np.ndarray, "num 2"]) -> Int[Tensor, "num 32"]:
        return self.toy.encode(torch.from_numpy(values))

    def decode(self, tokens: Int[Tensor, "num 32"]) -> Float64[np.ndarray, "num 2"]:
        return self.toy.decode(self.check(tokens)).numpy()

    def writers(self) -> Writers:
        return {
            ".npy": lambda tokens, path: write_array(self.decode(tokens), path),
            ".csv": lambda tokens, path: write_csv(["x", "y"], self.decode(tokens).tolist(), path),
            ".png": lambda tokens, path: _scatter(self.decode(tokens), path),
        }


def _scatter(points: Float64[np.ndarray, "num 2"], path: Path) -> None:
    from matplotlib.figure import Figure  # slow to import, and only pictures need it

    figure = Figure(figsize=(4, 4), facecolor="white")
    axes = figure.add_subplot()
    axes.scatter(points[:, 0], points[:, 1], s=max(0.2, min(8.0, 4_000 / len(points))), color="#22223b", linewidths=0)
    axes.set_aspect("equal")
    figure.tight_layout()
    figure.savefig(path, dpi=150, format="png")
