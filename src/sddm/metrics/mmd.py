"""The maximum mean discrepancy between two sets of tokens, with the kernel

    k(a, b) = exp(-bandwidth * Hamming(a, b))

Its estimate and the error of that are those of `u_statistic`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.nn.functional import one_hot, pad

from sddm import _checks
from sddm.metrics.u_statistic import MMD, Block, Kernel, check_rows, unbiased_mmd

MAX_PRODUCT_STATES = 16
"""Up to this many states, a product of one-hot rows counts agreements faster than comparisons do."""


def hamming_mmd(
    x: Int[Tensor, "n dim"],
    y: Int[Tensor, "m dim"],
    bandwidth: float = 0.1,
    chunk: int = 1024,
    dtype: torch.dtype = torch.float64,
    groups: Int[Tensor, "n"] | None = None,
) -> MMD:
    """The unbiased MMD^2 between the rows of x and of y with kernel exp(-bandwidth * Hamming), and its error.

    The rows are taken as independent draws, or, if `groups` gives each row of x the number of its group (its Markov
    chain, say), the groups are. Two of each are enough for the value; the standard error needs four of each and is
    NaN below. It is also right when x and y have the same law. The first-order
    variance 4 A_x / n + 4 A_y / m is never negative, so an estimate of it below zero counts as zero; if the laws
    are equal or nearly so, this makes the standard error 10 to 50 percent too large.

    Memory holds one chunk x chunk block of the kernel and features of two chunks of rows, whatever the number of
    rows. The dtype is that of a block; blocks are added up in float64. Float32 is twice as fast, and
    its rounding error, below 1e-8 in the value, is far below the standard error for any practical number of rows.

    >>> x = torch.randint(2, (500, 32), generator=torch.Generator().manual_seed(0))
    >>> y = torch.randint(2, (400, 32), generator=torch.Generator().manual_seed(1))
    >>> value, standard_error = hamming_mmd(x, y)
    >>> abs(value) < 4 * standard_error
    True
    """
    # Float64 holds whole numbers up to 2^53, and that is what tokens are compared in.
    x, y = _checks.tokens(x, 2**53, "x"), _checks.tokens(y, 2**53, "y")
    check_rows(x, y)
    bandwidth = _checks.positive(bandwidth, "bandwidth")
    chunk = _checks.whole(chunk, "chunk", least=1)
    _checks.require(
        dtype in (torch.float32, torch.float64),
        f"dtype must be torch.float32 or torch.float64, but it is {dtype}. Other types are too coarse to count in.",
    )

    if groups is not None:
        groups = _checks.groups(groups, x)
    num_states = max(2, 1 + int(x.max()), 1 + int(y.max()))
    kernel: Kernel = _Comparisons(bandwidth, dtype)
    if num_states <= MAX_PRODUCT_STATES:
        kernel = _Products(num_states, x.shape[1], bandwidth, dtype)
    return unbiased_mmd(x, y, kernel, chunk, groups)


class _Products:
    """For few states, a matrix multiplication: x . y = D - 2 Hamming of entries +-1, D - Hamming of one-hot rows.

    One more feature, 1 on the right and -D on the left, subtracts D without another pass over the block.
    """

    def __init__(self, num_states: int, dim: int, bandwidth: float, dtype: torch.dtype) -> None:
        self.num_states, self.dim, self.dtype = num_states, dim, dtype
        self.scale = bandwidth / 2 if num_states == 2 else bandwidth

    def features(self, tokens: Int[Tensor, "rows dim"]) -> Float[Tensor, "rows features"]:
        if self.num_states == 2:
            return pad(2 * tokens.to(self.dtype) - 1, (0, 1), value=1.0)
        return pad(one_hot(tokens, self.num_states).flatten(start_dim=1).to(self.dtype), (0, 1), value=1.0)

    def fill(self, left: Float[Tensor, "rows features"], right: Float[Tensor, "columns features"], out: Block) -> Block:
        left = self.scale * left
        left[:, -1] *= -self.dim
        return torch.mm(left, right.T, out=out).exp_()


class _Comparisons:
    """For many states, position by position: the distance with exponent 0 counts the entries that differ."""

    def __init__(self, bandwidth: float, dtype: torch.dtype) -> None:
        self.bandwidth, self.dtype = bandwidth, dtype

    def features(self, tokens: Int[Tensor, "rows dim"]) -> Float64[Tensor, "rows dim"]:
        return tokens.double()

    def fill(self, left: Float64[Tensor, "rows dim"], right: Float64[Tensor, "columns dim"], out: Block) -> Block:
        return torch.mul(torch.cdist(left, right, p=0.0), -self.bandwidth, out=out).exp_()
