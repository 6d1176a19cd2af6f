"""Run `sddm train` in a forked child, kill it with SIGKILL at random moments, and resume it each time.

    python interrupted.py DATA FOLDER KILLS SEED

prints how many children were killed. A process of its own: forking is safe here, as no other thread was started.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)

from sddm.cli import main  # noqa: E402

OPTIONS = ["--steps", "150", "--batch-size", "8", "--width", "8", "--layers", "1", "--heads", "2", "--mlp", "8"]
OPTIONS += ["--save-every", "3", "--log-every", "2", "--evaluate-every", "25", "--keep", "2", "--dropout", "0.1"]


def start(arguments):
    """A child that runs the command, with its output in a file."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    log = os.open(os.environ["LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        main(arguments)
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        os._exit(code)


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


data, folder, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.environ["LOG"] = str(folder / "log.txt")
began = time.monotonic()
assert wait(start(["train", "--data", data, "--out", str(folder / "straight"), *OPTIONS])) == 0
whole = time.monotonic() - began

moments = random.Random(seed)
killed = 0
for _ in range(kills):
    # All delays together are shorter than the run, so that it cannot end before the last of them.
    arguments = ["train", "--data", data, "--out", str(folder / "killed"), *OPTIONS, "--resume"]
    child = start(arguments)
    time.sleep(moments.uniform(0, whole / kills))
    os.kill(child, signal.SIGKILL)
    killed += wait(child) == -signal.SIGKILL
assert wait(start(["train", "--out", str(folder / "killed"), "--resume"])) == 0
print(killed)
