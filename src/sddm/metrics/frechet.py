"""The Fréchet distance of two Gaussians, and FID: that of the features of samples and of data.

    d^2 = |m_1 - m_2|^2 + tr S_1 + tr S_2 - 2 tr (S_1^(1/2) S_2 S_1^(1/2))^(1/2)

S_1 S_2 has the same eigenvalues as S_1^(1/2) S_2 S_1^(1/2), but it is not symmetric. If a covariance is singular, as
that of fewer rows than features always is, rounding makes some of its eigenvalues negative or complex, and the square
root of the matrix, as it is usually computed, fails or loses digits. The eigenvalues of a symmetric matrix are real,
and each is right up to a rounding of the largest. The few that rounding makes negative count as 0.

FID has a bias: the covariance of n rows is that of the law plus noise, and so two sets of the very same law are apart.
Figures can be compared only if they come from the same numbers of rows. How the distance depends on these numbers is
seen by leaving rows out; see `fid`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm.metrics.features import as_features
from sddm.metrics.inception import Inception, Pictures

Features = Float[Tensor, "_num _features"] | Float[np.ndarray, "_num _features"]
Vector = Float64[Tensor, "features"]
Matrix = Float64[Tensor, "features features"]
CHUNK = 4096
"""How many rows are turned into float64 at a time."""


class Moments(NamedTuple):
    """How many rows there are, their mean, and the sum of their squared deviations from it.

    Those of two sets together are their sum; those of a set without some of its rows a difference.

    >>> first, second = Moments.of(torch.eye(2)), Moments.of(torch.ones(2, 2))
    >>> (first + second).num, ((first + second) - second).mean.tolist()
    (4, [0.5, 0.5])
    """

    num: int
    mean: Vector
    scatter: Matrix

    @classmethod
    def of(cls, rows: Float[Tensor, "num features"]) -> Moments:
        """The moments of rows, in float64, added up a chunk at a time."""
        chunks = (chunk.double() for chunk in rows.split(CHUNK))
        total = cls._of_few(next(chunks))
        for chunk in chunks:
            total = total + cls._of_few(chunk)
        return total

    @classmethod
    def _of_few(cls, rows: Float64[Tensor, "num features"]) -> Moments:
        mean = rows.mean(dim=0)
        return cls(len(rows), mean, (rows - mean).T @ (rows - mean))

    def __add__(self, other: Moments) -> Moments:  # type: ignore[override]
        num, gap = self.num + other.num, other.mean - self.mean
        between = torch.outer(gap, gap * (self.num * other.num / num))
        return Moments(num, self.mean + gap * (other.num / num), self.scatter + other.scatter + between)

    def __sub__(self, other: Moments) -> Moments:
        num = self.num - other.num
        mean = self.mean + (self.mean - other.mean) * (other.num / num)
        gap = other.mean - mean
        return Moments(num, mean, self.scatter - other.scatter - torch.outer(gap, gap * (num * other.num / self.num)))

    @property
    def covariance(self) -> Matrix:
        return self.scatter / (self.num - 1)


class FID(NamedTuple):
    """The FID of samples and data."""

    value: float
    """The usual figure. It falls with the number of rows."""
    standard_error: float
    """From both sets as draws of their laws."""
    corrected: float
    """Without the bias in proportion to 1/n: nearer to the FID of infinitely many rows. It may be negative."""


def frechet_distance(mean: Vector, covariance: Matrix, other_mean: Vector, other_covariance: Matrix) -> float:
    """The squared Fréchet distance of two Gaussians, whose covariances may be singular.

    >>> one, two = torch.eye(3).double(), 4 * torch.eye(3).double()
    >>> frechet_distance(torch.zeros(3).double(), one, torch.ones(3).double(), two)      # 3 (1 + (2 - 1)^2)
    6.0
    """
    for value, name in ((covariance, "covariance"), (other_covariance, "other_covariance")):
        _checks.require(
            bool(torch.isfinite(value).all()) and torch.allclose(value, value.T, rtol=1e-8, atol=1e-12),
            f"{name} must be symmetric and finite. Compute it in float64, by Moments.of(features).covariance.",
        )
    return _distance(mean - other_mean, _root(covariance), covariance, other_covariance)


def fid(
    samples: Pictures | Features,
    data: Pictures | Features,
    network: Inception | None = None,
    groups: int = 10,
    keep: bool = True,
    folder: Path | None = None,
) -> FID:
    """The Fréchet distance between the Gaussians of the features of samples and of data.

    Pictures (uint8, (num, height, width, channels)) go through the network, by default `load_inception()`; features are
    taken as they are. keep and folder: those of `features`.

    The error and the correction come from a jackknife over G groups of rows. With F the distance and F_g that without
    group g of the samples, or of the data,

        bias = (G - 1) (mean F_g - F)        error^2 = (G - 1) / G sum_g (F_g - mean F_g)^2

    and the biases and the squared errors of both sets add up, so that rows must be independent draws. `corrected` is
    F - bias.

    The error covers both sets as draws of their laws. If the laws are the same, it is about 1.5 times too large, since
    the distance is then quadratic in the noise. The correction is right as far as the bias is in proportion to 1/n,
    that is, for many more rows than features. For two halves of 2,500 pictures of CIFAR-10, with 2,048 features, the
    usual figure was 38.7, the corrected one 4.7; 0 would be right.
    """
    of_samples, of_data = (
        rows.to("cpu") for rows in as_features({"samples": samples, "data": data}, network, keep, folder)
    )
    _checks.whole(groups, "groups", 2)
    for rows, name in ((of_samples, "samples"), (of_data, "data")):
        _checks.require(
            len(rows) >= 2 * groups,
            f"{name} must have at least {2 * groups} rows, 2 in each of {groups} groups, but they have {len(rows)}.",
        )
    first, second = Moments.of(of_samples), Moments.of(of_data)
    root_of_first, root_of_second = _root(first.covariance), _root(second.covariance)

    def of_other_samples(moments: Moments) -> float:
        return _distance(moments.mean - second.mean, root_of_second, second.covariance, moments.covariance)

    def of_other_data(moments: Moments) -> float:
        return _distance(moments.mean - first.mean, root_of_first, first.covariance, moments.covariance)

    value = of_other_samples(first)
    variance, bias = 0.0, 0.0
    for rows, all_rows, distance in ((of_samples, first, of_other_samples), (of_data, second, of_other_data)):
        left = _without_each(rows, all_rows, groups, distance)
        bias += (groups - 1) * float(left.mean() - value)
        variance += (groups - 1) * float(left.var(correction=0))
    return FID(value, math.sqrt(variance), value - bias)


def _without_each(
    rows: Float[Tensor, "num features"], moments: Moments, groups: int, distance: Callable[[Moments], float]
) -> Float64[Tensor, "groups"]:
    """The distance without each group. Neighbours, which may be alike, are in different groups."""
    return torch.tensor([distance(moments - Moments.of(rows[g::groups])) for g in range(groups)], dtype=torch.float64)


def _root(covariance: Matrix) -> Matrix:
    """The symmetric square root."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


def _distance(gap: Vector, root: Matrix, covariance: Matrix, other: Matrix) -> float:
    """The distance by the root of one covariance; rounding below 0 counts as 0."""
    product = root @ other @ root
    overlap = torch.linalg.eigvalsh((product + product.T) / 2).clamp(min=0).sqrt().sum()
    return max(float(gap @ gap + covariance.trace() + other.trace() - 2 * overlap), 0.0)
