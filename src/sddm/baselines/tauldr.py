"""tauLDR: continuous-time diffusion by a denoiser (Campbell, Benton, De Bortoli, Rainforth, Deligiannidis and Doucet,
NeurIPS 2022), as recipes.

Its model is an ordinary denoiser p(x_0^d | x_t), which sees all of x_t, and its reverse rates are

    R(x -> y at d) = Q_t(y, x^d) sum_c q_{t|0}(y | c) / q_{t|0}(x^d | c) p(x_0^d = c | x_t).

These are the rates of a `LeaveOneOut` model, whatever its network says. It is trained by the loss `tauldr` at times
from 0.01 on. It is sampled by tau-leaping, with or without rounds of a corrector from t = 0.9 on, down to t = 0.01,
where each position takes its most likely value.

Under uniform noise a position that would jump several times in a step stays, as the paper has it. (In the released code
for music the next line overwrites the one that does so: it adds up all jumps.) Under birth and death, whose steps are
many small jumps, they add up: with at most one jump a step a position would get nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from sddm import _checks
from sddm.processes import HORIZON, BirthDeath, Process, Uniform
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.schedules import Constant, Exponential
from sddm.training import TrainingConfig

RATE = 0.03
"""From each of the 129 values of music to each other one."""
SIGMAS = (1.0, 100.0)
"""Of the birth and death process; its rate is sigma(t)^2 log(100), with sigma(t) between these two."""
LEAST_LEFT = 1e-12
"""With few states, less than this share of the data would be left. A recipe leaves this much instead."""
ROUNDS = (0, 2, 10)
"""Rounds of the corrector in the paper."""


def uniform(num_states: int) -> Uniform:
    """Its noise for categorical data: with 129 values, 2% of the data are left."""
    return Uniform(num_states, Constant(RATE))


def birth_death(num_states: int) -> BirthDeath:
    """Its noise between neighbours: with 129 values, 5% of the data are left in the slowest of its modes."""
    return BirthDeath(num_states, Exponential(*SIGMAS))


PROCESSES: dict[str, tuple[Callable[[int], Process], str]] = {
    "uniform": (uniform, "constant"),
    "birth-death": (birth_death, "exponential"),
}
"""By the names that `ModelConfig` gives them: the process, and its schedule."""


def recipe(num_states: int, process: str = "uniform", rounds: int = 0, steps: int = 1000) -> Recipe:
    """tauLDR with this many corrector rounds after each step; "tauLDR-2" has two.

    Sizes and the number of training steps are those of `ModelConfig` and `TrainingConfig`. Change them, and what is
    known of a row, with `Recipe.but`:

    >>> recipe(129, rounds=2).but(model={"width": 128, "layers": 6}, training={"steps": 50_000, "known": "prefix:32"})
    """
    _checks.one_of(process, "process", PROCESSES)
    make, schedule = PROCESSES[process]
    left = float(make(num_states).remaining(torch.full((1,), HORIZON)))
    model = ModelConfig("leave-one-out", process, schedule, max(left, LEAST_LEFT))
    training = TrainingConfig(
        learning_rate=2e-4,
        decay="constant",
        optimizer="adamw",
        weight_decay=0.0,  # that is Adam
        clip=1.0,
        ema=0.9999,
        loss="tauldr",
        times="uniform:0.01",
    )
    sampling = SamplingConfig(steps, "tauldr", "tauldr", corrector=rounds, corrector_factor=0.1, corrector_entry=0.9)
    return Recipe(model, training, sampling)


def recipes(num_states: int, steps: int = 1000) -> dict[str, Recipe]:
    """All six: uniform and birth/death noise, each with 0, 2 and 10 corrector rounds."""
    return {
        f"tauLDR-{rounds} {process}": recipe(num_states, process, rounds, steps)
        for process in PROCESSES
        for rounds in ROUNDS
    }
