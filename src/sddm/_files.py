"""Writing so that a crash leaves either the old file or the new one, whole: aside, synced, renamed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, with the same ending; on success it takes the place of `path`, else it goes.

    >>> with replacing(path) as aside:
    ...     aside.write_text("whole")
    """
    aside = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield aside
        sync(aside)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file; a failure of the system is an OSError, as of any other file."""
    with replacing(path) as aside:
        try:
            save_file(tensors, aside, metadata)
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def sync(path: Path) -> None:
    """Ask the system to put a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Delete what interrupted calls of `replacing` left in a folder."""
    for path in folder.glob(".*.tmp*"):
        path.unlink(missing_ok=True)


def keep_if(path: Path, wanted: Callable[[str], bool]) -> None:
    """Keep the lines of a text file that are wanted."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    write_text(path, "".join(line for line in lines if wanted(line)))
