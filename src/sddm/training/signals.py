"""Ctrl-C and SIGTERM as a wish to stop that the loop asks for between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Wish:
    """Which signal asked to stop, if any."""

    signal: int | None = None


@contextmanager
def wishes_to_stop() -> Iterator[Wish]:
    """Inside, the first Ctrl-C or SIGTERM is noted; the second one acts as it always did."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield wish
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        wish.signal = number
        signal.signal(number, before[number])

    for ours in (signal.SIGINT, signal.SIGTERM):
        before[ours] = signal.signal(ours, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
