"""A bidirectional transformer with a readout: logits at each position that see the whole sequence."""

from __future__ import annotations

from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.embeddings import TIME_SCALE
from sddm.networks.readouts import readout
from sddm.networks.transformer import BidirectionalTransformer


class Denoiser(nn.Module, Configurable):
    """Logits of `num_classes` for each position, from sequences of `num_tokens` values and the time.

    length: learned vectors for each place; None: rotary, for rows of any length; grid: (rows, columns) of an image.
    film_blocks: residual blocks of the readout that are modulated by the time; 0 for a plain MLP.
    time_scale, input_gain: as for `MLPEnergy`; here the gain is on the initial vectors of tokens and places.
    """

    def __init__(
        self,
        num_tokens: int,
        num_classes: int,
        length: int | None = None,
        grid: tuple[int, int] | list[int] | None = None,
        width: int = 128,
        layers: int = 3,
        heads: int = 4,
        mlp: int = 512,
        dropout: float = 0.0,
        film_blocks: int = 2,
        time_scale: float = TIME_SCALE,
        input_gain: float = 1.0,
    ) -> None:
        super().__init__()
        _checks.whole(film_blocks, "film_blocks", 0)
        self.num_tokens, self.num_classes = num_tokens, num_classes
        self.body = BidirectionalTransformer(
            num_tokens, length, grid, width, layers, heads, mlp, dropout, time_scale, input_gain
        )
        self.length = self.body.length
        self.readout = readout(width, num_classes, width, mlp, film_blocks, time_scale)

    def forward(
        self,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch num classes"]:
        """Logits at `positions`, or at all of them."""
        return self.readout(self.body(x, t, positions, given, padding), t)
