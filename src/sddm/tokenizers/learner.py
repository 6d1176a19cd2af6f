"""Training a VQGAN: reconstruct pictures, keep codes in use, and make reconstructions that an adversary takes for real.

    tokenizer       |x - x^|^2 + w_p d(x, x^) + w_a lambda E[-D(x^)] + |stop(f) - e|^2 + c |f - stop(e)|^2
    discriminator   hinge

The first term is a mean over numbers from -1 to 1, d is the distance by VGG16 (see `perceptual`), and lambda balances
the adversary with the terms before it (see `discriminator`). Both networks are trained by Adam with the paper's
(0, 0.99). The discriminator sees the reconstructions from before the tokenizer's step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from sddm import _checks, _files
from sddm.codecs import Pixels
from sddm.data import Dataset
from sddm.formats.sheet import sheet
from sddm.randomness import seed_of
from sddm.tokenizers.config import TokenizerConfig
from sddm.tokenizers.discriminator import PatchDiscriminator, adaptive_factor, gradients_of, hinge
from sddm.tokenizers.perceptual import Perceptual
from sddm.tokenizers.quantizer import Revival, perplexity, share_used
from sddm.tokenizers.vqgan import VQGAN, Pictures, Planes, to_planes
from sddm.training.batches import Epochs
from sddm.training.descent import share_of
from sddm.training.devices import accelerator, means
from sddm.training.ema import EMA
from sddm.training.learner import Learner
from sddm.training.loop import MODEL, SAMPLES, learn

BETAS = (0.0, 0.99)
MEASURED, SHOWN = 512, 32
"""How many held-out pictures an evaluation reconstructs, and how many of them it shows."""
COLUMNS = 8
"""Pictures in a row of the sheet, above their reconstructions."""


def train_tokenizer(
    data: Dataset,
    config: TokenizerConfig | None = None,
    *,
    perceptual: Perceptual | None = None,
    held_out: Dataset | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    report: Callable[[int, dict[str, float]], None] | None = None,
    fingerprint: str | None = None,
) -> VQGAN:
    """Train a tokenizer of pictures and return it, with averaged weights.

    perceptual: a distance by VGG16; without it that term of the loss is off.
    held_out: pictures that are not trained on, for the error of their reconstructions.
    out, resume, progress, report, fingerprint: see `sddm.training.learn`.

    >>> tokenizer = train_tokenizer(load("photos.npy"), TokenizerConfig(steps=5_000, filters=16))
    """
    config = config or TokenizerConfig()
    learner = TokenizerLearner(fresh(data, config), config, perceptual, held_out)
    epochs = Epochs(data, config.batch_size, config.seed)
    trained: VQGAN = learn(
        learner,
        lambda step: pictures_of(data, epochs(step).x0),
        config,
        out=out,
        resume=resume,
        progress=progress,
        report=report,
        fingerprint=fingerprint,
    )
    return trained


def fresh(data: Dataset, config: TokenizerConfig) -> VQGAN:
    """A tokenizer for these data whose weights follow from the seed; torch's own generator is unchanged."""
    pixels = pixels_of(data)
    sizes = config.sizes(pixels.channels)
    sizes.grid(pixels.height, pixels.width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return VQGAN(sizes)


def pixels_of(data: Dataset) -> Pixels:
    """The codec of pictures; an error if the data are none."""
    _checks.require(
        isinstance(data.codec, Pixels),
        f"{data.name} holds {type(data.codec).__name__.lower()}, but a tokenizer is for pictures. Name pictures.",
    )
    assert isinstance(data.codec, Pixels)
    return data.codec


def pictures_of(data: Dataset, rows: Tensor) -> Pictures:
    """Rows of tokens of the data as pictures."""
    return torch.from_numpy(np.ascontiguousarray(data.codec.decode(rows)))


class Trained(nn.Module):
    """All that a step of training changes."""

    def __init__(self, tokenizer: VQGAN, config: TokenizerConfig) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.discriminator = PatchDiscriminator(tokenizer.sizes.channels, tokenizer.sizes.filters)
        self.revival = Revival(tokenizer.sizes.codes, config.patience)


class TokenizerLearner(Learner):
    """A VQGAN and its discriminator; see `train_tokenizer`.

    Several processes share the pictures of a batch. They agree on the gradients of both networks, on the factor lambda
    of the whole batch, and on the codes that are replaced.
    """

    stream = "tokenizer"
    shares_batches = True

    def __init__(
        self,
        tokenizer: VQGAN,
        config: TokenizerConfig,
        perceptual: Perceptual | None = None,
        held_out: Dataset | None = None,
    ) -> None:
        self.config, self.perceptual, self.accelerator = config, perceptual, accelerator()
        share_of(config.batch_size, self.accelerator.num_processes, 1)
        self.held_out = None if held_out is None else pictures_of(held_out, held_out.tokens[:MEASURED])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(config.seed, "discriminator", 0))
            self._trained = Trained(tokenizer, config).to(self.accelerator.device)
        self.tokenizer, self.discriminator = tokenizer, self._trained.discriminator
        self._optimizers: dict[str, torch.optim.Optimizer] = {
            name: torch.optim.Adam(network.parameters(), config.learning_rate, BETAS, fused=True)
            for name, network in (("tokenizer", tokenizer), ("discriminator", self.discriminator))
        }
        self.average: EMA = EMA(tokenizer.parameters(), config.ema)
        self.advice = f"Train again with a smaller --learning-rate than {config.learning_rate:g}."

    @property
    def module(self) -> nn.Module:
        return self._trained

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return self._optimizers

    def identity(self) -> dict[str, Any]:
        weights = None if self.perceptual is None else _files.digest("", self.perceptual.state_dict())
        return {"model": _files.digest(self.tokenizer.config()), "perceptual": weights}

    def update(self, batch: Pictures, generator: torch.Generator) -> dict[str, float]:
        """One step of the tokenizer and, once it has begun, one of the discriminator."""
        step, planes = self.average.steps, to_planes(batch[self._share(len(batch))])
        for optimizer in self._optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate * self.config.rate_at(step)
        made = self.tokenizer(planes)
        slope, values = self._slope(planes, made.planes, self.config.is_adversarial(step))
        of_codes = made.quantized.codebook_loss + self.config.commitment * made.quantized.commitment_loss
        self._optimizers["tokenizer"].zero_grad()
        torch.autograd.backward([made.planes, of_codes], [slope, torch.ones_like(of_codes)])
        self._step("tokenizer", self.tokenizer)
        tokens, codes = self.accelerator.gather(made.quantized.tokens), self.tokenizer.sizes.codes
        features = self.accelerator.gather(made.features.detach())
        replaced = self._trained.revival(self.tokenizer.quantizer, features, tokens, generator)
        values["discriminator"] = 0.0
        if self.config.is_adversarial(step):
            values["discriminator"] = self._discriminate(planes, made.planes.detach())
        self.average.update()
        self.average.restart(self.tokenizer.quantizer.codebook, replaced)
        of_use = {"perplexity": perplexity(tokens, codes), "codes_replaced": float(len(replaced))}
        return {"loss": values.pop("loss"), "code_loss": float(of_codes.detach()), **values, **of_use}

    def _share(self, pictures: int) -> slice:
        """The pictures of a batch that this process looks at."""
        size = share_of(pictures, self.accelerator.num_processes, 1)
        first = self.accelerator.process_index * size
        return slice(first, first + size)

    def _step(self, name: str, network: nn.Module) -> None:
        """A step of an optimizer along the gradient of the whole batch."""
        weights = [weight for weight in network.parameters() if weight.grad is not None]
        gradients = means(self.accelerator, [weight.grad for weight in weights if weight.grad is not None])
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        self._optimizers[name].step()

    def _slope(self, planes: Planes, made: Planes, adversarial: bool) -> tuple[Planes, dict[str, float]]:
        """The gradient of the losses of a reconstruction with respect to it, and their values."""
        leaf = made.detach().requires_grad_()
        loss = F.mse_loss(leaf, planes)
        values = {"loss": float(loss.detach())}
        if self.perceptual is not None:
            distance = self.perceptual.to(leaf.device)(planes, leaf)
            loss = loss + self.config.perceptual_weight * distance
            values["perceptual"] = float(distance.detach())
        (slope,) = torch.autograd.grad(loss, leaf)
        values |= {"adversarial": 0.0, "adversarial_factor": 0.0}
        if adversarial:
            fooled = -self.discriminator(leaf).mean()
            (other,) = torch.autograd.grad(fooled, leaf)
            last_layer = self.tokenizer.last_layer
            factor = adaptive_factor(*means(self.accelerator, gradients_of(made, last_layer, [slope, other])))
            slope = slope + self.config.adversarial_weight * factor * other
            values |= {"adversarial": float(fooled.detach()), "adversarial_factor": float(factor)}
        return slope, values

    def _discriminate(self, planes: Planes, made: Planes) -> float:
        loss = hinge(self.discriminator(planes), self.discriminator(made))
        self._optimizers["discriminator"].zero_grad()
        loss.backward()
        self._step("discriminator", self.discriminator)
        return float(loss.detach())

    def evaluate(self) -> dict[str, float]:
        """How near reconstructions of held-out pictures come (values from 0 to 1), and how many codes they use."""
        if self.held_out is None:
            return {}
        tokens = self.tokenizer.encode(self.held_out)
        error = squared_error(self.held_out, self.tokenizer.decode(tokens))
        codes = self.tokenizer.sizes.codes
        return {
            "squared_error": error,
            "psnr": -10 * math.log10(max(error, torch.finfo(torch.float64).tiny)),
            "codes_used": share_used(tokens, codes),
            "perplexity_held_out": perplexity(tokens, codes),
        }

    def show(self, folder: Path, step: int) -> None:
        """Write a sheet of held-out pictures, each above its reconstruction."""
        if self.held_out is None or not self.accelerator.is_main_process:
            return
        pictures = self.held_out[:SHOWN]
        pictures = pictures[: max(COLUMNS, len(pictures) // COLUMNS * COLUMNS)]  # whole rows, if there are enough
        both = torch.stack([pictures, self.tokenizer.decode(self.tokenizer.encode(pictures))])
        columns = min(COLUMNS, len(pictures))
        lines = rearrange(both, "two (lines columns) h w c -> (lines two columns) h w c", columns=columns)
        (folder / SAMPLES).mkdir(exist_ok=True)
        with _files.replacing(folder / SAMPLES / f"step-{step:09d}.png") as aside:
            sheet(lines.numpy(), aside, columns)

    def finish(self, folder: Path | None) -> VQGAN:
        """The tokenizer with the averaged weights."""
        with self.averaged():
            result = copy.deepcopy(self.tokenizer).eval()
        if folder is not None and self.accelerator.is_main_process:
            result.save_pretrained(folder / MODEL)
        return result


def squared_error(
    pictures: UInt8[Tensor, "num height width channels"], others: UInt8[Tensor, "num height width channels"]
) -> float:
    """The mean square of the difference of values from 0 to 1."""
    difference: Float[Tensor, "num height width channels"] = (pictures.double() - others.double()) / 255
    return float(difference.square().mean())
