"""Memory and time to the first step of `sddm train` on a file that is larger than what it may hold in memory.

The load is the mean number of processes that wanted a core in the last minutes; with more than there are cores, times
are longer. The figures are the peaks of one process, in anonymous memory and in all its memory (which counts the pages
of mapped files), above those of the same command on a file of 1,000 rows.

    python benchmarks/large_data.py --gigabytes 4 --dims 1024 32
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PIECE = 1 << 24
OPTIONS = "--width 16 --layers 1 --batch-size 8 --log-every 1"


def write(path: Path, rows: int, dim: int) -> Path:
    """Random bytes: a file that no disk can compress."""
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, dim))
    draws, size = np.random.default_rng(0), max(1, PIECE // dim)
    for first in range(0, rows, size):
        part = array[first : first + size]
        part[:] = draws.integers(256, size=part.shape, dtype=np.uint8)
    array.flush()
    return path


def train(data: Path, out: Path, steps: int) -> dict[str, float]:
    """Peaks in gigabytes, and seconds until the first step is made; the run is stopped after some more steps."""
    command = [sys.executable, "-m", "sddm", "train", "--data", str(data), "--out", str(out), *OPTIONS.split()]
    started, first = time.monotonic(), None
    peaks = {"VmRSS": 0.0, "RssAnon": 0.0}
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as run:
        while run.poll() is None:
            for line in Path(f"/proc/{run.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], int(value.split()[0]) / 1e6)
            made = (out / "metrics.jsonl").read_text().count("\n") if (out / "metrics.jsonl").exists() else 0
            if first is None and made:
                first = time.monotonic() - started
            if made >= steps:
                run.terminate()
                break
            time.sleep(0.01)
        run.wait()
        said = run.stderr.read().decode() if run.stderr is not None else ""
    if first is None:
        raise SystemExit(f"The training failed: {said}")
    return {"anonymous_gigabytes": peaks["RssAnon"], "resident_gigabytes": peaks["VmRSS"], "seconds_to_first": first}


def measure(gigabytes: float, dim: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = train(write(folder / "small.npy", 1_000, dim), folder / "first", steps)
        rows = int(gigabytes * 1e9) // dim
        large = train(write(folder / "large.npy", rows, dim), folder / "second", steps)
    above = {key: large[key] - small[key] for key in small}
    return {"dim": dim, "rows": rows, "empty run": small, "large run": large, "above an empty run": above}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--dims", type=int, nargs="+", default=[1024, 32])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = [measure(options.gigabytes, dim, options.steps) for dim in options.dims]
    text = json.dumps({"gigabytes": options.gigabytes, "load": os.getloadavg(), "cases": cases}, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
