"""Files that a crash leaves old or new, never broken: written aside, synced, renamed. Also locks and digests."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sddm.errors import BusyError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # not on Windows
    flock = None  # type: ignore[assignment]

LOCK = ".lock"
_held: set[Path] = set()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, with the same ending, in a folder of its own beside `path`.

    On success the file replaces `path`; otherwise the folder is deleted. If the process is killed, the next write
    beside `path` deletes what it left.

    >>> with replacing(path) as aside:
    ...     aside.write_text("whole")
    """
    remove_leftovers(path.parent)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=".sddm-", suffix=".tmp", dir=path.parent))
        with suppress(FileNotFoundError):  # another process may take the folder for a leftover before it is locked
            if (lock := _lock(folder / LOCK)) is not None:
                break
    try:
        aside = folder / path.name
        yield aside
        sync(aside)
        os.replace(aside, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    sync(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete what calls of `replacing` left in a folder when their process was killed."""
    for left in folder.glob(".sddm-*.tmp"):
        with suppress(FileNotFoundError):
            if (lock := _lock(left / LOCK)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


@contextmanager
def locked(folder: Path, subject: Path) -> Iterator[None]:
    """Hold the lock of a folder, created if needed; a BusyError names `subject` if another process holds it.

    The system releases the lock when the process ends, however it ends. On a file system without locks, everybody
    gets it. The process that holds it may take it again.
    """
    place = folder.resolve()
    if place in _held:
        yield
        return
    lock = None
    while lock is None:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # its last holder deleted the folder
            lock = _lock(folder / LOCK)
            if lock is None:
                holder = (folder / LOCK).read_text(encoding="utf-8").strip() or "another process"
                raise BusyError(
                    f"{str(subject)!r} is in use: {holder} is using it. "
                    "Wait until it has ended, or name another place with --out."
                )
    try:
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {platform.node()}".encode())
        _held.add(place)
        yield
    finally:
        _held.discard(place)
        os.ftruncate(lock, 0)
        os.close(lock)


def _lock(path: Path) -> int | None:
    """The descriptor of a lock file, locked; None if another process holds it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if flock is not None:
                flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:  # this file system has no locks
            return lock
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)  # its last holder deleted the file between the two calls


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: str = "", form: str = "") -> None:
    """Write a safetensors file with a digest of its contents; errors of the system are raised as OSError.

    safetensors writes several entries in random order. So empty ones are left out: equal weights give equal files.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    entries = {"format": form, "state": state, "digest": digest(state, tensors)}
    metadata = {name: value for name, value in entries.items() if value}
    with replacing(path) as aside:
        try:
            aside.touch()
            mode = aside.stat().st_mode
            save_file(tensors, aside, metadata)  # replaces it by a new file, which only the user may read
            aside.chmod(mode)
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def load_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata and the tensors of a safetensors file; a ValueError if it is damaged.

    A file that another program wrote has no digest and is not checked.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error
    ours = metadata.keys() - {"format"}
    if ours and metadata.get("digest") != digest(metadata.get("state", ""), tensors):
        raise ValueError(f"{path} is damaged: its contents are not those that were written.")
    return metadata, tensors


def digest(state: Any, tensors: Mapping[str, Tensor] | None = None) -> str:
    """A hash of a text or of JSON, and of every tensor's name, type, shape and bytes."""
    text = state if isinstance(state, str) else json.dumps(state, sort_keys=True)
    total = hashlib.blake2b(text.encode(), digest_size=20)
    for name, value in sorted((tensors or {}).items()):
        value = value.detach().cpu().contiguous()
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def sync(path: Path) -> None:
    """Make the system write a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
