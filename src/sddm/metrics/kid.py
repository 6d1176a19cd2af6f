"""KID: the MMD^2 between the features of samples and of data, with the cubic kernel

    k(a, b) = (a . b / num_features + 1)^3

Unlike FID it is estimated without bias (see `u_statistic`), so that figures of different numbers of pictures can be
compared, and a thousand pictures give one with an error bar. Many papers give it times 1,000.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm.metrics.features import as_features
from sddm.metrics.frechet import Features
from sddm.metrics.inception import Inception, Pictures
from sddm.metrics.u_statistic import MMD, Block, check_rows, unbiased_mmd


def kid(
    samples: Pictures | Features,
    data: Pictures | Features,
    network: Inception | None = None,
    chunk: int = 1024,
    keep: bool = True,
    folder: Path | None = None,
) -> MMD:
    """The unbiased MMD^2 of the features of samples and data, and its standard error; it may be negative.

    Pictures (uint8, (num, height, width, channels)) go through the network, by default `load_inception()`; features are
    taken as they are. keep and folder: those of `features`. Two rows of each are enough for the value; the error needs
    four of each. Memory holds one chunk x chunk block of the kernel.

    >>> rows = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    >>> value, standard_error = kid(rows[:250], rows[250:])
    >>> abs(value) < 4 * standard_error
    True
    """
    x, y = as_features({"samples": samples, "data": data}, network, keep, folder)
    check_rows(x, y)
    return unbiased_mmd(x, y, _Cubic(), _checks.whole(chunk, "chunk", 1))


class _Cubic:
    """The kernel in float64."""

    dtype = torch.float64

    def features(self, rows: Float[Tensor, "rows dim"]) -> Float64[Tensor, "rows dim"]:
        return rows.double()

    def fill(self, left: Float64[Tensor, "rows dim"], right: Float64[Tensor, "columns dim"], out: Block) -> Block:
        torch.mm(left, right.T / right.shape[1], out=out)
        out += 1
        return out.pow_(3)
