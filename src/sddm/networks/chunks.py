"""Running a network on a batch in pieces, so that its intermediate results fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sddm.query import Query

CACHED = 1 << 12
"""Tokens or rows whose hidden layers stay in a processor's cache, at the widths that one runs on a processor."""


def at_once(limit: int, device: torch.device) -> int:
    """How many tokens or rows to work on: `limit`, or on a CPU, when no gradient is wanted, what its cache holds."""
    return min(limit, CACHED) if device.type == "cpu" and not torch.is_grad_enabled() else limit


def in_chunks(
    function: Callable[..., Tensor], arguments: Sequence[Tensor | Query | None], rows: int, dim: int = 0
) -> Tensor:
    """function(*arguments), `rows` rows (entries of axis `dim`) at a time.

    When a gradient is wanted, each piece is run again in the backward pass instead of being kept, so that the memory is
    that of one piece in both directions.
    """
    size = next(a.xt if isinstance(a, Query) else a for a in arguments if a is not None).shape[dim]
    if size <= rows:
        return function(*arguments)
    count = -(-size // rows)
    pieces = zip(*[[None] * count if a is None else a.split(rows, dim) for a in arguments], strict=True)
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(function, *piece, use_reentrant=False) for piece in pieces], dim)
    return torch.cat([function(*piece) for piece in pieces], dim)
