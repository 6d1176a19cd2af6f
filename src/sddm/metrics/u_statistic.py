"""The maximum mean discrepancy between two sets of rows for any kernel k, with its standard error.

    MMD^2 = E k(X, X') + E k(Y, Y') - 2 E k(X, Y)

estimated without bias by the means over distinct pairs (a U-statistic),

    U = mean_{i != j} k(x_i, x_j) + mean_{i != j} k(y_i, y_j) - 2 mean_{i, j} k(x_i, y_j)

Being unbiased, U may be negative. Its variance splits (Hoeffding) into uncorrelated parts and is exactly

    Var U = 4 A_x / n + 4 A_y / m  +  2 V_xx / (n (n - 1)) + 2 V_yy / (m (m - 1)) + 4 V_xy / (n m)

A_x is the variance of E k(x, X) - E k(x, Y) over the law of x, and A_y its counterpart; V_xx, V_yy and V_xy
are the variances of the kernel's interactions, k(a, b) - E k(a, .) - E k(., b) + E k. When X and Y have the
same law, A_x and A_y vanish and only the V terms are left, so neither part may be left out.

All of it follows from row sums of the kernel and its sum of squares. Let R_i be the row sums of the xx block,
each row's pair with itself left out, and a its mean entry; S_i and T_j the row and column sums of the xy
block, and c its mean entry; and ss(.) a sum of squared deviations from the mean. Then

    V_xx = (sum_{i != j} (k - a)^2 - 2 ss(R) / (n - 2)) / (n (n - 3))
    V_xy = (sum_{i, j} (k - c)^2 - ss(S) / m - ss(T) / n) / ((n - 1) (m - 1))
    A_x  = ss(R / (n - 2) - S / m) / (n - 1) - V_xx / (n - 2) - V_xy / m

are unbiased. What A_x loses is the noise of its own row means.

Samples of one Markov chain depend on one another. If x comes in groups that are independent of each other, such as
chains, then the groups are the independent draws: x_i becomes a group and k(x_i, .) the mean of the kernel over its
rows. Pairs within a group are left out, and all of the above holds with n the number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64, Int, Shaped
from torch import Tensor

from sddm import _checks

Block = Float[Tensor, "rows columns"]
MIN_ROWS_FOR_ERROR = 4
"""V_xx divides by n - 3."""


class MMD(NamedTuple):
    """An unbiased estimate of MMD^2 and its standard error (NaN where it cannot be estimated)."""

    value: float
    standard_error: float


@runtime_checkable
class Kernel(Protocol):
    """k(a, b) of the rows of two sets, from features of each row."""

    dtype: torch.dtype

    def features(self, rows: Shaped[Tensor, "rows dim"]) -> Float[Tensor, "rows features"]:
        """What the kernel needs of each row; computed once for a chunk."""
        ...

    def fill(self, left: Float[Tensor, "rows features"], right: Float[Tensor, "columns features"], out: Block) -> Block:
        """The kernel of each pair, written into `out`."""
        ...


def check_rows(x: Tensor, y: Tensor) -> None:
    """Check that two sets have rows of one length, at least two each, on one device."""
    for rows, name in ((x, "x"), (y, "y")):
        if len(rows) < 2:
            raise ValueError(f"{name} must have at least 2 rows to form a pair, but it has {len(rows)}. Give more.")
    _checks.require(
        x.shape[1] == y.shape[1],
        f"x and y must have the same number of positions, but x has {x.shape[1]} and y has {y.shape[1]}. "
        "Cut or pad the rows of one of them.",
    )
    _checks.require(x.device == y.device, f"x is on device {x.device}, but y is on {y.device}. Use y.to('{x.device}').")


def unbiased_mmd(
    x: Shaped[Tensor, "n dim"],
    y: Shaped[Tensor, "m dim"],
    kernel: Kernel,
    chunk: int,
    groups: Int[Tensor, "n"] | None = None,
) -> MMD:
    """U and the square root of its estimated variance, block by block of the kernel."""
    of_x, of_y = Units(x, groups), Units(y)
    xx = within(of_x, kernel, chunk)
    yy = within(of_y, kernel, chunk)
    xy = between(of_x, of_y, kernel, chunk)
    value = xx.mean + yy.mean - 2 * xy.mean
    if min(len(of_x), len(of_y)) < MIN_ROWS_FOR_ERROR:
        return MMD(value, float("nan"))
    return MMD(value, variance(xx, yy, xy) ** 0.5)


class Within(NamedTuple):
    """Sums of the kernel between distinct rows of one set."""

    rows: Float64[Tensor, "n"]
    squares: Float64[Tensor, ""]

    @property
    def pairs(self) -> int:
        return len(self.rows) * (len(self.rows) - 1)

    @property
    def mean(self) -> float:
        return float(self.rows.sum()) / self.pairs

    @property
    def interaction(self) -> float:
        """V_xx."""
        n = len(self.rows)
        total = float(self.squares) - self.pairs * self.mean**2
        return max(total - 2 * _spread(self.rows) / (n - 2), 0.0) / (n * (n - 3))

    @property
    def variance(self) -> float:
        """Of the mean, for a kernel of one set alone: 4 A / n + 2 V_xx / (n (n - 1)), A without the part of y."""
        n, interaction = len(self.rows), self.interaction
        first_order = max(float((self.rows / (n - 2)).var()) - interaction / (n - 2), 0.0)
        return 4 * first_order / n + 2 * interaction / (n * (n - 1))


class Between(NamedTuple):
    """Sums of the kernel between the rows of two sets."""

    rows: Float64[Tensor, "n"]
    columns: Float64[Tensor, "m"]
    squares: Float64[Tensor, ""]

    @property
    def mean(self) -> float:
        return float(self.rows.sum()) / (len(self.rows) * len(self.columns))

    @property
    def interaction(self) -> float:
        """V_xy."""
        n, m = len(self.rows), len(self.columns)
        total = float(self.squares) - n * m * self.mean**2
        return max(total - _spread(self.rows) / m - _spread(self.columns) / n, 0.0) / ((n - 1) * (m - 1))


def variance(xx: Within, yy: Within, xy: Between) -> float:
    """Var U; its first-order part counts as zero where its estimate is negative."""
    n, m = len(xx.rows), len(yy.rows)
    v_xx, v_yy, v_xy = xx.interaction, yy.interaction, xy.interaction
    a_x = float((xx.rows / (n - 2) - xy.rows / m).var()) - v_xx / (n - 2) - v_xy / m
    a_y = float((yy.rows / (m - 2) - xy.columns / n).var()) - v_yy / (m - 2) - v_xy / n
    first_order = max(4 * a_x / n + 4 * a_y / m, 0.0)
    return first_order + 2 * v_xx / (n * (n - 1)) + 2 * v_yy / (m * (m - 1)) + 4 * v_xy / (n * m)


def _spread(sums: Float64[Tensor, "n"]) -> float:
    return float((sums - sums.mean()).square().sum())


class Units:
    """The independent draws: single rows, or groups of rows, sorted by group."""

    def __init__(self, values: Shaped[Tensor, "n dim"], groups: Int[Tensor, "n"] | None = None) -> None:
        self.values, self.sizes = values, torch.ones(len(values), dtype=torch.int64, device=values.device)
        if groups is not None:
            _, group, self.sizes = groups.unique(return_inverse=True, return_counts=True)
            self.values = values[group.argsort()]
        self.grouped = groups is not None

    def __len__(self) -> int:
        return len(self.sizes)

    def pieces(self, chunk: int) -> list[tuple[slice, slice]]:
        """Slices of units with at most `chunk` rows each (or one unit), and the slices of their rows."""
        num = max(1, chunk // int(self.sizes.max()))
        ends = [0, *self.sizes.cumsum(0).tolist()]
        firsts = range(0, len(self), num)
        return [(slice(i, j), slice(ends[i], ends[j])) for i in firsts for j in [min(i + num, len(self))]]

    def means(self, block: Block, units: slice) -> Float[Tensor, "units columns"]:
        """The mean over the rows of each unit."""
        if not self.grouped:
            return block
        return torch.segment_reduce(block.contiguous(), "mean", lengths=self.sizes[units], axis=0)


def within(x: Units, kernel: Kernel, chunk: int) -> Within:
    """Sums over distinct pairs; of two mirrored blocks only one is computed."""
    rows = torch.zeros(len(x), dtype=torch.float64, device=x.values.device)
    squares = rows.new_zeros(())
    for i, j, block in _blocks(x, x, kernel, chunk, symmetric=True):
        if i == j:
            block.fill_diagonal_(0)
            squares += _sum_of_squares(block)
        else:
            rows[j] += block.sum(dim=0)
            squares += 2 * _sum_of_squares(block)
        rows[i] += block.sum(dim=1)
    return Within(rows, squares)


def between(x: Units, y: Units, kernel: Kernel, chunk: int) -> Between:
    rows = torch.zeros(len(x), dtype=torch.float64, device=x.values.device)
    columns = rows.new_zeros(len(y))
    squares = rows.new_zeros(())
    for i, j, block in _blocks(x, y, kernel, chunk):
        rows[i] += block.sum(dim=1)
        columns[j] += block.sum(dim=0)
        squares += _sum_of_squares(block)
    return Between(rows, columns, squares)


def _blocks(
    x: Units, y: Units, kernel: Kernel, chunk: int, symmetric: bool = False
) -> Iterator[tuple[slice, slice, Float[Tensor, "units others"]]]:
    """The kernel of units block by block (from the diagonal on if symmetric); a block may overwrite the one before."""
    first, second = x.pieces(chunk), y.pieces(chunk)
    most = (max(rows.stop - rows.start for _, rows in pieces) for pieces in (first, second))
    memory = torch.empty(math.prod(most), dtype=kernel.dtype, device=x.values.device)
    for i, rows in first:
        left = kernel.features(x.values[rows])
        for j, columns in second:
            if symmetric and j.start < i.start:
                continue
            right = kernel.features(y.values[columns])
            block = memory[: len(left) * len(right)].view(len(left), len(right))
            block = x.means(kernel.fill(left, right, block), i)
            yield i, j, y.means(block.T, j).T


def _sum_of_squares(block: Block) -> Float[Tensor, ""]:
    """Of no more than 2^18 entries at a time, so that float32 does not lose the small differences between them."""
    return torch.stack([part.dot(part) for part in block.flatten().split(1 << 18)]).double().sum()
