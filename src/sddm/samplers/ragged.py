"""Samples of different lengths: their lengths are drawn first, and those of similar length are drawn together.

A sample takes its length from its own seed, and the width of its batch from its length alone. So it does not depend on
the others that are drawn at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from sddm import _checks
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.lengths import Lengths
from sddm.query import Query
from sddm.randomness import seed_of
from sddm.shapes import Tokens

WIDTHS = 4
"""Batches have one of at most so many widths, evenly spaced. With more of them, rows are padded less, but fewer are
evaluated at a time."""
Length = int | Sequence[int] | Tensor
"""One for all samples, or one for each."""


def drawn_lengths(lengths: Lengths, seeds: Sequence[int], condition: Condition | None = None) -> Int[Tensor, "num"]:
    """A length for each seed, given that what is known of a sample lies within it."""
    uniforms = torch.tensor([seed_of(seed, "length", 0) / 2.0**63 for seed in seeds], dtype=torch.float64)
    if condition is None:
        return lengths.draw(uniforms)
    place = torch.arange(1, condition.mask.shape[-1] + 1)
    known = condition.mask.cpu() | torch.isin(place - 1, torch.tensor(list(condition.ranges), dtype=torch.int64))
    least = (known * place).amax(-1).expand(len(seeds))
    _checks.require(
        int(least.max()) <= lengths.most, f"condition gives tokens, but samples have at most {lengths.most} positions."
    )
    return lengths.draw(uniforms, least)


def asked_lengths(diffusion: Diffusion, num: int, length: Length) -> Int[Tensor, "num"]:
    """The lengths that were asked for, one for each sample."""
    if isinstance(length, int):
        return torch.full((num,), _checks.whole(length, "length", 1))
    _checks.require(
        diffusion.lengths is not None,
        "length names one for each sample, but the model was trained on rows of one length. Give one number, or none.",
    )
    if not isinstance(length, (Sequence, Tensor)):
        raise TypeError(f"length must be a whole number, or one for each sample, but it is {length!r}.")
    values = length if isinstance(length, Tensor) else torch.tensor([_checks.whole(n, "length", 1) for n in length])
    _checks.require(
        values.dtype == torch.int64 and values.shape == (num,) and bool((values >= 1).all()),
        f"length must be a whole number of at least 1, or one for each of the {num} samples, but it is of "
        f"{values.dtype} and shape {tuple(values.shape)}.",
    )
    return values.cpu()


def padding_of(lengths: Int[Tensor, "num"], width: int) -> Bool[Tensor, "num {width}"]:
    """The positions behind the ends of rows."""
    return torch.arange(width, device=lengths.device) >= lengths[:, None]


def with_pad(
    diffusion: Diffusion, tokens: Tokens, padding: Bool[Tensor, "batch dim"] | None, width: int = 0
) -> Int[Tensor, "batch wide"]:
    """If the diffusion has a law of lengths, tokens with PAD behind the ends of rows, of at least this width."""
    if diffusion.lengths is None or padding is None:
        return tokens
    return F.pad(tokens.masked_fill(padding, diffusion.pad), (0, max(0, width - tokens.shape[1])), value=diffusion.pad)


def batches(query: Query, batch_size: int, ragged: bool) -> list[tuple[slice | Int[Tensor, "rows"], int]]:
    """Which samples are drawn at once, and the width of their rows."""
    num, whole = query.xt.shape
    if not ragged or query.padding is None:
        return [(slice(first, min(first + batch_size, num)), whole) for first in range(0, num, batch_size)]
    ends = ((~query.padding) * torch.arange(1, whole + 1)).amax(1)
    step = -(-whole // WIDTHS)
    widths = (-(-ends // step) * step).clamp(max=whole)
    found = []
    for width in widths.unique().tolist():
        found += [(rows, width) for rows in (widths == width).nonzero()[:, 0].split(batch_size)]
    return found
