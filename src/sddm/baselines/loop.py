"""The training loop of the baselines: steps, a progress bar, checkpoints."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from sddm import _checks
from sddm.baselines.base import Baseline
from sddm.training import checkpoints
from sddm.training.batches import Batches, generator_of
from sddm.training.checkpoints import Checkpoint


def train_baseline(
    system: Baseline,
    batches: Batches,
    steps: int,
    seed: int = 0,
    out: Path | None = None,
    save_every: int = 1_000,
    progress: bool | None = None,
) -> None:
    """Train in place; goes on from the newest checkpoint in the folder `out`.

    All draws of a step follow from the seed and the number of the step.
    """
    _checks.whole(steps, "steps", 1)
    _checks.whole(save_every, "save_every", 1)
    known = None if out is None else checkpoints.newest(out)
    first = 0 if known is None else _load(system, known)
    bar = tqdm(range(first, steps), "training", steps, initial=first, unit="step", disable=_disabled(progress))
    system.train()
    for step in bar:
        shown = system.update(batches(step), generator_of(seed, "baseline", step))
        bar.set_postfix({name: f"{value:.3g}" for name, value in shown.items()}, refresh=False)
        if out is not None and ((step + 1) % save_every == 0 or step + 1 == steps):
            checkpoints.save(out, Checkpoint(step + 1, {}, _tensors(system)), keep=1)
    system.eval()


def _disabled(progress: bool | None) -> bool | None:
    return None if progress is None else not progress


def _tensors(system: Baseline) -> dict[str, Tensor]:
    """Parameters, buffers, and what the optimizers remember of each parameter."""
    tensors = {f"state.{name}": value for name, value in system.state_dict().items()}
    for title, optimizer in system.optimizers().items():
        for number, entries in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{title}/{number}/{key}": value for key, value in entries.items()}
    return tensors


def _load(system: Baseline, checkpoint: Checkpoint) -> int:
    """Put a checkpoint into place; the number of steps already made."""
    system.load_state_dict(checkpoint.part("state"))
    remembered: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name, value in checkpoint.part("optimizer").items():
        title, number, key = name.rsplit("/", 2)
        remembered.setdefault(title, {}).setdefault(int(number), {})[key] = value
    for title, optimizer in system.optimizers().items():
        state = optimizer.state_dict()
        optimizer.load_state_dict({**state, "state": remembered.get(title, {})})
    return checkpoint.step
