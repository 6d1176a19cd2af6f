"""Systems that can be run on data: a recipe, a baseline, or fresh data as samples."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm.baselines import BASELINES
from sddm.diffusion import Diffusion
from sddm.recipe import Recipe
from sddm.training import RunConfig, learn
from sddm.training.batches import Batches, generator_of
from sddm.training.report import METRICS_FILE


@runtime_checkable
class Source(Protocol):
    """Data of which any number of rows can be drawn, such as `sddm.data.Toy`."""

    @property
    def num_states(self) -> int: ...

    @property
    def length(self) -> int: ...

    def tokens(self, num: int, generator: torch.Generator) -> Tensor: ...


@runtime_checkable
class Law(Protocol):
    """A law of rows that is known, such as a left-to-right model or a Bayesian network."""

    def log_prob(self, tokens: Int[Tensor, "num dim"]) -> Float64[Tensor, "num"]: ...


class Drawn(NamedTuple):
    """Samples of a system, and what is known about them."""

    tokens: Int[Tensor, "num dim"]
    groups: Int[Tensor, "num"] | None = None
    """The group of each sample, if samples of one group depend on each other."""
    model: Diffusion | Law | None = None
    """The model, if it knows or can bound the likelihood of rows."""
    training_seconds: float | None = None
    evaluations: float | None = None
    """Evaluations of the network for a sample, where they are counted."""


class System(ABC):
    """Something that samples can be drawn from, after a training on a stream of fresh rows if it has one."""

    @property
    def rows_seen(self) -> int:
        """Rows of data that the training draws."""
        return 0

    @property
    def training(self) -> str:
        """The name of the training's folder; systems that differ only in sampling share it."""
        return "none"

    @abstractmethod
    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        """Train, or resume from a checkpoint in the folder, and draw samples."""


@dataclass(frozen=True)
class Fresh(System):
    """Fresh rows as samples: what a metric gives if samples have the law of the data."""

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        return Drawn(source.tokens(num, generator_of(seed, "data as samples", 0)))


@dataclass(frozen=True)
class Diffused(System):
    """A diffusion by a recipe."""

    recipe: Recipe

    @property
    def training(self) -> str:
        return marked(self.recipe.model.model, [asdict(self.recipe.model), asdict(self.recipe.training)])

    @property
    def rows_seen(self) -> int:
        return self.recipe.training.steps * self._rows_a_step

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        model = self.trained(source, seed, folder)
        tokens = self.recipe.sampling.sample(model, num, generator=generator_of(seed, "samples", 0))
        return Drawn(tokens, model=model, training_seconds=self.recipe.training.steps * seconds_a_step(folder))

    def trained(self, source: Source, seed: int, folder: Path) -> Diffusion:
        rows = fresh_rows(source, self._rows_a_step, seed)
        return self.recipe.but(training={"seed": seed}).trained(rows, source.num_states, source.length, folder)

    @property
    def _rows_a_step(self) -> int:
        return self.recipe.training.pool or self.recipe.training.batch_size


@dataclass(frozen=True)
class Compared(System):
    """A baseline."""

    system: str
    """A key of `sddm.baselines.BASELINES`."""
    steps: int
    """Training steps."""
    batch_size: int
    """Rows a step, drawn afresh."""
    settings: dict[str, Any]
    """Arguments of the system; the others have their defaults."""

    @property
    def training(self) -> str:
        return marked(self.system, asdict(self))

    @property
    def rows_seen(self) -> int:
        return self.steps * self.batch_size

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            system = BASELINES[self.system](source.length, **self.settings)
        config = RunConfig(self.steps, self.batch_size, seed, save_every=1_000, keep=1)
        learn(system, fresh_rows(source, self.batch_size, seed), config, out=folder, resume=True)
        tokens = system.sample(num, generator_of(seed, "samples", 0))
        return Drawn(tokens, system.groups(num), training_seconds=self.steps * seconds_a_step(folder))


def fresh_rows(source: Source, num: int, seed: int) -> Batches:
    """New rows in every step, from the random stream of training."""
    return lambda step: source.tokens(num, generator_of(seed, "training data", step))


def seconds_a_step(folder: Path) -> float:
    """The mean over the logged steps, which is known even if the training was finished earlier."""
    lines = map(json.loads, (folder / METRICS_FILE).read_text(encoding="utf-8").splitlines())
    return mean(line["seconds"] for line in lines if "seconds" in line)


def marked(name: str, settings: Any) -> str:
    """A name with a hash of the training's settings, so that another recipe does not resume from its checkpoints."""
    return f"{name} {hashlib.blake2b(json.dumps(settings).encode(), digest_size=4).hexdigest()}"
