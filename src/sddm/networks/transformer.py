"""A pre-norm transformer: the block that all of our sequence models are made of, the bidirectional stack, and with a
readout the denoiser, whose logits at each position see the whole sequence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.embeddings import LabelEmbedding, PlaceEmbedding, Rotary, TokenEmbedding, time_token
from sddm.networks.readouts import feedforward, readout
from sddm.networks.sizes import Places, Sizes
from sddm.query import Query, at_positions
from sddm.shapes import Asked

Sequences = Float[Tensor, "batch places width"]
Queries = Float[Tensor, "batch queries width"]
Visible = Bool[Tensor, "#batch #heads #queries places"]
"""Which places each query may look at."""


class Past:
    """The keys and values of the places that a causal stream has passed, for each block, so that the next places cost
    no more than their own work."""

    def __init__(self) -> None:
        self.places = 0
        """How many places are passed. A smaller number than before forgets the last ones."""
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}

    def extended(self, block: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a block at all places so far, these included."""
        upto = self.places + keys.shape[2]
        if block not in self._seen or self._seen[block][0].shape[2] < upto:
            self._seen[block] = self._with_room(block, keys, upto), self._with_room(block, values, upto, 1)
        for seen, new in zip(self._seen[block], (keys, values), strict=True):
            seen[:, :, self.places : upto] = new
        return self._seen[block][0][:, :, :upto], self._seen[block][1][:, :, :upto]

    def _with_room(self, block: int, like: Tensor, upto: int, part: int = 0) -> Tensor:
        """What was kept, with room for twice as many places, so that it is seldom copied."""
        batch, heads, _, width = like.shape
        room = like.new_empty(batch, heads, 2 * upto, width)
        if self.places:
            room[:, :, : self.places] = self._seen[block][part][:, :, : self.places]
        return room

    def visible(self, new: int, device: torch.device) -> Visible | None:
        """Which places each of the next ones may look at; None for a single one, which sees all."""
        if new == 1:
            return None
        causal = torch.ones(new, self.places + new, dtype=torch.bool, device=device).tril(self.places)
        return causal[None, None]


class Attention(nn.Module):
    """Multi-head attention of queries over a sequence, by torch's fused kernel."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.query_key_value = nn.Linear(sizes.width, 3 * sizes.width)
        self.out = nn.Linear(sizes.width, sizes.width)

    def forward(
        self, x: Sequences, mask: Visible | None = None, causal: bool = False, rotary: Rotary | None = None
    ) -> Sequences:
        q, k, v = self._projected(x)
        if rotary is not None:
            q, k = rotary(q), rotary(k)
        return self._attend(q, k, v, mask, causal)

    def next(self, x: Sequences, past: Past, block: int, rotary: Rotary | None = None) -> Sequences:
        """Attention of the next places, each over itself, those before it and all places of the past."""
        q, k, v = self._projected(x)
        if rotary is not None:
            q, k = rotary(q), rotary(k)
        return self._attend(q, *past.extended(block, k, v), past.visible(x.shape[1], x.device), False)

    def _projected(self, x: Sequences) -> Float[Tensor, "three batch heads places head_width"]:
        return rearrange(self.query_key_value(x), "b n (three h w) -> three b h n w", three=3, h=self.heads)

    def from_queries(
        self, queries: Queries, x: Sequences, mask: Visible | None, rotary: tuple[Rotary, Rotary] | None = None
    ) -> Queries:
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

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.attention = Attention(sizes)
        self.mlp = feedforward(sizes.width, sizes.mlp, sizes.width)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(
        self,
        x: Sequences,
        mask: Visible | None = None,
        causal: bool = False,
        rotary: Rotary | None = None,
        past: tuple[Past, int] | None = None,
        rows: Asked | None = None,
    ) -> Queries:
        """The output at all places.

        past: what was kept of the places before these, and the number of this block; these places see all of those.
        rows: the output at these places only. Keys and values are computed for all places, the rest for these.
        """
        normed = self.norm_attention(x)
        if past is not None:
            mixed = self.attention.next(normed, *past, rotary)
        elif rows is not None and rotary is None:
            mixed = self.attention.from_queries(at_positions(normed, rows), normed, mask)
        else:  # rows may differ from sequence to sequence, so rotate all and pick
            mixed = at_positions(self.attention(normed, mask, causal, rotary), rows)
        x = at_positions(x, rows) + self.dropout(mixed)
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


class BidirectionalTransformer(nn.Module):
    """Features of each position of x that see all of x, and the time and the label, which are one more token at the
    front."""

    def __init__(self, num_tokens: int, places: Places, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed = TokenEmbedding(num_tokens, sizes.width, sizes.input_gain)
        self.places = PlaceEmbedding(places.tables, sizes.width, sizes.input_gain)
        self.labels = LabelEmbedding(sizes.num_labels, sizes.width)
        self.dropout = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, query: Query) -> Float[Tensor, "batch num width"]:
        """Features at the positions asked for. Padded positions are not attended to."""
        embedded = self.embed(query.xt, query.given)
        if not self.places.rotary:
            embedded = embedded + self.places(embedded.shape[1])
        time = time_token(query.t, embedded, self.sizes.time_scale, self.labels(query))
        h = self.dropout(torch.cat([time, embedded], dim=1))
        rotary = None
        if self.places.rotary:
            rotary = Rotary(torch.arange(h.shape[1], device=h.device), self.sizes.head_width, h.dtype)
        mask = None if query.padding is None else F.pad(~query.padding, (1, 0), value=True)[:, None, None]
        for block in self.blocks[:-1]:
            h = block(h, mask, False, rotary)
        if query.positions is None:
            h = self.blocks[-1](h, mask, False, rotary)[:, 1:]
        else:
            h = self.blocks[-1](h, mask, False, rotary, rows=query.positions + 1)
        return self.norm(h)


class Denoiser(nn.Module, Configurable):
    """Logits of `num_classes` for each position, from sequences of `num_tokens` values and the time.

    film_blocks: residual blocks of the readout that are modulated by the time; 0 for a plain MLP.
    """

    def __init__(
        self, num_tokens: int, num_classes: int, places: Places = Places(), sizes: Sizes = Sizes(), film_blocks: int = 2
    ) -> None:
        super().__init__()
        self.num_tokens, self.num_classes, self.length = num_tokens, num_classes, places.length
        self.places, self.sizes, self.film_blocks = places, sizes, film_blocks
        self.body = BidirectionalTransformer(num_tokens, places, sizes)
        _checks.whole(film_blocks, "film_blocks", 0)
        self.readout = readout(sizes.width, num_classes, sizes, film_blocks)

    def forward(self, query: Query) -> Float[Tensor, "batch num classes"]:
        """Logits at the positions asked for."""
        return self.readout(self.body(query), query.t, self.body.labels(query))
