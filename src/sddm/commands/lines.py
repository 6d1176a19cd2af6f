"""Progress of a long job in plain lines, where there is no terminal to draw a bar on."""

from __future__ import annotations

import sys
import time

from sddm.samplers import Progress
from sddm.training.pace import spoken
from sddm.training.report import SECONDS_BETWEEN_LINES


class Lines:
    """Says every ten seconds how much of all samples is drawn; nothing of a job that takes less.

    It is a callback of `sddm.sample`, which is called for a part of the samples at a time.
    """

    def __init__(self, samples: int, hidden: bool) -> None:
        self.samples, self.hidden, self.before, self.found = samples, hidden, 0, 0
        self._of_part = 0  # samples of this part that are complete
        self._began = self._spoke = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        num, now = len(progress.tokens), time.monotonic()
        done = self.before + self._of_part + num * progress.step / progress.steps
        self._of_part += num if progress.step == progress.steps else 0
        if self.hidden or now - self._spoke < SECONDS_BETWEEN_LINES:
            return
        self._spoke = now
        made = done - self.found
        left = f", {spoken((now - self._began) * (self.samples - done) / made)} left" if made else ""
        print(f"sampling: {done / self.samples:.0%} of {self.samples} samples{left}", file=sys.stderr, flush=True)

    def add(self, samples: int, found: bool = False) -> None:
        """So many more are done, or were found as an earlier job left them."""
        self.before += samples
        self._of_part = 0
        self.found += samples if found else 0
