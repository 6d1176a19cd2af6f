"""The adversary of a tokenizer: a network that tells patches of pictures from patches of reconstructions.

    discriminator   E[max(0, 1 - D(x))] / 2 + E[max(0, 1 + D(x^))] / 2      (hinge)
    decoder         L + w lambda E[-D(x^)],     lambda = |grad_W L| / (|grad_W E[-D(x^)]| + 1e-4), at most 10^4

L is the loss of the reconstruction x^ and W the last layer of the decoder: lambda gives both the same say there, and w
is the weight that is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

SLOPE = 0.2
"""Of the leaky rectifier below 0."""
LARGEST_FACTOR, SMALLEST_NORM = 1e4, 1e-4


class PatchDiscriminator(nn.Module):
    """Convolutions that halve height and width twice; one number for each place, which sees 18 x 18 pixels."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, filters, 4, stride=2, padding=1),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(filters, 2 * filters, 4, stride=2, padding=1, bias=False),
            nn.GroupNorm(1, 2 * filters),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(2 * filters, 4 * filters, 3, padding=1, bias=False),
            nn.GroupNorm(1, 4 * filters),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(4 * filters, 1, 1),
        )

    def forward(self, planes: Float[Tensor, "num channels height width"]) -> Float[Tensor, "num 1 rows columns"]:
        """Above 0 for pictures, below 0 for reconstructions."""
        return self.layers(planes)


def hinge(real: Float[Tensor, "..."], made: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """The loss of a discriminator that gave these numbers to pictures and to reconstructions."""
    return (F.relu(1 - real).mean() + F.relu(1 + made).mean()) / 2


def gradients_of(
    planes: Float[Tensor, "num channels height width"],
    last_layer: Float[Tensor, "..."],
    slopes: Sequence[Float[Tensor, "num channels height width"]],
) -> list[Float[Tensor, "..."]]:
    """The gradients with respect to `last_layer`, which made the reconstructions, of losses with these slopes there."""
    return [torch.autograd.grad(planes, last_layer, slope, retain_graph=True)[0] for slope in slopes]


def adaptive_factor(of_loss: Float[Tensor, "..."], of_adversary: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """lambda, from the gradients of both losses with respect to the last layer."""
    return (of_loss.norm() / (of_adversary.norm() + SMALLEST_NORM)).clamp(max=LARGEST_FACTOR)
