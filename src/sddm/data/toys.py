"""Seven densities in the plane, and the same seven as 32 bits: the customary first test of a discrete model.

Each density is a function `(num, rng) -> (num, 2)`. Its rows are independent and their law does not depend on
`num`. (Older recipes spread a batch evenly along a curve and over its branches. Here both are drawn at random,
so error bars for independent samples are valid.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.codecs.points import LENGTH, MAGNITUDE_BITS, GrayCode

Cloud = Float[np.ndarray, "num 2"]
"""Points of the plane."""
Density = Callable[[int, np.random.Generator], Cloud]


def two_spirals(num: int, rng: np.random.Generator) -> Cloud:
    """Two arms of one and a half turns, each the other's mirror image in the origin."""
    turn = np.sqrt(rng.random(num)) * np.deg2rad(540)
    arm = np.stack([-np.cos(turn) * turn, np.sin(turn) * turn], axis=1) + 0.5 * rng.random((num, 2))
    side = rng.choice([-1.0, 1.0], size=(num, 1))
    return side * arm / 3 + 0.1 * rng.standard_normal((num, 2))


def eight_gaussians(num: int, rng: np.random.Generator) -> Cloud:
    """Eight round Gaussians on a circle."""
    angle = rng.integers(8, size=num) * (np.pi / 4)
    return (4 * _on_circle(angle) + 0.5 * rng.standard_normal((num, 2))) / 1.414


def circles(num: int, rng: np.random.Generator) -> Cloud:
    """A circle inside another of twice its radius."""
    radius = rng.choice([1.0, 0.5], size=(num, 1))
    ring = radius * _on_circle(rng.uniform(0, 2 * np.pi, num))
    return 3 * (ring + 0.08 * rng.standard_normal((num, 2)))


def moons(num: int, rng: np.random.Generator) -> Cloud:
    """Two half circles that reach into each other."""
    upper = _on_circle(rng.uniform(0, np.pi, num))
    lower = np.array([1.0, 0.5]) - upper
    moon = np.where(rng.random((num, 1)) < 0.5, upper, lower) + 0.1 * rng.standard_normal((num, 2))
    return 2 * moon + np.array([-1.0, -0.2])


def pinwheel(num: int, rng: np.random.Generator) -> Cloud:
    """Five arms that bend more and more towards their ends."""
    along = 1 + 0.3 * rng.standard_normal(num)
    across = 0.1 * rng.standard_normal(num)
    angle = rng.integers(5, size=num) * (2 * np.pi / 5) + 0.25 * np.exp(along)
    cos, sin = np.cos(angle), np.sin(angle)
    return 2 * np.stack([along * cos + across * sin, across * cos - along * sin], axis=1)


def swiss_roll(num: int, rng: np.random.Generator) -> Cloud:
    """One spiral of one and a half turns with a hole in its middle."""
    turn = 1.5 * np.pi * (1 + 2 * rng.random(num))
    return (turn[:, None] * _on_circle(turn) + rng.standard_normal((num, 2))) / 5


def checkerboard(num: int, rng: np.random.Generator) -> Cloud:
    """The squares of one colour on a board of four by four."""
    column = rng.uniform(-2, 2, num)
    row = rng.random(num) - 2 * rng.integers(2, size=num) + np.floor(column) % 2
    return 2 * np.stack([column, row], axis=1)


def _on_circle(angle: Float64[np.ndarray, "num"]) -> Cloud:
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


DENSITIES: dict[str, Density] = {
    "2spirals": two_spirals,
    "8gaussians": eight_gaussians,
    "circles": circles,
    "moons": moons,
    "pinwheel": pinwheel,
    "swissroll": swiss_roll,
    "checkerboard": checkerboard,
}
"""The densities by the names under which results are reported."""
REACH = 4.5
"""Nearly all points of all densities lie within [-REACH, REACH]^2."""


@dataclass(frozen=True)
class Toy:
    """One of `DENSITIES` with the Gray code that makes 32 bits of each of its points.

    The code's scale is 2^15 / (max |x| + 2), the maximum over 5,000 points drawn with seed 1.

    >>> toy = Toy("checkerboard")
    >>> tokens = toy.tokens(100, generator=torch.Generator().manual_seed(0))
    >>> tokens.shape, toy.decode(tokens).shape
    (torch.Size([100, 32]), torch.Size([100, 2]))
    """

    name: str
    """A key of `DENSITIES`."""

    num_states = 2
    length = LENGTH

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in DENSITIES:
            raise ValueError(f"name={self.name!r} is not a density. Choose one of {', '.join(DENSITIES)}.")

    @cached_property
    def code(self) -> GrayCode:
        """Points to bits and back."""
        reach = float(np.abs(self.density(5_000, np.random.default_rng(1))).max())
        return GrayCode(scale=2**MAGNITUDE_BITS / (reach + 2))

    @property
    def density(self) -> Density:
        """The function `(num, rng) -> points` behind the name."""
        return DENSITIES[self.name]

    def points(self, num: int, generator: torch.Generator | None = None) -> Float64[Tensor, "{num} 2"]:
        """Draw `num` independent points of the plane."""
        _checks.whole(num, "num", least=1)
        return torch.from_numpy(self.density(num, _numpy_generator(_checks.generator(generator))))

    def tokens(self, num: int, generator: torch.Generator | None = None) -> Int[Tensor, "{num} 32"]:
        """Draw `num` independent points and encode them."""
        return self.encode(self.points(num, generator))

    def encode(self, points: Float[Tensor, "batch 2"]) -> Int[Tensor, "batch 32"]:
        """The bits of these points."""
        return self.code.encode(points)

    def decode(self, tokens: Int[Tensor, "batch 32"]) -> Float64[Tensor, "batch 2"]:
        """The points, to half a cell, that these bits stand for."""
        return self.code.decode(tokens)

    def cells(self, tokens: Int[Tensor, "batch 32"], side: int = 32) -> Int[Tensor, "batch"]:
        """The cell of each point in a grid over [-REACH, REACH]^2; points outside count in the nearest cell."""
        places = ((self.decode(tokens) / REACH + 1) / 2 * side).long().clamp(0, side - 1)
        return places[:, 0] * side + places[:, 1]


def _numpy_generator(generator: torch.Generator | None) -> np.random.Generator:
    """A numpy stream whose seed is drawn from a torch stream (None: torch's own)."""
    device = generator.device if generator is not None else "cpu"
    seed = torch.randint(2**63 - 1, (1,), generator=generator, device=device)
    return np.random.default_rng(int(seed))
