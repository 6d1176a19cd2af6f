"""Laws that need no training, fitted to the rows of a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm.baselines.trees import chow_liu, independent
from sddm.experiments.corpora import Corpus
from sddm.experiments.systems import Drawn, Source, System
from sddm.training.batches import generator_of


class Empirical:
    """The rows themselves: each is as likely as it is frequent, and no other row occurs."""

    def __init__(self, rows: Int[Tensor, "num dim"], names: Sequence[str] = (), sizes: Sequence[int] = ()) -> None:
        self.rows = rows
        self._counts = Counter(row.tobytes() for row in rows.numpy())

    def sample(self, num: int, generator: torch.Generator | None = None) -> Int[Tensor, "{num} dim"]:
        return self.rows[torch.randint(len(self.rows), (num,), generator=generator)]

    def log_prob(self, tokens: Int[Tensor, "num dim"]) -> Float64[Tensor, "num"]:
        counts = [self._counts[row.tobytes()] for row in tokens.numpy()]
        return torch.tensor(counts, dtype=torch.float64).log() - math.log(len(self.rows))


LAWS: dict[str, Callable[..., Any]] = {
    "resampled rows": Empirical,
    "independent columns": independent,
    "Chow-Liu tree": chow_liu,
}
"""From rows, the names of the columns and how many values each has."""


@dataclass(frozen=True)
class Fitted(System):
    """One of these laws."""

    law: str
    """A key of `LAWS`."""

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert isinstance(source, Corpus)
        codec: Any = source.train.codec
        law = LAWS[self.law](source.train.tokens[:], codec.names, codec.sizes)
        return Drawn(law.sample(num, generator_of(seed, "samples", 0)), model=law)
