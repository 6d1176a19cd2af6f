"""Training a diffusion: its loss on noised rows, its likelihood bound on held-out rows, early samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sddm import _files
from sddm.diffusion import Diffusion
from sddm.likelihood import bound
from sddm.losses import Loss, conditional_ratio_matching, denoising_cross_entropy
from sddm.noising import Batch, NoisedBatch, noise_batch
from sddm.samplers import sample
from sddm.token_array import TokenArray
from sddm.training.batches import Batches, Epochs, generator_of
from sddm.training.config import TrainingConfig
from sddm.training.descent import Descent
from sddm.training.identity import digest_of
from sddm.training.loop import MODEL, SAMPLES, learn
from sddm.training.state import averaged_weights

HELD_OUT_ROWS, BOUND_ROWS, BOUND_TIMES = 512, 32, 16
"""How much of the held-out data an evaluation during training looks at; `sddm evaluate` looks at more."""


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
    report: called with the step and the loss (nats a row) after every step.
    out, resume, progress, fingerprint: see `sddm.training.learn`.
    """
    config = config or TrainingConfig()
    if isinstance(data, (Tensor, TokenArray)):
        data = Epochs(data, config.pool or config.batch_size, config.seed)
    trained: Diffusion = learn(
        DiffusionLearner(diffusion, config, loss, held_out),
        data,
        config,
        out=out,
        resume=resume,
        progress=progress,
        report=None if report is None else lambda step, values: report(step, values["loss"]),
        fingerprint=fingerprint,
    )
    return trained


class DiffusionLearner(Descent):
    """A diffusion, trained by a loss of `sddm.losses`; see `train`."""

    def __init__(
        self,
        diffusion: Diffusion,
        config: TrainingConfig,
        loss: Loss | None = None,
        held_out: Int[Tensor, "apart dim"] | TokenArray | None = None,
    ) -> None:
        self.loss = loss or (denoising_cross_entropy if diffusion.model.sees_own_token else conditional_ratio_matching)
        self.held_out = held_out
        self._result = copy.deepcopy(diffusion)
        super().__init__(diffusion, config)
        self.diffusion = diffusion
        if config.compile:
            diffusion.model.compile()

    def identity(self) -> dict[str, Any]:
        return {"loss": getattr(self.loss, "__name__", type(self.loss).__name__), "model": digest_of(self._result)}

    def draw(self, batch: Int[Tensor, "batch dim"], generator: torch.Generator) -> NoisedBatch:
        config = self.config
        x0, pool = (batch, None) if config.pool is None else (batch[: config.batch_size], batch)
        return noise_batch(
            self.diffusion, Batch(x0), pool=pool, num_positions=config.num_positions, generator=generator
        )

    def losses(self, drawn: NoisedBatch) -> Float[Tensor, "batch"]:
        power = self.config.noise_weight
        weight = None if power == 0 else lambda t: self.diffusion.process.remaining(t) ** -power
        return self.loss.at(self.diffusion, drawn, weight).sum(-1)

    def evaluate(self) -> dict[str, float]:
        """Loss and likelihood bound on held-out rows."""
        return {} if self.held_out is None else self.inside(partial(self._scores, self.held_out[:HELD_OUT_ROWS]))

    def _scores(self, rows: Int[Tensor, "rows dim"]) -> dict[str, float]:
        rows, generator = rows.to(self.device), generator_of(self.config.seed, "held out", 0)
        drawn = noise_batch(self.diffusion, Batch(rows), num_positions=self.config.num_positions, generator=generator)
        size = max(1, self.config.batch_size // self.accelerator.num_processes)
        values = [self.losses(drawn.rows(slice(i, i + size))) for i in range(0, len(rows), size)]
        bits, error = bound(
            self.diffusion, rows[:BOUND_ROWS], BOUND_TIMES, generator=generator, batch_size=size
        ).bits_per_dim
        return {"held_out_loss": float(torch.cat(values).mean()), "bits_per_dim": bits, "bits_standard_error": error}

    def fixed_weights(self) -> dict[str, Tensor]:
        return self._result.codec_weights()

    def show(self, folder: Path, step: int) -> None:
        """Write a few samples, as the codec of the diffusion shows them."""
        codec = self.diffusion.codec
        if codec is None:
            return
        generator = generator_of(self.config.seed, "early samples", 0)
        tokens = self.inside(
            lambda: sample(self.diffusion, codec.preview, steps=50, generator=generator, progress=False)
        )
        if self.accelerator.is_main_process:
            (folder / SAMPLES).mkdir(exist_ok=True)
            with _files.replacing(folder / SAMPLES / f"step-{step:09d}{codec.preview_ending}") as aside:
                codec.write(tokens.cpu(), aside)

    def finish(self, folder: Path | None) -> Diffusion:
        """The diffusion with the averaged weights."""
        self._result.load_state_dict(averaged_weights(self), strict=False)
        if folder is not None and self.accelerator.is_main_process:
            self._result.save_pretrained(folder / MODEL)
        return self._result.to(self.device).eval()
