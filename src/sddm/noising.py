"""A batch of data, noised: its times, x_t, which positions are evaluated, what is given, and the targets of a pool.

Everything that chance decides in a loss is drawn here, for the whole batch at once. So the loss of a row is the same in
whatever pieces the batch is computed, on any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.pool import check_process, posterior
from sddm.processes import HORIZON
from sddm.query import NO_LABEL, Query, at_positions
from sddm.randomness import Stream, random_positions, stratified_times
from sddm.shapes import Tokens


@dataclass(frozen=True)
class Batch:
    """Rows of data, and what is known of them."""

    x0: Int[Tensor, "batch dim"]
    given: Bool[Tensor, "batch dim"] | None = None
    """Positions that stay clean: the model is told them and is not asked for them."""
    padding: Bool[Tensor, "batch dim"] | None = None
    """Positions that do not exist, in rows that are shorter than others."""
    labels: Int[Tensor, "batch"] | None = None
    """The class of each row."""

    def __len__(self) -> int:
        return len(self.x0)

    def rows(self, rows: slice) -> Batch:
        """Some rows of the batch."""
        return self._each(lambda part: part[rows])

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self._each(lambda part: part.to(device))

    def cut(self) -> Batch:
        """The same rows without the positions behind the end of the longest."""
        if self.padding is None:
            return self
        longest = int((~self.padding).any(0).nonzero().max()) + 1
        given = None if self.given is None else self.given[:, :longest]
        return Batch(self.x0[:, :longest], given, self.padding[:, :longest], self.labels)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        parts = (self.x0, self.given, self.padding, self.labels)
        return Batch(*(None if part is None else change(part) for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class NoisedBatch:
    """Rows of data, and what the model is asked once they are noised."""

    x0: Int[Tensor, "batch dim"]
    query: Query
    posterior: Float[Tensor, "batch num symbols"] | None = None
    """p(x_0^d | x_t) at the evaluated positions by a pool of data, if there is one."""

    def __len__(self) -> int:
        return len(self.x0)

    def rows(self, rows: slice) -> NoisedBatch:
        """Some rows of the batch."""
        law = None if self.posterior is None else self.posterior[rows]
        return NoisedBatch(self.x0[rows], self.query.rows(rows), law)


def noise_batch(
    diffusion: Diffusion,
    batch: Batch,
    *,
    t: Float[Tensor, "batch"] | None = None,
    xt: Int[Tensor, "batch dim"] | None = None,
    num_positions: int | None = None,
    pool: Int[Tensor, "pool dim"] | None = None,
    in_order: Bool[Tensor, "batch"] | None = None,
    label_dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> NoisedBatch:
    """Check the arguments of a loss and draw what is not passed in; they are explained at `Loss.__call__`.

    label_dropout: each row loses its label with this probability, so that the model learns the law of all data too.
    """
    _checks.instance(diffusion, Diffusion, "diffusion")
    process = diffusion.process
    x0 = diffusion.checked(batch.x0, process.num_states, "x0")
    rows, dim = x0.shape
    _checks.generator(generator)
    t = stratified_times(rows, generator, x0.device) if t is None else t
    t = _checks.times(t, rows, "t", device=x0.device)
    given, padding = batch.given, batch.padding
    if given is not None:
        given = _checks.boolean_mask(given, x0.shape, "given", device=x0.device)
    if padding is not None:
        padding = _checks.boolean_mask(padding, x0.shape, "padding", device=x0.device)
    labels = batch.labels
    if labels is not None:
        labels = _checks.labels(labels, rows, known=diffusion.model.num_labels or None)
    if xt is None:
        xt = process.noise_by(x0, process.tau(0.0, t), Stream(generator))
    else:
        xt = _checks.tokens(xt, process.num_symbols, "xt", device=x0.device)
        same = xt.shape == x0.shape
        _checks.require(same, f"xt must have the shape {tuple(x0.shape)} of x0, but has {tuple(xt.shape)}.")
    if given is not None:
        xt = torch.where(given, x0, xt)
    query = Query(xt, t, None, given, padding, labels)
    if in_order is not None:
        query = _ordered(query, x0, in_order, process.num_states)
    if num_positions is not None:
        _checks.whole(num_positions, "num_positions", 1)
        _checks.require(num_positions <= dim, f"num_positions is {num_positions}, but there are only {dim} positions.")
        query = query.at(random_positions(rows, dim, num_positions, generator, x0.device, query.settled))
    if labels is not None and label_dropout > 0:
        dropped = Stream(generator).uniform((rows,), x0.device) < label_dropout
        query = query._replace(label=labels.masked_fill(dropped, NO_LABEL))
    if pool is None:
        return NoisedBatch(x0, query)
    pool = _checks.tokens(pool, process.num_states, "pool", length=dim, device=x0.device)
    _checks.require(
        query.settled is None and labels is None,
        "pool: its targets are for whole rows without classes. Leave out given, padding and labels, or the pool.",
    )
    check_process(process)
    return NoisedBatch(x0, query, at_positions(posterior(process, xt, t, pool), query.positions))


def _ordered(query: Query, x0: Tokens, rows: Bool[Tensor, "batch"], mask: int) -> Query:
    """Some rows asked from left to right: before each position the clean tokens, behind it MASK and what is given."""
    behind = torch.full_like(x0, mask) if query.given is None else torch.where(query.given, x0, mask)
    ahead = torch.where(rows[:, None], behind, query.xt)
    asked = query.holding(torch.where(rows[:, None], x0, query.xt), torch.where(rows, HORIZON, query.t))
    return asked._replace(ahead=ahead)
