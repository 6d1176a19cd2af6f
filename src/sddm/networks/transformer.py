"""A pre-norm transformer: the block that all of our sequence models are made of, and the bidirectional stack."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.networks.embeddings import TIME_SCALE, PlaceEmbedding, Rotary, TokenEmbedding, time_token
from sddm.networks.feedforward import feedforward

MUSIC = {"width": 256, "layers": 6, "heads": 8, "mlp": 2048}
"""The size of the paper's music model."""

BERT_BASE = {"width": 768, "layers": 12, "heads": 12, "mlp": 3072}
"""The size of the paper's image model."""


def check_sizes(width: int, layers: int, heads: int, mlp: int, dropout: float) -> None:
    for value, name in ((width, "width"), (layers, "layers"), (heads, "heads"), (mlp, "mlp")):
        _checks.whole(value, name, 1)
    _checks.require(
        width % (2 * heads) == 0, f"width must be a multiple of twice heads, but {width} is not of {heads}."
    )
    _checks.require(0 <= dropout < 1, f"dropout must lie in [0, 1), but it is {dropout}.")


class Attention(nn.Module):
    """Multi-head attention of queries over a sequence, by torch's fused kernel."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "batch places width"],
        mask: Bool[Tensor, "#batch #heads #queries places"] | None = None,
        causal: bool = False,
        rotary: Rotary | None = None,
    ) -> Float[Tensor, "batch places width"]:
        q, k, v = rearrange(self.query_key_value(x), "b n (three h w) -> three b h n w", three=3, h=self.heads)
        if rotary is not None:
            q, k = rotary(q), rotary(k)
        return self._attend(q, k, v, mask, causal)

    def from_queries(
        self,
        queries: Float[Tensor, "batch queries width"],
        x: Float[Tensor, "batch places width"],
        mask: Bool[Tensor, "#batch #heads #queries places"] | None = None,
        rotary: tuple[Rotary, Rotary] | None = None,
    ) -> Float[Tensor, "batch queries width"]:
        """Attention of other queries over the sequence x; `rotary` is for queries and for keys."""
        width = x.shape[-1]
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        q = rearrange(F.linear(queries, weight[:width], bias[:width]), "b n (h w) -> b h n w", h=self.heads)
        k, v = rearrange(F.linear(x, weight[width:], bias[width:]), "b n (two h w) -> two b h n w", two=2, h=self.heads)
        if rotary is not None:
            q, k = rotary[0](q), rotary[1](k)
        return self._attend(q, k, v, mask, False)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        return self.out(rearrange(mixed, "b h n w -> b n (h w)"))


class Block(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, width: int, heads: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = feedforward(width, mlp, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch places width"],
        mask: Bool[Tensor, "#batch #heads #queries places"] | None = None,
        causal: bool = False,
        rotary: Rotary | None = None,
    ) -> Float[Tensor, "batch places width"]:
        x = x + self.dropout(self.attention(self.norm_attention(x), mask, causal, rotary))
        return x + self.dropout(self.mlp(self.norm_mlp(x)))

    def at(
        self,
        rows: Int[Tensor, "batch num"],
        x: Float[Tensor, "batch places width"],
        mask: Bool[Tensor, "batch 1 1 places"] | None = None,
        rotary: Rotary | None = None,
    ) -> Float[Tensor, "batch num width"]:
        """The block's output at some rows only: keys and values of all, the rest of the work for these."""
        here = x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1]))
        if rotary is not None:  # rows may differ from sequence to sequence, so rotate all and pick
            full = self.attention(self.norm_attention(x), mask, False, rotary)
            mixed = full.gather(1, rows[..., None].expand(-1, -1, x.shape[-1]))
        else:
            mixed = self.attention.from_queries(self.norm_attention(here), self.norm_attention(x), mask)
        here = here + self.dropout(mixed)
        return here + self.dropout(self.mlp(self.norm_mlp(here)))


class BidirectionalTransformer(nn.Module):
    """Features of each position of x that see all of x and the time, which is one more token at the front."""

    def __init__(
        self,
        num_tokens: int,
        length: int | None,
        grid: tuple[int, int] | list[int] | None = None,
        width: int = 128,
        layers: int = 3,
        heads: int = 4,
        mlp: int = 512,
        dropout: float = 0.0,
        time_scale: float = TIME_SCALE,
        input_gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(width, layers, heads, mlp, dropout)
        self.width, self.head_width = width, width // heads
        self.time_scale = _checks.positive(time_scale, "time_scale")
        self.embed = TokenEmbedding(num_tokens, width, _checks.positive(input_gain, "input_gain"))
        self.places = PlaceEmbedding(length, grid, width, input_gain)
        self.length = self.places.length
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, mlp, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch num width"]:
        """Features at `positions`, or at all. Padded positions are not attended to."""
        embedded = self.embed(x, given)
        if not self.places.rotary:
            embedded = embedded + self.places()
        h = self.dropout(torch.cat([time_token(t, embedded, self.time_scale), embedded], dim=1))
        rotary = None
        if self.places.rotary:
            rotary = Rotary(torch.arange(h.shape[1], device=x.device), self.head_width, h.dtype)
        mask = None if padding is None else F.pad(~padding, (1, 0), value=True)[:, None, None]
        for block in self.blocks[:-1]:
            h = block(h, mask, False, rotary)
        if positions is None:
            h = self.blocks[-1](h, mask, False, rotary)[:, 1:]
        else:
            last = self.blocks[-1]
            assert isinstance(last, Block)
            h = last.at(positions + 1, h, mask, rotary)
        return self.norm(h)
