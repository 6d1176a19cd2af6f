"""How two systems differ on the same tunes, with the error of that difference."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sddm import _checks


class Difference(NamedTuple):
    """The mean of a - b, and its standard error."""

    mean: float
    standard_error: float


def paired_difference(
    a: Float[Tensor, "num"], b: Float[Tensor, "num"], groups: Int[Tensor, "num"] | None = None
) -> Difference:
    """The mean difference between two systems that were measured on the same rows, paired row by row.

    Rows of one group depend on each other: several runs on one tune, several windows of one tune. So only the groups
    count as independent draws. With n rows in G groups, and S_g the sum over group g of a - b - mean,

        mean = sum (a - b) / n        error^2 = G / (G - 1) * sum_g S_g^2 / n^2

    The mean is the difference of the two reported means. For groups of equal size, these are the mean of the groups'
    means and its usual standard error. Without `groups`, each row is a group.

    >>> paired_difference(torch.tensor([3.0, 4.0, 6.0]), torch.tensor([1.0, 2.0, 1.0]))
    Difference(mean=3.0, standard_error=1.0)
    """
    for values, name in ((a, "a"), (b, "b")):
        _checks.tensor(values, name)
        _checks.require(
            values.ndim == 1 and values.is_floating_point() and bool(torch.isfinite(values).all()),
            f"{name} must hold one finite number a row, but it is of {values.dtype} and shape {tuple(values.shape)}.",
        )
    _checks.require(
        a.shape == b.shape, f"a and b must be measured on the same rows, but they have {len(a)} and {len(b)} numbers."
    )
    _checks.require(len(a) > 1, f"A standard error needs at least two rows, but there are {len(a)}. Give more.")
    groups = torch.arange(len(a)) if groups is None else _checks.groups(groups, a).cpu()
    difference = a.double().cpu() - b.double().cpu()
    mean = difference.mean()
    _, group = groups.unique(return_inverse=True)
    num = int(group.max()) + 1
    sums = torch.zeros(num, dtype=torch.float64).index_add_(0, group, difference - mean)
    return Difference(float(mean), math.sqrt(num / (num - 1) * float(sums.square().sum())) / len(a))
