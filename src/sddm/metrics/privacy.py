"""How close rows are to those that a model was trained on.

A model that has learnt the law makes rows that are as far from the training rows as other data are. One that has learnt
rows by heart makes some that are nearer, or the very rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Int, Int64
from torch import Tensor

from sddm import _checks
from sddm.metrics.variation import Estimate

PAIRS = 1 << 22
"""At most this many pairs of rows are compared at a time, in a few tens of megabytes."""


class Closeness(NamedTuple):
    """Of some rows, and of rows of data that were not trained on."""

    nearer: tuple[Estimate, Estimate]
    """The share of rows that are nearer to a training row than the median of the data not trained on."""
    copies: tuple[Estimate, Estimate]
    """The share of rows that are a training row."""
    distances: tuple[Int64[Tensor, "n"], Int64[Tensor, "m"]]
    """In how many columns each row differs from the nearest training row."""


def closeness(
    rows: Int[Tensor, "n dim"], held_out: Int[Tensor, "m dim"], train: Int[Tensor, "others dim"]
) -> Closeness:
    """Compare the distances of rows and of held-out rows to the nearest training row."""
    distances = nearest(rows, train), nearest(held_out, train)
    median = int(distances[1].median())

    def below(limit: int) -> tuple[Estimate, Estimate]:
        return Estimate.of_share(distances[0] < limit), Estimate.of_share(distances[1] < limit)

    return Closeness(below(median), below(1), distances)


def nearest(rows: Int[Tensor, "n dim"], train: Int[Tensor, "others dim"], pairs: int = PAIRS) -> Int64[Tensor, "n"]:
    """In how many columns each row differs from the training row that it is nearest to.

    >>> nearest(torch.tensor([[0, 0, 0], [1, 1, 1]]), torch.tensor([[0, 0, 1], [0, 1, 0]]))
    tensor([1, 2])
    """
    rows, train = (_checks.tokens(some, 2**31, name) for some, name in ((rows, "rows"), (train, "train")))
    _checks.require(
        rows.shape[1] == train.shape[1],
        f"rows has {rows.shape[1]} columns, but train has {train.shape[1]}. Give the same.",
    )
    most = min(len(train), _checks.whole(pairs, "pairs", 1))
    best = torch.full((len(rows),), rows.shape[1])
    for known in train.to(torch.int32).split(most):
        for some in torch.arange(len(rows)).split(max(1, pairs // most)):
            differing = torch.zeros(len(some), len(known), dtype=torch.int32)
            for column, other in zip(rows[some].to(torch.int32).T, known.T, strict=True):
                differing += column[:, None] != other
            best[some] = torch.minimum(best[some], differing.min(dim=1).values)
    return best
