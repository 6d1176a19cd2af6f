"""Tables of categories without a network: independent columns, and the tree of Chow and Liu (1968).

Both are Bayesian networks, so that their laws are known exactly: `log_prob`, `joint`, `sample`. The tree joins the
columns by the edges with the largest sum of mutual informations; among all trees, it is the one with the largest
likelihood.

Smoothing. Half a row of each value is added to the counts of a column, and one row to those of a column given a value
of another one, spread as the column's own law. So every row has a probability above 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.data.bayesian import BayesianNetwork
from sddm.formats.bif import Table, Variable

HALF, ONE = 0.5, 1.0
"""Rows that smoothing adds."""
Rows = Int[Tensor, "num dim"]
Counts = Float64[Tensor, "of_one of_other"]


def independent(rows: Rows, names: Sequence[str], sizes: Sequence[int]) -> BayesianNetwork:
    """Columns with the laws that they have in the rows, and nothing to do with each other."""
    rows = _checked(rows, names, sizes)
    return BayesianNetwork([_alone(rows, d, names, sizes) for d in range(len(names))])


def chow_liu(rows: Rows, names: Sequence[str], sizes: Sequence[int]) -> BayesianNetwork:
    """The tree of largest likelihood, in which each column but the first depends on one other column.

    names: of the columns; sizes: how many values each column has, which are named by their tokens.

    >>> tree = chow_liu(data.tokens[:], codec.names, codec.sizes)
    >>> -tree.log_prob(held_out).mean()
    """
    rows = _checked(rows, names, sizes)
    tables = {(i, j): _counts(rows, i, j, sizes) for i in range(len(names)) for j in range(i)}
    weights = torch.full((len(names), len(names)), -torch.inf, dtype=torch.float64)
    for (i, j), counts in tables.items():
        weights[i, j] = weights[j, i] = mutual_information(counts)
    variables = []
    for d, parent in enumerate(_spanning_tree(weights)):
        alone = _alone(rows, d, names, sizes)
        if parent is not None:
            counts = tables[d, parent].T if parent < d else tables[parent, d]
            law = torch.tensor(alone.table[()], dtype=torch.float64)
            given = (counts + ONE * law) / (counts.sum(1, keepdim=True) + ONE)
            table: Table = {(str(value),): numbers for value, numbers in enumerate(given.tolist())}
            alone = alone._replace(parents=[names[parent]], table=table)
        variables.append(alone)
    return BayesianNetwork(variables)


def mutual_information(counts: Counts) -> float:
    """sum p(a, b) log p(a, b) / (p(a) p(b)), in nats, of a table of counts."""
    joint = counts / counts.sum()
    apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return float(torch.where(joint > 0, joint * (joint / apart).log(), 0).sum())


def _spanning_tree(weights: Float64[Tensor, "dim dim"]) -> list[int | None]:
    """The parent of each column in the tree of largest weight with the first column as its root (Prim)."""
    parents: list[int | None] = [None] * len(weights)
    best, nearest = weights[0].clone(), torch.zeros(len(weights), dtype=torch.int64)
    inside = torch.zeros(len(weights), dtype=torch.bool)
    inside[0] = True
    for _ in range(len(weights) - 1):
        d = int(best.masked_fill(inside, -torch.inf).argmax())
        inside[d], parents[d] = True, int(nearest[d])
        closer = weights[d] > best
        best, nearest = torch.where(closer, weights[d], best), nearest.masked_fill(closer, d)
    return parents


def _counts(rows: Rows, i: int, j: int, sizes: Sequence[int]) -> Counts:
    pairs = rows[:, i] * sizes[j] + rows[:, j]
    return torch.bincount(pairs, minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j]).double()


def _alone(rows: Rows, d: int, names: Sequence[str], sizes: Sequence[int]) -> Variable:
    counts = torch.bincount(rows[:, d], minlength=sizes[d]).double() + HALF
    return Variable(names[d], [str(value) for value in range(sizes[d])], [], {(): (counts / counts.sum()).tolist()})


def _checked(rows: Rows, names: Sequence[str], sizes: Sequence[int]) -> Rows:
    _checks.require(
        len(names) == len(sizes) > 0, f"names and sizes must be as many, but they are {len(names)} and {len(sizes)}."
    )
    rows = _checks.tokens(rows, max(sizes), "rows", length=len(names)).cpu()
    for name, size, highest in zip(names, sizes, rows.max(dim=0).values.tolist(), strict=True):
        _checks.require(highest < size, f"rows holds {highest} for {name!r}, whose tokens are 0 to {size - 1}.")
    return rows
