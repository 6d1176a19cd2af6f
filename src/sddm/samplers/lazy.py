"""A step that asks the model only where something may happen.

In a small step hardly a position moves. Whatever the data are, a position that holds x leaves it with a chance of at
most h(x), which the process alone decides (`OneDraw.most`). So draw the uniform number u of each position first: where
u >= h(x) it stays, and the model need not be asked. Elsewhere the model says with which chance it leaves, which is
compared with the same u. The law of the step is the same, and its cost is by the move, not by the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm.diffusion import Diffusion
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.steps import Analytical, Batch, Given, OneDraw, Tokens, check_one_draw

MANY = 0.5
"""Where more than this share of the positions is asked for, all are: an energy shares work between those of a row."""


@dataclass(frozen=True)
class Lazy:
    """The same step at a fraction of the evaluations: for many steps, of an energy or a masked model above all.

    A model of x_t may hold more than what noise allows for certain; its chance to leave is cut off at h(x).

    >>> sample(diffusion, 64, steps=1000, sampler=Lazy(Euler()))
    """

    step: OneDraw = field(default_factory=Analytical)

    def __post_init__(self) -> None:
        check_one_draw(self.step)

    def check(self, diffusion: Diffusion) -> None:
        self.step.check(diffusion)

    def __call__(
        self, diffusion: Diffusion, x: Tokens, t: Batch, s: Batch, given: Given | None, randomness: Randomness
    ) -> Tokens:
        u = randomness.uniform(x.shape, x.device)
        asked = u < self.step.most(diffusion.process, t, s).gather(1, x)
        if given is not None:
            asked &= ~given
        rows, places = asked.nonzero(as_tuple=True)
        if len(rows) == 0:
            return x
        few = diffusion.model.by_position and len(rows) < MANY * x.numel()
        weights = (
            self._of_pairs(diffusion, x, t, s, given, rows, places)
            if few
            else self._of_rows(diffusion, x, t, s, given, asked)
        )
        x = x.clone()
        x[rows, places] = move_or_stay(weights, x[rows, places], u[rows, places])
        return x

    def _of_pairs(
        self, diffusion: Diffusion, x: Tokens, t: Batch, s: Batch, given: Given | None, rows: Tensor, places: Tensor
    ) -> Float[Tensor, "asked symbols"]:
        """The weights at single positions, each of them a row of its own."""
        t, s, given = t[rows], s[rows], None if given is None else given[rows]
        return self.step.weights(diffusion, x[rows], t, s, given, t, places[:, None]).squeeze(1)

    def _of_rows(
        self, diffusion: Diffusion, x: Tokens, t: Batch, s: Batch, given: Given | None, asked: Tensor
    ) -> Float[Tensor, "asked symbols"]:
        """The weights of all positions of the rows in which one is asked for, and of these those asked for."""
        rows = asked.any(dim=1)
        t, s, given = t[rows], s[rows], None if given is None else given[rows]
        return self.step.weights(diffusion, x[rows], t, s, given, t)[asked[rows]]


def move_or_stay(
    weights: Float[Tensor, "num symbols"], x: Int[Tensor, "num"], u: Float64[Tensor, "num"]
) -> Int[Tensor, "num"]:
    """Leave x where u is below the chance to, h; then u / h, which is uniform again, says where to."""
    elsewhere = weights.double().scatter(1, x[:, None], 0)
    chance = elsewhere.sum(1) / weights.sum(1, dtype=torch.float64)
    if bool(chance.isnan().any()):
        raise ValueError("The model predicts NaN, so that nothing can be drawn. Did its training diverge?")
    moves = u < chance
    return x.masked_scatter(moves, invert_cdf(elsewhere[moves], (u / chance)[moves]))
