"""How far the columns of two tables are from each other, one at a time and two at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.metrics.association import cramers_v
from sddm.metrics.jackknife import jackknife

GROUPS = 20
"""Groups of rows of the jackknife."""


class Estimate(NamedTuple):
    """A figure and its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of_share(cls, hits: Bool[Tensor, "num"]) -> Estimate:
        """The share of independent rows that are hits."""
        share = float(hits.double().mean())
        return cls(share, (share * (1 - share) / len(hits)) ** 0.5)


def total_variation(x: Int[Tensor, "n dim"], y: Int[Tensor, "m dim"]) -> Float64[Tensor, "dim"]:
    """Of each column: half the sum over its values of |share in x - share in y|, between 0 and 1.

    For finite numbers of rows it is above 0 even if both have the same law; compare it with that of other data.

    >>> total_variation(torch.tensor([[0], [0], [1], [1]]), torch.tensor([[0], [1], [1], [1]]))
    tensor([0.2500], dtype=torch.float64)
    """
    x, y = (_checks.tokens(rows, 2**31, name) for rows, name in ((x, "x"), (y, "y")))
    _checks.require(x.shape[1] == y.shape[1], f"x has {x.shape[1]} columns, but y has {y.shape[1]}. Give the same.")
    size = 1 + max(int(x.max()), int(y.max()))
    place = size * torch.arange(x.shape[1])
    shares = [
        torch.bincount((rows + place).flatten(), minlength=size * len(place)).reshape(-1, size).double() / len(rows)
        for rows in (x, y)
    ]
    return (shares[0] - shares[1]).abs().sum(1) / 2


def mean_variation(x: Int[Tensor, "n dim"], y: Int[Tensor, "n dim"]) -> Estimate:
    """The mean over the columns of two tables with the same number of rows; the error is that of the rows of both."""
    return _paired(lambda one, other: float(total_variation(one, other).mean()), x, y)


def mean_association_gap(x: Int[Tensor, "n dim"], y: Int[Tensor, "n dim"]) -> Estimate:
    """The mean over the pairs of columns of the difference in Cramer's V, with the error of the rows of both.

    V is cut off at 0. Where many pairs are nearly independent, the error is therefore too large, up to twice its size.
    """

    def gap(one: Tensor, other: Tensor) -> float:
        above = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        return float((cramers_v(one) - cramers_v(other)).abs()[above].mean()) if x.shape[1] > 1 else 0.0

    return _paired(gap, x, y)


def _paired(figure: Callable[[Tensor, Tensor], float], x: Tensor, y: Tensor) -> Estimate:
    """A figure of two tables, and its error from leaving out a group of rows of both at a time."""
    _checks.require(len(x) == len(y), f"x and y must have the same number of rows, but have {len(x)} and {len(y)}.")
    return Estimate(*jackknife(lambda some: figure(x[some], y[some]), torch.arange(len(x)) % GROUPS))
