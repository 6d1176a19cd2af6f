"""What is already known of a sample: a prefix, a hole to fill, scattered tokens. All are a mask and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm import _checks


@dataclass(frozen=True)
class Condition:
    """Positions where `mask` is True are given and hold `values`; the others are to be generated.

    Both have shape (dim,), the same for every sample, or (num, dim), one row a sample.

    ranges: for every sample, the weight of each token at some positions, from 0 to 1, where they are not given. Samples
        are then those of the model in proportion to the product of their weights: see `sddm.samplers.ranges`.

    >>> Condition.from_blanks(torch.tensor([3, 1, -1, -1, 4]))       # keep the ends, fill the hole
    >>> Condition.from_prefix(melody[:, :32], length=256)            # continue each melody
    """

    mask: Bool[Tensor, "*rows dim"]
    values: Int[Tensor, "*rows dim"]
    ranges: Mapping[int, Float64[Tensor, "states"]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mask, values = (_checks.tensor(self.mask, "condition mask"), _checks.tensor(self.values, "condition values"))
        _checks.require(
            values.ndim in (1, 2) and values.numel() > 0,
            f"condition values must have shape (dim,) or (num, dim), but have shape {tuple(values.shape)}.",
        )
        _checks.boolean_mask(mask, values.shape, "condition mask")
        if values.dtype != torch.int64:
            raise TypeError(f"condition values must be of dtype torch.int64, but they are of {values.dtype}.")
        for position, weights in self.ranges.items():
            _checks.whole(position, "position of a range", 0, values.shape[-1] - 1)
            weights = _checks.tensor(weights, f"range at position {position}")
            _checks.require(
                weights.ndim == 1 and bool(((weights >= 0) & (weights <= 1)).all()) and bool(weights.any()),
                f"range at position {position} must hold a weight from 0 to 1 for each token, one of them above 0.",
            )

    @classmethod
    def from_blanks(cls, values: Int[Tensor, "*rows dim"], blank: int = -1) -> Condition:
        """Everything but the blanks is given."""
        values = _checks.tensor(values, "values")
        _checks.whole(blank, "blank", -(2**63))
        return cls(values != blank, values)

    @classmethod
    def from_prefix(cls, prefix: Int[Tensor, "*rows given"], length: int) -> Condition:
        """The first tokens are given; `length` is that of the whole sample."""
        prefix = _checks.tensor(prefix, "prefix")
        if prefix.ndim not in (1, 2):
            raise ValueError(f"prefix must have shape (given,) or (num, given), but has {tuple(prefix.shape)}.")
        _checks.whole(length, "length", 1)
        _checks.require(
            prefix.shape[-1] < length,
            f"prefix has {prefix.shape[-1]} tokens, which leaves nothing to generate in a length of {length}.",
        )
        blanks = prefix.new_full((*prefix.shape[:-1], length - prefix.shape[-1]), -1)
        return cls.from_blanks(torch.cat([prefix, blanks], dim=-1))

    def __or__(self, other: Condition) -> Condition:
        """Both conditions at once; they must not contradict each other."""
        _checks.instance(other, Condition, "A condition to join with |")
        _checks.require(
            self.mask.shape[-1] == other.mask.shape[-1],
            f"conditions of different lengths cannot be joined: {self.mask.shape[-1]} and {other.mask.shape[-1]}.",
        )
        rows = {c.mask.shape[0] for c in (self, other) if c.mask.ndim == 2}
        _checks.require(len(rows) < 2, f"conditions of {' and '.join(map(str, rows))} rows cannot be joined.")
        clash = self.mask & other.mask & (self.values != other.values)
        if bool(clash.any()):
            where = int(clash.nonzero()[0][-1])
            raise ValueError(f"The two conditions clash: they give different tokens for position {where}. Drop one.")
        ranges = {**self.ranges, **other.ranges}
        for position in self.ranges.keys() & other.ranges.keys():
            ranges[position] = self.ranges[position] * other.ranges[position]
        return Condition(self.mask | other.mask, torch.where(self.mask, self.values, other.values), ranges)

    def rows(self, rows: slice) -> Condition:
        """The condition of some of the samples."""
        return self if self.mask.ndim == 1 else Condition(self.mask[rows], self.values[rows], self.ranges)

    def for_samples(
        self, num: int, length: int, num_states: int
    ) -> tuple[Bool[Tensor, "num dim"], Int[Tensor, "num dim"]]:
        """Mask and values for `num` samples, checked against the model."""
        require = _checks.require
        if self.mask.shape[-1] != length:
            raise ValueError(f"condition has {self.mask.shape[-1]} positions, but the samples have {length}.")
        require(
            self.mask.ndim == 1 or self.mask.shape[0] == num,
            f"condition has {self.mask.shape[0]} rows, but {num} samples were asked for. "
            "Give one row a sample, or one row for all.",
        )
        known = self.values[self.mask]
        require(
            known.numel() == 0 or (int(known.min()) >= 0 and int(known.max()) < num_states),
            f"condition values must be tokens from 0 to {num_states - 1} where they are given.",
        )
        values = self.values.clamp(0, num_states - 1)
        for position, weights in self.ranges.items():
            require(
                len(weights) <= num_states,
                f"range at position {position} has {len(weights)} weights, but there are {num_states} tokens.",
            )
            given = self.values[..., position][self.mask[..., position]]
            require(
                bool((F.pad(weights, (0, num_states - len(weights)))[given] > 0).all()),
                f"condition gives a token at position {position} that its range there does not allow. Drop one.",
            )
        return self.mask.expand(num, length), values.expand(num, length)
