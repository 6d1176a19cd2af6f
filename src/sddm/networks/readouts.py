"""From features of a position to logits, and the two layers that stand in every readout and in every block."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sddm.networks.embeddings import LabelVectors, sinusoidal, with_label
from sddm.networks.sizes import Sizes
from sddm.shapes import Times


def feedforward(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two layers with a gelu between: the exact one, which CPUs compute faster than its approximation by tanh."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def pooled(
    features: Float[Tensor, "batch dim width"], padding: Bool[Tensor, "batch dim"] | None
) -> Float[Tensor, "batch width"]:
    """The average of the features over the positions that exist."""
    if padding is None:
        return features.mean(1)
    present = (~padding)[..., None]
    return (features * present).sum(1) / present.sum(1).clamp(min=1)


class FiLMReadout(nn.Module):
    """Residual blocks whose output is scaled and shifted by the time (the readout that the paper's authors ran most):

    x <- a(t) * norm(x + MLP(x)) + b(t),        then logits = W x.

    In a network that knows labels, the vector of the row's label is added to the embedding of t.
    """

    def __init__(self, features: int, num_classes: int, sizes: Sizes, blocks: int) -> None:
        super().__init__()
        self.time_width, self.time_scale = sizes.width, sizes.time_scale
        self.time = feedforward(sizes.width, sizes.mlp, 4 * sizes.width)
        self.residual = nn.ModuleList(feedforward(features, sizes.mlp, features) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(blocks))
        self.films = nn.ModuleList(nn.Linear(4 * sizes.width, 2 * features) for _ in range(blocks))
        self.logits = nn.Linear(features, num_classes)

    def forward(
        self, x: Float[Tensor, "batch num features"], t: Times, label: LabelVectors = None
    ) -> Float[Tensor, "batch num classes"]:
        embedded = with_label(sinusoidal(t, self.time_width, self.time_scale), label)
        time = self.time(embedded.to(self.logits.weight.dtype))
        for residual, norm, film in zip(self.residual, self.norms, self.films, strict=True):
            scale, shift = film(time)[:, None].chunk(2, dim=-1)
            x = (1 + scale) * norm(x + residual(x)) + shift
        return self.logits(x)


class MLPReadout(nn.Module):
    """A plain MLP; neither the time nor the label enters again."""

    def __init__(self, features: int, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.mlp = feedforward(features, hidden, num_classes)

    def forward(
        self, x: Float[Tensor, "batch num features"], t: Times, label: LabelVectors = None
    ) -> Float[Tensor, "batch num classes"]:
        return self.mlp(x)


def readout(features: int, num_classes: int, sizes: Sizes, film_blocks: int) -> nn.Module:
    """FiLM residual blocks, or a plain MLP where there are none."""
    if film_blocks:
        return FiLMReadout(features, num_classes, sizes, film_blocks)
    return MLPReadout(features, num_classes, sizes.mlp)
