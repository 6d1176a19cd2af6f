"""Systems that are trained for some minutes, so that they can be compared at equal time.

Minutes are those of one core, as the processor counts them for this program: with n threads they pass n times as fast,
and while other programs have the core they do not pass. On a GPU they are those on the clock.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.baselines import Autoregressive, AutoregressiveLearner
from sddm.baselines.chains import CHAINS
from sddm.baselines.d3pm import D3PM, D3PMLearner
from sddm.conditions import Condition
from sddm.experiments.corpora import Corpus
from sddm.experiments.systems import Drawn, Source, System, marked
from sddm.marginals import LeaveOneOut
from sddm.networks import Sizes
from sddm.recipe import ModelConfig, Recipe
from sddm.training import TrainingConfig, learn
from sddm.training.batches import Batches, Epochs, generator_of, transposed
from sddm.training.descent import Descent
from sddm.training.diffusion import DiffusionLearner
from sddm.training.pace import PACE_FILE, Cost, Pace, kept_pace, seconds_of_a_step, wall
from sddm.training.report import METRICS_FILE

POINTS = 8
"""Evaluations on the way, equally far apart."""


@dataclass(frozen=True)
class TimedTraining(ABC):
    """A training with as many steps as fit into `minutes` at the pace of this machine.

    The pace is taken from some steps before the training and kept in its folder, so that a training that is interrupted
    goes on with the same schedule.
    """

    minutes: float

    @property
    @abstractmethod
    def config(self) -> TrainingConfig:
        """How it is trained; the number of steps and the seed are filled in."""

    @abstractmethod
    def learner(self, source: Corpus, config: TrainingConfig) -> Descent:
        """What is trained, with fresh weights."""

    @property
    def training(self) -> str:
        """The name of the training's folder."""
        return marked(type(self).__name__, asdict(self))

    def trained(self, source: Corpus, seed: int, folder: Path) -> Any:
        """The model after its minutes; an interrupted training goes on."""
        _, steps = self._pace(source, seed, folder)
        often = max(1, steps // POINTS)
        config = replace(self.config, steps=steps, seed=seed, evaluate_every=often, save_every=often, keep=1)
        return learn(self.learner(source, config), _batches(source, config), config, out=folder, resume=True)

    def _pace(self, source: Corpus, seed: int, folder: Path) -> Pace:
        """The seconds of a step, and how many of them there are."""

        def measure() -> Cost:
            config = replace(self.config, seed=seed)
            learner = self.learner(source, config)
            return Cost(seconds_of_a_step(learner, _batches(source, config), learner.device, seed, seconds))

        return kept_pace(folder, True, self.minutes, measure, least=POINTS)

    def curve(self, folder: Path, length: int) -> Iterator[tuple[float, int, float, float]]:
        """Seconds of training, rows seen, nats of a held-out row and their standard error, on the way."""
        pace = json.loads((folder / PACE_FILE).read_text(encoding="utf-8"))["seconds"]
        for line in map(json.loads, (folder / METRICS_FILE).read_text(encoding="utf-8").splitlines()):
            bits = line.get("bits_per_dim", math.nan), line.get("bits_standard_error", math.nan)
            as_nats = [length * math.log(2) * value for value in bits]
            nats = line.get("nats_in_order", line.get("held_out_nats", as_nats[0]))
            error = line.get("nats_standard_error", line.get("held_out_standard_error", as_nats[1]))
            if math.isfinite(nats):
                yield line["step"] * pace, line["step"] * self.config.batch_size, nats, error


@dataclass(frozen=True)
class Timed(TimedTraining, System):
    """A system that is trained for some minutes."""

    def lasting(self, minutes: float) -> Timed:
        """The same system with another time."""
        return replace(self, minutes=minutes)

    @abstractmethod
    def sample(self, model: Any, num: int, seed: int, condition: Condition | None = None) -> Int[Tensor, "num dim"]:
        """Samples, in which the condition's positions keep their tokens."""

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert isinstance(source, Corpus)
        model = self.trained(source, seed, folder)
        pace, steps = self._pace(source, seed, folder)
        return Drawn(self.sample(model, num, seed), model=model, training_seconds=steps * pace)


def _batches(source: Corpus, config: TrainingConfig) -> Batches:
    """The rows of each step, of music each time in another key if that is asked for."""
    batches = Epochs(source.train, config.batch_size, config.seed)
    return transposed(batches, source.train.codec, config.transpose, config.seed) if config.transpose else batches


def seconds() -> float:
    """The clock of trainings: of all threads of this program together or, with a GPU, on the wall."""
    return wall() if torch.cuda.is_available() else time.process_time()


@dataclass(frozen=True)
class TimedDiffusion(Timed):
    """A diffusion by a recipe."""

    recipe: Recipe = field(default_factory=Recipe)

    @property
    def training(self) -> str:
        settings = [self.minutes, asdict(self.recipe.model), asdict(self.recipe.training)]
        return marked(self.recipe.model.model, settings)

    @property
    def config(self) -> TrainingConfig:
        return self.recipe.training

    def learner(self, source: Corpus, config: TrainingConfig) -> Descent:
        diffusion = self.recipe.model.build(source.train, config.seed)
        return DiffusionLearner(diffusion, config, held_out=source.validation)

    def sample(self, model: Any, num: int, seed: int, condition: Condition | None = None) -> Int[Tensor, "num dim"]:
        return self.recipe.sampling.sample(model, num, condition=condition, generator=generator_of(seed, "samples", 0))


@dataclass(frozen=True)
class LeftToRight(Timed):
    """The left-to-right model."""

    sizes: Sizes = field(default_factory=Sizes)
    settings: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def config(self) -> TrainingConfig:
        return self.settings

    def learner(self, source: Corpus, config: TrainingConfig) -> Descent:
        model = Autoregressive.for_data(source.train, self.sizes, config.seed)
        return AutoregressiveLearner(model, config, held_out=source.validation)

    def sample(self, model: Any, num: int, seed: int, condition: Condition | None = None) -> Int[Tensor, "num dim"]:
        generator, prefix = generator_of(seed, "samples", 0), None
        if condition is not None:
            prefix = condition.values[:, : int(condition.mask[0].sum())]
            _checks.require(
                bool(condition.mask[:, : prefix.shape[1]].all())
                and not bool(condition.mask[:, prefix.shape[1] :].any()),
                "The left-to-right model can be given the first positions of a row alone.",
            )
        return model.sample(num, generator, prefix=prefix)


@dataclass(frozen=True)
class TimedD3PM(Timed):
    """D3PM in discrete time."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """The sizes of the network; its process is the chain."""
    settings: TrainingConfig = field(default_factory=TrainingConfig)
    steps: int = 1000
    """Steps of the chain."""
    taken: int | None = None
    """How many of them sampling takes; all unless given."""
    chain: str = "uniform"
    """A key of `sddm.baselines.chains.CHAINS`."""

    @property
    def training(self) -> str:
        settings = asdict(replace(self, taken=None))
        return marked(type(self).__name__, {k: v for k, v in settings.items() if (k, v) != ("chain", "uniform")})

    @property
    def config(self) -> TrainingConfig:
        return self.settings

    def learner(self, source: Corpus, config: TrainingConfig) -> Descent:
        chain = CHAINS[self.chain](source.num_states, self.steps)
        sizes: dict[str, Any] = self.model.sizes(len(source.train) * source.length)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            grid, blocks = self.model.grid, self.model.film_blocks or 0
            length = source.length if grid is None else None
            network = LeaveOneOut.for_process(chain, length, grid, film_blocks=blocks, **sizes)
            model = D3PM(chain, network, source.train.codec)
        return D3PMLearner(model, config, held_out=source.validation)

    def sample(self, model: Any, num: int, seed: int, condition: Condition | None = None) -> Int[Tensor, "num dim"]:
        generator = generator_of(seed, "samples", 0)
        return model.sample(num, steps=self.taken, condition=condition, generator=generator)
