"""What is decided before anything is drawn: the arguments of `sample`, checked, and what was not given, chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sddm import _checks
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.formats.arrays import INTEGERS
from sddm.marginals import Guided, Tempered
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.samplers.corrector import Correction
from sddm.samplers.grids import Grid, check_grid, uniform_in_share
from sddm.samplers.in_order import InOrder
from sddm.samplers.steps import Analytical, Euler, OwnStart, ReverseStep, can_be_analytical

BATCH_ELEMENTS = 1 << 24
"""The default batch holds at most this many (sample, position, state) triples."""
STEPS = 100
"""How many steps are taken if no number is given."""
ROWS, ROWS_ON_CPU = 4096, 1024
"""The default batch also holds at most this many samples: a CPU is faster with a batch that fits into its cache."""


@dataclass(frozen=True)
class Plan:
    """All that is decided before anything is drawn."""

    diffusion: Diffusion
    query: Query
    """What is known of all samples, at time T; settled positions hold their values."""
    times: Tensor
    step: ReverseStep
    corrector: Correction | None

    @property
    def num_steps(self) -> int:
        return len(self.times) - 1

    @property
    def usual_batch(self) -> int:
        """How many rows to draw at once if nothing is said."""
        most = ROWS_ON_CPU if self.diffusion.device.type == "cpu" else ROWS
        return min(most, max(1, BATCH_ELEMENTS // (self.query.xt.shape[1] * self.diffusion.process.num_symbols)))


def planned(
    diffusion: Diffusion,
    num: int,
    steps: int | None = None,
    sampler: ReverseStep | str | None = None,
    corrector: Correction | None = None,
    condition: Condition | Tensor | np.ndarray | None = None,
    *,
    grid: Grid | Tensor = uniform_in_share,
    length: int | None = None,
    temperature: float = 1.0,
    labels: Int[Tensor, "num"] | None = None,
    guidance: float = 1.0,
    padding: Bool[Tensor, "num dim"] | None = None,
) -> Plan:
    """Check the arguments of `sample`, and choose what was not given."""
    _checks.instance(diffusion, Diffusion, "diffusion")
    _checks.whole(num, "num", 1)
    if guidance != 1.0:
        guided = Guided(diffusion.model, guidance)
        _checks.require(labels is not None, f"guidance is {guidance}, but no labels were given to follow. Give labels.")
        diffusion = Diffusion(diffusion.process, guided)
    if temperature != 1.0:
        tempered = Tempered(diffusion.model, _checks.positive(temperature, "temperature"))
        diffusion = Diffusion(diffusion.process, tempered)
    step = _choose_step(diffusion, sampler)
    if corrector is not None:
        _checks.instance(corrector, Correction, "corrector")
    length = chosen_length(diffusion, length)
    if not isinstance(grid, Tensor) and not callable(grid):
        raise TypeError(
            f"grid must be a rule such as sddm.samplers.uniform_in_share or a tensor of times, "
            f"but it is a {type(grid).__name__}."
        )
    if steps is None:
        steps = step.usual_steps(length) if isinstance(step, OwnStart) else STEPS
    times = grid if isinstance(grid, Tensor) else grid(diffusion.process, _checks.whole(steps, "steps", 1))
    times = check_grid(times)
    query = _first_query(diffusion, num, length, condition, labels, padding)
    return Plan(diffusion, query, times, step, corrector)


def _first_query(
    diffusion: Diffusion,
    num: int,
    length: int,
    condition: Condition | Tensor | np.ndarray | None,
    labels: Tensor | None,
    padding: Tensor | None,
) -> Query:
    """What is known of all samples before anything is drawn, at time T; settled positions hold their values."""
    values, given = torch.zeros(num, length, dtype=torch.int64), None
    if condition is not None:
        given, values = condition_of(condition).for_samples(num, length, diffusion.process.num_states)
    if labels is not None:
        labels = _checks.labels(labels, num, known=diffusion.model.num_labels)
    if padding is not None:
        padding = _checks.boolean_mask(padding, (num, length), "padding")
        _checks.require(not bool(padding.all(1).any()), "padding leaves nothing of some samples.")
        _checks.require(
            given is None or not bool((given & padding).any()),
            "condition gives tokens for positions that padding says do not exist. Leave them out of one of the two.",
        )
        values = values.masked_fill(padding, 0)
    return Query(values, torch.full((num,), HORIZON, dtype=torch.float64), None, given, padding, labels)


def condition_of(value: Any) -> Condition:
    """A condition, or tokens in which -1 stands for what is not known."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor):
        return _checks.instance(value, Condition, "condition")
    if value.dtype not in INTEGERS or value.dtype == torch.bool:
        raise TypeError(f"condition must hold whole numbers, and -1 as a blank, but it is of {value.dtype}.")
    return Condition.from_blanks(value.cpu().long())


def _choose_step(diffusion: Diffusion, sampler: ReverseStep | str | None) -> ReverseStep:
    if sampler is None:
        if diffusion.model.ordered:
            return InOrder()
        return Analytical() if can_be_analytical(diffusion) else Euler()
    if isinstance(sampler, str):
        from sddm.samplers import SAMPLERS  # the table is made of the modules that use this one

        _checks.one_of(sampler, "sampler", SAMPLERS)
        sampler = SAMPLERS[sampler]()
    if isinstance(sampler, type) or not callable(sampler) or not hasattr(sampler, "check"):
        raise TypeError(
            f"sampler must be a reverse step such as sddm.samplers.Euler(), or the name of one, but it is {sampler!r}."
        )
    sampler.check(diffusion)
    return sampler


def chosen_length(diffusion: Diffusion, length: int | None) -> int:
    """The number of positions of a sample: that of the model, or the given one if the model takes any."""
    if length is None:
        if diffusion.length is None:
            raise ValueError("length must be given: this model takes sequences of any length. Pass length.")
        return diffusion.length
    _checks.whole(length, "length", 1)
    _checks.require(
        diffusion.length in (None, length),
        f"length is {length}, but the model was built for {diffusion.length} positions. Leave out length.",
    )
    return length
