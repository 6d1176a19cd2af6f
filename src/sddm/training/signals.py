"""Ctrl-C and SIGTERM are noted, so that the loop can stop between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Inside, the first Ctrl-C or SIGTERM is put into the list; a second one has its usual effect."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield noted
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(number, before[number])

    for ours in (signal.SIGINT, signal.SIGTERM):
        before[ours] = signal.signal(ours, note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
