"""Features to the nearest code of a codebook, with a gradient, and codes that nothing is near to are put to use again.

    token(f) = argmin_k |f - e_k|^2 = argmin_k |e_k|^2 - 2 f . e_k          one matrix multiply
    q = f + stop(e_token - f)                                              the gradient of q is that of f
    codebook loss |stop(f) - e|^2, commitment loss |f - stop(e)|^2         means over all numbers

stop(x) is x without a gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm import _checks

AT_ONCE = 1 << 24
"""How many distances are computed at once."""


class Quantized(NamedTuple):
    """Features replaced by codes."""

    features: Float[Tensor, "num width rows columns"]
    """The codes, with the gradient passed straight through."""
    tokens: Int[Tensor, "num rows columns"]
    codebook_loss: Float[Tensor, ""]
    """Moves codes to the features that they stand for."""
    commitment_loss: Float[Tensor, ""]
    """Keeps features near their codes."""


class Quantizer(nn.Module):
    """A codebook (codes, width)."""

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(codes, width) / width**0.5)

    def forward(self, features: Float[Tensor, "num width rows columns"]) -> Quantized:
        tokens = self.tokens(features)
        codes = self.look_up(tokens)
        straight = features + (codes - features).detach()
        return Quantized(straight, tokens, F.mse_loss(codes, features.detach()), F.mse_loss(features, codes.detach()))

    def tokens(self, features: Float[Tensor, "num width rows columns"]) -> Int[Tensor, "num rows columns"]:
        """The number of the nearest code at each place."""
        num, _, rows, columns = features.shape
        nearest = self.nearest(rearrange(features, "n w r c -> (n r c) w"))
        return rearrange(nearest, "(n r c) -> n r c", n=num, r=rows, c=columns)

    @torch.no_grad()
    def nearest(self, features: Float[Tensor, "places width"]) -> Int[Tensor, "places"]:
        """The number of the nearest code of each row; of equal distances the first."""
        squares = self.codebook.square().sum(1)
        pieces = features.split(max(1, AT_ONCE // len(squares)))
        return torch.cat([torch.addmm(squares, some, self.codebook.T, alpha=-2).argmin(1) for some in pieces])

    def look_up(self, tokens: Int[Tensor, "num rows columns"]) -> Float[Tensor, "num width rows columns"]:
        """The codes of these numbers, in channels-last order."""
        return F.embedding(tokens, self.codebook).permute(0, 3, 1, 2)


class Revival(nn.Module):
    """Codes that were nearest to nothing for `patience` steps are replaced by features of the batch, drawn at random.

    Before the first step all codes count as unused for so long: the first batch gives all that it does not use their
    first place, which takes the part of an initialization by data. How long codes were unused is a buffer, and the
    draws are those of the step's generator: a training that is interrupted goes on as if it had not been.
    """

    unused: Int[Tensor, "codes"]

    def __init__(self, codes: int, patience: int) -> None:
        super().__init__()
        self.patience = _checks.whole(patience, "patience", 1)
        self.register_buffer("unused", torch.full((codes,), patience, dtype=torch.int64))

    @torch.no_grad()
    def __call__(
        self,
        quantizer: Quantizer,
        features: Float[Tensor, "num width rows columns"],
        tokens: Int[Tensor, "num rows columns"],
        generator: torch.Generator,
    ) -> Int[Tensor, "replaced"]:
        """Count a step whose features got these tokens, and replace codes; which."""
        self.unused += 1
        self.unused[tokens.flatten()] = 0
        places = torch.randperm(tokens.numel(), generator=generator).to(tokens.device)
        replaced = (self.unused > self.patience).nonzero().squeeze(1)[: len(places)]
        chosen = rearrange(features.detach(), "n w r c -> (n r c) w")[places[: len(replaced)]]
        quantizer.codebook[replaced] = chosen
        self.unused[replaced] = 0
        return replaced


def perplexity(tokens: Int[Tensor, "..."], codes: int) -> float:
    """exp of the entropy of the shares of the codes: as many equally frequent codes would have it."""
    return float(torch.special.entr(_shares(tokens, codes)).sum().exp())


def share_used(tokens: Int[Tensor, "..."], codes: int) -> float:
    """The share of the codes that occur."""
    return float((_shares(tokens, codes) > 0).double().mean())


def _shares(tokens: Int[Tensor, "..."], codes: int) -> Float[Tensor, "codes"]:
    counts = torch.bincount(tokens.flatten(), minlength=codes)
    return counts.double() / counts.sum()
