"""Training a classifier of noised rows, p(y | x_t, t)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sddm import _checks
from sddm.data import Dataset
from sddm.networks import Classifier
from sddm.noising import Batch, NoisedBatch
from sddm.processes import Process
from sddm.query import Query
from sddm.randomness import Stream
from sddm.training.batches import Batches, Epochs, generator_of, rows_of
from sddm.training.config import TrainingConfig
from sddm.training.descent import Descent
from sddm.training.loop import learn

HELD_OUT_ROWS = 512
"""How many held-out rows an evaluation looks at."""


class ClassifierLearner(Descent):
    """A classifier, trained by its cross entropy - log p(y | x_t, t) on rows noised by a process."""

    def __init__(
        self, classifier: Classifier, process: Process, config: TrainingConfig, held_out: Dataset | None = None
    ) -> None:
        _checks.instance(classifier, Classifier, "classifier")
        self.process, self.held_out = _checks.instance(process, Process, "process"), held_out
        _checks.require(
            classifier.num_tokens == process.num_symbols,
            f"classifier has num_tokens={classifier.num_tokens}, but {type(process).__name__} needs "
            f"{process.num_symbols}. Build it with num_tokens=process.num_symbols.",
        )
        self.num_labels = classifier.num_labels
        super().__init__(classifier, config)
        self.classifier = classifier

    def identity(self) -> dict[str, Any]:
        return {"model": repr(self._result.arguments), "process": repr(self.process)}

    def draw(self, batch: Batch, generator: torch.Generator) -> NoisedBatch:
        return self._noised(batch, self.config.time_rule.draw(len(batch), generator, self.device), generator)

    def _noised(self, batch: Batch, t: Tensor, generator: torch.Generator) -> NoisedBatch:
        if batch.labels is None:
            raise ValueError("A classifier learns from labels, but the data have none. Give a Dataset with labels.")
        labels = _checks.labels(batch.labels, len(batch), known=self.num_labels)
        xt = self.process.noise_by(batch.x0, self.process.tau(0.0, t), Stream(generator))
        return NoisedBatch(batch.x0, Query(xt, t, None, None, batch.padding, labels))

    def losses(self, drawn: NoisedBatch) -> Float[Tensor, "batch"]:
        assert drawn.query.label is not None
        return -self.classifier(drawn.query).gather(1, drawn.query.label[:, None]).squeeze(1)

    def evaluate(self) -> dict[str, float]:
        """The loss on held-out rows, and the share of them that are told right without noise."""
        return {} if self.held_out is None else self.inside(self._scores)

    def _scores(self) -> dict[str, float]:
        assert self.held_out is not None
        batch = rows_of(self.held_out, slice(HELD_OUT_ROWS)).to(self.device)
        generator = generator_of(self.config.seed, "held out", 0)
        loss = self.losses(self.draw(batch, generator)).mean()
        clean = self._noised(batch, torch.zeros(len(batch), dtype=torch.float64, device=self.device), generator).query
        assert clean.label is not None
        right = self.classifier(clean).argmax(1) == clean.label
        return {"held_out_loss": float(loss), "accuracy": float(right.double().mean())}


def train_classifier(
    classifier: Classifier,
    process: Process,
    data: Dataset | Batches,
    config: TrainingConfig | None = None,
    *,
    held_out: Dataset | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    report: Callable[[int, float], None] | None = None,
) -> Classifier:
    """Train, and return the classifier with averaged weights.

    process: the noise of the diffusion that the classifier is to guide.
    data: rows with labels, or a function that gives the `Batch` of each step.
    config: its learning rate, batches and times are used, not what belongs to a diffusion.
    out, resume, progress: see `sddm.training.learn`.
    """
    config = config or TrainingConfig()
    learner = ClassifierLearner(classifier, process, config, held_out)
    trained: Classifier = learn(
        learner,
        Epochs(data, config.batch_size, config.seed) if isinstance(data, Dataset) else data,
        config,
        out=out,
        resume=resume,
        progress=progress,
        report=None if report is None else lambda step, values: report(step, values["loss"]),
        fingerprint=data.fingerprint() if isinstance(data, Dataset) else None,
    )
    return trained
