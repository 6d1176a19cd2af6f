"""How large a transformer is, and what places its sequence has: two objects that all transformers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sddm import _checks
from sddm.config import LATER
from sddm.networks.embeddings import TIME_SCALE


@dataclass(frozen=True)
class Sizes:
    """The sizes of a transformer.

    >>> Sizes(width=256, layers=6, heads=8, mlp=2048)
    """

    width: int = 128
    """Features of a position."""
    layers: int = 3
    """Transformer blocks (in each direction of a hollow transformer)."""
    heads: int = 4
    """Heads of each attention."""
    mlp: int = 512
    """Width of the layers between two attentions."""
    dropout: float = 0.0
    """Share of activations dropped in training."""
    time_scale: float = TIME_SCALE
    """The time enters as sin and cos of time_scale * t. At the paper's 1000 the fastest change too quickly to be
    told from noise; at 10 all of them are smooth."""
    input_gain: float = 1.0
    """A factor on the initial vectors of tokens and places."""
    num_labels: int = field(default=0, metadata={LATER: True})
    """How many labels it can be told, such as the classes of pictures; 0 for a network that knows none."""

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "mlp"):
            _checks.whole(getattr(self, name), name, 1, LARGEST[name])
        _checks.require(
            self.width % (2 * self.heads) == 0,
            f"width must be a multiple of twice heads, but {self.width} is not of {self.heads}.",
        )
        _checks.require(0 <= self.dropout < 1, f"dropout must lie in [0, 1), but it is {self.dropout}.")
        _checks.positive(self.time_scale, "time_scale")
        _checks.positive(self.input_gain, "input_gain")
        _checks.whole(self.num_labels, "num_labels", 0)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


LARGEST = {"width": 65_536, "layers": 1_024, "heads": 1_024, "mlp": 1_048_576}
"""Sizes above which a typing error is more likely than intent."""

MUSIC = Sizes(width=256, layers=6, heads=8, mlp=2048)
"""The paper's music model."""

BERT_BASE = Sizes(width=768, layers=12, heads=12, mlp=3072)
"""The paper's image model."""


@dataclass(frozen=True)
class Places:
    """What tells the positions of a row apart: a learned vector each (`length`), the sum of a learned row and a learned
    column of an image (`grid`), or, with neither, rotations inside attention, for rows of any length."""

    length: int | None = None
    grid: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.grid is not None:
            _checks.require(len(self.grid) == 2, f"grid must be (rows, columns), but it is {tuple(self.grid)}.")
            rows, columns = (_checks.whole(n, "grid", 1) for n in self.grid)
            _checks.require(
                self.length in (None, rows * columns),
                f"length is {self.length}, but the grid {rows} x {columns} has {rows * columns}.",
            )
            object.__setattr__(self, "grid", (rows, columns))
            object.__setattr__(self, "length", rows * columns)
        elif self.length is not None:
            _checks.whole(self.length, "length", 1)

    @property
    def tables(self) -> tuple[int, ...]:
        """The sizes of the tables of learned vectors; none where attention rotates."""
        return tuple(self.grid) if self.grid is not None else (() if self.length is None else (self.length,))
