"""Training: the loop that turns a diffusion and a stream of batches into a trained diffusion."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from tqdm import tqdm

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.losses import Loss, conditional_ratio_matching, denoising_cross_entropy
from sddm.training.ema import EMA

Batches = Iterator[Int[Tensor, "batch dim"]]


@dataclass(frozen=True)
class TrainingConfig:
    """How to train."""

    steps: int = 10_000
    """Number of optimizer steps."""
    learning_rate: float = 2e-3
    """Peak learning rate of AdamW, reached after the warm-up and followed by a cosine down to 0."""
    warmup: float = 0.02
    """Share of the steps over which the learning rate rises from 0."""
    weight_decay: float = 1e-6
    """Weight decay of AdamW."""
    clip: float = 5.0
    """The gradient is scaled down to this norm where it is larger."""
    ema: float = 0.999
    """Decay of the moving average of the weights, which is what training returns."""
    num_positions: int | None = None
    """How many positions of each row the loss evaluates; all of them if not given."""

    def __post_init__(self) -> None:
        _checks.whole(self.steps, "steps", 1)
        _checks.positive(self.learning_rate, "learning_rate")
        _checks.positive(self.clip, "clip")
        _checks.require(0 <= self.warmup < 1, f"warmup must lie in [0, 1), but it is {self.warmup}.")
        _checks.require(0 <= self.ema < 1, f"ema must lie in [0, 1), but it is {self.ema}.")

    def rate_at(self, step: int) -> float:
        """The learning rate of this step, as a share of the peak."""
        warm = max(1, round(self.warmup * self.steps))
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, self.steps - warm)))


def train(
    diffusion: Diffusion,
    batches: Batches,
    config: TrainingConfig | None = None,
    *,
    loss: Loss | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
    report: Callable[[int, float], None] | None = None,
) -> Diffusion:
    """Train on the batches and return the diffusion with averaged weights; `diffusion` itself holds the last ones.

    loss: conditional_ratio_matching, or denoising_cross_entropy for a model that looks at the token it predicts.
    report: called with the step and the loss (nats a row) after every step.
    """
    config = config or TrainingConfig()
    loss = loss or (denoising_cross_entropy if diffusion.model.sees_own_token else conditional_ratio_matching)
    optimizer = torch.optim.AdamW(
        diffusion.parameters(), config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, config.rate_at)
    average = EMA(diffusion, config.ema)
    diffusion.train()
    steps = tqdm(
        range(config.steps),
        desc="training",
        unit="step",
        disable=not (sys.stderr.isatty() if progress is None else progress),
    )
    smooth = float("nan")
    for step in steps:
        batch = next(batches, None)
        if batch is None:
            raise ValueError(
                f"batches ended after {step} of {config.steps} steps. Give an endless stream, or fewer steps."
            )
        value = loss(diffusion, batch, num_positions=config.num_positions, generator=generator).sum(-1).mean()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(diffusion.parameters(), config.clip)
        optimizer.step()
        schedule.step()
        average.update()
        if report is not None:
            report(step, float(value.detach()))
        if step % 20 == 0:
            now = float(value.detach())
            smooth = now if math.isnan(smooth) else 0.9 * smooth + 0.1 * now
            steps.set_postfix(loss=f"{smooth:.3f}", refresh=False)
    return average.shadow.eval()
