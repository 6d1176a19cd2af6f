"""From data to a trained model in one call, with good choices made for the user."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sddm import _checks
from sddm.data import Reading, dataset_of
from sddm.diffusion import Diffusion
from sddm.errors import StoppedError
from sddm.marginals import Energy, MarginalModel, Masked, Restricted
from sddm.recipe import ModelConfig, suited
from sddm.training import Callback, Known, TimeRule, TrainingConfig, train
from sddm.training.devices import on_device
from sddm.training.diffusion import measured
from sddm.training.pace import checked_minutes, kept_pace

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
    labels: Any = None,
    num_states: int | None = None,
    minutes: float | None = None,
    held_out: float = 0.1,
    known: Known | None = None,
    times: TimeRule | None = None,
    device: str | torch.device | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Diffusion:
    """Train a model of the data and return it.

    data: an array or tensor of whole numbers (num, dim), a list of rows or of strings, a text, a DataFrame of pandas or
        polars, a Dataset of Hugging Face or torch, a DataLoader, a path or the name of a toy (see `sddm.data.load`), or
        a `sddm.data.Dataset`. docs/python.md shows each of them.
    labels: the class of each row, as numbers from 0 or as names, or the name of the column that holds them.
    num_states: how many values a token can have, where the array does not show all of them.
    minutes: train for about so long, instead of `steps`. Some steps are made first, to see how long one takes.
    held_out: the share of the rows that is kept apart, to watch the loss on.
    known: a rule for what is known of each row, such as Prefix(32), so that the model learns to complete rows.
    times: a rule for the times of noise.
    device: where to train, such as "cpu" or "cuda:1"; a GPU if there is one.
    callbacks: a function, or several, called with the number of steps made and a dictionary of figures, once for each
        line that metrics.jsonl has or would have. One that raises KeyboardInterrupt stops the training.
    out: a folder for checkpoints, metrics and the model; `resume` goes on from it.
    options: any field of `sddm.recipe.ModelConfig`, `sddm.training.TrainingConfig` and, for data that are read,
        `sddm.data.Reading`, such as steps=2000, model="masked" or window=128.

    Ctrl-C stops the training, and the model so far is returned.

    >>> model = sddm.fit(tokens, steps=2000)
    >>> model.sample(16, seed=0)
    """
    if isinstance(labels, bool):
        options["labels"], labels = labels, None
    architecture, training, reading = _configs(options)
    if minutes is not None:
        checked_minutes(minutes)
        _checks.require("steps" not in options, "Give steps or minutes, not both.")
    told = _functions(callbacks)
    folder = None if out is None else Path(out)
    dataset = dataset_of(data, labels=labels, num_states=num_states, seed=training.seed, **reading)
    rows, apart = dataset.split(held_out, training.seed)
    architecture, training = suited(architecture, training, rows)
    diffusion = architecture.build(rows, training.seed)
    training = few_positions(diffusion, training)
    with on_device(device):
        if minutes is not None:
            watched = apart if folder is not None or told else None
            measure = partial(measured, diffusion, rows, training, watched, known=known, times=times)
            pace = kept_pace(folder, resume, minutes, measure, training.evaluate_every)
            training = replace(training, steps=pace.steps)
        try:
            return train(
                diffusion,
                rows,
                training,
                known=known,
                times=times,
                held_out=apart,
                out=folder,
                resume=resume,
                progress=progress,
                callbacks=told,
                fingerprint=dataset.fingerprint(),
            )
        except StoppedError as stop:
            if stop.signal != signal.SIGINT or stop.so_far is None:
                raise
            print(f"sddm: {stop} fit returns the model so far.", file=sys.stderr)
            model: Diffusion = stop.so_far()
            return model


def _configs(options: dict[str, Any]) -> tuple[ModelConfig, TrainingConfig, dict[str, Any]]:
    """The options by what they are of: the model, the training, and how data are read."""
    parts = [{option.name for option in fields(config)} for config in (ModelConfig, TrainingConfig, Reading)]
    if unknown := sorted(options.keys() - set.union(*parts)):
        raise TypeError(f"fit has no option {unknown[0]!r}. It has: {', '.join(sorted(set.union(*parts)))}.")
    model, training, reading = ({name: options[name] for name in options.keys() & part} for part in parts)
    return ModelConfig(**model), TrainingConfig(**training), reading


def _functions(callbacks: Callback | Sequence[Callback]) -> list[Callback]:
    if callable(callbacks):
        return [callbacks]
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(
                f"callbacks holds a {type(callback).__name__}, which cannot be called. Give functions of the step and "
                "of a dictionary of figures."
            )
    return list(callbacks)
