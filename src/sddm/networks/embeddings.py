"""Embeddings of time, tokens and places."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sddm.query import NO_LABEL, Query
from sddm.shapes import Times, Tokens

TIME_SCALE = 1000.0
"""Times in [0, 1] are multiplied by this, so that the fastest sinusoid separates times 0.001 apart."""
INITIAL = 0.02
"""Standard deviation of the initial vectors of tokens and places, before a gain."""
LABEL_INITIAL = 0.5**0.5
"""That of the initial vectors of labels. They are added to sinusoids, whose root mean square this is."""

LabelVectors = Float[Tensor, "batch width"] | None
"""A vector for the label of each row, or None in a network that knows no labels."""


def sinusoidal(t: Float[Tensor, "batch"], width: int, scale: float = TIME_SCALE) -> Float[Tensor, "batch width"]:
    """sin and cos of scale * t at `width / 2` frequencies from 1 down to 1e-4, in float32 (the phase in float64)."""
    half = width // 2
    frequency = torch.exp(-math.log(1e4) * torch.arange(half, dtype=torch.float64, device=t.device) / max(1, half - 1))
    phase = scale * t.double()[:, None] * frequency
    return F.pad(torch.cat([phase.sin(), phase.cos()], dim=1).float(), (0, width - 2 * half))


def time_token(
    t: Times, like: Float[Tensor, "batch dim width"], scale: float, label: LabelVectors = None
) -> Float[Tensor, "batch 1 width"]:
    """The time, and the label if there is one, as one more token for the sequence `like`."""
    return with_label(sinusoidal(t, like.shape[-1], scale), label).to(like.dtype)[:, None]


def with_label(time: Float[Tensor, "batch width"], label: LabelVectors) -> Float[Tensor, "batch width"]:
    """The embedding of the time plus the vector of the row's label, in a network that knows labels."""
    return time if label is None else time + label


class TokenEmbedding(nn.Module):
    """A vector a token, plus a learned vector where the position is given, which marks clean tokens."""

    def __init__(self, num_tokens: int, width: int, gain: float = 1.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_tokens, width)
        self.given = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.tokens.weight, std=gain * INITIAL)

    def forward(
        self, x: Tokens | Float[Tensor, "batch dim tokens"], given: Bool[Tensor, "batch dim"] | None
    ) -> Float[Tensor, "batch dim width"]:
        """x may be one-hot vectors instead of tokens, for a gradient with respect to them."""
        embedded = x @ self.tokens.weight if x.is_floating_point() else self.tokens(x)
        return embedded if given is None else embedded + given[..., None] * self.given


class LabelEmbedding(nn.Module):
    """A learned vector for each label, and a last one for rows without a label, which begins at 0.

    It is added wherever the time enters. So a label reaches every position, and tells no position its own token.
    Without labels there are no weights.
    """

    def __init__(self, num_labels: int, width: int) -> None:
        super().__init__()
        self.num_labels = num_labels
        self.vectors = nn.Embedding(num_labels + 1, width) if num_labels else None
        if self.vectors is not None:
            nn.init.normal_(self.vectors.weight, std=LABEL_INITIAL)
            with torch.no_grad():
                self.vectors.weight[num_labels] = 0

    def forward(self, query: Query) -> LabelVectors:
        if self.vectors is None:
            return None
        if query.label is None:  # as for all rows, so that every weight has a gradient in every batch
            return self.vectors(torch.full_like(query.xt[:, 0], self.num_labels))
        return self.vectors(torch.where(query.label == NO_LABEL, self.num_labels, query.label))


class PlaceEmbedding(nn.Module):
    """A learned vector for each place, in one table, or in one of rows and one of columns (see `Places`)."""

    def __init__(self, tables: Sequence[int], width: int, gain: float = 1.0) -> None:
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(gain * INITIAL * torch.randn(size, width)) for size in tables)

    def forward(self, first: int | None = None) -> Float[Tensor, "places width"]:
        """The vectors of all places, or of the first ones."""
        if len(self.tables) == 1:
            vectors = self.tables[0]
        else:
            rows, columns = self.tables
            vectors = (rows[:, None] + columns[None]).flatten(0, 1)
        return vectors if first is None else vectors[:first]

    @property
    def rotary(self) -> bool:
        """Whether there are no vectors, so that attention must use rotations."""
        return len(self.tables) == 0


class Rotary:
    """Rotates pairs of features of queries and keys by angles that grow with the index, so that their product depends
    on the distance of the two."""

    def __init__(self, index: Int[Tensor, "places"], head_width: int, dtype: torch.dtype) -> None:
        half = head_width // 2
        frequency = torch.exp(-math.log(1e4) * torch.arange(half, device=index.device) / half)
        angle = index[:, None] * frequency
        self.cos, self.sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def of(self, places: slice) -> Rotary:
        """The rotation of some of the places."""
        some = copy.copy(self)
        some.cos, some.sin = self.cos[places], self.sin[places]
        return some

    def for_both_streams(self) -> Rotary:
        """The rotation of the places of two streams, one after the other, and of a time token that is not rotated."""
        both = copy.copy(self)
        both.cos = torch.cat([self.cos, self.cos, torch.ones_like(self.cos[:1])])
        both.sin = torch.cat([self.sin, self.sin, torch.zeros_like(self.sin[:1])])
        return both

    def __call__(self, x: Float[Tensor, "batch heads places width"]) -> Float[Tensor, "batch heads places width"]:
        a, b = x.chunk(2, dim=-1)
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]  # of the first places, if there are no more
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
