"""From data to a trained model in one call, with good choices made for the user."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sddm import _checks
from sddm.data import Dataset, load
from sddm.diffusion import Diffusion
from sddm.marginals import MODELS, Energy, MarginalModel, Masked, Restricted
from sddm.processes import Absorbing, Uniform
from sddm.schedules import Constant, LogSquare, Schedule, SqrtCosine
from sddm.training import TrainingConfig, train

FEW_POSITIONS: dict[type[MarginalModel], int] = {Masked: 1, Energy: 8}
"""How many positions a row models that pay for each evaluate unless told otherwise: see benchmarks/positions.py."""

LARGEST = {"width": 65_536, "layers": 1_024, "heads": 1_024, "mlp": 1_048_576}
"""Sizes of a transformer beyond which a slip of the finger is likelier than a wish."""

SCHEDULES: dict[str, Schedule] = {
    "sqrt-cosine": SqrtCosine(1.0),
    "log-square": LogSquare(1.0),
    "constant": Constant(1.0),
}
PROCESSES: dict[str, type[Uniform] | type[Absorbing]] = {"uniform": Uniform, "absorbing": Absorbing}


@dataclass(frozen=True)
class ModelConfig:
    """What to train. Sizes that are not given are chosen by how much data there is."""

    model: Literal["hollow", "masked", "leave-one-out", "energy"] = "hollow"
    """The kind of network: docs/models.md says which to choose."""
    process: Literal["uniform", "absorbing"] = "uniform"
    """What the noise does to a token: replace it by any value, or by a mask."""
    schedule: Literal["sqrt-cosine", "log-square", "constant"] = "sqrt-cosine"
    """How the speed of the noise changes over time."""
    left: float = 0.02
    """The share of the data that is left at the end of the noise; the rate follows from it."""
    width: int | None = None
    """Width of the transformer."""
    layers: int | None = None
    """Layers of the transformer (in each direction of the hollow one)."""
    heads: int | None = None
    """Attention heads: a head for every 32 of the width unless given."""
    mlp: int | None = None
    """Width of the layers between two attentions: four times the width unless given."""
    dropout: float = 0.0
    """Share of activations dropped in training."""
    grid: tuple[int, int] | None = None
    """Rows and columns, where the positions are an image: each then has a learned row and a learned column."""

    def __post_init__(self) -> None:
        for name, most in LARGEST.items():
            value = getattr(self, name)
            if value is not None:
                _checks.whole(value, name, 1, most)
        _checks.require(0 < self.left < 1, f"left must lie between 0 and 1, but it is {self.left}.")
        _checks.require(0 <= self.dropout < 1, f"dropout must lie in [0, 1), but it is {self.dropout}.")

    def sizes(self, num_tokens: int) -> dict[str, int]:
        """The sizes of the transformer, for this many tokens of data."""
        width, layers = (64, 2) if num_tokens < 200_000 else (128, 3) if num_tokens < 20_000_000 else (256, 6)
        width, layers = self.width or width, self.layers or layers
        return {
            "width": width,
            "layers": layers,
            "heads": self.heads or max(1, width // 32),
            "mlp": self.mlp or 4 * width,
        }

    def build(self, data: Dataset) -> Diffusion:
        """A diffusion with fresh weights for these data."""
        process = PROCESSES[self.process](data.num_states, SCHEDULES[self.schedule]).leaving(self.left)
        kind: Any = MODELS[self.model]
        sizes = self.sizes(len(data) * data.length)
        _checks.require(
            self.grid is None or self.grid[0] * self.grid[1] == data.length,
            f"grid is {self.grid}, but the data have {data.length} positions.",
        )
        length = data.length if self.grid is None else None
        model: MarginalModel = kind.for_process(process, length, self.grid, dropout=self.dropout, **sizes)
        if data.decoder.sizes is not None:
            model = Restricted(model, data.decoder.sizes)
        return Diffusion(process, model, data.decoder)


def few_positions(diffusion: Diffusion, config: TrainingConfig) -> TrainingConfig:
    """Where each position costs passes through the network, evaluate a few of them unless a number was given."""
    model = diffusion.model.model if isinstance(diffusion.model, Restricted) else diffusion.model
    few = FEW_POSITIONS.get(type(model))
    if config.num_positions is not None or few is None:
        return config
    return replace(config, num_positions=min(few, diffusion.length or few))


def fresh(config: ModelConfig, data: Dataset, seed: int) -> Diffusion:
    """`config.build`, with weights that follow from the seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return config.build(data)


def fit(
    data: Any,
    *,
    num_states: int | None = None,
    held_out: float = 0.1,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Diffusion:
    """Train a model of the data and return it.

    data: an integer array or tensor (num, dim), a path or the name of a toy (see `sddm.data.load`), or a `Dataset`.
    num_states: how many values a token can have, where the array does not show all of them.
    held_out: the share of the rows that is kept apart, to watch the loss on.
    out: a folder for checkpoints, metrics and the model; `resume` goes on from it.
    options: any field of `ModelConfig` and of `sddm.training.TrainingConfig`, such as steps=2000 or model="masked".

    >>> model = sddm.fit(tokens, steps=2000)
    >>> model.sample(16, seed=0)
    """
    known = {config: {f.name for f in fields(config)} for config in (ModelConfig, TrainingConfig)}
    unknown = sorted(set(options) - set().union(*known.values()))
    if unknown:
        raise TypeError(f"fit has no option {unknown[0]!r}. It has: {', '.join(sorted(set().union(*known.values())))}.")
    architecture, training = (
        config(**{name: value for name, value in options.items() if name in names}) for config, names in known.items()
    )
    assert isinstance(architecture, ModelConfig)
    assert isinstance(training, TrainingConfig)
    dataset = _dataset(data, num_states, training.seed)
    rows, apart = dataset.split(held_out, training.seed)
    diffusion = fresh(architecture, rows, training.seed)
    return train(
        diffusion,
        rows.tokens,
        few_positions(diffusion, training),
        held_out=apart.tokens,
        out=out,
        resume=resume,
        progress=progress,
        fingerprint=dataset.fingerprint(),
    )


def _dataset(data: Any, num_states: int | None, seed: int) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, Path)):
        return load(data, seed=seed)
    return Dataset.from_tokens(data, num_states)
