"""The processes of one run meet, connect and watch each other, so that none waits for ever for one that has ended.

A broken connection raises an error at once. When a link is cut or a machine stops, nothing arrives any more, and gloo
and NCCL wait for their timeout. That has to be long, as a step may take minutes and a sampling job hours. So a thread
of each process increases a number in the shared store at regular times, also during a long step. Another thread checks
that the numbers of the others increase. The first process watches all others, and these watch the first.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sddm import _checks
from sddm.errors import LostProcessError

SILENCE = "SDDM_SILENCE"
"""The variable of the environment for the seconds of silence after which a process counts as lost."""
BEATS = 15
"""How often a process increases its number in that time."""
TO_CONNECT, TO_MEET = 2, 20
"""How many times as long connecting may take, and waiting for processes that still read their data."""
BROKEN = re.compile("gloo|nccl|connection|peer|socket|broken pipe|timed out", re.IGNORECASE)
DONE = b"done"

_uses = itertools.count()
_watching = False


def launched() -> bool:
    """Whether a launcher (torchrun, accelerate launch) started this process as one of several."""
    places = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return os.environ.get("WORLD_SIZE", "1") != "1" and all(name in os.environ for name in places)


@contextmanager
def joining() -> Iterator[None]:
    """Inside, the processes connect to each other, or end with a sentence that says what to set."""
    patience = _patience()
    store = _meet(TO_MEET * patience)
    timer = threading.Timer(TO_CONNECT * patience, lambda: _end(_unconnected("")))
    timer.daemon = True
    timer.start()
    try:
        yield
    except RuntimeError as error:
        if not BROKEN.search(str(error)):
            raise
        raise LostProcessError(_unconnected(f" ({str(error).splitlines()[0]})")) from error
    finally:
        timer.cancel()
        del store  # until here it may be the only one that holds the server


@contextmanager
def noticing_lost_processes() -> Iterator[None]:
    """End with a sentence when another process breaks the connection, or is silent. Inside another such block, that one
    watches."""
    global _watching
    if _watching or not launched():
        yield
        return
    watch, _watching = _Watch(), True
    try:
        yield
        watch.well = True
    except RuntimeError as error:
        if not BROKEN.search(str(error)):
            raise
        raise LostProcessError(_lost("ended or cannot be reached")) from error
    finally:
        _watching = False
        watch.leave()


class _Watch:
    """One thread increases a number and reads those of the others; a second one checks that they increase.

    There are two, because the first one may wait for the store for ever when the link is cut.
    """

    def __init__(self) -> None:
        self.patience = _patience()
        self.pause = self.patience / BEATS
        self.store = _store(self.patience)
        rank, size, use = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), next(_uses)
        keys = [f"{_place()}/{use}/{i}" for i in range(size)]
        self.first, self.own = rank == 0, keys[rank]
        self.others = keys[1:] if self.first else keys[:1]
        self.nothing = [b""] * len(self.others)
        self.read = [b"0", *self.nothing]  # its own number and theirs; no change while the store is silent
        self.well = False
        self.leaving = threading.Event()
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self.count, self.look)]
        for thread in self.threads:
            thread.start()

    def count(self) -> None:
        try:
            for number in itertools.count(1):
                self.store.set(self.own, str(number))
                begun = self.store.check(self.others)
                self.read = [str(number).encode(), *(self.store.multi_get(self.others) if begun else self.nothing)]
                if self.leaving.wait(self.pause):
                    break
            if self.well:
                self.store.set(self.own, DONE.decode())
                self.let_others_leave()
        except RuntimeError:
            # The store is gone. If the process that held it ended, the main thread will say so.
            if self.read[1] != DONE and not self.leaving.wait(5 * self.pause):
                _end(_lost("ended or cannot be reached"))

    def look(self) -> None:
        seen, missed = self.read, [0] * len(self.read)
        while not self.leaving.wait(self.pause):
            read = self.read
            for i, value in enumerate(read):
                missed[i] = 0 if value == DONE or value != seen[i] else missed[i] + 1
                # Counted and not timed: a pause of this process itself is one beat.
                if missed[i] >= (BEATS if value else TO_MEET * BEATS):
                    _end(_lost(f"has not answered for {self.patience:g} seconds"))
            seen = read

    def let_others_leave(self) -> None:
        """The first process may hold the store: it waits until the others are done, or have seen that it is."""
        until = time.monotonic() + 3 * self.pause
        while self.first and time.monotonic() < until and set(self.store.multi_get(self.others)) != {DONE}:
            time.sleep(self.pause / 50)

    def leave(self) -> None:
        self.leaving.set()
        for thread in self.threads:
            thread.join(5 * self.pause)


def _patience() -> float:
    text = os.environ.get(SILENCE, "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    _checks.require(1 <= seconds < math.inf, f"{SILENCE} must be a number of seconds, at least 1, but it is {text!r}.")
    return seconds


def _place() -> str:
    """Where this run keeps its numbers in the store, which the launcher may use again."""
    return f"sddm/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _store(seconds: float) -> Any:
    """A connection of our own to the store of the launcher or of the first process."""
    from torch.distributed.rendezvous import rendezvous

    store = next(rendezvous("env://", timeout=timedelta(seconds=seconds)))[0]
    store.set_timeout(timedelta(seconds=seconds))
    return store


def _meet(seconds: float) -> Any:
    """Wait until all processes are here."""
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    where = f"MASTER_ADDR={os.environ['MASTER_ADDR']}, MASTER_PORT={os.environ['MASTER_PORT']}"
    told = threading.Timer(
        seconds / TO_MEET,
        lambda: print(f"sddm: process {rank} of {size} waits for the others at {where}.", file=sys.stderr, flush=True),
    )
    told.daemon = True
    told.start()
    try:
        store = _store(seconds)
        store.set(f"{_place()}/here/{rank}", "")
        store.wait([f"{_place()}/here/{i}" for i in range(size)])
        return store
    except RuntimeError as error:
        raise LostProcessError(
            f"Process {rank} waited {seconds:g} seconds at {where}, and not all {size} processes came. See that all "
            "were started, and that on every machine this address is that of the first."
        ) from error
    finally:
        told.cancel()


def _unconnected(reason: str) -> str:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = "no address"
    interfaces = ", ".join(interface for _, interface in socket.if_nameindex())
    return (
        f"The processes met at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}, but cannot connect to each "
        f"other{reason}. Here the host name {name!r} stands for {address}, and the network interfaces are "
        f"{interfaces}. On every machine set GLOO_SOCKET_IFNAME (on CPUs) or NCCL_SOCKET_IFNAME (on GPUs) to the "
        "interface that leads to the others, then start all again."
    )


def _lost(how: str) -> str:
    return (
        f"Another process of this run {how}, so this one ends too. Look at the output of the others for the reason, "
        "then start all of them again with --resume."
    )


def _end(sentence: str) -> None:
    """End from a thread, while the main one waits in a library for what will not come."""
    try:
        print(f"sddm: {sentence}", file=sys.stderr, flush=True)
    finally:
        os._exit(LostProcessError.exit_code)
