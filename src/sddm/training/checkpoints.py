"""Checkpoints: one safetensors file each, written aside and renamed, with a digest of all that is in it.

A file holds tensors by name and, in its header, a small JSON state with the digest. So a file that is cut short, has a
flipped bit or comes from elsewhere is detected when it is read, and the one before it is used. The tensors are those of
a learner: its weights and buffers, their average, and what its optimizers remember.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sddm import _files
from sddm.errors import BadCheckpointError
from sddm.training.devices import split_like, whole
from sddm.training.learner import Learner

FORMAT = "sddm-checkpoint-1"
NAME = re.compile(r"step-(\d{9})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The number of steps made, what else is needed to resume (JSON), and the tensors."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix.`, without it."""
        start = prefix + "."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and keep no more than `keep`, the newest ones up to this step.

    Checkpoints of later steps are deleted too: they belong to an earlier run in the same folder, or are damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = json.dumps({"step": checkpoint.step, **checkpoint.state}, sort_keys=True)
    path = folder / f"step-{checkpoint.step:09d}.safetensors"
    _files.save_tensors(path, checkpoint.tensors, state, FORMAT)
    found = paths(folder)
    for other in (*found[: found.index(path)], *found[found.index(path) + keep :]):
        other.unlink()
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


def tensors_of(learner: Learner) -> dict[str, Tensor]:
    """The state of a learner, each tensor whole. All processes have to call this together."""
    module = learner.module
    tensors = {f"weights.{name}": whole(value.detach()) for name, value in module.state_dict().items()}
    if learner.average is not None:
        averaged = averaged_weights(learner) | learner.fixed_weights()
        tensors |= {f"average.{name}": value for name, value in averaged.items()}
    names: dict[Tensor, str] = {weight: name for name, weight in module.named_parameters()}
    for optimizer in learner.optimizers().values():
        for weight, entries in optimizer.state.items():
            tensors |= {f"optimizer.{names[weight]}/{key}": whole(value) for key, value in entries.items()}
    return tensors


def averaged_weights(learner: Learner) -> dict[str, Tensor]:
    """The averaged parameters by name, each whole. All processes have to call this together."""
    with learner.averaged():
        return {name: whole(weight.detach()).cpu().clone() for name, weight in learner.module.named_parameters()}


def check_belongs(checkpoint: Checkpoint, learner: Learner, identity: dict[str, Any]) -> None:
    """Check that a checkpoint holds the weights of this learner and is of the run with this identity."""
    weights = {name: value.shape for name, value in learner.module.state_dict().items()}
    if {name: value.shape for name, value in checkpoint.part("weights").items()} != weights:
        raise BadCheckpointError(
            "The checkpoint belongs to another model: its weights have other names or shapes. "
            "Give the options that the run was started with, or another --out."
        )
    theirs = identity | checkpoint.state.get("identity", {})  # older versions wrote less of it, or nothing
    for name, value in identity.items():
        if theirs[name] != value:
            raise BadCheckpointError(
                f"The checkpoint belongs to another run: there {name} is {theirs[name]}, here it is {value}. "
                "Give the options that the run was started with, or another --out."
            )


@torch.no_grad()
def restore(learner: Learner, checkpoint: Checkpoint) -> None:
    """Put the state of a checkpoint that fits into a learner."""
    weights, parameters = learner.module.state_dict(keep_vars=True), dict(learner.module.named_parameters())
    _copy(checkpoint.part("weights"), weights)
    if learner.average is not None:
        with learner.averaged():
            _copy(checkpoint.part("average"), parameters)
        learner.average.steps = checkpoint.step
    owner = {w: o for o in learner.optimizers().values() for group in o.param_groups for w in group["params"]}
    for path, value in checkpoint.part("optimizer").items():
        name, entry = path.rsplit("/", 1)
        weight = parameters[name]
        # Adam counts its steps in a plain scalar, also for weights that are split between processes.
        owner[weight].state[weight][entry] = split_like(value, weight) if value.ndim else value.to(weight.device)


def _copy(values: dict[str, Tensor], places: dict[str, Tensor] | dict[str, nn.Parameter]) -> None:
    for name, place in places.items():
        place.copy_(split_like(values[name], place))
