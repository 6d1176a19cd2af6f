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
from sddm.noised_classifier import NoisedClassifier
from sddm.noising import Batch, NoisedBatch
from sddm.query import Query
from sddm.randomness import Stream
from sddm.training.batches import Batches, Epochs, generator_of, rows_of
from sddm.training.config import TrainingConfig
from sddm.training.descent import Descent
from sddm.training.loop import MODEL, learn

HELD_OUT_ROWS = 512
"""How many held-out rows an evaluation looks at."""
OF_DIFFUSIONS = (
    "known",
    "transpose",
    "loss",
    "in_order",
    "label_dropout",
    "noise_weight",
    "num_positions",
    "pool",
    "compile",
)
"""Options of a training that say nothing about a classifier."""


class ClassifierLearner(Descent):
    """A classifier, trained by its cross entropy - log p(y | x_t, t) on rows noised by a process."""

    def __init__(self, classifier: NoisedClassifier, config: TrainingConfig, held_out: Dataset | None = None) -> None:
        _checks.instance(classifier, NoisedClassifier, "classifier")
        self.held_out = held_out
        self.check(config)
        super().__init__(classifier, config)
        self.classifier = classifier

    @staticmethod
    def check(config: TrainingConfig) -> None:
        """Raise an error if options are given that say nothing about a classifier."""
        for name in OF_DIFFUSIONS:
            _checks.require(
                getattr(config, name) == getattr(TrainingConfig(), name),
                f"{name} is an option of the training of a diffusion, not of a classifier. Leave it out.",
            )

    def identity(self) -> dict[str, Any]:
        made = self._result
        return {"model": repr(made.network.arguments), "process": repr(made.process)}

    def draw(self, batch: Batch, generator: torch.Generator) -> NoisedBatch:
        return self._noised(batch, self.config.time_rule.draw(len(batch), generator, self.device), generator)

    def _noised(self, batch: Batch, t: Tensor, generator: torch.Generator) -> NoisedBatch:
        if batch.labels is None:
            raise ValueError("A classifier learns from labels, but the data have none. Give a Dataset with labels.")
        process = self.classifier.process
        labels = _checks.labels(batch.labels, len(batch), known=self.classifier.num_labels)
        xt = process.noise_by(batch.x0, process.tau(0.0, t), Stream(generator))
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

    def finish(self, folder: Path | None) -> NoisedClassifier:
        """The classifier with the averaged weights."""
        result: NoisedClassifier = super().finish(folder)
        if folder is not None and self.accelerator.is_main_process:
            result.save_pretrained(folder / MODEL)
        return result


def train_classifier(
    classifier: NoisedClassifier,
    data: Dataset | Batches,
    config: TrainingConfig | None = None,
    *,
    held_out: Dataset | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    report: Callable[[int, float], None] | None = None,
    fingerprint: str | None = None,
) -> NoisedClassifier:
    """Train, and return the classifier with averaged weights.

    classifier: a network and the noise of the diffusion that it is to guide.
    data: rows with labels, or a function that gives the `Batch` of each step.
    config: without the options that belong to a diffusion.
    held_out: rows that are not trained on, for the loss and the share that is told right.
    out, resume, progress, fingerprint: see `sddm.training.learn`.
    """
    config = config or TrainingConfig()
    if isinstance(data, Dataset):
        _checks.require(
            data.labels is not None, f"A classifier learns from labels, but {data.name} has none. Name other data."
        )
        fingerprint = fingerprint or data.fingerprint()
        data = Epochs(data, config.batch_size, config.seed)
    trained: NoisedClassifier = learn(
        ClassifierLearner(classifier, config, held_out),
        data,
        config,
        out=out,
        resume=resume,
        progress=progress,
        report=None if report is None else lambda step, values: report(step, values["loss"]),
        fingerprint=fingerprint,
    )
    return trained
