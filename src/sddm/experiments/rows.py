"""The rows of the tables of the seven densities: how each system is trained, and how it is sampled.

A row is a frozen dataclass, the same for every density. Rows that differ in the sampler only share their trainings.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from sddm.baselines import ALOE, EBGFN, PCD, train_baseline
from sddm.data import Toy
from sddm.diffusion import Diffusion
from sddm.likelihood import bound
from sddm.marginals import Energy, Hollow, LeaveOneOut, MarginalModel, Masked
from sddm.networks import MLPEnergy, Places, Sizes, TransformerEnergy
from sddm.processes import Uniform
from sddm.recipe import SCHEDULES
from sddm.samplers import GRIDS, SAMPLERS, sample
from sddm.training import TrainingConfig, train
from sddm.training.batches import Batches, generator_of
from sddm.training.report import METRICS_FILE

BOUND_TIMES = 32
ENERGY_MLP = {"time_scale": 10.0, "input_gain": 4.0}
TRANSFORMER = {"width": 32, "layers": 3, "heads": 2, "mlp": 128, "time_scale": 10.0, "input_gain": 25.0}
LARGER = {"width": 128, "heads": 4, "mlp": 512}
LAZY = {"analytical": "lazy", "euler": "lazy-euler"}
"""The paper's samplers. Lazily the law is the same, and a thousand steps become affordable."""
FEW_STEPS = "SDDM, 20 analytical steps"
"""The energy row's own models, sampled by the paper's step."""


class Drawn(NamedTuple):
    """Samples of a system, and what else there is to say of it."""

    tokens: Int[Tensor, "num dim"]
    figures: dict[str, float]
    groups: Int[Tensor, "num"] | None = None
    """The group of each sample, where those of one group depend on each other."""


@dataclass(frozen=True)
class Row(ABC):
    """A system, and how its samples are measured."""

    samples: int = 4_000
    """Samples of one MMD of the paper's protocol."""
    repeats: int = 10
    """MMDs of the paper's protocol, whose mean is reported."""
    many: int = 40_000
    """Samples of the one large MMD."""

    @property
    def training(self) -> str:
        """What the folder of the training is called."""
        return _folder(type(self).__name__, self)

    @property
    def picture(self) -> str:
        """The picture in which its samples are shown."""
        return "samples"

    @property
    def rows_seen(self) -> int:
        """Rows of data that the training draws."""
        return 0

    @abstractmethod
    def draw(self, toy: Toy, num: int, seed: int, folder: Path) -> Drawn:
        """Train if need be, and draw samples."""


@dataclass(frozen=True)
class Data(Row):
    """Fresh points in the place of samples: what the metric gives when there is nothing to find."""

    many: int = 100_000

    def draw(self, toy: Toy, num: int, seed: int, folder: Path) -> Drawn:
        return Drawn(toy.tokens(num, generator_of(seed, "data as samples", 0)), {})


