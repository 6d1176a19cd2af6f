"""From data to a trained model in one call, with good choices made for the user."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from sddm.data import Dataset, load
from sddm.diffusion import Diffusion
from sddm.marginals import Energy, MarginalModel, Masked, Restricted
from sddm.recipe import ModelConfig, suited
from sddm.training import Known, TimeRule, TrainingConfig, train

FEW_POSITIONS: dict[type[MarginalModel], int] = {Masked: 1, Energy: 8}
"""How many positions a row models that pay for each evaluate unless told otherwise: see benchmarks/positions.py."""


def few_positions(diffusion: Diffusion, config: TrainingConfig) -> TrainingConfig:
    """Where each position costs passes through the network, evaluate a few of them unless a number was given."""
    model = diffusion.model.model if isinstance(diffusion.model, Restricted) else diffusion.model
    few = FEW_POSITIONS.get(type(model))
    if config.num_positions is not None or few is None:
        return config
    return replace(config, num_positions=min(few, diffusion.length or few))


def fit(
    data: Any,
    *,
    num_states: int | None = None,
    held_out: float = 0.1,
    known: Known | None = None,
    times: TimeRule | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Diffusion:
    """Train a model of the data and return it.

    data: an integer array or tensor (num, dim), a path or the name of a toy (see `sddm.data.load`), or a `Dataset`.
    num_states: how many values a token can have, where the array does not show all of them.
    held_out: the share of the rows that is kept apart, to watch the loss on.
    known: a rule for what is known of each row, such as Prefix(32), so that the model learns to complete rows.
    times: a rule for the times of noise.
    out: a folder for checkpoints, metrics and the model; `resume` goes on from it.
    options: any field of `sddm.recipe.ModelConfig` and of `sddm.training.TrainingConfig`, such as steps=2000 or
        model="masked".

    >>> model = sddm.fit(tokens, steps=2000)
    >>> model.sample(16, seed=0)
    """
    of_model, of_training = ({f.name for f in fields(config)} for config in (ModelConfig, TrainingConfig))
    if unknown := sorted(options.keys() - of_model - of_training):
        raise TypeError(f"fit has no option {unknown[0]!r}. It has: {', '.join(sorted(of_model | of_training))}.")
    architecture = ModelConfig(**{name: options[name] for name in options.keys() & of_model})
    training = TrainingConfig(**{name: options[name] for name in options.keys() & of_training})
    if isinstance(data, Dataset):
        dataset = data
    elif isinstance(data, (str, Path)):
        dataset = load(data, seed=training.seed)
    else:
        dataset = Dataset.from_tokens(data, num_states)
    rows, apart = dataset.split(held_out, training.seed)
    architecture, training = suited(architecture, training, rows)
    diffusion = architecture.build(rows, training.seed)
    return train(
        diffusion,
        rows,
        few_positions(diffusion, training),
        known=known,
        times=times,
        held_out=apart,
        out=out,
        resume=resume,
        progress=progress,
        fingerprint=dataset.fingerprint(),
    )
