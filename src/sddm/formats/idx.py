"""IDX, the files in which the handwritten digits were published: the number of axes, their sizes, the bytes."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt8

from sddm import _checks

BYTES = 8
"""The code of unsigned bytes."""


def read_idx(content: bytes, name: str) -> UInt8[np.ndarray, "..."]:
    """An array of unsigned bytes. The file begins with 0, 0, the code of its type and the number of axes, and then has
    the size of each axis in four bytes, the highest first. `name` is for error messages."""
    known = len(content) >= 4 and content[:3] == bytes([0, 0, BYTES])
    _checks.require(known, f"{name} is not an IDX file of unsigned bytes. Fetch it again.")
    start = 4 + 4 * content[3]
    sizes = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    _checks.require(
        len(content) == start + math.prod(sizes),
        f"{name} has {len(content)} bytes, but its beginning says {start + math.prod(sizes)}. Fetch it again.",
    )
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
