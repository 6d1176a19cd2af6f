"""What a run reports while it trains: metrics.jsonl, a tracker, callbacks, and a bar or lines for people."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sddm import _files
from sddm.training.trackers import started

METRICS_FILE = "metrics.jsonl"
SECONDS_BETWEEN_LINES = 10.0
Callback = Callable[[int, dict[str, float]], None]
"""Is told the figures after so many steps."""
ASIDE = frozenset({"learning_rate", "gradient_norm", "seconds"})
"""What a progress bar does not show."""


class Report:
    """Metrics of a run. Without a folder nothing is written; a process that is not `main` reports nothing.

    progress: True shows a bar, False nothing; None shows a bar on a terminal and lines elsewhere if there is a folder.
    tracker: the name of one, a key of `TRACKERS`.
    callbacks: are told each line of the metrics.
    """

    def __init__(
        self,
        steps: int,
        done: int,
        folder: Path | None,
        progress: bool | None,
        main: bool,
        tracker: str | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.steps = steps
        self.callbacks = callbacks if main else ()
        self.folder = folder if main else None
        self.lines = main and progress is None and folder is not None and not sys.stderr.isatty()
        self.bar = tqdm(
            total=steps,
            initial=done,
            desc="training",
            unit="step",
            smoothing=0.05,
            disable=not main or not (sys.stderr.isatty() if progress is None else progress),
        )
        self._started, self._spoke, self._done = time.monotonic(), -SECONDS_BETWEEN_LINES, done
        self._file = None
        self._tracker: Any = started(tracker, self.folder, done) if main else None
        if self.folder is not None:
            _forget_after(self.folder / METRICS_FILE, done)
            self._file = (self.folder / METRICS_FILE).open("a", encoding="utf-8")

    def step(self) -> None:
        self.bar.update()

    def metrics(self, step: int, values: dict[str, float], of_training: bool) -> None:
        """One line of metrics, after `step` steps: of the training itself, or of an evaluation."""
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
        if self._tracker is not None:
            self._tracker.log(values, step)
        for callback in self.callbacks:
            callback(step, dict(values))
        if of_training:
            shown = {name: f"{value:.3f}" for name, value in values.items() if name not in ASIDE}
            self.bar.set_postfix(shown, refresh=False)
        elif not self.bar.disable:
            self.bar.write(_sentence(step, self.steps, values), file=sys.stderr)
        self._say(step, values, of_training)

    def _say(self, step: int, values: dict[str, float], of_training: bool) -> None:
        now = time.monotonic()
        if not self.lines or (of_training and now - self._spoke < SECONDS_BETWEEN_LINES and step < self.steps):
            return
        self._spoke = now
        speed = (step - self._done) / max(now - self._started, 1e-9)
        left = (self.steps - step) / speed if speed else float("nan")
        pace = f", {speed:.1f} steps/s, {left:.0f} s left" if step < self.steps else ""
        print(_sentence(step, self.steps, values) + pace, file=sys.stderr, flush=True)

    def sync(self) -> None:
        """Put the metrics on the disk, before a checkpoint that counts on them."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self.bar.close()
        if self._file is not None:
            self._file.close()
        if self._tracker is not None:
            self._tracker.finish()


def _sentence(step: int, steps: int, values: dict[str, float]) -> str:
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items() if name != "seconds")
    return f"step {step}/{steps}: {shown}"


def _forget_after(path: Path, step: int) -> None:
    """Drop the lines of steps that will be made again, and a line that was cut short."""
    if not path.exists():
        return

    def wanted(line: str) -> bool:
        try:
            return line.endswith("\n") and json.loads(line)["step"] <= step
        except (ValueError, TypeError, KeyError):
            return False

    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    _files.write_text(path, "".join(filter(wanted, lines)))
