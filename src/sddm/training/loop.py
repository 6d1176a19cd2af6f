"""The training loop, from a diffusion and data to a trained diffusion: on one device or many, and nothing is lost."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm import _checks, _files
from sddm._modes import evaluating
from sddm.diffusion import Diffusion
from sddm.errors import BadCheckpointError, DivergedError, StoppedError
from sddm.likelihood import bound
from sddm.losses import Loss, conditional_ratio_matching, denoising_cross_entropy
from sddm.noising import Batch, NoisedBatch, noise_batch
from sddm.samplers import sample
from sddm.token_array import TokenArray
from sddm.training import checkpoints
from sddm.training.batches import Batches, Epochs, generator_of, seed_of
from sddm.training.checkpoints import Checkpoint
from sddm.training.config import TrainingConfig
from sddm.training.devices import Runner, accelerator, check_alike, claimed, sharded, split_like, whole
from sddm.training.ema import EMA
from sddm.training.heartbeat import noticing_lost_processes
from sddm.training.identity import check_identity, identity_of
from sddm.training.optimizers import OPTIMIZERS
from sddm.training.report import Report
from sddm.training.signals import Wish, wishes_to_stop

CHECKPOINTS, SAMPLES, MODEL = "checkpoints", "samples", "model"
HELD_OUT_ROWS, BOUND_ROWS, BOUND_TIMES = 512, 32, 16
"""How much of the held-out data an evaluation during training looks at; `sddm evaluate` looks at more."""
STEPS_BETWEEN_QUESTIONS = 10
"""Several processes ask each other this often whether one of them was told to stop."""


def train(
    diffusion: Diffusion,
    data: Int[Tensor, "num dim"] | TokenArray | Batches,
    config: TrainingConfig | None = None,
    *,
    loss: Loss | None = None,
    held_out: Int[Tensor, "apart dim"] | TokenArray | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    report: Callable[[int, float], None] | None = None,
    fingerprint: str | None = None,
) -> Diffusion:
    """Train, and return the diffusion with averaged weights; `diffusion` itself holds the last ones.

    data: rows of tokens, or a function that gives the rows of each step.
    loss: conditional_ratio_matching, or denoising_cross_entropy for a model that looks at the token it predicts.
    held_out: rows that are not trained on, for a loss and a likelihood bound at intervals.
    out: a folder for metrics.jsonl, checkpoints, early samples and the model. Without it nothing is written.
    resume: go on from the newest checkpoint in `out`; the result is that of a run that was never interrupted.
    report: called with the step and the loss (nats a row) after every step.
    fingerprint: of the data (`Dataset.fingerprint`); a run does not go on with other data than it was started with.
    """
    config = config or TrainingConfig()
    loss = loss or (denoising_cross_entropy if diffusion.model.sees_own_token else conditional_ratio_matching)
    if isinstance(data, (Tensor, TokenArray)):
        data = Epochs(data, config.pool or config.batch_size, config.seed)
    folder = None if out is None else Path(out)
    trainer = Trainer(diffusion, config, loss, fingerprint)
    processes = trainer.accelerator
    with noticing_lost_processes(), wishes_to_stop() as wish, claimed(processes, folder):
        check_alike(processes, trainer.identity)
        if resume and folder is not None:
            trainer.load(checkpoints.newest(folder / CHECKPOINTS))
        return trainer.run(data, held_out, folder, progress, report, wish)


class Trainer:
    """A diffusion with its optimizer and averaged weights, after `step` steps."""

    def __init__(
        self, diffusion: Diffusion, config: TrainingConfig, loss: Loss, fingerprint: str | None = None
    ) -> None:
        self.identity = identity_of(diffusion, config, loss, fingerprint)
        self.config, self.loss = config, loss
        self.accelerator = accelerator()
        processes = self.accelerator.num_processes
        _checks.require(
            config.batch_size % (processes * config.accumulate) == 0,
            f"batch_size is {config.batch_size}, which cannot be shared out evenly between {processes} processes in "
            f"{config.accumulate} pieces each.",
        )
        self.result = copy.deepcopy(diffusion)
        self.device: torch.device = self.accelerator.device
        self.diffusion = diffusion.to(self.device)
        if config.compile:
            diffusion.model.compile()
        runner = Runner(diffusion)
        self.runner: nn.Module = (
            sharded(runner, self.device, processes)
            if config.shard and processes > 1
            else self.accelerator.prepare_model(runner)
        )
        self.weights = dict(diffusion.named_parameters())
        self.optimizer = OPTIMIZERS[config.optimizer](diffusion, config.learning_rate, config.weight_decay)
        self.average = EMA(self.weights.values(), config.ema, config.ema_share)
        self.step = 0
        self.total, self.count = 0.0, 0  # of the loss since it was last reported
        self._drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in diffusion.modules())

    def run(
        self,
        batches: Batches,
        held_out: Int[Tensor, "apart dim"] | TokenArray | None,
        folder: Path | None,
        progress: bool | None,
        report: Callable[[int, float], None] | None,
        wish: Wish,
    ) -> Diffusion:
        config, main = self.config, self.accelerator.is_main_process
        if folder is not None and main:
            folder.mkdir(parents=True, exist_ok=True)
        reporter = Report(config.steps, self.step, folder, progress, main)
        random_state = torch.get_rng_state()
        self.diffusion.train()
        try:
            while self.step < config.steps:
                started = time.monotonic()
                value, norm = self.advance(batches(self.step), folder)
                if report is not None:
                    report(self.step - 1, value)
                reporter.step()
                if self.step % config.log_every == 0 or self.step == config.steps:
                    reporter.metrics(self.step, self.metrics(norm, time.monotonic() - started))
                last = self.step == config.steps
                if folder is not None and (last or self.step % config.evaluate_every == 0):
                    self.evaluate(held_out, folder, reporter)
                stopped = self.told_to_stop(wish)
                if folder is not None and (last or stopped or self.step % config.save_every == 0):
                    reporter.sync()
                    self.save(folder)
                if stopped and not last:
                    where = "" if folder is None else f" The checkpoint in {folder} is whole."
                    raise StoppedError(f"Stopped after step {self.step} of {config.steps}.{where}", stopped)
            return self.finish(folder)
        finally:
            reporter.close()
            torch.set_rng_state(random_state)

    def advance(self, x0: Int[Tensor, "batch dim"], folder: Path | None) -> tuple[float, float]:
        """One step of the optimizer; the loss on this process's rows, and the norm of the gradient."""
        config, processes = self.config, self.accelerator.num_processes
        if self._drops:
            torch.manual_seed(seed_of(config.seed, f"dropout of process {self.accelerator.process_index}", self.step))
        # All processes draw for the whole batch and take their rows, so that their number does not matter.
        x0, pool = x0.to(self.device), None
        if config.pool is not None:
            x0, pool = x0[: config.batch_size], x0
        noised = noise_batch(
            self.diffusion,
            Batch(x0),
            pool=pool,
            num_positions=config.num_positions,
            generator=generator_of(config.seed, "noise", self.step),
        )
        size = x0.shape[0] // (processes * config.accumulate)
        _checks.require(
            size * processes * config.accumulate == x0.shape[0],
            f"A batch has {x0.shape[0]} rows, which cannot be shared out evenly between {processes} processes in "
            f"{config.accumulate} pieces each.",
        )
        first = self.accelerator.process_index * config.accumulate
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for piece in range(config.accumulate):
            rows = slice((first + piece) * size, (first + piece + 1) * size)
            together = piece == config.accumulate - 1
            with nullcontext() if together else self.accelerator.no_sync(self.runner):
                value = self._loss(noised.rows(rows)) / config.accumulate
                value.backward()
            total += value.detach()
        norm = float(whole(nn.utils.clip_grad_norm_(self.weights.values(), config.clip)))
        if not math.isfinite(norm):
            raise DivergedError(self._diagnosis(norm, float(total), folder))
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * config.rate_at(self.step)
        self.optimizer.step()
        self.average.update()
        self.step += 1
        self.total += float(total)
        self.count += 1
        return float(total), norm

    def _loss(self, noised: NoisedBatch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16):
            return self.runner(lambda diffusion: self._losses(diffusion, noised).mean())

    def _losses(self, diffusion: Diffusion, noised: NoisedBatch) -> Float[Tensor, "batch"]:
        """The loss of each row."""
        if self.config.noise_weight == 0:
            return self.loss.at(diffusion, noised).sum(-1)
        process = diffusion.process
        return self.loss.at(diffusion, noised, lambda t: process.remaining(t) ** -self.config.noise_weight).sum(-1)

    def _diagnosis(self, norm: float, value: float, folder: Path | None) -> str:
        kept = checkpoints.paths(folder / CHECKPOINTS) if folder is not None else []
        last = f"The last good checkpoint is {kept[0]}. " if kept else ""
        return (
            f"Training diverged at step {self.step}: the gradient norm is {norm}, the loss {value:.4g} (batch seed "
            f"{seed_of(self.config.seed, 'noise', self.step)}). {last}Train again with a smaller --learning-rate than "
            f"{self.config.learning_rate:g}, or a longer --warmup than {self.config.warmup:g}."
        )

    def metrics(self, norm: float, seconds: float) -> dict[str, float]:
        """The mean loss since the last time, over all processes, and how the optimizer does."""
        mean = self._mean_over_processes(self.total) / self.count
        self.total, self.count = 0.0, 0
        rate = self.config.learning_rate * self.config.rate_at(self.step - 1)
        return {"loss": mean, "learning_rate": rate, "gradient_norm": norm, "seconds": seconds}

    def _mean_over_processes(self, value: float) -> float:
        if self.accelerator.num_processes == 1:
            return value
        return float(self.accelerator.reduce(torch.tensor(value, dtype=torch.float64, device=self.device), "mean"))

    def told_to_stop(self, wish: Wish) -> int | None:
        """The signal that one of the processes got, known to all of them at the same step."""
        if self.accelerator.num_processes == 1:
            return wish.signal
        if self.step % STEPS_BETWEEN_QUESTIONS:
            return None
        signals = self.accelerator.gather(torch.tensor([wish.signal or 0], device=self.device))
        return int(signals.max()) or None

    def evaluate(self, held_out: Int[Tensor, "apart dim"] | TokenArray | None, folder: Path, reporter: Report) -> None:
        """Loss and bound of the averaged weights on held-out data, and a few samples of them."""
        with evaluating(self.diffusion), self.average.applied(), torch.no_grad():
            if held_out is not None:
                reporter.metrics(self.step, self.runner(lambda diffusion: self._scores(diffusion, held_out)))
            if self.diffusion.codec is not None:
                self._show(folder)

    def _scores(self, diffusion: Diffusion, held_out: Int[Tensor, "apart dim"] | TokenArray) -> dict[str, float]:
        generator = generator_of(self.config.seed, "held out", 0)
        rows = held_out[:HELD_OUT_ROWS].to(self.device)
        pieces = noise_batch(diffusion, Batch(rows), num_positions=self.config.num_positions, generator=generator)
        size = max(1, self.config.batch_size // self.accelerator.num_processes)
        values = [self._losses(diffusion, pieces.rows(slice(i, i + size))) for i in range(0, len(rows), size)]
        bits, error = bound(
            diffusion, rows[:BOUND_ROWS], BOUND_TIMES, generator=generator, batch_size=size
        ).bits_per_dim
        return {"held_out_loss": float(torch.cat(values).mean()), "bits_per_dim": bits, "bits_standard_error": error}

    def _show(self, folder: Path) -> None:
        codec = self.diffusion.codec
        assert codec is not None
        generator = generator_of(self.config.seed, "early samples", 0)
        tokens = self.runner(
            lambda diffusion: sample(diffusion, codec.preview, steps=50, generator=generator, progress=False)
        )
        if self.accelerator.is_main_process:
            (folder / SAMPLES).mkdir(exist_ok=True)
            with _files.replacing(folder / SAMPLES / f"step-{self.step:09d}{codec.preview_ending}") as aside:
                codec.write(tokens.cpu(), aside)

    def averaged(self) -> dict[str, Tensor]:
        """The averaged weights, whole."""
        with self.average.applied():
            return {name: whole(weight.detach()).cpu().clone() for name, weight in self.weights.items()}

    def save(self, folder: Path) -> None:
        """Write a checkpoint with all that is needed to go on as if nothing had happened."""
        self.total = self._mean_over_processes(self.total)
        tensors = {f"weights.{name}": whole(weight.detach()) for name, weight in self.weights.items()}
        tensors |= {f"average.{name}": weight for name, weight in self.averaged().items()}
        tensors |= {f"average.{name}": weight for name, weight in self.result.codec_weights().items()}
        for name, weight in self.weights.items():
            for key, value in self.optimizer.state[weight].items():
                tensors[f"optimizer.{name}/{key}"] = whole(value)
        state = {
            "identity": self.identity,
            "average_steps": self.average.steps,
            "total": self.total,
            "count": self.count,
        }
        if self.accelerator.is_main_process:
            state["identity"] = self.identity
            checkpoints.save(folder / CHECKPOINTS, Checkpoint(self.step, state, tensors), self.config.keep)

    @torch.no_grad()
    def load(self, checkpoint: Checkpoint | None) -> None:
        """Go on from a checkpoint."""
        if checkpoint is None:
            return
        weights, average = checkpoint.part("weights"), checkpoint.part("average")
        shapes = {name: weight.shape for name, weight in self.weights.items()}
        if {name: value.shape for name, value in weights.items()} != shapes:
            raise BadCheckpointError(
                "The checkpoint belongs to another model: its weights have other names or shapes. "
                "Give the options that the run was started with, or another --out."
            )
        check_identity(checkpoint.state.get("identity"), self.identity)
        for name, weight in self.weights.items():
            weight.copy_(split_like(weights[name], weight))
        with self.average.applied():
            for name, weight in self.weights.items():
                weight.copy_(split_like(average[name], weight))
        for key, value in checkpoint.part("optimizer").items():
            name, entry = key.rsplit("/", 1)
            weight = self.weights[name]
            # Adam counts its steps in a plain scalar, also for weights that are split between processes.
            self.optimizer.state[weight][entry] = split_like(value, weight) if value.ndim else value.to(self.device)
        self.average.steps = checkpoint.state["average_steps"]
        self.total, self.count = checkpoint.state["total"], checkpoint.state["count"]
        self.step = checkpoint.step

    def finish(self, folder: Path | None) -> Diffusion:
        """The diffusion with the averaged weights."""
        state: dict[str, Any] = self.averaged()
        self.result.load_state_dict(state, strict=False)
        if folder is not None and self.accelerator.is_main_process:
            self.result.save_pretrained(folder / MODEL)
        return self.result.to(self.device).eval()
