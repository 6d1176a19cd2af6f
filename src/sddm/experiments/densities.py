"""The seven densities as a task: how samples are measured.

The row of fresh data, measured by the same protocol, shows the metric's own noise. Fresh data for the metrics, for the
bound and for training come from different random streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sddm.data import Toy
from sddm.diffusion import Diffusion
from sddm.experiments.experiment import Experiment, Row, estimated, with_error
from sddm.experiments.systems import Drawn, Source
from sddm.likelihood import bound
from sddm.metrics import cell_distance, hamming_mmd
from sddm.training.batches import generator_of

UNIT = 1e4
"""MMD^2 is given in units of 1e-4."""
BOUND_TIMES = 32
PLANE_POINTS, LEAST_FOR_PLANE = 20_000, 1_000
"""How many points are compared in the plane. Fewer than the second number leave most cells of the plane empty."""


@dataclass(frozen=True)
class Measured(Row):
    """A system on the densities."""

    many: int = 40_000
    """Samples that are drawn, and those of the one large MMD: no fewer than all repeats need."""
    samples: int = 4_000
    """Samples of one MMD of the paper's protocol."""
    repeats: int = 10
    """MMDs of the paper's protocol, whose mean is reported."""
    held_out: int = 1_000
    """Fresh points on which the likelihood bound is estimated, where the system has one."""


class Densities(Experiment[Measured]):
    """Systems on some of the densities: what the tables and the curves have in common."""

    family = "synthetic"

    def source(self, column: str) -> Toy:
        return Toy(column)

    def measure(self, drawn: Drawn, source: Source, row: Measured, seed: int) -> dict[str, Any]:
        """MMD by the paper's protocol and of many samples, each against as many fresh points; the distance in the
        plane; the bound of a model.

        If samples come in groups, each repeat takes different groups, so that repeats are independent.
        """
        assert isinstance(source, Toy)
        fresh = (generator_of(seed, "fresh data", number) for number in range(10**6))

        def against_data(some: Int[Tensor, "some"]) -> tuple[float, float]:
            data = source.tokens(len(some), next(fresh))
            groups = None if drawn.groups is None else drawn.groups[some]
            value, error = hamming_mmd(drawn.tokens[some], data, dtype=torch.float32, groups=groups)
            return value * UNIT, error * UNIT

        places = torch.arange(len(drawn.tokens))
        part = places // row.samples if drawn.groups is None else drawn.groups % row.repeats
        repeats = [against_data(places[part == number][: row.samples])[0] for number in range(row.repeats)]
        many, many_error = against_data(places[: row.many])
        return {
            **_plane(drawn, source, seed),
            "mmd": mean(repeats),
            "mmd_standard_error": stdev(repeats) / len(repeats) ** 0.5,
            "many": row.many,
            "mmd_many": many,
            "mmd_many_standard_error": many_error,
            **_bound(drawn, source, row.held_out, seed),
        }

    def headline(self, figures: dict[str, Any]) -> str:
        once, many = (with_error(figures[name], figures[f"{name}_standard_error"]) for name in ("mmd", "mmd_many"))
        return f"MMD x 1e4 {once}, at {figures['many']} samples {many}"


def _plane(drawn: Drawn, toy: Toy, seed: int) -> dict[str, float]:
    """The distance of some samples, if there are enough, from as many fresh points, on a grid in the plane."""
    some = drawn.tokens[:PLANE_POINTS]
    if len(some) < LEAST_FOR_PLANE:
        return {}
    fresh = toy.tokens(len(some), generator_of(seed, "fresh points of the plane", 0))
    groups = None if drawn.groups is None else drawn.groups[: len(some)]
    value, error = cell_distance(toy.cells(some), toy.cells(fresh), groups)
    return {"plane": value, "plane_standard_error": error}


def _bound(drawn: Drawn, toy: Toy, num: int, seed: int) -> dict[str, float]:
    if not isinstance(drawn.model, Diffusion):
        return {}
    held_out = toy.tokens(num, generator_of(seed, "held out", 0))
    nats = bound(drawn.model, held_out, BOUND_TIMES, generator=generator_of(seed, "bound", 0)).nats
    return estimated("nats", nats)
