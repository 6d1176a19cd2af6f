"""How long a step takes on this machine, and how many of them fit into some minutes."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sddm import _checks, _files
from sddm.training.batches import generator_of
from sddm.training.config import MAX_STEPS
from sddm.training.learner import Learner

WARM, PACED = 4, 24
"""Steps that are made before the pace is taken, and the steps whose median time it is."""
MOST_SECONDS, LEAST_STEPS = 3.0, 3
"""How long a pace is taken at most, where a user waits for it, and the steps that are made all the same."""
PACE_FILE = "pace.json"
MOST_MINUTES = 525_600.0
"""A year. A larger number is likelier a typing error."""


class Cost(NamedTuple):
    """The seconds of a step, and those of an evaluation with early samples."""

    step: float
    evaluation: float = 0.0

    def seconds(self, steps: int, every: int) -> float:
        """Of so many steps with an evaluation after every so many, and at the end."""
        return steps * self.step + -(-steps // every) * self.evaluation


class Pace(NamedTuple):
    """The seconds of a step, and how many steps there are."""

    seconds: float
    steps: int


def checked_minutes(minutes: Any) -> float:
    value = _checks.positive(minutes, "minutes")
    _checks.require(value <= MOST_MINUTES, f"minutes must be at most {MOST_MINUTES:g}, a year, but it is {value:g}.")
    return value


def seconds_of_a_step(
    learner: Learner,
    batches: Callable[[int], Any],
    device: torch.device,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
    most_seconds: float = math.inf,
    most_steps: int = WARM + PACED,
) -> float:
    """The median time of some steps, after a few that are not counted. It changes the learner, so that another one has
    to be trained.

    clock: what tells the seconds; the time on the wall if not given.
    most_seconds, most_steps: after this time on the wall, and after so many steps, fewer have to do.
    """
    clock = clock or wall
    took: list[float] = []
    began = time.monotonic()
    with torch.random.fork_rng(devices=[]):
        learner.module.train()
        for step in range(min(WARM + PACED, max(most_steps, LEAST_STEPS))):
            start = clock()
            learner.update(batches(step).to(device), generator_of(seed, "pace", step))
            took.append(clock() - start)
            if step and time.monotonic() - began > most_seconds:
                break
    return statistics.median(took[min(WARM, len(took) // 2) :])


def steps_in(minutes: float, cost: Cost, every: int = 1, least: int = 1) -> Pace:
    """How many steps fit into these minutes, with an evaluation after every so many; at least half of the time is for
    steps, however long an evaluation takes."""
    step, whole = max(cost.step, 1e-6), 60 * minutes
    beside = (whole - cost.evaluation) / (step + cost.evaluation / every)
    return Pace(cost.step, min(max(least, round(beside), round(whole / 2 / step)), MAX_STEPS))


def kept_pace(
    folder: Path | None, resume: bool, minutes: float, measure: Callable[[], Cost], every: int = 1, least: int = 1
) -> Pace:
    """The steps that fit into these minutes, by what is measured now or, if the training in this folder goes on, by
    what was measured when it was begun. So a training that is interrupted keeps its schedule."""
    path = None if folder is None else folder / PACE_FILE
    if path is not None and resume and path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Pace(kept["seconds"], kept["steps"])
    pace = steps_in(minutes, measure(), every, least)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _files.write_json(path, pace._asdict())
    return pace


def wall() -> float:
    """Seconds on the wall, when all that was asked of a GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


def spoken(seconds: float) -> str:
    """A time as people say it."""
    units = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
    unit = next((unit for unit, size in units.items() if seconds >= 1.5 * size), "second")
    number = max(1, round(seconds / units[unit]))
    return f"{number} {unit}{'s' * (number != 1)}"
