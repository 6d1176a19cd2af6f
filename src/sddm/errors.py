r"""Failures that end a command, each with its exit code. (Bad arguments and bad data are ValueError or TypeError.)

| exit code | meaning |
|---|---|
| 0 | done |
| 2 | a bad command line, bad data, or an option that does not fit the model; nothing was written |
| 3 | no checkpoint, or none that is whole and belongs to this run |
| 4 | a file could not be read or written: no space, no permission |
| 5 | training diverged: the gradient is not finite |
| 6 | another process of the same run ended, is silent or cannot be reached |
| 7 | another job is at work in the same folder |
| 130, 143 | stopped by Ctrl-C or by SIGTERM, after a checkpoint |
| 141 | nobody reads the output any more, as after `sddm ... \| head -1` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BAD_USAGE = 2
BAD_FILE_SYSTEM = 4


class RunError(Exception):
    """A run cannot go on."""

    exit_code = 1


class BadCheckpointError(RunError):
    exit_code = 3


class DivergedError(RunError):
    exit_code = 5


class LostProcessError(RunError):
    exit_code = 6


class BusyError(RunError):
    exit_code = 7


class StoppedError(RunError):
    """A signal asked the run to stop. `so_far` gives what training would return, as it is after the last step."""

    def __init__(self, message: str, signal: int, so_far: Callable[[], Any] | None = None) -> None:
        super().__init__(message)
        self.signal, self.exit_code, self.so_far = signal, 128 + signal, so_far
