"""Tokens together with what they mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from sddm import _checks, _files
from sddm.codecs import MAX_LABELS, MAX_LENGTH, MAX_STATES, Codec, Integers, saved_names
from sddm.config import describe
from sddm.randomness import Shuffle
from sddm.token_array import TokenArray


class Dataset:
    """Samples as tokens, one a row, and the codec that turns tokens back into what the user's file held.

    groups, labels, lengths: a number for each row, or None; label_names: what the labels stand for; report: what was
        kept of the source. See `sddm.codecs.Encoded`.
    num_labels: how many labels there are, also in parts that do not have them all.
    name: of the file or of the toy, for error messages.

    >>> data = Dataset.from_tokens(np.array([[0, 1, 2], [2, 1, 0]]))
    >>> data.num_states, data.length
    (3, 3)
    >>> data.tokens[:1]
    tensor([[0, 1, 2]])
    """

    def __init__(
        self,
        tokens: TokenArray | Tensor | np.ndarray,
        codec: Codec,
        groups: Sequence[int] | Tensor | None = None,
        labels: Sequence[int] | Tensor | None = None,
        lengths: Sequence[int] | Tensor | None = None,
        report: str = "",
        label_names: Sequence[str] | None = None,
        name: str = "tokens",
    ) -> None:
        _checks.instance(codec, Codec, "codec")
        self.tokens = tokens if isinstance(tokens, TokenArray) else TokenArray(tokens)
        self.codec, self.name, self.report = codec, name, report
        self.groups, self.labels = self._numbers(groups, "groups"), self._numbers(labels, "labels")
        self.lengths = self._numbers(lengths, "lengths")
        self.label_names = None if label_names is None else [*label_names]
        self.num_labels = self._count_labels()
        _checks.require(
            self.lengths is None or (int(self.lengths.min()) >= 1 and int(self.lengths.max()) <= self.length),
            f"lengths of {self.name} must lie between 1 and the {self.length} positions of a row.",
        )
        _checks.require(
            self.num_states <= MAX_STATES,
            f"{self.name} has {self.num_states} states, but at most {MAX_STATES} are possible. "
            "Number the values that occur from 0 without gaps.",
        )
        low, high = self.tokens.low, self.tokens.high
        _checks.require(
            self.lengths is not None or not codec.ragged,
            f"{self.name} has rows of different lengths, as its codec says. Give lengths.",
        )
        _checks.require(
            low >= 0 and high < self.num_states + codec.ragged,
            f"tokens must hold tokens from 0 to {self.num_states - 1}, but it holds values from {low} to {high}.",
        )
        if self.codec.sizes is not None:
            self.codec.check_sizes(self.tokens.highest().tolist())
        _checks.require(
            self.length <= MAX_LENGTH,
            f"{self.name} has {self.length} positions a sample, but at most {MAX_LENGTH} are possible. "
            "Cut the samples into shorter ones.",
        )

    @classmethod
    def from_tokens(cls, tokens: Any, num_states: int | None = None, name: str = "tokens") -> Dataset:
        """Samples (num, dim) in an array or a tensor of whole numbers from 0 to num_states - 1 (None: the largest).

        They are copied, except for a large array that is mapped from a file (numpy.load with mmap_mode="r").
        """
        return cls(*Integers.numbered(tokens, num_states, name), name=name)

    @classmethod
    def from_rows(cls, rows: Sequence[Any], num_states: int | None = None, name: str = "rows") -> Dataset:
        """Samples of different lengths: lists, arrays or tensors of whole numbers from 0 to num_states - 1.

        >>> Dataset.from_rows([[0, 1, 2], [2, 1]]).lengths
        tensor([3, 2])
        """
        return cls(*Integers.of_rows(rows, num_states, name), name=name)

    @property
    def num_states(self) -> int:
        """How many values a position can have."""
        return self.codec.num_states

    @property
    def length(self) -> int:
        """How many positions a sample has."""
        return self.tokens.shape[1]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def fingerprint(self) -> str:
        """A hash of the tokens and their meaning, whatever the name of the file.

        Of more than 2^26 tokens, only the sum and the end of each million are hashed: any changed token changes the
        hash, but swapping rows within a million may not.
        """
        meaning, network = describe(self.codec, saved_names()), self.codec.network
        hasher = blake2b(digest_size=16)
        if network is not None:
            hasher.update(_files.digest("", network.state_dict()).encode())
        hasher.update(json.dumps([list(self.tokens.shape), meaning], sort_keys=True).encode())
        for numbers in (self.labels, self.lengths):
            if numbers is not None:
                hasher.update(numbers.numpy().tobytes())
        self.tokens.digest_into(hasher)
        return hasher.hexdigest()

    def split(self, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
        """The training rows and a random share of held-out rows: `train, validation = data.split(0.1, seed=0)`.

        If the data have groups, whole groups are held out.
        """
        share = _checks.finite(held_out, "held_out")
        _checks.require(0 < share < 1, f"held_out must lie between 0 and 1, but it is {share:g}.")
        _checks.whole(seed, "seed", 0)
        num = len(self)
        _checks.require(num >= 2, f"{self.name} has {num} row, but a split needs at least 2. Give more data.")
        generator = torch.Generator().manual_seed(seed)
        if self.groups is None:
            held = min(max(round(share * num), 1), num - 1)
            apart = Shuffle(num, generator)(torch.arange(held))
            apart.numpy().sort()  # in place: there may be tens of millions
        else:
            apart = self._of_some_groups(share * num, generator)
        return self._part(self.tokens.without(apart), apart, False), self._part(self.tokens.select(apart), apart, True)

    def _of_some_groups(self, wanted: float, generator: torch.Generator) -> Int64[Tensor, "rows"]:
        """The rows of random groups, about `wanted` rows in all."""
        assert self.groups is not None
        _, group, sizes = self.groups.unique(return_inverse=True, return_counts=True)
        _checks.require(len(sizes) >= 2, f"All rows of {self.name} are in one group, but a split needs 2. Give more.")
        order = torch.randperm(len(sizes), generator=generator)
        before = sizes[order].cumsum(0) - sizes[order] / 2
        held = min(max(int((before <= wanted).sum()), 1), len(sizes) - 1)
        return torch.isin(group, order[:held]).nonzero().squeeze(1)

    def _part(self, tokens: TokenArray, apart: Int64[Tensor, "rows"], held_out: bool) -> Dataset:
        part = copy(self)
        part.tokens = tokens
        numbers = (self.groups, self.labels, self.lengths)
        if any(of_rows is not None for of_rows in numbers):
            kept = torch.full((len(self),), not held_out).index_fill(0, apart, held_out)
            part.groups, part.labels, part.lengths = (None if rows is None else rows[kept] for rows in numbers)
        return part

    def _count_labels(self) -> int:
        if self.labels is None:
            return 0
        low, high = int(self.labels.min()), int(self.labels.max())
        _checks.require(
            low >= 0 and high < MAX_LABELS,
            f"labels of {self.name} must lie between 0 and {MAX_LABELS - 1}, but they span {low} to {high}. Number "
            "the classes from 0 without gaps.",
        )
        names = self.label_names
        _checks.require(
            names is None or high < len(names),
            f"labels of {self.name} go up to {high}, but label_names has only {len(names or [])} names.",
        )
        return high + 1 if names is None else len(names)

    def _numbers(self, value: Sequence[int] | Tensor | None, name: str) -> Int64[Tensor, "num"] | None:
        if value is None:
            return None
        numbers = torch.as_tensor(value)
        _checks.require(
            numbers.shape == (len(self),) and not numbers.is_floating_point(),
            f"{name} must hold one whole number for each of the {len(self)} rows, but it is of {numbers.dtype} and has "
            f"shape {tuple(numbers.shape)}.",
        )
        return numbers.long()
