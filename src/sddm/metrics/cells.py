"""How far apart two sets of points are, cell by cell of a grid.

    sum_c (p(c) - q(c))^2 / sum_c q(c)^2

with p and q the shares of the two laws in cell c: 0 if they are the same, 1 and more if they have no cell in common.
The numerator is an MMD^2 whose kernel is 1 for two points in one cell and 0 for others. Unlike a wide kernel on bits,
it sees whatever is larger than a cell.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.metrics.mmd import MIN_ROWS_FOR_ERROR, MMD, _Between, _variance, _Within


def cell_distance(x: Int[Tensor, "n"], y: Int[Tensor, "m"]) -> MMD:
    """The distance of x from y, whose entries are numbers of cells; without bias in its numerator, with its error.

    The standard error is that of the numerator; that of the denominator, a property of y alone, is left out.

    >>> cell_distance(torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2, 3, 3])).value
    2.0
    """
    for cells, name in ((x, "x"), (y, "y")):
        _checks.require(
            len(_checks.tensor(cells, name)) >= MIN_ROWS_FOR_ERROR and int(cells.min()) >= 0,
            f"{name} must hold at least {MIN_ROWS_FOR_ERROR} numbers of cells, none of them below 0.",
        )
    num = 1 + max(int(x.max()), int(y.max()))
    in_x, in_y = (torch.bincount(cells, minlength=num).double() for cells in (x, y))
    xx, yy = _within(in_x, x), _within(in_y, y)
    # Kernels of 0 and 1 are their own squares.
    xy = _Between(in_y[x], in_x[y], in_x @ in_y)
    _checks.require(yy.mean > 0, "y has no two points in one cell. Take larger cells, or more points.")
    return MMD((xx.mean + yy.mean - 2 * xy.mean) / yy.mean, _variance(xx, yy, xy) ** 0.5 / yy.mean)


def _within(counts: Float64[Tensor, "cells"], cells: Int[Tensor, "n"]) -> _Within:
    others = counts[cells] - 1
    return _Within(others, others.sum())