@dataclass(frozen=True)
class Sddm(Row):
    """A diffusion, trained by conditional ratio matching."""

    model: str = "energy MLP"
    """A key of `MODELS`."""
    sizes: dict[str, Any] = field(default_factory=lambda: dict(ENERGY_MLP))
    """Arguments of its network."""
    sampler: str = "sweep"
    """A key of `sddm.samplers.SAMPLERS`."""
    schedule: str = "sqrt-cosine"
    """A key of `sddm.fit.SCHEDULES`. Under this one the share of the data left falls nearly evenly with time."""
    left: float = 0.02
    """Share of the data left at T."""
    steps: int = 2_400
    """Training steps."""
    batch_size: int = 1_024
    """Rows a step, drawn afresh."""
    pool: int = 4_096
    """Rows a step over which targets are averaged, those of the batch among them."""
    optimizer: str = "muon"
    """A key of `sddm.training.optimizers.OPTIMIZERS`."""
    learning_rate: float = 5e-3
    """Peak learning rate."""
    noise_weight: float = 2.0
    """The loss counts 1 / a^this where the share a of the data is left."""
    num_positions: int | None = 8
    """Positions a row that the loss evaluates."""
    ema: float = 0.999
    """Decay of the averaged weights."""
    ema_share: float = 0.2
    """The average reaches back over no more than about this share of the steps."""
    sampling_steps: int = 8
    """Steps of the reverse process."""
    grid: str = "share"
    """A key of `sddm.samplers.GRIDS`."""
    held_out: int = 1_000
    """Fresh points on which the likelihood bound is estimated."""

    @property
    def training(self) -> str:
        return _folder(self.model, self, without=("sampler", "sampling_steps", "grid", "held_out"))

    @property
    def picture(self) -> str:
        return "samples" if self.model == "energy MLP" else "ablation"

    @property
    def rows_seen(self) -> int:
        return self.steps * self.pool

    def draw(self, toy: Toy, num: int, seed: int, folder: Path) -> Drawn:
        model = self.trained(toy, seed, folder)
        tokens = sample(
            model,
            num,
            steps=self.sampling_steps,
            sampler=SAMPLERS[self.sampler](),
            grid=GRIDS[self.grid],
            generator=generator_of(seed, "samples", 0),
        )
        held_out = toy.tokens(self.held_out, generator_of(seed, "held out", 0))
        nats = bound(model, held_out, BOUND_TIMES, generator=generator_of(seed, "bound", 0)).nats
        figures = {
            "nats": float(nats.mean()),
            "nats_standard_error": float(nats.std() / len(nats) ** 0.5),
            "training_seconds": self.steps * _seconds_a_step(folder / METRICS_FILE),
        }
        return Drawn(tokens, figures)

    def diffusion(self, toy: Toy) -> Diffusion:
        process = Uniform(toy.num_states, SCHEDULES[self.schedule]).leaving(self.left)
        return Diffusion(process, MODELS[self.model](process, toy.length, **self.sizes))

    def trained(self, toy: Toy, seed: int, folder: Path) -> Diffusion:
        """The model of a cell, trained on a stream of fresh points; goes on from a checkpoint in the folder."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = self.diffusion(toy)
        shared = {field.name for field in fields(self)} & {field.name for field in fields(TrainingConfig)}
        settings = {name: getattr(self, name) for name in shared}
        config = TrainingConfig(**settings, seed=seed, save_every=500, evaluate_every=10**9, keep=1)
        return train(fresh, fresh_rows(toy, self.pool, seed), config, out=folder, resume=True)


@dataclass(frozen=True)
class Compared(Row):
    """A baseline. The rates of those that have `decay_steps` fall to 0 over the training."""

    system: str = "PCD"
    """A key of `SYSTEMS`."""
    steps: int = 12_000
    """Training steps."""
    batch_size: int = 128
    """Rows a step, drawn afresh."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Arguments of the system."""

    @property
    def training(self) -> str:
        return _folder(self.system, self)

    @property
    def rows_seen(self) -> int:
        return self.steps * self.batch_size

    def draw(self, toy: Toy, num: int, seed: int, folder: Path) -> Drawn:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            system = SYSTEMS[self.system](toy.length, self.steps, **self.settings)
        train_baseline(system, fresh_rows(toy, self.batch_size, seed), self.steps, seed, folder)
        return Drawn(system.sample(num, generator_of(seed, "samples", 0)), {}, system.groups(num))


def _seconds_a_step(metrics: Path) -> float:
    """The mean over the steps that were logged, so that it is known of a training that was finished long ago."""
    lines = (json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines())
    return mean(line["seconds"] for line in lines if "seconds" in line)


def _folder(name: str, row: Row, without: tuple[str, ...] = ()) -> str:
    """A name with a mark of all that decides the training, so that another recipe does not go on from its weights."""
    measured = tuple(field.name for field in fields(Row))
    settings = {key: value for key, value in asdict(row).items() if key not in (*measured, *without)}
    return f"{name} {hashlib.blake2b(json.dumps(settings).encode(), digest_size=4).hexdigest()}"


