"""The error of a figure that is no mean, such as a distance between two laws or the rate of an event."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks


def jackknife(figure: Callable[[Int[Tensor, "some"]], float], groups: Int[Tensor, "num"]) -> tuple[float, float]:
    """A figure of all rows, and its standard error, if rows of one group depend on each other.

    figure: the figure of some rows, from their numbers. With f the figure of all rows, f_g that of all rows but those
    of group g, and G groups,

        error^2 = (G - 1) / G * sum_g (f_g - mean of f_g)^2.

    For the mean of groups of equal size this is the usual standard error.

    >>> values = torch.tensor([1.0, 2.0, 6.0])
    >>> jackknife(lambda some: float(values[some].mean()), torch.arange(3))
    (3.0, 1.5275252316519465)
    """
    kinds = _checks.tensor(groups, "groups").unique()
    _checks.require(len(kinds) > 1, f"A standard error needs at least two groups, but there are {len(kinds)}.")
    without = torch.tensor([figure((groups != kind).nonzero()[:, 0]) for kind in kinds], dtype=torch.float64)
    num = len(kinds)
    error = math.sqrt((num - 1) / num * float((without - without.mean()).square().sum()))
    return figure(torch.arange(len(groups))), error
