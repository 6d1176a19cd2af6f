"""What the benchmarks share: times, the machine's matrix-multiply rate, peak memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def multiply_rate(size: int = 1536) -> float:
    """Floating-point operations a second of one large float32 matrix multiply."""
    a = torch.ones(size, size)
    return 2 * size**3 / seconds(lambda: torch.mm(a, a))


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles."""
    low, middle, high = quantiles(values, n=4)
    return {"median": middle, "quartiles": [low, high]}


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include the parent's memory at the time of the fork
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_own_process(script: str, *arguments: str) -> Any:
    """Run a script that prints one JSON value."""
    run = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)
