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
from sddm.metrics.u_statistic import MIN_ROWS_FOR_ERROR, MMD, Between, Within, variance


def cell_distance(x: Int[Tensor, "n"], y: Int[Tensor, "m"], groups: Int[Tensor, "n"] | None = None) -> MMD:
    """The distance of x from y, given as cell numbers: an unbiased numerator, and its standard error.

    The standard error is that of the numerator; the error of the denominator, which depends on y only, is left out.
    `groups` is the group of each point of x, if groups are independent draws and points are not.

    >>> cell_distance(torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2, 3, 3])).value
    2.0
    """
    for cells, name in ((x, "x"), (y, "y")):
        if len(_checks.tensor(cells, name)) < MIN_ROWS_FOR_ERROR or int(cells.min()) < 0:
            raise ValueError(f"{name} must hold at least {MIN_ROWS_FOR_ERROR} numbers of cells, none of them below 0.")
    num = 1 + max(int(x.max()), int(y.max()))
    in_x, in_y = (torch.bincount(cells, minlength=num).double() for cells in (x, y))
    yy = _within(in_y, y)
    if groups is None:
        # Kernels of 0 and 1 are their own squares.
        xx, xy = _within(in_x, x), Between(in_y[x], in_x[y], in_x @ in_y)
    else:
        xx, xy = _of_groups(x, _checks.groups(groups, x), y, in_y)
    _checks.require(yy.mean > 0, "y has no two points in one cell. Take larger cells, or more points.")
    return MMD((xx.mean + yy.mean - 2 * xy.mean) / yy.mean, variance(xx, yy, xy) ** 0.5 / yy.mean)


def _within(counts: Float64[Tensor, "cells"], cells: Int[Tensor, "n"]) -> Within:
    others = counts[cells] - 1
    return Within(others, others.sum())


def _of_groups(
    x: Int[Tensor, "n"], groups: Int[Tensor, "n"], y: Int[Tensor, "m"], in_y: Float64[Tensor, "cells"]
) -> tuple[Within, Between]:
    """The kernel of two groups, or of a group and a point: its mean over their points."""
    _, group, sizes = groups.unique(return_inverse=True, return_counts=True)
    counts = torch.bincount(group * len(in_y) + x, minlength=len(sizes) * len(in_y)).reshape(len(sizes), len(in_y))
    shares = counts / sizes[:, None].double()
    kernel = (shares @ shares.T).fill_diagonal_(0)
    everyone, squares = shares.sum(0), shares.square().sum(0)
    return Within(kernel.sum(1), kernel.square().sum()), Between(shares @ in_y, everyone[y], squares @ in_y)
