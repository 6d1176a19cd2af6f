"""How well a classifier tells the rows of two sets apart: the area under its ROC curve, cross-validated.

    AUC = P(score of x > score of y) + P(equal) / 2

for scores by classifiers that have seen neither of the two rows. It is 1/2 if the sets have the same law. The best
classifier, which knows both laws, scores by their ratio; no other one has a larger AUC.
"""

from __future__ import annotations

import math
from statistics import mean

import torch
from jaxtyping import Float64, Int, Shaped
from torch import Tensor

from sddm import _checks
from sddm.metrics.boosting import Boosting
from sddm.metrics.variation import Estimate

FOLDS = 5


def auc(x: Shaped[Tensor, "n"], y: Shaped[Tensor, "m"]) -> Estimate:
    """The area for these scores, with the error for independent rows of both sets (DeLong et al. 1988)."""
    _checks.require(min(len(x), len(y)) > 1, "x and y must hold at least two scores each.")
    above_y, above_x = _above(x, y), 1 - _above(y, x)
    error = math.sqrt(float(above_y.var()) / len(x) + float(above_x.var()) / len(y))
    return Estimate(float(above_y.mean()), error)


def told_apart(
    x: Int[Tensor, "n dim"],
    y: Int[Tensor, "m dim"],
    generator: torch.Generator | None = None,
    boosting: Boosting | None = None,
) -> Estimate:
    """The AUC of boosted trees that are trained on four fifths of both sets and tested on the last fifth, each in turn.

    A fold has the error of its rows. Folds are not independent: each is tested by classifiers that have learnt from the
    others, by chance the same mistakes. So the variance of their mean is (1 / FOLDS + 1 / (FOLDS - 1)) times that of a
    fold (Nadeau and Bengio 2003), and not 1 / FOLDS times.
    """
    boosting = boosting or Boosting()
    _checks.generator(generator)
    for rows, name in ((x, "x"), (y, "y")):
        _checks.require(len(rows) >= 2 * FOLDS, f"{name} must have at least {2 * FOLDS} rows, but has {len(rows)}.")
    values = 1 + max(int(x.max()), int(y.max()))
    tokens = torch.cat([_checks.tokens(x, values, "x"), _checks.tokens(y, values, "y", length=x.shape[1])])
    labels = (torch.arange(len(tokens)) < len(x)).long()
    fold = torch.cat([torch.randperm(len(rows), generator=generator) % FOLDS for rows in (x, y)])
    found = []
    for number in range(FOLDS):
        inside, tested = fold != number, fold == number
        # Values that the training part does not hold have places all the same.
        classifier = boosting.fit(tokens[inside], labels[inside], num_values=values)
        scores, truth = classifier.probabilities(tokens[tested])[:, 1], labels[tested]
        found.append(auc(scores[truth == 1], scores[truth == 0]))
    of_fold = mean(each.standard_error**2 for each in found)
    return Estimate(mean(each.value for each in found), math.sqrt(of_fold * (1 / FOLDS + 1 / (FOLDS - 1))))


def _above(x: Shaped[Tensor, "n"], y: Shaped[Tensor, "m"]) -> Float64[Tensor, "n"]:
    """The share of y that each x is above of; equal ones count half."""
    y = y.sort().values
    below = torch.searchsorted(y, x.contiguous())
    return (below + torch.searchsorted(y, x.contiguous(), right=True)).double() / (2 * len(y))
