"""Training a diffusion: its loss on noised rows, its likelihood bound on held-out rows, early samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sddm import _checks, _files
from sddm._modes import evaluating
from sddm.codecs import Codec, Integers
from sddm.conditions import Condition
from sddm.data import Dataset
from sddm.diffusion import Diffusion
from sddm.likelihood import in_order
from sddm.losses import Loss, conditional_ratio_matching, denoising_cross_entropy, x0_cross_entropy
from sddm.networks import MLPEnergy
from sddm.noising import Batch, NoisedBatch, noise_batch
from sddm.objectives import LOSSES
from sddm.pool import check_process
from sddm.token_array import TokenArray
from sddm.training.batches import Batches, Data, Epochs, generator_of, rows_of, transposed
from sddm.training.config import TrainingConfig
from sddm.training.descent import Descent
from sddm.training.devices import from_main
from sddm.training.loop import MODEL, SAMPLES, learn
from sddm.training.pace import MOST_SECONDS, Cost, seconds_of_a_step, wall
from sddm.training.report import Callback
from sddm.training.rules import Known, Nothing, TimeRule

HELD_OUT_ROWS, BOUND_ROWS, BOUND_TIMES = 512, 128, 8
"""The held-out rows, and the times of the bound, that an evaluation during training uses; `sddm evaluate` uses more."""
HARMLESS = 1e-12
"""A learning rate at which weights stay as they are."""
EARLY_STEPS, PART = 50, 16
"""The steps of early samples; how much less of an evaluation is made to see how long it takes."""


def train(
    diffusion: Diffusion,
    data: Data | Batches,
    config: TrainingConfig | None = None,
    *,
    loss: Loss | None = None,
    known: Known | None = None,
    times: TimeRule | None = None,
    held_out: Data | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    report: Callable[[int, float], None] | None = None,
    callbacks: Sequence[Callback] = (),
    fingerprint: str | None = None,
) -> Diffusion:
    """Train, and return the diffusion with averaged weights; `diffusion` itself holds the last ones.

    data: rows of tokens, a dataset (whose classes and lengths of rows reach the model), or a function that gives the
        rows of each step, as tokens or as a `Batch`.
    loss, known, times: the loss, a rule for what is known of each row and one for the times of noise, if not those that
        `config` names.
    held_out: data that are not trained on, for a loss and a likelihood bound at intervals.
    report: called with the step and the loss (nats a row) after every step.
    out, resume, progress, callbacks, fingerprint: see `sddm.training.learn`.
    """
    config = config or TrainingConfig()
    data = batches_of(diffusion, data, config, known)
    learner = DiffusionLearner(diffusion, config, loss, known, times, held_out)
    trained: Diffusion = learn(
        learner,
        data,
        config,
        out=out,
        resume=resume,
        progress=progress,
        report=None if report is None else lambda step, values: report(step, values["loss"]),
        callbacks=callbacks,
        fingerprint=fingerprint,
    )
    return trained


def batches_of(
    diffusion: Diffusion, data: Data | Batches, config: TrainingConfig, known: Known | None = None
) -> Batches:
    """The rows of each step; music each time in another key if that is asked for."""
    if isinstance(data, (Tensor, TokenArray, Dataset)):
        check_config(config, diffusion, rows_of(data, slice(1)).x0.shape[1], known)
        data = Epochs(data, config.pool or config.batch_size, config.seed)
    return transposed(data, codec_of(diffusion), config.transpose, config.seed) if config.transpose else data


def measured(
    diffusion: Diffusion,
    data: Data | Batches,
    config: TrainingConfig,
    held_out: Data | None = None,
    most_steps: int | None = None,
    **rules: Any,
) -> Cost:
    """What a training costs on this machine, by some steps of a copy; rules: `known` and `times`.

    held_out: the rows of evaluations, if there are to be any.
    most_steps: how many steps are made at most.
    """
    batches = batches_of(diffusion, data, config, rules.get("known"))
    careful = replace(config, learning_rate=HARMLESS)  # a training that will diverge has its pace all the same
    learner = DiffusionLearner(copy.deepcopy(diffusion), careful, **rules, held_out=held_out)
    limits: dict[str, Any] = {"most_seconds": MOST_SECONDS}
    limits |= {} if most_steps is None else {"most_steps": most_steps}
    evaluation = 0.0 if held_out is None else learner.seconds_of_an_evaluation()
    step = seconds_of_a_step(learner, batches, learner.device, config.seed, **limits)
    return Cost(*from_main(learner.accelerator, (step, evaluation)))


def check_config(config: TrainingConfig, diffusion: Diffusion, length: int, known: Known | None = None) -> None:
    """Check that rows of this length can be trained on so, before any work is done."""
    known = known or config.known_rule
    if config.num_positions is not None:
        _checks.require(
            config.num_positions <= length,
            f"num_positions is {config.num_positions}, but the data have only {length} positions.",
        )
    if config.pool is not None:
        check_process(diffusion.process)
    known.check(length)
    if config.transpose:
        nothing = torch.zeros(0, dtype=torch.int64)
        codec_of(diffusion).transposed(nothing[:, None], nothing)
    _checks.require(
        known == Nothing() or not any(isinstance(part, MLPEnergy) for part in diffusion.modules()),
        "known: an MLP energy cannot be told which positions are known. Train a transformer.",
    )
    if config.loss is not None:  # each loss checks what it needs: one row of any tokens shows it
        row = torch.zeros(1, length, dtype=torch.int64, device=diffusion.device)
        with torch.no_grad():
            LOSSES[config.loss](diffusion, row, num_positions=config.num_positions, pool=row if config.pool else None)


def codec_of(diffusion: Diffusion) -> Codec:
    """The codec of a diffusion; whole numbers if it has none."""
    return diffusion.codec or Integers(diffusion.process.num_states)


def usual_loss(diffusion: Diffusion) -> Loss:
    """What is minimised unless a loss is named."""
    if diffusion.model.sees_own_token:
        return denoising_cross_entropy
    return x0_cross_entropy if diffusion.model.ordered else conditional_ratio_matching


class DiffusionLearner(Descent):
    """A diffusion, trained by a loss of `sddm.losses`; see `train`."""

    def __init__(
        self,
        diffusion: Diffusion,
        config: TrainingConfig,
        loss: Loss | None = None,
        known: Known | None = None,
        times: TimeRule | None = None,
        held_out: Data | None = None,
    ) -> None:
        self.loss = loss or (usual_loss(diffusion) if config.loss is None else LOSSES[config.loss])
        self.known = _checks.instance(config.known_rule if known is None else known, Known, "known")
        self.times = _checks.instance(config.time_rule if times is None else times, TimeRule, "times")
        self.held_out = held_out
        super().__init__(diffusion, config)
        self.diffusion = diffusion
        if config.compile:
            diffusion.model.compile()

    def identity(self) -> dict[str, Any]:
        try:
            model = _files.digest(self._result.config())
        except TypeError:  # a part of it is in no table
            model = None
        loss = getattr(self.loss, "__name__", type(self.loss).__name__)
        return {"loss": loss, "model": model, "known": repr(self.known), "times": repr(self.times)}

    def draw(self, batch: Int[Tensor, "batch dim"] | Batch, generator: torch.Generator) -> NoisedBatch:
        batch = batch if isinstance(batch, Batch) else Batch(batch)
        batch = batch if self.diffusion.lengths is None else batch.cut()
        dropout = self.config.label_dropout if self.diffusion.model.num_labels else 0.0
        if self.config.pool is None:
            return self._noised(self._conditioned(batch, generator), generator, label_dropout=dropout)
        if self.diffusion.model.num_labels == 0:
            batch = replace(batch, labels=None)
        return self._noised(batch.rows(slice(self.config.batch_size)), generator, pool=batch.x0)

    def _conditioned(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch with what is known of each row."""
        if self.known == Nothing():
            return batch
        _checks.require(batch.given is None, "known: the batches already hold what is given. Leave out known.")
        dim = batch.x0.shape[1]  # rows may be cut, but what is known of them is as for whole ones
        given = self.known.draw(len(batch), self.diffusion.length or dim, generator)[:, :dim].to(batch.x0.device)
        if batch.padding is not None:  # a row whose positions are all known teaches nothing, so nothing of it is given
            given = given & ~batch.padding & ~(given | batch.padding).all(1, keepdim=True)
        return replace(batch, given=given)

    def _noised(
        self, batch: Batch, generator: torch.Generator, pool: Tensor | None = None, label_dropout: float = 0.0
    ) -> NoisedBatch:
        t, num_positions = self.times.draw(len(batch), generator, self.device), self.config.num_positions
        if num_positions is not None:
            num_positions = min(num_positions, batch.x0.shape[1])
        return noise_batch(
            self.diffusion,
            batch,
            t=t,
            pool=pool,
            num_positions=num_positions,
            in_order=self._in_order(len(batch)),
            label_dropout=label_dropout,
            generator=generator,
        )

    def _in_order(self, rows: int) -> Bool[Tensor, "rows"] | None:
        """Which rows are learnt from left to right: the same share of every piece of the batch."""
        if not self.diffusion.model.ordered:
            return None
        return (torch.arange(rows + 1, device=self.device) * self.config.in_order).floor().diff() > 0

    def losses(self, drawn: NoisedBatch) -> Float[Tensor, "batch"]:
        power = self.config.noise_weight
        weight = None if power == 0 else lambda t: self.diffusion.process.remaining(t) ** -power
        return self.loss.at(self.diffusion, drawn, weight).sum(-1)

    def evaluate(self) -> dict[str, float]:
        """Loss and likelihood bound on held-out rows."""
        return {} if self.held_out is None else self.inside(partial(self._scores, self.held_out))

    def seconds_of_an_evaluation(self) -> float:
        """How long `evaluate` and `show` take together, by a part of each."""
        assert self.held_out is not None
        with evaluating(self.module), torch.no_grad():
            began = wall()
            self.inside(partial(self._scores, self.held_out, PART))
            self._early_samples(EARLY_STEPS // PART)
        return PART * (wall() - began)

    def _scores(self, held_out: Data, part: int = 1) -> dict[str, float]:
        """The figures of the held-out rows, or of one in `part` of those that are usual."""
        batch = self._held_out(max(1, HELD_OUT_ROWS // part), held_out)
        generator = generator_of(self.config.seed, "held out", 0)
        drawn = self._noised(batch, generator)
        size = max(1, self.config.batch_size // self.accelerator.num_processes)
        values = [self.losses(drawn.rows(slice(i, i + size))) for i in range(0, len(batch), size)]
        some = batch.rows(slice(max(1, BOUND_ROWS // part)))
        known = {"given": some.given, "padding": some.padding, "labels": some.labels}
        estimate = self.diffusion.bound(some.x0, BOUND_TIMES, **known, generator=generator, batch_size=size)
        bits, error = estimate.bits_per_dim
        figures = {"held_out_loss": float(torch.cat(values).mean()), "bits_per_dim": bits, "bits_standard_error": error}
        if self.diffusion.model.ordered:
            known = {"given": batch.given, "padding": batch.padding, "labels": batch.labels}
            nats = in_order(self.diffusion, batch.x0, **known, batch_size=size)
            figures["nats_in_order"] = float(nats.mean())
            if len(nats) > 1:
                figures["nats_standard_error"] = float(nats.std() / len(nats) ** 0.5)
        return figures

    def _held_out(self, num: int, held_out: Data) -> Batch:
        """The first rows, with the same known positions each time."""
        batch = rows_of(held_out, slice(num)).to(self.device)
        if self.diffusion.model.num_labels == 0:
            batch = replace(batch, labels=None)
        return self._conditioned(batch, generator_of(self.config.seed, "held out and known", 0))

    def fixed_weights(self) -> dict[str, Tensor]:
        return self._result.codec_weights()

    def show(self, folder: Path, step: int) -> None:
        """Write a few samples in the codec's format for previews.

        If the model learns to complete rows, they are completions of held-out rows. Otherwise they have the classes and
        the lengths of held-out rows, if there are any.
        """
        tokens, codec = self._early_samples(EARLY_STEPS), self.diffusion.codec
        if codec is not None and tokens is not None and self.accelerator.is_main_process:
            (folder / SAMPLES).mkdir(exist_ok=True)
            with _files.replacing(folder / SAMPLES / f"step-{step:09d}{codec.preview_ending}") as aside:
                codec.write(tokens.cpu(), aside)

    def _early_samples(self, steps: int) -> Int[Tensor, "num dim"] | None:
        """What `show` shows, after so many steps of sampling; None without a codec."""
        codec = self.diffusion.codec
        if codec is None:
            return None
        options: dict[str, Any] = {}
        if self.held_out is not None:
            rows = self._held_out(codec.preview, self.held_out).to(torch.device("cpu"))
            condition = None if rows.given is None else Condition(rows.given, rows.x0)
            padding = None if condition is None and self.diffusion.lengths is not None else rows.padding
            options = {"condition": condition, "labels": rows.labels, "padding": padding}
        generator = generator_of(self.config.seed, "early samples", 0)
        num = len(rows) if any(option is not None for option in options.values()) else codec.preview
        draw = partial(self.diffusion.sample, num, steps=steps, generator=generator, progress=False, **options)
        drawn: Tensor = self.inside(draw)
        return drawn

    def finish(self, folder: Path | None) -> Diffusion:
        """The diffusion with the averaged weights."""
        result: Diffusion = super().finish(folder)
        if folder is not None and self.accelerator.is_main_process:
            result.save_pretrained(folder / MODEL)
        return result
