"""The hollow transformer (Section 5.3 of the paper): logits at d that see all of x but x^d, in one pass.

Two causal transformers run over the sequence, one from each side, each shifted by one place:

    left  input:   [time, x^1, x^2, ..., x^{D-1}]     its feature at d has seen  x^1 .. x^{d-1}
    right input:   [x^2, x^3, ..., x^D, time]         its feature at d has seen  x^{d+1} .. x^D

and a readout joins the two features of each place:

    Concatenated    [left^d, right^d], then residual blocks modulated by the time (what the authors ran most)
    Joint           one attention layer: the query comes from left^d and right^d, keys and values from left^j, j <= d,
                    and right^j, j >= d, and the time (the paper's figure)

No path leads from x^d to the logits at d, so the Jacobian has a hollow diagonal, whatever the weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.embeddings import TIME_SCALE, PlaceEmbedding, Rotary, TokenEmbedding, time_token
from sddm.networks.feedforward import feedforward
from sddm.networks.readouts import readout
from sddm.networks.transformer import Attention, Block, check_sizes


class CausalStream(nn.Module):
    """A causal transformer: the feature at a place sees the inputs up to it."""

    def __init__(self, width: int, layers: int, heads: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, mlp, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        h: Float[Tensor, "batch places width"],
        absent: Bool[Tensor, "batch places"] | None,
        rotary: Rotary | None,
    ) -> Float[Tensor, "batch places width"]:
        """Inputs marked `absent` are seen by nobody but themselves."""
        mask = None
        if absent is not None:
            causal = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).tril()
            itself = torch.eye(h.shape[1], dtype=torch.bool, device=h.device)  # an absent place has to see something
            mask = causal & ~absent[:, None, None] | itself
        h = self.dropout(h)
        for block in self.blocks:
            h = block(h, mask, mask is None, rotary)
        return self.norm(h)


class Concatenated(nn.Module):
    """Join by concatenation and FiLM residual blocks."""

    def __init__(self, num_classes: int, width: int, mlp: int, blocks: int, time_scale: float) -> None:
        super().__init__()
        self.readout = readout(2 * width, num_classes, width, mlp, blocks, time_scale)

    def forward(
        self,
        left: Float[Tensor, "batch dim width"],
        right: Float[Tensor, "batch dim width"],
        t: Float64[Tensor, "batch"],
        time: Float[Tensor, "batch 1 width"],
        absent: tuple[Tensor, Tensor] | None,
        rotary: Rotary | None,
    ) -> Float[Tensor, "batch dim classes"]:
        return self.readout(torch.cat([left, right], dim=-1), t)


class Joint(nn.Module):
    """Join by one transformer layer with joint attention over both streams."""

    def __init__(self, num_classes: int, width: int, heads: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(2 * width, width)
        self.norm_query, self.norm_mlp, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.attention = Attention(width, heads, dropout)
        self.mlp = feedforward(width, mlp, width)
        self.dropout = nn.Dropout(dropout)
        self.logits = nn.Linear(width, num_classes)

    def forward(
        self,
        left: Float[Tensor, "batch dim width"],
        right: Float[Tensor, "batch dim width"],
        t: Float64[Tensor, "batch"],
        time: Float[Tensor, "batch 1 width"],
        absent: tuple[Tensor, Tensor] | None,
        rotary: Rotary | None,
    ) -> Float[Tensor, "batch dim classes"]:
        h = self.query(torch.cat([left, right], dim=-1))
        places = left.shape[1]
        upto = torch.ones(places, places, dtype=torch.bool, device=left.device).tril()
        mask = torch.cat([upto, upto.T, upto[:, :1]], dim=1)[None, None]  # left j <= d, right j >= d, the time always
        if absent is not None:
            mask = mask & ~F.pad(torch.cat(absent, dim=1), (0, 1))[:, None, None]
        turns = None
        if rotary is not None:
            turns = (rotary, rotary.for_both_streams())
        memory = torch.cat([left, right, time], dim=1)
        h = h + self.dropout(self.attention.from_queries(self.norm_query(h), memory, mask, turns))
        h = h + self.dropout(self.mlp(self.norm_mlp(h)))
        return self.logits(self.norm(h))


class HollowTransformer(nn.Module, Configurable):
    """Logits of `num_classes` for each place, from sequences of `num_tokens` values.

    length: learned vectors for each place; None: rotary, for rows of any length; grid: (rows, columns) of an image.
    joint_attention: the paper's attention readout instead of concatenation with `film_blocks` residual blocks.
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
        joint_attention: bool = False,
        film_blocks: int = 2,
        time_scale: float = TIME_SCALE,
        input_gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(width, layers, heads, mlp, dropout)
        _checks.whole(film_blocks, "film_blocks", 0)
        self.num_tokens, self.num_classes = num_tokens, num_classes
        self.head_width = width // heads
        self.time_scale = _checks.positive(time_scale, "time_scale")
        self.embed = TokenEmbedding(num_tokens, width, _checks.positive(input_gain, "input_gain"))
        self.places_left = PlaceEmbedding(length, grid, width, input_gain)
        self.places_right = PlaceEmbedding(length, grid, width, input_gain)
        self.length = self.places_left.length
        self.left = CausalStream(width, layers, heads, mlp, dropout)
        self.right = CausalStream(width, layers, heads, mlp, dropout)
        self.join = (
            Joint(num_classes, width, heads, mlp, dropout)
            if joint_attention
            else Concatenated(num_classes, width, mlp, film_blocks, time_scale)
        )

    def forward(
        self,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch dim classes"]:
        """Logits at d that do not depend on x^d. Padded positions are seen by none."""
        tokens = self.embed(x, given)
        time = time_token(t, tokens, self.time_scale)
        left, right = torch.cat([time, tokens[:, :-1]], dim=1), torch.cat([tokens[:, 1:], time], dim=1)
        absent = None
        if padding is not None:
            left, absent_left = _shorter(left, padding, time)
            right, absent_right = (turned.flip(1) for turned in _shorter(right.flip(1), padding.flip(1), time))
            absent = (absent_left, absent_right)
        rotary = None
        if self.places_left.rotary:
            rotary = Rotary(torch.arange(x.shape[1], device=x.device), self.head_width, tokens.dtype)
        else:
            left, right = left + self.places_left(), right + self.places_right()
        left = self.left(left, None if absent is None else absent[0], rotary)
        # The right stream runs over the reversed sequence, so that it too is causal.
        right = self.right(right.flip(1), None if absent is None else absent[1].flip(1), rotary).flip(1)
        return self.join(left, right, t, time, absent, rotary)


def _shorter(
    inputs: Float[Tensor, "batch dim width"], padding: Bool[Tensor, "batch dim"], time: Float[Tensor, "batch 1 width"]
) -> tuple[Float[Tensor, "batch dim width"], Bool[Tensor, "batch dim"]]:
    """A stream's inputs in rows with padding, and which of them are absent.

    Where the token before does not exist the input is the time, as at the first place of a row without padding. Only
    the one at the first place that exists is there to be seen, so that a padded row is the shorter row.
    """
    nothing_before = F.pad(padding[:, :-1], (1, 0), value=True)
    first = ~padding & ((~padding).cumsum(1) == 1)
    return torch.where(nothing_before[..., None], time, inputs), nothing_before & ~first
