"""Gradient descent on one loss: everything that does not depend on what the loss is."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks
from sddm.training.checkpoints import averaged_weights
from sddm.training.config import TrainingConfig
from sddm.training.devices import InForward, accelerator, sharded, whole
from sddm.training.ema import EMA
from sddm.training.learner import Learner
from sddm.training.optimizers import OPTIMIZERS


class Descent(Learner):
    """A learner whose loss is a mean over the rows of a batch.

    It divides the rows between processes (DDP or FSDP), computes them in `accumulate` pieces, clips the gradient,
    sets the learning rate, makes the step of the optimizer and moves the average of the weights.
    """

    shares_batches = True

    def __init__(self, module: nn.Module, config: TrainingConfig) -> None:
        self.config = config
        self.accelerator = accelerator()
        processes = self.accelerator.num_processes
        share_of(config.batch_size, processes, config.accumulate)
        self._result: Any = copy.deepcopy(module)
        self.device: torch.device = self.accelerator.device
        self._module = module.to(self.device)
        forward = InForward(module)
        self._forward: nn.Module = (
            sharded(forward, self.device, processes)
            if config.shard and processes > 1
            else self.accelerator.prepare_model(forward)
        )
        self._optimizer = OPTIMIZERS[config.optimizer or "adamw"](module, config.peak, config.weight_decay)
        self.average: EMA = EMA(module.parameters(), config.ema, config.ema_share)
        self.advice = (
            f"Train again with a smaller --learning-rate than {config.peak:g}, or a longer --warmup than "
            f"{config.warmup:g}."
        )

    @abstractmethod
    def draw(self, batch: Any, generator: torch.Generator) -> Any:
        """Make every random draw of a step, for the whole batch: an object with a length and a method `rows(slice)`."""

    @abstractmethod
    def losses(self, drawn: Any) -> Float[Tensor, "batch"]:
        """The loss of each row."""

    @property
    def module(self) -> nn.Module:
        return self._module

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"all": self._optimizer}

    def inside(self, action: Callable[[], Any]) -> Any:
        """Run an action that calls the module where DDP and FSDP can take part."""
        return self._forward(action)

    def update(self, batch: Any, generator: torch.Generator) -> dict[str, float]:
        """One step of the optimizer; the loss on this process's rows, and the norm of the gradient."""
        config = self.config
        # All processes draw for the whole batch and take their rows, so that their number does not matter.
        drawn = self.draw(batch, generator)
        size = share_of(len(drawn), self.accelerator.num_processes, config.accumulate)
        first = self.accelerator.process_index * config.accumulate
        self._optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for piece in range(config.accumulate):
            rows = drawn.rows(slice((first + piece) * size, (first + piece + 1) * size))
            last = piece == config.accumulate - 1
            with nullcontext() if last else self.accelerator.no_sync(self._forward):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bf16):
                    value = self.inside(partial(self._mean, rows)) / config.accumulate
                value.backward()
            total += value.detach()
        norm = float(whole(nn.utils.clip_grad_norm_(self.module.parameters(), config.clip)))
        if math.isfinite(norm):
            for group in self._optimizer.param_groups:
                group["lr"] = config.peak * config.rate_at(self.average.steps)
            self._optimizer.step()
            self.average.update()
        return {"loss": float(total), "gradient_norm": norm}

    def finish(self, folder: Path | None) -> Any:
        """A copy of the module with the averaged weights."""
        weights = {name: whole(value) for name, value in self.module.state_dict().items()}
        self._result.load_state_dict(weights | averaged_weights(self))
        return self._result.to(self.device).eval()

    def _mean(self, drawn: Any) -> Tensor:
        return self.losses(drawn).mean()


def share_of(rows: int, processes: int, pieces: int) -> int:
    """How many rows of a batch are in each of the pieces that each process computes one after the other."""
    _checks.require(
        rows % (processes * pieces) == 0,
        f"A batch has {rows} rows, which {processes} processes cannot share out evenly in {pieces} pieces each. "
        f"Choose a batch_size that is a multiple of {processes * pieces}.",
    )
    return rows // (processes * pieces)
