"""Checkpoints: one safetensors file each, written aside and renamed, with a digest of all that is in it.

A file holds tensors by name and, in its header, a small JSON state with the digest. So a file that is cut short, has a
flipped bit or comes from elsewhere is found out when it is read, and the one before it is used.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from sddm import _files
from sddm.errors import BadCheckpointError

FORMAT = "sddm-checkpoint-1"
NAME = re.compile(r"step-(\d{9})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The number of steps made, what else is needed to go on (JSON), and the tensors."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix.`, without it."""
        start = prefix + "."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and delete all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    state = json.dumps({"step": checkpoint.step, **checkpoint.state}, sort_keys=True)
    path = folder / f"step-{checkpoint.step:09d}.safetensors"
    _files.save_tensors(path, checkpoint.tensors, state, FORMAT)
    for old in paths(folder)[keep:]:
        old.unlink()
    return path


def read(path: Path) -> Checkpoint:
    """Read a checkpoint and check that it is whole."""
    try:
        metadata, tensors = _files.load_tensors(path)
    except ValueError as error:
        raise BadCheckpointError(str(error)) from error
    if metadata.get("format") != FORMAT or "digest" not in metadata:
        raise BadCheckpointError(f"{path} was not written by sddm as a checkpoint.")
    state = json.loads(metadata["state"])
    return Checkpoint(state.pop("step"), state, tensors)


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; a warning names each that is not. None if there are no checkpoints."""
    broken = []
    for path in paths(folder):
        try:
            checkpoint = read(path)
        except BadCheckpointError as error:
            broken.append(str(error))
            continue
        for reason in broken:
            warnings.warn(f"{reason} Going on from the one before, step {checkpoint.step}.")
        return checkpoint
    if broken:
        raise BadCheckpointError(f"{folder} holds no checkpoint that is whole. {broken[0]} Train again from the start.")
    return None


def paths(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, reverse=True)
