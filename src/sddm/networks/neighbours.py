"""A number for each sequence that differs from x in one position: k(C - 1) + 1 evaluations for k positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sddm.networks.chunks import at_once, in_chunks
from sddm.query import Query
from sddm.shapes import Asked


def at_neighbours(
    function: Callable[[Query], Float[Tensor, "rows"]], query: Query, num_tokens: int, chunk_tokens: int
) -> Float[Tensor, "batch num tokens"]:
    """function(x with value c at position d) for every c, and for every d that is asked for, `chunk_tokens` tokens at a
    time."""
    places, here, others = query.places, query.here, num_tokens - 1
    batch, num = places.shape
    copies = num * others + 1
    neighbours = query.xt[:, None].repeat(1, copies, 1)
    where = places.repeat_interleave(others, dim=1)
    neighbours[:, 1:].scatter_(2, where[..., None], other_values(here, num_tokens).flatten(1)[..., None])
    all_rows = query.repeated(copies)._replace(xt=neighbours.flatten(0, 1), positions=None)
    rows = max(1, at_once(chunk_tokens, query.xt.device) // (query.xt.shape[1] + 1))
    values = in_chunks(function, (all_rows,), rows).reshape(batch, copies)
    return with_own_value(values[:, 1:].unflatten(1, (num, others)), values[:, 0], here)


def other_values(here: Asked, num_tokens: int) -> Int[Tensor, "batch num others"]:
    """The values that a position does not hold, in ascending order."""
    values = torch.arange(num_tokens - 1, device=here.device)
    return values + (values >= here[..., None])


def with_own_value(
    others: Float[Tensor, "batch num others"], own: Float[Tensor, "batch"], here: Asked
) -> Float[Tensor, "batch num tokens"]:
    """Insert the number of x itself where a position keeps the value it holds."""
    num_tokens = others.shape[-1] + 1
    if num_tokens == 2:
        pair = torch.stack([own[:, None].expand_as(here), others[..., 0]], dim=-1)
        return torch.where((here == 0)[..., None], pair, pair.flip(-1))
    everything = others.new_empty(*here.shape, num_tokens)
    everything = everything.scatter(-1, other_values(here, num_tokens), others)
    return everything.scatter(-1, here[..., None], own[:, None, None].expand(*here.shape, 1))
