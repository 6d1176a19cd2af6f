"""Tokens together with what they mean."""

from __future__ import annotations

import json
from copy import copy
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sddm import _checks
from sddm.config import describe
from sddm.data.arrays import TokenArray
from sddm.data.decoders import DECODERS, Decoder, Integers
from sddm.randomness import Shuffle

MAX_LENGTH = 65_536
"""The most positions a sample may have."""
MAX_STATES = 1_000_000
"""The most values a position may have."""


class Dataset:
    """Samples as tokens, one a row, and the decoder that turns tokens back into what the user's file held.

    >>> data = Dataset.from_tokens(np.array([[0, 1, 2], [2, 1, 0]]))
    >>> data.num_states, data.length
    (3, 3)
    >>> data.tokens[:1]
    tensor([[0, 1, 2]])
    """

    tokens: TokenArray
    """The rows, which are int64 once they are taken out."""
    decoder: Decoder
    """What the tokens mean."""
    name: str
    """The name of the file or of the toy."""

    def __init__(self, tokens: TokenArray | Tensor | np.ndarray, decoder: Decoder, name: str = "tokens") -> None:
        _checks.instance(decoder, Decoder, "decoder")
        self.tokens = tokens if isinstance(tokens, TokenArray) else TokenArray(tokens)
        self.decoder, self.name = decoder, name
        _checks.require(
            self.num_states <= MAX_STATES,
            f"{self.name} has {self.num_states} states, but at most {MAX_STATES} are possible. "
            "Number the values that occur from 0 without gaps.",
        )
        self.decoder.check_range(self.tokens.low, self.tokens.high)
        if self.decoder.sizes is not None:
            self.decoder.check_sizes(self.tokens.highest().tolist())
        _checks.require(
            self.length <= MAX_LENGTH,
            f"{self.name} has {self.length} positions a sample, but at most {MAX_LENGTH} are possible. "
            "Cut the samples into shorter ones.",
        )

    @classmethod
    def from_tokens(cls, tokens: Any, num_states: int | None = None, name: str = "tokens") -> Dataset:
        """Samples (num, dim) in an array or a tensor of whole numbers from 0 to num_states - 1 (None: the largest).

        They are copied, but for a large array that is mapped from a file (numpy.load with mmap_mode="r").
        """
        rows = TokenArray(tokens, name)
        low, high = rows.low, rows.high
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
        """The same for the same tokens with the same meaning, whatever the file was called.

        Of more than 2^26 tokens only the sum and the end of each mebibyte enter: any token that is changed is noticed,
        but rows that change places within a mebibyte may not be.
        """
        meaning = describe(self.decoder, {kind: name for name, kind in DECODERS.items()})
        hasher = blake2b(digest_size=16)
        hasher.update(json.dumps([list(self.tokens.shape), meaning], sort_keys=True).encode())
        self.tokens.digest_into(hasher)
        return hasher.hexdigest()

    def split(self, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
        """All rows but a random share, and that share: `train, validation = data.split(0.1, seed=0)`."""
        share = _checks.finite(held_out, "held_out")
        _checks.require(0 < share < 1, f"held_out must lie between 0 and 1, but it is {share:g}.")
        _checks.whole(seed, "seed", 0)
        num = len(self)
        _checks.require(num >= 2, f"{self.name} has {num} row, but a split needs at least 2. Give more data.")
        held = min(max(round(share * num), 1), num - 1)
        apart = Shuffle(num, torch.Generator().manual_seed(seed))(torch.arange(held)).sort().values
        return self._with(self.tokens.without(apart)), self._with(self.tokens.select(apart))

    def _with(self, tokens: TokenArray) -> Dataset:
        part = copy(self)
        part.tokens = tokens
        return part
