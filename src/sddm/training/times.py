"""At what times a batch is noised: rules for t, each stratified over the rows of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from sddm import _checks
from sddm.randomness import stratified_times
from sddm.shapes import Times
from sddm.training.rules import Table


@runtime_checkable
class TimeRule(Protocol):
    """A rule for the times of a batch."""

    def draw(self, num: int, generator: torch.Generator, device: torch.device) -> Times:
        """A time in [0, T] for each of `num` rows."""
        ...


@dataclass(frozen=True)
class Stratified:
    """Uniform on [low, T]. The losses of some models have no finite variance at t = 0; tauLDR takes low = 0.01."""

    low: float = 0.0

    def __post_init__(self) -> None:
        _checks.finite(self.low, "lowest time")
        _checks.require(0 <= self.low < 1, f"The lowest time must lie in [0, 1), but it is {self.low:g}.")

    def draw(self, num: int, generator: torch.Generator, device: torch.device) -> Times:
        return self.low + (1 - self.low) * stratified_times(num, generator, device)


@dataclass(frozen=True)
class OnGrid:
    """One of T/N, 2T/N, ..., T, each with the same probability: the times of a chain of N steps, as in D3PM."""

    points: int

    def __post_init__(self) -> None:
        _checks.whole(self.points, "number of times", 1)

    def draw(self, num: int, generator: torch.Generator, device: torch.device) -> Times:
        points = (stratified_times(num, generator, device) * self.points).floor().clamp(max=self.points - 1)
        return (points + 1) / self.points


TIMES: Table[TimeRule] = {"uniform": Stratified, "grid": OnGrid}
