"""A judge of samples: a small convolutional network that tells the labels of clean pictures."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm.codecs import Pixels
from sddm.data import Dataset
from sddm.noising import Batch
from sddm.training import TrainingConfig, learn
from sddm.training.batches import Epochs
from sddm.training.descent import Descent

CHUNK = 500
"""How many pictures it looks at in one go."""


class Recogniser(nn.Module):
    """Two convolutions and two dense layers; the output of the first dense layer is the features of a picture."""

    def __init__(self, codec: Pixels, num_labels: int, filters: int = 32, width: int = 64) -> None:
        super().__init__()
        self.codec = codec
        self.body = nn.Sequential(
            nn.Conv2d(codec.channels, filters, 3, padding=1),
            nn.GELU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(filters, 2 * filters, 3, padding=1),
            nn.GELU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(),
            nn.LazyLinear(width),
            nn.GELU(),
        )
        self.head = nn.Linear(width, num_labels)
        with torch.no_grad():
            self.body(torch.zeros(1, codec.channels, codec.height, codec.width))  # which decides the lazy layer's size

    def features(self, x0: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch features"]:
        """What the last layer gets to see."""
        shape = (-1, self.codec.height, self.codec.width, self.codec.channels)
        levels = x0.reshape(shape).movedim(-1, 1) / (self.codec.levels - 1)
        features: Tensor = self.body(2 * levels - 1)
        return features

    def forward(self, x0: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch labels"]:
        """Logits of the labels."""
        logits: Tensor = self.head(self.features(x0))
        return logits

    @torch.no_grad()
    def judged(self, x0: Int[Tensor, "num dim"]) -> tuple[Int[Tensor, "num"], Float[Tensor, "num features"]]:
        """The likeliest label and the features of each picture."""
        features = torch.cat([self.features(rows) for rows in x0.split(CHUNK)])
        return self.head(features).argmax(1), features


class RecogniserLearner(Descent):
    """A recogniser, trained by cross entropy on clean pictures."""

    def __init__(self, recogniser: Recogniser, config: TrainingConfig) -> None:
        super().__init__(recogniser, config)
        self.recogniser = recogniser

    def draw(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch

    def losses(self, drawn: Batch) -> Float[Tensor, "batch"]:
        assert drawn.labels is not None
        return F.cross_entropy(self.recogniser(drawn.x0), drawn.labels, reduction="none")


def trained_recogniser(data: Dataset, config: TrainingConfig, folder: Path) -> Recogniser:
    """A recogniser of labelled pictures. A training that was stopped, or is finished, is taken from the folder."""
    assert isinstance(data.codec, Pixels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        learner = RecogniserLearner(Recogniser(data.codec, data.num_labels), config)
    made: Recogniser = learn(learner, Epochs(data, config.batch_size, config.seed), config, out=folder, resume=True)
    return made.cpu()
