"""How the C library treats memory that is freed."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Have up to a gigabyte of freed memory kept for the next step, where the C library is glibc.

    By default a tensor of a megabyte is given back to the system when it is freed, and the next one is made of fresh
    pages, each of which is cleared when it is first touched: a quarter of the time of a small model's step.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(MMAP_THRESHOLD, KEPT)
    mallopt(TRIM_THRESHOLD, KEPT)
