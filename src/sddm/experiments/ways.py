"""Ways to sample, each with as many steps as a number of evaluations of the network pays for.

The experiments on samplers, on an enumerated law and on trained models, have the rows of one table, which is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.samplers import (
    Analytical,
    Confident,
    Corrector,
    Entropic,
    Euler,
    FirstHitting,
    Informed,
    InOrder,
    Refreshing,
    Sweep,
    Trapezoidal,
    pilot_grid,
    sample,
    uniform_in_share,
)
from sddm.samplers.corrector import Correction
from sddm.samplers.steps import OwnStart, ReverseStep
from sddm.training.batches import generator_of

PILOTS, ROUNDS = 512, 6
"""Pilot samples, and how often they improve a grid."""
REDRAWN = 16
"""Where positions are drawn again, one in so many is, and at least one."""
HALVINGS, REFINED = 40, 3
"""How often the threshold of entropic steps is halved at most, and how often the last interval is."""


@dataclass(frozen=True)
class Way:
    """A step, what follows it, on which grid, and how many evaluations of the network a step costs."""

    step: ReverseStep = field(default_factory=Analytical)
    cost: int = 1
    corrector: Correction | None = None
    pilot: bool = False

    @property
    def masked(self) -> bool:
        """Whether it is for absorbing noise alone."""
        return isinstance(self.step, OwnStart)

    def steps(self, diffusion: Diffusion, evaluations: int) -> int:
        """As many as the evaluations pay for, one of which may be needed for x_T."""
        if isinstance(self.step, FirstHitting):
            return 1
        begins = 0 if self.masked or diffusion.process.prior_covers_all else 1
        return max(1, (evaluations - begins) // self.cost)

    def options(self, diffusion: Diffusion, evaluations: int, pilots: int = PILOTS, rounds: int = ROUNDS) -> Any:
        """The arguments of `sample`, for a number of evaluations. Pilot samples and rounds are those of its grid."""
        step, corrector, steps = self.step, self.corrector, self.steps(diffusion, evaluations)
        if isinstance(step, Entropic):
            step = replace(step, threshold=threshold_within(diffusion, evaluations, pilots))
        if isinstance(corrector, Informed):
            assert diffusion.length is not None
            corrector = replace(corrector, positions=max(1, diffusion.length // REDRAWN))
        grid = uniform_in_share(diffusion.process, steps)
        if self.pilot:
            generator = generator_of(0, "pilot", steps)
            grid = pilot_grid(diffusion, steps, step, num=pilots, rounds=rounds, generator=generator)
        return {"sampler": step, "corrector": corrector, "grid": grid}


DEFAULT = "analytical"
"""What `sddm.sample` does unless told otherwise, with a model that is not ordered."""
WAYS = {
    "Euler": Way(Euler()),
    DEFAULT: Way(),
    "analytical, pilot grid": Way(pilot=True),
    "sweeps of 2 groups": Way(Sweep(groups=2), 2),
    "trapezoidal": Way(Trapezoidal(), 2),
    "trapezoidal, pilot grid": Way(Trapezoidal(), 2, pilot=True),
    "refreshing, share 0.1": Way(Refreshing()),
    "refreshing, share 0.5": Way(Refreshing(share=0.5)),
    "analytical, corrector": Way(cost=2, corrector=Corrector(factor=0.5)),
    "analytical, least certain redrawn": Way(cost=2, corrector=Informed()),
    "analytical, redrawn blindly": Way(cost=2, corrector=Informed(temperature=math.inf)),
    "in order": Way(InOrder()),
    "confident": Way(Confident()),
    "entropic": Way(Entropic()),
    "first hitting": Way(FirstHitting()),
}


@dataclass
class Count:
    """How many rows a network was asked for."""

    rows: int = 0


@contextmanager
def counted(diffusion: Diffusion) -> Iterator[Count]:
    """Count the rows that a diffusion is asked for in the meantime."""
    count = Count()

    def add(_: Any, asked: tuple[Query]) -> None:
        count.rows += len(asked[0].xt)

    hook = diffusion.register_forward_pre_hook(add)
    try:
        yield count
    finally:
        hook.remove()


def threshold_within(diffusion: Diffusion, evaluations: int, num: int) -> float:
    """A threshold at which entropic steps ask the network at most so often for a row, on average over pilot samples.

    It is halved until they would ask more often, and the last interval is halved a few times on the logarithmic scale.
    """
    length = diffusion.length
    assert length is not None
    if evaluations >= length:
        return 0.0

    def affordable(threshold: float) -> bool:
        generator = generator_of(0, "pilot", 0)
        with counted(diffusion) as count:
            sample(diffusion, num, 1, Entropic(threshold), generator=generator, progress=False)
        return count.rows <= evaluations * num

    found = length * math.log(diffusion.process.num_states)  # all positions at once
    for _ in range(HALVINGS):
        if not affordable(found / 2):
            break
        found /= 2
    for power in range(1, REFINED + 1):
        lower = found / 2 ** (0.5**power)
        found = lower if affordable(lower) else found
    return found


def if_others(used: float, asked: int) -> str:
    """The evaluations of a sample in brackets, if they are not those that were asked for."""
    return "" if abs(used - asked) < 0.05 else f" ({used:.1f})"
