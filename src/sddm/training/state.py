"""The state of a learner as tensors by name: its weights and buffers, their average, what its optimizers remember."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sddm.errors import BadCheckpointError
from sddm.training.checkpoints import Checkpoint
from sddm.training.devices import split_like, whole
from sddm.training.learner import Learner


def tensors_of(learner: Learner) -> dict[str, Tensor]:
    """The state, each tensor whole. All processes have to ask."""
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
    """The averaged parameters by name, each whole. All processes have to ask."""
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
    theirs = checkpoint.state.get("identity", identity)  # older versions did not write it
    for name, value in identity.items():
        if theirs.get(name) != value:
            raise BadCheckpointError(
                f"The checkpoint belongs to another run: there {name} is {theirs.get(name)}, here it is {value}. "
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
