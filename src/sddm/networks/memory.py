"""What a hollow transformer keeps between the questions of one sampling from left to right.

Positions are drawn one after the other, and each is asked for given the tokens before it and what stands ahead. Of the
next question, the right stream is the same, and the left stream is the same up to the position that was drawn last. So
a question costs one place instead of all of them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sddm.networks.transformer import Past
from sddm.query import Query


class Kept:
    """What is kept from one question to the next.

    right: features of the right stream over the rows that stand ahead, each once; `rows` says which is whose.
    """

    def __init__(self, query: Query, right: Float[Tensor, "others dim width"], rows: Int[Tensor, "batch"]) -> None:
        self.right, self.rows, self._about = right, rows, _about(query)
        self.past = Past()
        self.left = right.new_empty(len(rows), *right.shape[1:])
        self._tokens = torch.empty_like(query.xt)

    def is_about(self, query: Query) -> bool:
        """Whether all that the right stream and the time token depend on is the same."""
        pairs = zip(self._about, _about(query), strict=True)
        return all(a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)

    def forget_changed(self, tokens: Int[Tensor, "batch dim"]) -> int:
        """Forget the places of the left stream that have seen a token which has changed. How many places remain."""
        seen = max(0, self.past.places - 1)
        changed = (tokens[:, :seen] != self._tokens[:, :seen]).any(0).nonzero()
        if len(changed):
            self.past.places = int(changed[0]) + 1  # a place sees the tokens before it
        return self.past.places

    def add(self, tokens: Int[Tensor, "batch dim"], features: Float[Tensor, "batch new width"]) -> None:
        """Keep the features at the places that were passed last, which have seen these tokens."""
        upto = self.past.places
        self.left[:, upto - features.shape[1] : upto] = features
        self._tokens[:, : upto - 1] = tokens[:, : upto - 1]


def _about(query: Query) -> tuple[Tensor | None, ...]:
    return query.ahead, query.given, query.t, query.label, query.padding
