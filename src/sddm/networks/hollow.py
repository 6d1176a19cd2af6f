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

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.embeddings import LabelEmbedding, LabelVectors, PlaceEmbedding, Rotary, TokenEmbedding, time_token
from sddm.networks.memory import Kept
from sddm.networks.readouts import feedforward, readout
from sddm.networks.sizes import Places, Sizes
from sddm.networks.transformer import Attention, Block, Past
from sddm.query import Query, at_positions


class CausalStream(nn.Module):
    """A causal transformer: the feature at a place sees the inputs up to it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.dropout = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(
        self, h: Float[Tensor, "batch places width"], absent: Bool[Tensor, "batch places"] | None, rotary: Rotary | None
    ) -> Float[Tensor, "batch places width"]:
        """Inputs marked `absent` are seen only by themselves."""
        mask = None
        if absent is not None:
            causal = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).tril()
            itself = torch.eye(h.shape[1], dtype=torch.bool, device=h.device)  # an absent place has to see something
            mask = causal & ~absent[:, None, None] | itself
        h = self.dropout(h)
        for block in self.blocks:
            h = block(h, mask, mask is None, rotary)
        return self.norm(h)

    def next(
        self, h: Float[Tensor, "batch places width"], past: Past, rotary: Rotary | None = None
    ) -> Float[Tensor, "batch places width"]:
        """The features at the next places, after those of the past."""
        for number, block in enumerate(self.blocks):
            h = block(h, rotary=rotary, past=(past, number))
        past.places += h.shape[1]
        return self.norm(h)


class Streams(NamedTuple):
    """What a readout joins: the features of both streams, the time as a number and as a token (with the label), and
    the label."""

    left: Float[Tensor, "batch dim width"]
    right: Float[Tensor, "batch dim width"]
    t: Float[Tensor, "batch"]
    time: Float[Tensor, "batch 1 width"]
    label: LabelVectors = None
    absent: tuple[Tensor, Tensor] | None = None
    """Which inputs of either stream do not exist."""
    rotary: Rotary | None = None


class Concatenated(nn.Module):
    """Join by concatenation and FiLM residual blocks."""

    def __init__(self, num_classes: int, sizes: Sizes, blocks: int) -> None:
        super().__init__()
        self.readout = readout(2 * sizes.width, num_classes, sizes, blocks)

    def forward(self, streams: Streams) -> Float[Tensor, "batch dim classes"]:
        return self.readout(torch.cat([streams.left, streams.right], dim=-1), streams.t, streams.label)


class Joint(nn.Module):
    """Join by one transformer layer with joint attention over both streams."""

    def __init__(self, num_classes: int, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.query = nn.Linear(2 * width, width)
        self.norm_query, self.norm_mlp, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.attention = Attention(sizes)
        self.mlp = feedforward(width, sizes.mlp, width)
        self.dropout = nn.Dropout(sizes.dropout)
        self.logits = nn.Linear(width, num_classes)

    def forward(self, streams: Streams) -> Float[Tensor, "batch dim classes"]:
        left, right, rotary = streams.left, streams.right, streams.rotary
        h = self.query(torch.cat([left, right], dim=-1))
        places = left.shape[1]
        upto = torch.ones(places, places, dtype=torch.bool, device=left.device).tril()
        mask = torch.cat([upto, upto.T, upto[:, :1]], dim=1)[None, None]  # left j <= d, right j >= d, the time always
        if streams.absent is not None:
            mask = mask & ~F.pad(torch.cat(streams.absent, dim=1), (0, 1))[:, None, None]
        turns = None if rotary is None else (rotary, rotary.for_both_streams())
        memory = torch.cat([left, right, streams.time], dim=1)
        h = h + self.dropout(self.attention.from_queries(self.norm_query(h), memory, mask, turns))
        h = h + self.dropout(self.mlp(self.norm_mlp(h)))
        return self.logits(self.norm(h))


class HollowTransformer(nn.Module, Configurable):
    """Logits of `num_classes` for each place, from sequences of `num_tokens` values.

    joint_attention: the paper's attention readout instead of concatenation with `film_blocks` residual blocks.
    """

    def __init__(
        self,
        num_tokens: int,
        num_classes: int,
        places: Places = Places(),
        sizes: Sizes = Sizes(),
        joint_attention: bool = False,
        film_blocks: int = 2,
    ) -> None:
        super().__init__()
        _checks.whole(film_blocks, "film_blocks", 0)
        self.num_tokens, self.num_classes, self.length = num_tokens, num_classes, places.length
        self.places, self.sizes, self.joint_attention, self.film_blocks = places, sizes, joint_attention, film_blocks
        self.embed = TokenEmbedding(num_tokens, sizes.width, sizes.input_gain)
        self.places_left = PlaceEmbedding(places.tables, sizes.width, sizes.input_gain)
        self.places_right = PlaceEmbedding(places.tables, sizes.width, sizes.input_gain)
        self.labels = LabelEmbedding(sizes.num_labels, sizes.width)
        self.left, self.right = CausalStream(sizes), CausalStream(sizes)
        self.join = Joint(num_classes, sizes) if joint_attention else Concatenated(num_classes, sizes, film_blocks)

    def forward(self, query: Query) -> Float[Tensor, "batch num classes"]:
        """Logits at d that do not depend on x^d. No position sees a padded one.

        With `query.ahead` the right stream runs over that row instead of x, once for all rows that share it.
        """
        rotary = None
        if self.places_left.rotary:
            index = torch.arange(query.xt.shape[1], device=query.xt.device)
            rotary = Rotary(index, self.sizes.head_width, self.embed.tokens.weight.dtype)
        if query.ahead is not None and query.memory is not None and query.ends_alone and not self.joint_attention:
            left, right = self._remembered(query, rotary)
            return self.join(Streams(left, right, query.t, self._time(query, left), self.labels(query)))
        later, rows = (query, None) if query.ahead is None else _each_once(query.holding(query.ahead))
        before = query
        if query.ahead is not None and query.positions is not None and not self.joint_attention:
            before = query.upto(int(query.positions.max()) + 1)  # the rest of the left stream is not asked for
        tokens = self.embed(before.xt, before.given)
        left, absent_left, time = self._features(before, tokens, rotary)
        tokens = tokens if later is before else self.embed(later.xt, later.given)
        right, absent_right, _ = self._features(later, tokens, rotary, backwards=True)
        if rows is not None:
            right, absent_right = right[rows], None if absent_right is None else absent_right[rows]
        absent = None if absent_left is None or absent_right is None else (absent_left, absent_right)
        if self.joint_attention:
            whole = Streams(left, right, query.t, time, self.labels(query), absent, rotary)
            return at_positions(self.join(whole), query.positions)
        left, right = at_positions(left, query.positions), at_positions(right, query.positions)
        return self.join(Streams(left, right, query.t, time, self.labels(query)))  # which takes each place by itself

    def _time(self, query: Query, like: Float[Tensor, "batch dim width"]) -> Float[Tensor, "batch 1 width"]:
        return time_token(query.t, like, self.sizes.time_scale, self.labels(query))

    def _remembered(
        self, query: Query, rotary: Rotary | None
    ) -> tuple[Float[Tensor, "batch num width"], Float[Tensor, "batch num width"]]:
        """The features of both streams at the positions asked for. What an earlier question computed is not computed
        again: all of the right stream, and of the left one the places before which no token has changed."""
        assert query.ahead is not None
        assert query.memory is not None
        kept = query.memory.get(self)
        if not isinstance(kept, Kept) or not kept.is_about(query):
            later, rows = _each_once(query.holding(query.ahead))
            embedded = self.embed(later.xt, later.given)
            kept = query.memory[self] = Kept(query, self._features(later, embedded, rotary, backwards=True)[0], rows)
        known, upto = kept.forget_changed(query.xt), int(query.places.max()) + 1
        if known < upto:
            before = slice(max(0, known - 1), upto - 1)  # the tokens that the next places see first
            inputs = self.embed(query.xt[:, before], None if query.given is None else query.given[:, before])
            if known == 0:
                inputs = torch.cat([self._time(query, inputs), inputs], dim=1)
            places = slice(known, upto)
            if rotary is None:
                inputs = inputs + self.places_left()[places]
            kept.add(query.xt, self.left.next(inputs, kept.past, None if rotary is None else rotary.of(places)))
        return at_positions(kept.left, query.positions), kept.right[kept.rows[:, None], query.places]

    def _features(
        self,
        query: Query,
        tokens: Float[Tensor, "batch dim width"],
        rotary: Rotary | None,
        backwards: bool = False,
    ) -> tuple[Float[Tensor, "batch dim width"], Bool[Tensor, "batch dim"] | None, Float[Tensor, "batch 1 width"]]:
        """The features of one stream at each place, which of its inputs are absent, and the time token.

        The right stream runs over the reversed sequence, so that it too is causal.
        """
        stream, places = (self.right, self.places_right) if backwards else (self.left, self.places_left)
        time = self._time(query, tokens)
        inputs, absent = torch.cat([time, _turned(tokens, backwards)[:, :-1]], dim=1), None
        if query.padding is not None:
            inputs, absent = _shorter(inputs, _turned(query.padding, backwards), time)
        if rotary is None:
            inputs = inputs + _turned(places(inputs.shape[1])[None], backwards)
        features = _turned(stream(inputs, absent, rotary), backwards)
        return features, None if absent is None else _turned(absent, backwards), time


def _turned(values: Tensor, backwards: bool) -> Tensor:
    """The sequence in the order in which a stream runs over it, or back from there."""
    return values.flip(1) if backwards else values


def _each_once(query: Query) -> tuple[Query, Int[Tensor, "batch"]]:
    """The rows of a query without repetitions, and where each row stands among them."""
    masks = [mask.long() for mask in (query.given, query.padding) if mask is not None]
    labels = [] if query.label is None else [query.label[:, None]]
    key = torch.cat([query.xt, *masks, *labels, query.t.double().view(torch.int64)[:, None]], dim=1)
    found, rows = key.unique(dim=0, return_inverse=True)
    first = rows.new_empty(len(found)).scatter_(0, rows, torch.arange(len(rows), device=rows.device))
    return query.rows(first), rows


def _shorter(
    inputs: Float[Tensor, "batch dim width"], padding: Bool[Tensor, "batch dim"], time: Float[Tensor, "batch 1 width"]
) -> tuple[Float[Tensor, "batch dim width"], Bool[Tensor, "batch dim"]]:
    """A stream's inputs in rows with padding, and which of them are absent.

    Where the previous token does not exist, the input is the time, as at the first place of a row without padding. Of
    these inputs only the one at the first existing place is visible. So a padded row equals the shorter row.
    """
    nothing_before = F.pad(padding[:, :-1], (1, 0), value=True)
    first = ~padding & ((~padding).cumsum(1) == 1)
    return torch.where(nothing_before[..., None], time, inputs), nothing_before & ~first
