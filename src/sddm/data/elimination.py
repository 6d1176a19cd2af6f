"""Sums of products of small tables, by variable elimination.

    sum over the other variables of prod_f f(x^{variables of f})

The variables are summed out one by one, each time the one that leaves the smallest table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor


class Factor(NamedTuple):
    """A table with an axis for each of its variables."""

    variables: tuple[int, ...]
    values: Float64[Tensor, "..."]


def summed(factors: Sequence[Factor], kept: tuple[int, ...]) -> Float64[Tensor, "..."]:
    """The product of the factors, summed over all variables but those kept, whose axes come in their order."""
    factors = list(factors)
    sizes = {v: n for factor in factors for v, n in zip(factor.variables, factor.values.shape, strict=True)}
    left = sizes.keys() - kept

    def others(variable: int) -> tuple[int, ...]:
        """The variables that would stand in one table if this one were summed out."""
        together = {v for factor in factors if variable in factor.variables for v in factor.variables}
        return tuple(sorted(together - {variable}))

    while left:
        variable = min(sorted(left), key=lambda v: math.prod(sizes[other] for other in others(v)))
        around = others(variable)
        product = _product([factor for factor in factors if variable in factor.variables], around)
        factors = [factor for factor in factors if variable not in factor.variables] + [Factor(around, product)]
        left -= {variable}
    return _product(factors, kept)


def _product(factors: Sequence[Factor], kept: tuple[int, ...]) -> Float64[Tensor, "..."]:
    """The same in one sum."""
    number = {v: i for i, v in enumerate(sorted({v for factor in factors for v in factor.variables}))}
    terms: list[Tensor | list[int]] = [torch.ones((), dtype=torch.float64), []]  # there may be no factor
    for factor in factors:
        terms += [factor.values, [number[v] for v in factor.variables]]
    return torch.einsum(*terms, [number[v] for v in kept])