def fresh_rows(toy: Toy, batch_size: int, seed: int) -> Batches:
    """New points in every step, from the stream that is for training alone."""
    return lambda step: toy.tokens(batch_size, generator_of(seed, "training data", step))


def _energy_mlp(process: Uniform, length: int, **sizes: Any) -> MarginalModel:
    return Energy(MLPEnergy(length, **sizes), implicit=False, fading=True)


def _energy_transformer(process: Uniform, length: int, **sizes: Any) -> MarginalModel:
    return Energy(TransformerEnergy(process.num_symbols, Places(length), Sizes(**sizes)), implicit=False, fading=True)


MODELS: dict[str, Any] = {
    "energy MLP": _energy_mlp,
    "energy": _energy_transformer,
    "masked": Masked.for_process,
    "hollow": Hollow.for_process,
    "leave-one-out": LeaveOneOut.for_process,
}
SYSTEMS: dict[str, Any] = {
    "PCD": lambda length, steps, **settings: PCD(length, decay_steps=steps, **settings),
    "ALOE+": lambda length, steps, **settings: ALOE(length, **settings),
    "EB-GFN": lambda length, steps, **settings: EBGFN(length, decay_steps=steps, **settings),
}


def small() -> dict[str, Row]:
    """What two CPU cores finish: minutes a cell."""
    rows: dict[str, Row] = {
        "data": Data(),
        "PCD": Compared(system="PCD", steps=12_000, settings={"chains": 500}),
        "ALOE+": Compared(system="ALOE+", steps=4_000),
        "EB-GFN": Compared(system="EB-GFN", steps=5_000, batch_size=64),
        "SDDM": Sddm(many=100_000),
        FEW_STEPS: Sddm(sampler="analytical", sampling_steps=20),
    }
    sizes = {**TRANSFORMER, "film_blocks": 1}
    transformer = Sddm(sizes=sizes, batch_size=256, learning_rate=1e-2, num_positions=None)
    # A pass tells of one position, not of 32: noisier gradients, and so a lower rate.
    masked = replace(transformer, model="masked", steps=6_000, learning_rate=4e-3, num_positions=1, held_out=200)
    ablation = {
        "energy": replace(masked, model="energy", sizes=TRANSFORMER, steps=800, batch_size=192, num_positions=4),
        "masked": masked,
        "hollow": replace(transformer, model="hollow", steps=1_400),
        # Its loss is that of x_0, which is of order 1 at all levels of noise.
        "leave-one-out": replace(transformer, model="leave-one-out", steps=2_000, noise_weight=0.0),
    }
    for sampler in ("analytical", "euler"):
        rows |= {f"{name} + {sampler}": _sampled(row, sampler) for name, row in ablation.items()}
    return rows


def _sampled(row: Sddm, sampler: str) -> Sddm:
    """How a transformer is sampled: where each position costs a pass, lazily, with the same law, and less often."""
    if row.model == "masked":
        return replace(row, sampler=LAZY[sampler], sampling_steps=100, repeats=3, many=12_000)
    if row.model == "energy":
        return replace(row, sampler=LAZY[sampler], sampling_steps=40, repeats=2, many=8_000)
    return replace(row, sampler=sampler, sampling_steps=40)


def paper() -> dict[str, Row]:
    """The paper's number of steps and batch, for a GPU."""
    longer: dict[str, Any] = {"many": 100_000, "repeats": 10}
    rows = {}
    for name, row in small().items():
        if isinstance(row, Sddm):
            row = replace(row, steps=300_000, batch_size=128, learning_rate=1e-3, ema=0.9999, **longer)
            row = replace(row, sizes=row.sizes | LARGER) if "layers" in row.sizes else row
            row = row if name == FEW_STEPS else replace(row, sampling_steps=100)
        elif isinstance(row, Compared):
            row = replace(row, steps=100_000, batch_size=128, **longer)
        rows[name] = row
    return rows


SCALES = {"small": small, "paper": paper}
