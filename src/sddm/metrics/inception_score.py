"""The Inception score: how sure the network is of the class of each picture, and how many classes there are.

    IS = exp( mean over pictures of KL( p(class | picture) || p(class) ) )

p(class) is the mean over the pictures. The score lies between 1 (the network sees no difference between the pictures)
and the number of classes. It does not look at the data, so compare it with the score of data.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sddm import _checks
from sddm.metrics.features import in_parts
from sddm.metrics.inception import Inception, Pictures, load_inception

ROUNDING = 1e-3
"""How far from 1 a sum of probabilities in half precision may be."""


class InceptionScore(NamedTuple):
    """The mean of the scores of the splits, and their standard deviation: that of one split, not of the mean."""

    value: float
    standard_deviation: float


def inception_score(
    samples: Pictures | Float[Tensor, "num classes"] | Float[np.ndarray, "num classes"],
    network: Inception | None = None,
    splits: int = 10,
    keep: bool = True,
    folder: Path | None = None,
) -> InceptionScore:
    """The score of consecutive splits of the samples, in their order. It grows with the size of a split.

    Pictures (uint8, (num, height, width, channels)) need a network that has its head, which that of the package on PyPI
    has not; class probabilities are taken as they are. keep and folder: those of `features`.

    >>> inception_score(torch.eye(4).repeat(10, 1), splits=10).value
    4.0
    """
    if samples.ndim == 4:
        network = load_inception() if network is None else network
        network.check_head()
        samples = in_parts(network.probabilities, f"probabilities {network.digest}", samples, keep, folder)
    p = torch.as_tensor(samples).double()
    _checks.require(
        p.ndim == 2 and bool((p >= 0).all()) and bool(((p.sum(dim=1) - 1).abs() < ROUNDING).all()),
        "samples must be pictures, in uint8 of shape (num, height, width, channels), or a row of class probabilities a "
        f"picture, which sum to 1, but they are {samples.dtype} of shape {tuple(samples.shape)}.",
    )
    _checks.whole(splits, "splits", 1, len(p))
    scores = torch.stack([_score(p[i * len(p) // splits : (i + 1) * len(p) // splits]) for i in range(splits)])
    return InceptionScore(float(scores.mean()), float(scores.std(correction=0)))


def _score(p: Float[Tensor, "num classes"]) -> Tensor:
    """With 0 log 0 = 0."""
    overall = p.mean(dim=0)
    return (torch.xlogy(p, p) - torch.xlogy(p, overall)).sum(dim=1).mean().exp()
