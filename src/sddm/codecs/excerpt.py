"""A condition that may be longer than a sample: what is kept of it, and which part of it a model completes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm import _checks

BLANK = -1
"""Marks a position whose token is unknown."""


@dataclass(frozen=True)
class Excerpt:
    """What is kept of pieces, and what a model sees of it.

    rows: the pieces as they are to be written, blank where something is generated.
    window: the part that the model completes: its own length, or shorter, if what it adds behind is not to be written.
    start: the position of the pieces at which the window begins.
    ranges: at some positions, the weight of each token: see `Condition`.
    codec: what writes the samples, if more is given than their tokens say, such as numbers.
    """

    rows: Int[Tensor, "num written"]
    window: Int[Tensor, "num seen"]
    start: int = 0
    ranges: Mapping[int, Float64[Tensor, "states"]] = field(default_factory=dict)
    codec: Any = None

    def known(self, length: int) -> Int[Tensor, "num {length}"]:
        """What the model is given."""
        return F.pad(self.window, (0, length - self.window.shape[1]), value=BLANK)

    @property
    def given(self) -> Bool[Tensor, "num written"]:
        """What is kept."""
        return self.rows != BLANK

    def completed(self, tokens: Int[Tensor, "samples length"]) -> Int[Tensor, "samples written"]:
        """The pieces with samples of the model in their blanks; one piece for all samples, or one for each."""
        seen = self.window.shape[1]
        before, after = self.start, self.rows.shape[1] - self.start - seen
        placed = F.pad(tokens[:, :seen], (before, after), value=BLANK)
        return torch.where(self.given, self.rows, placed)


def window_around(first: int, last: int, steps: int, window: int, steps_per_bar: int) -> int:
    """The step at which a window begins that has as much context before the steps from `first` to `last` (which is not
    reached) as behind them, as far as a piece of so many steps allows. It begins with a bar if that leaves all of them
    in it."""
    _checks.require(
        last - first < window,
        f"What is to be generated reaches from bar {first // steps_per_bar + 1} to bar {-(-last // steps_per_bar)}, "
        f"which is {last - first} steps, but samples have {window}, with some context. Fill fewer bars at a time.",
    )
    middle = first - (window - (last - first)) // 2
    start = max(0, min(middle, steps - window))
    at_bar = start // steps_per_bar * steps_per_bar
    return at_bar if at_bar + window >= last else start
