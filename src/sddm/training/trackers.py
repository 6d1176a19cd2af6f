"""Where else metrics go: TensorBoard, Weights & Biases, through the trackers of accelerate."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS

TRACKERS = {"tensorboard": 'pip install "sddm[tensorboard]"', "wandb": "pip install wandb, and log in by wandb login"}
"""The trackers that can be named, and how each is installed."""


def check_tracker(name: str) -> None:
    """Check that a tracker is installed."""
    if not installed(name):
        raise ValueError(f"tracker={name!r} needs the package {name}, which is not installed. Do {TRACKERS[name]}.")


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def started(name: str | None, folder: Path | None, done: int) -> Any:
    """The tracker of a run after so many steps. Unless one is named, TensorBoard where it is installed, if there is a
    folder to write to; None if there is nothing to start."""
    if name is None:
        name = "tensorboard" if folder is not None and installed("tensorboard") else None
    if name is None:
        return None
    if folder is None:
        raise ValueError(f"tracker={name!r} writes into the folder of the run, but there is none. Give out.")
    if name == "wandb":
        made = LOGGER_TYPE_TO_CLASS[name]("sddm", name=folder.name, dir=str(folder))
    else:  # steps that are made again replace those that were
        made = LOGGER_TYPE_TO_CLASS[name](name, folder, purge_step=done)
    made.start()
    return made
