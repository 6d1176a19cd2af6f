"""The sizes of a VQGAN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sddm import _checks

LARGEST = {"filters": 4_096, "blocks": 64, "codes": 1_000_000, "code_width": 16_384, "channels": 16}
MOST_BLOCKS, MOST_TIMES = 8, 64
"""The most blocks, and the most that the filters of one are multiplied by."""


@dataclass(frozen=True)
class VQGANSizes:
    """The sizes of a VQGAN; the default is the paper's."""

    filters: int = 64
    """Filters of the first block."""
    multipliers: Sequence[int] = (1, 2, 4)
    """The filters of each block, in these. Each block after the first one sees half the height and width."""
    blocks: int = 2
    """Residual blocks in each block, and beside the codes."""
    codes: int = 512
    """How many codes there are."""
    code_width: int = 256
    """Numbers in a code."""
    channels: int = 3
    """Channels of a picture."""

    def __post_init__(self) -> None:
        for name, most in LARGEST.items():
            _checks.whole(getattr(self, name), name, 2 if name == "codes" else 1, most)
        object.__setattr__(self, "multipliers", tuple(self.multipliers))
        _checks.require(
            1 <= len(self.multipliers) <= MOST_BLOCKS,
            f"multipliers must be 1 to {MOST_BLOCKS} numbers, one a block, but they are {self.multipliers}.",
        )
        for multiplier in self.multipliers:
            _checks.whole(multiplier, "multipliers", 1, MOST_TIMES)

    @property
    def factor(self) -> int:
        """The height and the width of a code's patch, in pixels."""
        return int(2 ** (len(self.multipliers) - 1))

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """The rows and columns of codes of a picture."""
        _checks.require(
            height % self.factor == 0 and width % self.factor == 0,
            f"Pictures of {height} x {width} pixels cannot be cut into patches of {self.factor} x {self.factor}, one a "
            f"code. Height and width must be multiples of {self.factor}: cut or enlarge the pictures.",
        )
        return height // self.factor, width // self.factor
