"""Tokens together with what they mean."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.config import describe
from sddm.data.arrays import integers
from sddm.data.decoders import DECODERS, Decoder, Integers

MAX_LENGTH = 65_536
"""The most positions a sample may have."""
MAX_STATES = 1_000_000
"""The most values a position may have."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples as tokens, one a row, and the decoder that turns tokens back into what the user's file held.

    >>> data = Dataset.from_tokens(np.array([[0, 1, 2], [2, 1, 0]]))
    >>> data.num_states, data.length
    (3, 3)
    """

    tokens: Int[Tensor, "num dim"]
    """int64 tokens on the CPU."""
    decoder: Decoder
    """What the tokens mean."""
    name: str
    """The name of the file or of the toy."""

    def __post_init__(self) -> None:
        _checks.instance(self.decoder, Decoder, "decoder")
        _checks.require(
            self.num_states <= MAX_STATES,
            f"{self.name} has {self.num_states} states, but at most {MAX_STATES} are possible. "
            "Number the values that occur from 0 without gaps.",
        )
        self.decoder.check(self.tokens)
        _checks.require(
            self.length <= MAX_LENGTH,
            f"{self.name} has {self.length} positions a sample, but at most {MAX_LENGTH} are possible. "
            "Cut the samples into shorter ones.",
        )

    @classmethod
    def from_tokens(cls, tokens: Any, num_states: int | None = None, name: str = "tokens") -> Dataset:
        """Samples (num, dim) in an array or a tensor of whole numbers from 0 to num_states - 1 (None: the largest)."""
        rows = integers(tokens, name)
        low, high = (int(v) for v in torch.aminmax(rows))
        _checks.require(
            low >= 0, f"{name} must not hold negative numbers, but its smallest is {low}. Number the values from 0."
        )
        if num_states is None:
            _checks.require(low < high, f"All tokens of {name} equal {low}: there is nothing to learn. Give others.")
            num_states = high + 1
        _checks.whole(num_states, "num_states", 2)
        return cls(rows, Integers(num_states), name)

    @property
    def num_states(self) -> int:
        """How many values a position can have."""
        return self.decoder.num_states

    @property
    def length(self) -> int:
        """How many positions a sample has."""
        return self.tokens.shape[1]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def fingerprint(self) -> str:
        """The same for the same tokens with the same meaning, whatever the file was called."""
        meaning = describe(self.decoder, {kind: name for name, kind in DECODERS.items()})
        hasher = blake2b(digest_size=16)
        hasher.update(json.dumps([list(self.tokens.shape), meaning], sort_keys=True).encode())
        hasher.update(self.tokens.cpu().contiguous().numpy().astype("<i8", copy=False).data)
        return hasher.hexdigest()

    def split(self, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
        """All rows but a random share, and that share: `train, validation = data.split(0.1, seed=0)`."""
        share = _checks.finite(held_out, "held_out")
        _checks.require(0 < share < 1, f"held_out must lie between 0 and 1, but it is {share:g}.")
        _checks.whole(seed, "seed", 0)
        num = len(self)
        _checks.require(num >= 2, f"{self.name} has {num} row, but a split needs at least 2. Give more data.")
        order = torch.randperm(num, generator=torch.Generator().manual_seed(seed))
        held = min(max(round(share * num), 1), num - 1)
        parts = (order[held:].sort().values, order[:held].sort().values)
        kept, apart = (replace(self, tokens=self.tokens[rows]) for rows in parts)
        return kept, apart
