"""The training loop: on one device or many, with checkpoints, so that a run can be interrupted at any moment."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sddm import _checks
from sddm._modes import evaluating
from sddm.errors import DivergedError, StoppedError
from sddm.randomness import seed_of
from sddm.training import checkpoints
from sddm.training.batches import generator_of
from sddm.training.checkpoints import Checkpoint, check_belongs, restore, tensors_of
from sddm.training.config import RunConfig
from sddm.training.devices import accelerator, check_alike, claimed
from sddm.training.heartbeat import noticing_lost_processes
from sddm.training.learner import Learner
from sddm.training.report import Callback, Report
from sddm.training.signals import noted_signals

CHECKPOINTS, SAMPLES, MODEL = "checkpoints", "samples", "model"
STEPS_BETWEEN_QUESTIONS = 10
"""Several processes ask each other this often whether one of them was told to stop."""


def learn(
    learner: Learner,
    batches: Callable[[int], Any],
    config: RunConfig,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    report: Callable[[int, dict[str, float]], None] | None = None,
    callbacks: Sequence[Callback] = (),
    fingerprint: str | None = None,
) -> Any:
    """Train a learner, and return what its `finish` gives.

    batches: gives the batch of each step, by the number of the step.
    out: a folder for metrics.jsonl, checkpoints and what the learner leaves. Without it nothing is written.
    resume: go on from the newest checkpoint in `out`; the result is that of a run that was never interrupted.
    progress: True shows a bar, False nothing; None shows a bar on a terminal.
    report: called with the step and the values of the update after every step.
    callbacks: each is called with the number of steps made and a dictionary of figures, once for each line that
        metrics.jsonl has or would have. One that raises KeyboardInterrupt stops the training like Ctrl-C.
    fingerprint: of the data (`Dataset.fingerprint`); a run does not go on with other data than it was started with.
    """
    folder = None if out is None else Path(out)
    trainer = Trainer(learner, config, fingerprint)
    processes = trainer.accelerator
    with noticing_lost_processes(), noted_signals() as signals, claimed(processes, folder):
        check_alike(processes, trainer.identity)
        if resume and folder is not None:
            newest = checkpoints.newest(folder / CHECKPOINTS)
            if newest is not None:
                trainer.load(newest)
        return trainer.run(batches, folder, progress, report, signals, callbacks)


class Trainer:
    """A learner after `step` steps."""

    def __init__(self, learner: Learner, config: RunConfig, fingerprint: str | None) -> None:
        self.learner, self.config = learner, config
        self.accelerator = accelerator()
        _checks.require(
            learner.shares_batches or self.accelerator.num_processes == 1,
            f"{type(learner).__name__} trains on one process, but there are {self.accelerator.num_processes}. "
            "Start it without a launcher.",
        )
        self.device: torch.device = self.accelerator.device
        if not learner.shares_batches:  # the others have moved, and keep views of their weights
            learner.module.to(self.device)
        self.identity = {**config.lasting, **learner.identity(), "data": fingerprint}
        self.step = 0
        self.totals: dict[str, float] = {}
        self.count = 0  # of the steps in the totals: those since the last line of metrics
        self._drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in learner.module.modules())

    def run(
        self,
        batches: Callable[[int], Any],
        folder: Path | None,
        progress: bool | None,
        report: Callable[[int, dict[str, float]], None] | None,
        signals: list[int],
        callbacks: Sequence[Callback] = (),
    ) -> Any:
        config, main = self.config, self.accelerator.is_main_process
        told = [_stopping(callback, signals) for callback in callbacks]
        reporter = Report(config.steps, self.step, folder, progress, main, config.tracker, told)
        random_state = torch.get_rng_state()
        self.learner.module.train()
        try:
            while self.step < config.steps:
                started = time.monotonic()
                values = self.advance(batches(self.step), folder)
                if report is not None:
                    report(self.step - 1, values)
                reporter.step()
                if self.step % config.log_every == 0 or self.step == config.steps:
                    reporter.metrics(self.step, self.metrics(time.monotonic() - started), of_training=True)
                last = self.step == config.steps
                watched = folder is not None or len(callbacks) > 0
                if watched and (last or self.step % config.evaluate_every == 0):
                    self.evaluate(folder, reporter)
                stopped = self.told_to_stop(signals)
                if folder is not None and (last or stopped or self.step % config.save_every == 0):
                    reporter.sync()
                    self.save(folder)
                if stopped and not last:
                    where = "" if folder is None else f" The checkpoint in {folder} is whole."
                    raise StoppedError(
                        f"Stopped after step {self.step} of {config.steps}.{where}", stopped, self.so_far
                    )
            return self.learner.finish(folder)
        finally:
            reporter.close()
            torch.set_rng_state(random_state)

    def so_far(self) -> Any:
        """What training would return now."""
        return self.learner.finish(None)

    def advance(self, batch: Any, folder: Path | None) -> dict[str, float]:
        """One step; the values to report of it on this process."""
        seed = self.config.seed
        if self._drops:
            torch.manual_seed(seed_of(seed, f"dropout of process {self.accelerator.process_index}", self.step))
        values = self.learner.update(batch.to(self.device), generator_of(seed, self.learner.stream, self.step))
        if not all(math.isfinite(value) for value in values.values()):
            raise DivergedError(self._diagnosis(values, folder))
        self.totals = {name: value + self.totals.get(name, 0.0) for name, value in values.items()}
        self.count += 1
        self.step += 1
        return values

    def _diagnosis(self, values: dict[str, float], folder: Path | None) -> str:
        kept = checkpoints.paths(folder / CHECKPOINTS) if folder is not None else []
        last = f"The last good checkpoint is {kept[0]}. " if kept else ""
        shown = ", ".join(f"the {name.replace('_', ' ')} is {value:.4g}" for name, value in values.items())
        seed = seed_of(self.config.seed, self.learner.stream, self.step)
        return f"Training diverged at step {self.step}: {shown} (batch seed {seed}). {last}{self.learner.advice}"

    def metrics(self, seconds: float) -> dict[str, float]:
        """The means of the values since the last time, over all processes, and the learning rate."""
        means = {name: total / self.count for name, total in self._mean_over_processes(self.totals).items()}
        self.totals, self.count = {}, 0
        optimizer = next(iter(self.learner.optimizers().values()))
        return {**means, "learning_rate": optimizer.param_groups[0]["lr"], "seconds": seconds}

    def _mean_over_processes(self, values: dict[str, float]) -> dict[str, float]:
        if self.accelerator.num_processes == 1 or not values:
            return values
        ours = torch.tensor([*values.values()], dtype=torch.float64, device=self.device)
        return dict(zip(values, self.accelerator.reduce(ours, "mean").tolist(), strict=True))

    def told_to_stop(self, signals: list[int]) -> int:
        """The signal that one of the processes got, or 0; all of them know it at the same step."""
        ours = max(signals, default=0)
        if self.accelerator.num_processes == 1:
            return ours
        if self.step % STEPS_BETWEEN_QUESTIONS:
            return 0
        return int(self.accelerator.gather(torch.tensor([ours], device=self.device)).max())

    def evaluate(self, folder: Path | None, reporter: Report) -> None:
        """What the learner measures and shows, with averaged weights."""
        with evaluating(self.learner.module), self.learner.averaged(), torch.no_grad():
            values = self.learner.evaluate()
            if values:
                reporter.metrics(self.step, values, of_training=False)
            if folder is not None:
                self.learner.show(folder, self.step)

    def save(self, folder: Path) -> None:
        """Write a checkpoint with all that is needed to go on as if nothing had happened."""
        self.totals = self._mean_over_processes(self.totals)
        state = {"identity": self.identity, "totals": self.totals, "count": self.count}
        tensors = tensors_of(self.learner)
        if self.accelerator.is_main_process:
            checkpoints.save(folder / CHECKPOINTS, Checkpoint(self.step, state, tensors), self.config.keep)

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        check_belongs(checkpoint, self.learner, self.identity)
        restore(self.learner, checkpoint)
        self.totals, self.count = checkpoint.state["totals"], checkpoint.state["count"]
        self.step = checkpoint.step


def _stopping(callback: Callback, signals: list[int]) -> Callback:
    """The same callback, which stops the training like Ctrl-C where it raises what Ctrl-C raises."""

    def told(step: int, figures: dict[str, float]) -> None:
        try:
            callback(step, figures)
        except KeyboardInterrupt:
            signals.append(signal.SIGINT)

    return told
