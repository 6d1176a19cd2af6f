"""Checkpoints: one safetensors file each, written aside and renamed, with a digest of all that is in it.

A file holds tensors by name and, in its header, a small JSON state with the digest. So a file that is cut short, has a
flipped bit or comes from elsewhere is found out when it is read, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
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
    _files.remove_leftovers(folder)
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}
    state = json.dumps({"step": checkpoint.step, **checkpoint.state}, sort_keys=True)
    path = folder / f"step-{checkpoint.step:09d}.safetensors"
    _files.save_tensors(path, tensors, {"format": FORMAT, "state": state, "digest": digest(state, tensors)})
    for old in paths(folder)[keep:]:
        old.unlink()
    return path


def read(path: Path) -> Checkpoint:
    """Read a checkpoint and check that it is whole."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise BadCheckpointError(f"{path} was not written by sddm as a checkpoint.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpointError(f"{path} cannot be read: {error}.") from error
    if metadata.get("digest") != digest(metadata.get("state", ""), tensors):
        raise BadCheckpointError(f"{path} is damaged: its contents are not those that were written.")
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


def digest(state: str, tensors: Mapping[str, Tensor]) -> str:
    """Of the state and of every tensor's name, type, shape and bytes."""
    total = hashlib.blake2b(state.encode(), digest_size=20)
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
