"""What decides the steps of a run. It stands in each checkpoint, so that no other run goes on from it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sddm import _files
from sddm.diffusion import Diffusion
from sddm.errors import BadCheckpointError
from sddm.training.config import RunConfig

CHANGEABLE = frozenset(
    {"steps", "accumulate", "bf16", "compile", "shard", "log_every", "evaluate_every", "save_every", "keep"}
)
"""What may be another when a run goes on: how far, how it is computed, and what it leaves on the disk."""


def lasting(config: RunConfig) -> dict[str, Any]:
    """The options of a run that cannot change when it goes on."""
    return {name: value for name, value in asdict(config).items() if name not in CHANGEABLE}


def digest_of(diffusion: Diffusion) -> str | None:
    """A digest of the configuration of a diffusion; None where a part of it is in no table, so that it has none."""
    try:
        return _files.digest(json.dumps(diffusion.config(), sort_keys=True), {})
    except TypeError:
        return None


def check_identity(theirs: dict[str, Any] | None, ours: dict[str, Any]) -> None:
    """Check that a checkpoint belongs to this run; those of older versions do not say."""
    for name, value in ours.items():
        if theirs is not None and theirs.get(name) != value:
            raise BadCheckpointError(
                f"The checkpoint belongs to another run: there {name} is {theirs.get(name)}, here it is {value}. "
                "Give the options that the run was started with, or another --out."
            )
