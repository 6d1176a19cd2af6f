"""How strongly the columns of a table of categories depend on one another."""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks


def cramers_v(tokens: Int[Tensor, "num dim"]) -> Float64[Tensor, "dim dim"]:
    """Cramer's V of each pair of columns: sqrt(phi^2 / (min(rows, columns) - 1)) with the correction for its bias
    (Bergsma 2013), between 0 (independent) and 1 (one determines the other). A constant column has V = 0 with all.
    """
    tokens = _checks.tokens(tokens, 2**62, "tokens")
    num, dim = tokens.shape
    _checks.require(num > 1, "tokens must have at least two rows.")
    columns = [torch.unique(column, return_inverse=True) for column in tokens.T]
    result = torch.eye(dim, dtype=torch.float64)
    for i in range(dim):
        for j in range(i):
            result[i, j] = result[j, i] = _pair(columns[i][1], columns[j][1], len(columns[i][0]), len(columns[j][0]))
    return result


def association_gap(samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"]) -> float:
    """The largest difference between samples and data in Cramer's V of a pair of columns."""
    return float((cramers_v(samples) - cramers_v(data)).abs().max())


def _pair(x: Tensor, y: Tensor, rows: int, columns: int) -> float:
    num = len(x)
    table = torch.bincount(x * columns + y, minlength=rows * columns).reshape(rows, columns).double()
    expected = table.sum(1, keepdim=True) * table.sum(0, keepdim=True) / num
    phi2 = float(((table - expected).square() / expected).sum()) / num
    phi2 = max(0.0, phi2 - (rows - 1) * (columns - 1) / (num - 1))
    rows_, columns_ = (n - (n - 1) ** 2 / (num - 1) for n in (rows, columns))
    least = min(rows_, columns_) - 1
    return (phi2 / least) ** 0.5 if least > 0 else 0.0
