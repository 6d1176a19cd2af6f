"""Gradient-boosted trees on tokens: a classifier of rows of categories.

Round after round, a small tree is added to the log odds of each class but the last,

    f_k(x) += rate * sum over leaves [x in leaf] (- G / (H + l2)),

with G and H the sums over the leaf's rows of the first and second derivative of the cross entropy in f_k. All leaves of
a level are split at once. A split of a column sends some of its values to the right: the values are ordered by G / H,
and the best of the splits along this order is taken, which among all sets of values is the best one for a squared error
(Fisher 1958). Everything follows from sums of derivatives by leaf, column and value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int, Int64
from torch import Tensor

from sddm import _checks

Places = Int64[np.ndarray, "rows"]
Columns = Int64[np.ndarray, "rows dim"]
Values = Float64[np.ndarray, "rows"]


class Level(NamedTuple):
    """The splits of all leaves of one level of a tree."""

    column: Int64[np.ndarray, "leaves"]
    right: Bool[np.ndarray, "leaves values"]
    """Which values of the column go to the right; none where a leaf is not split."""

    def children(self, leaf: Places, tokens: Columns) -> Places:
        return 2 * leaf + self.right[leaf, tokens[np.arange(len(tokens)), self.column[leaf]]]


class Tree(NamedTuple):
    """A tree: its levels, and what it says at each leaf."""

    levels: list[Level]
    said: Float64[np.ndarray, "leaves"]

    def __call__(self, tokens: Columns) -> Values:
        leaf = np.zeros(len(tokens), np.int64)
        for level in self.levels:
            leaf = level.children(leaf, tokens)
        return self.said[leaf]


@dataclass(frozen=True)
class Boosting:
    """How trees are grown.

    >>> classifier = Boosting().fit(rows, labels)
    >>> classifier.probabilities(others)
    """

    rounds: int = 100
    depth: int = 3
    rate: float = 0.1
    """The share of each tree's answer that is added."""
    l2: float = 1.0
    least: float = 1.0
    """The least sum of second derivatives in a leaf."""
    smooth: float = 10.0
    """Added to the second derivatives of a value when values are ordered, so that rare ones stay in the middle."""

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("depth", 1)):
            _checks.whole(getattr(self, name), name, least)
        for name in ("rate", "l2", "least", "smooth"):
            _checks.positive(getattr(self, name), name)

    def fit(
        self,
        tokens: Int[Tensor, "rows dim"],
        labels: Int[Tensor, "rows"],
        num_classes: int | None = None,
        num_values: int | None = None,
    ) -> Boosted:
        """A classifier of rows. Classes and tokens go up to the largest that are given, or to these numbers less 1."""
        tokens = _checks.tokens(tokens, 2**31, "tokens").cpu()
        labels = _checks.labels(labels, len(tokens)).cpu()
        most, highest = int(labels.max()) + 1, int(tokens.max()) + 1
        classes = most if num_classes is None else _checks.whole(num_classes, "num_classes", most)
        values = highest if num_values is None else _checks.whole(num_values, "num_values", highest)
        _checks.require(classes > 1, "There is one class only, so that there is nothing to tell apart. Give two.")
        rows, truth = tokens.numpy(), np.eye(classes)[labels.numpy()][:, :-1]
        shares = (np.bincount(labels.numpy(), minlength=classes) + 1) / (len(rows) + classes)
        base = np.log(shares[:-1] / shares[-1])
        scores, trees = np.tile(base, (len(rows), 1)), []
        for _ in range(self.rounds):
            chances = _softmax(scores)[:, :-1]
            grown = [
                self._grow(rows, values, chances[:, k] - truth[:, k], chances[:, k] * (1 - chances[:, k]))
                for k in range(classes - 1)
            ]
            scores += np.stack([tree(rows) for tree in grown], axis=1)
            trees.append(grown)
        return Boosted(base, trees, values)

    def _grow(self, tokens: Columns, values: int, first: Values, second: Values) -> Tree:
        """A tree for these derivatives."""
        num, dim = tokens.shape
        place = (np.arange(dim) * values + tokens).ravel()
        weights = [np.repeat(each, dim) for each in (first, second)]
        leaf, levels = np.zeros(num, np.int64), []
        for depth in range(self.depth):
            leaves = 2**depth
            at = place + np.repeat(leaf * (dim * values), dim)
            sums = (np.bincount(at, each, leaves * dim * values).reshape(leaves, dim, values) for each in weights)
            level = self._split(*sums)
            levels.append(level)
            leaf = level.children(leaf, tokens)
        total, curve = (np.bincount(leaf, each, 2**self.depth) for each in (first, second))
        return Tree(levels, -self.rate * total / (curve + self.l2))

    def _split(
        self, first: Float64[np.ndarray, "leaves dim values"], second: Float64[np.ndarray, "leaves dim values"]
    ) -> Level:
        """The best split of each leaf, from the sums of derivatives of each value of each column."""
        order = np.argsort(first / (second + self.smooth), axis=-1)
        left = np.cumsum(np.take_along_axis(first, order, -1), -1)
        left_curve = np.cumsum(np.take_along_axis(second, order, -1), -1)
        total, curve = left[..., -1:], left_curve[..., -1:]
        right, right_curve = total - left, curve - left_curve
        gain = left**2 / (left_curve + self.l2) + right**2 / (right_curve + self.l2) - total**2 / (curve + self.l2)
        gain = np.where(np.minimum(left_curve, right_curve) >= self.least, gain, 0.0)
        leaves = np.arange(len(gain))
        best = gain.reshape(len(gain), -1).argmax(1)
        column, last = np.divmod(best, gain.shape[-1])
        ranks = np.argsort(order[leaves, column], axis=-1)
        split = gain[leaves, column, last] > 1e-12
        return Level(column, (ranks > last[:, None]) & split[:, None])


class Boosted:
    """The classifier that comes of it."""

    def __init__(self, base: Float64[np.ndarray, "others"], trees: list[list[Tree]], num_values: int) -> None:
        self.base, self.trees, self.num_values = base, trees, num_values

    def probabilities(self, tokens: Int[Tensor, "rows dim"]) -> Float64[Tensor, "rows classes"]:
        """The law of the class of each row."""
        rows = _checks.tokens(tokens, self.num_values, "tokens").cpu().numpy()
        scores = np.tile(self.base, (len(rows), 1))
        for grown in self.trees:
            scores += np.stack([tree(rows) for tree in grown], axis=1)
        return torch.from_numpy(_softmax(scores))


def _softmax(scores: Float64[np.ndarray, "rows others"]) -> Float64[np.ndarray, "rows classes"]:
    """The law of the classes, of which the last has a score of 0."""
    scores = np.concatenate([scores, np.zeros((len(scores), 1))], axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
