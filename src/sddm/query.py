"""What a model is asked: one object that losses and samplers pass to models, and models to networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sddm.shapes import Asked, Tokens

NO_LABEL = -1
"""Stands in `Query.label` for a row without a label."""


class Query(NamedTuple):
    """Asks for the law of each of some positions, given the tokens of all other positions at time t.

    A named tuple, which torch.compile takes apart and puts together without a graph break.

    >>> query = Query(xt, t, given=mask)
    >>> query.at(positions), query.rows(slice(8)), query.repeated(3)
    """

    xt: Tokens
    t: Float[Tensor, "batch"]
    positions: Asked | None = None
    """Which positions are asked for; all if None."""
    given: Bool[Tensor, "batch dim"] | None = None
    """Positions that hold clean data."""
    padding: Bool[Tensor, "batch dim"] | None = None
    """Positions that do not exist, in rows that are shorter than others."""
    label: Int[Tensor, "batch"] | None = None
    """The class of each row, or NO_LABEL; None if no row has one."""
    ahead: Tokens | None = None
    """What the row holds behind each position that is asked for, if it is not `xt`. With clean tokens in `xt` and MASK
    here, every position is asked for given the tokens before it alone."""
    memory: dict[Any, Any] | None = None
    """Where networks keep what they need not compute again for the next question about the same rows."""

    @property
    def here(self) -> Asked:
        """The tokens at the positions that are asked for."""
        return at_positions(self.xt, self.positions)

    @property
    def places(self) -> Asked:
        """The positions that are asked for, as a tensor even if all are."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.xt.shape[1], device=self.xt.device).expand_as(self.xt)

    @property
    def settled(self) -> Bool[Tensor, "batch dim"] | None:
        """Positions that are neither drawn nor counted: given, or padding."""
        if self.given is None or self.padding is None:
            return self.padding if self.given is None else self.given
        return self.padding | self.given

    @property
    def free(self) -> Int[Tensor, "batch"]:
        """How many positions of each row are not settled."""
        return torch.full_like(self.xt[:, 0], self.xt.shape[1]) if self.settled is None else (~self.settled).sum(1)

    @property
    def ends_alone(self) -> bool:
        """Whether padding, if there is any, is only behind the ends of rows, where nothing before can see it."""
        return self.padding is None or not bool((self.padding[:, :-1] & ~self.padding[:, 1:]).any())

    def at(self, positions: Asked | None) -> Query:
        """The same question about these positions."""
        return self._replace(positions=positions)

    def holding(self, xt: Tokens, t: Float[Tensor, "batch"] | None = None) -> Query:
        """The same question about other tokens, and at another time."""
        return self._replace(xt=xt, t=self.t if t is None else t)

    def rows(self, rows: slice | Tensor) -> Query:
        """Some rows of the batch."""
        return self._each(lambda part: part[rows])

    def one_by_one(self) -> Query:
        """Each position that is asked for as a row of its own, which holds `ahead` from there on."""
        each = self.repeated(self.places.shape[1]).at(self.places.reshape(-1, 1))
        if each.ahead is None:
            return each
        before = torch.arange(self.xt.shape[1], device=self.xt.device) < each.places
        return each._replace(xt=torch.where(before, each.xt, each.ahead), ahead=None)

    def upto(self, length: int) -> Query:
        """The same rows without the positions from `length` on."""
        return self._replace(
            **{
                name: part[:, :length]
                for name in ("xt", "given", "padding")
                if (part := getattr(self, name)) is not None
            }
        )

    def repeated(self, copies: int) -> Query:
        """Each row `copies` times, one after the other."""
        return self._each(lambda part: part.repeat_interleave(copies, dim=0))

    def to(self, device: torch.device) -> Query:
        """The same question on another device."""
        return self._each(lambda part: part.to(device))

    def copied(self) -> Query:
        """The same question in tensors of its own."""
        return self._each(torch.clone)

    def split(self, rows: int, dim: int = 0) -> Sequence[Query]:
        """Pieces of this many rows."""
        return [self.rows(slice(first, first + rows)) for first in range(0, len(self.xt), rows)]

    def _each(self, change: Callable[[Tensor], Tensor]) -> Query:
        """Other rows, of which nothing is kept yet."""
        return Query(*(None if part is None else change(part) for part in self[:-1]))  # type: ignore[arg-type]


def at_positions(values: Tensor, positions: Asked | None) -> Tensor:
    """values[b, positions[b, k], ...], or all of them."""
    if positions is None:
        return values
    index = positions.reshape(*positions.shape, *[1] * (values.ndim - 2)).expand(-1, -1, *values.shape[2:])
    return values.gather(1, index)
