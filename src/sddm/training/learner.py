"""What the training loop trains: an object with weights, optimizers and an update.

Two kinds are enough. A learner with one loss that is a mean over rows extends `Descent`, which does the rest. A learner
whose update has several parts (chains that go on, networks that learn from each other) extends `Learner` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sddm.training.ema import EMA


class Learner(ABC):
    """What is trained, and how one step of it is made.

    All that a step changes is in the parameters and buffers of `module`, in the optimizers and in `average`: this is
    what a checkpoint holds. All randomness comes from the batch and the generator, which follow from the seed and the
    number of the step. So a training that was interrupted goes on as if it had not been.
    """

    average: EMA | None = None
    """The moving average of the parameters, if there is one. Each update advances it by one step."""
    stream: ClassVar[str] = "noise"
    """The name of the stream of random numbers that the updates draw from."""
    shares_batches: ClassVar[bool] = False
    """Whether several processes can train it together, each on its share of the rows."""
    advice: str = "Train again with a smaller learning rate."
    """What to do when the training diverges."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """All weights, and the buffers that belong to the state of the training."""

    @abstractmethod
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimizers by name; always the same objects."""

    @abstractmethod
    def update(self, batch: Any, generator: torch.Generator) -> dict[str, float]:
        """Make one step on a batch; what to report of it. A value that is not finite ends the training."""

    def evaluate(self) -> dict[str, float]:
        """Figures for metrics.jsonl. Called at intervals, with averaged weights and without gradients."""
        return {}

    def show(self, folder: Path, step: int) -> None:
        """Write something for people to look at into the folder of the run. Called together with `evaluate`."""
        return

    def identity(self) -> dict[str, Any]:
        """What decides the steps beside the configuration and the data, as JSON."""
        return {"model": type(self).__name__}

    def fixed_weights(self) -> dict[str, Tensor]:
        """Weights that are not trained but belong to the result, for those who load it from a checkpoint."""
        return {}

    def finish(self, folder: Path | None) -> Any:
        """What training returns; it is also saved in the folder, if there is one."""
        return self.module.eval()

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the weights are their average."""
        return nullcontext() if self.average is None else self.average.applied()
