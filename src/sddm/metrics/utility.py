"""What rows are good for: predictions of a column, by a classifier that is trained on them and tested on data."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sddm import _checks
from sddm.metrics.boosting import Boosting
from sddm.metrics.paired import paired_difference
from sddm.metrics.variation import Estimate


class Utility(NamedTuple):
    """The share of rows of data whose value in a column is predicted from the other columns."""

    by_samples: Estimate
    """By boosted trees that were trained on samples."""
    by_data: Estimate
    """By those that were trained on data."""
    difference: Estimate
    """The first minus the second, on the same rows."""
    by_guess: Estimate
    """By the most frequent value of the data."""


def utility(
    samples: Int[Tensor, "n dim"], train: Int[Tensor, "m dim"], held_out: Int[Tensor, "others dim"], target: int
) -> Utility:
    """Train on samples and on training rows, and test both on held-out rows, whose errors are given."""
    sets = {"samples": samples, "train": train, "held_out": held_out}
    for name, rows in sets.items():
        _checks.tokens(rows, 2**31, name, length=samples.shape[1])
    _checks.require(samples.shape[1] > 1, "There is one column only, so that there is nothing to predict it from.")
    _checks.whole(target, "target", 0, samples.shape[1] - 1)
    values = 1 + max(int(rows.max()) for rows in sets.values())
    truth = held_out[:, target]
    guess = train[:, target].mode().values
    right = [_right(rows, held_out, target, values) for rows in (samples, train)] + [truth == guess]
    by_samples, by_data, by_guess = (Estimate.of_share(hits) for hits in right)
    return Utility(by_samples, by_data, Estimate(*paired_difference(right[0].double(), right[1].double())), by_guess)


def _right(rows: Int[Tensor, "n dim"], tested: Int[Tensor, "m dim"], target: int, values: int) -> Bool[Tensor, "m"]:
    others = torch.arange(rows.shape[1]) != target
    known, labels = rows[:, target].unique(return_inverse=True)
    if len(known) == 1:
        return tested[:, target] == known[0]
    classifier = Boosting().fit(rows[:, others], labels, len(known), values)
    return known[classifier.probabilities(tested[:, others]).argmax(dim=1)] == tested[:, target]
