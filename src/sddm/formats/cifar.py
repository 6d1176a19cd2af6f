"""CIFAR-10 in its official binary layout, from a folder or from the archive. No pickle is read.

Five files of 10,000 pictures are to train on and one is to test on. A picture is one byte for its class and three
planes of 32 x 32 bytes: red, green and blue.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import UInt8

from sddm import _checks
from sddm.formats.sheet import Pictures

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE, CHANNELS = 32, 3
RECORDS = 10_000
"""Pictures of a file."""
TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)
FOLDER = "cifar-10-batches-bin"
"""What the folder is called in the archive."""
ARCHIVES = (".tar.gz", ".tgz")
LARGEST = 1 << 28
"""The most bytes of an archive when it is unpacked; those of CIFAR-10 are 184 million."""
MOST_MEMBERS = 1_000

Labels = UInt8[np.ndarray, "num"]
Bytes = UInt8[np.ndarray, "bytes"]


def is_cifar(path: Path) -> bool:
    """Whether a path is a folder that holds a file of the layout, or an archive that should hold them."""
    if path.name.lower().endswith(ARCHIVES):
        return os.path.isfile(path)  # also False if the name is too long
    return any(os.path.isfile(folder / f"{batch}.bin") for folder in (path, path / FOLDER) for batch in (*TRAIN, *TEST))


def read_cifar(path: Path, test: bool = False) -> tuple[Pictures, Labels]:
    """The pictures to train on and their classes, or with `test` those to test on."""
    batches = TEST if test else TRAIN
    place = path / FOLDER if (path / FOLDER).is_dir() else path
    contents = _unpacked(path, batches) if path.is_file() else _of_folder(place, batches)
    pictures = np.empty((len(batches) * RECORDS, SIDE, SIDE, CHANNELS), np.uint8)
    labels = np.empty(len(pictures), np.uint8)
    for number, batch in enumerate(batches):
        _checks.require(
            batch in contents, f"{str(place)!r} has no file '{batch}.bin', which CIFAR-10 has. Fetch it again."
        )
        rows = slice(number * RECORDS, (number + 1) * RECORDS)
        labels[rows], pictures[rows] = _records(contents[batch], f"'{batch}.bin' of {str(place)!r}")
    return pictures, labels


def checked_classes(labels: Sequence[int] | np.ndarray, name: str) -> Labels:
    """Classes as bytes; an error if there are others than ten."""
    low, high = int(np.min(labels)), int(np.max(labels))
    _checks.require(
        low >= 0 and high < len(CLASSES),
        f"{name} has labels from {low} to {high}, but those of CIFAR-10 are 0 to 9. It is damaged: fetch it again.",
    )
    return np.array(labels, np.uint8)


def _records(content: Bytes, name: str) -> tuple[Labels, Pictures]:
    record = 1 + CHANNELS * SIDE * SIDE
    _checks.require(
        len(content) == RECORDS * record,
        f"{name} has {len(content)} bytes, but a file of CIFAR-10 has {RECORDS} records of {record}. Fetch it again.",
    )
    rows = content.reshape(RECORDS, record)
    planes = rows[:, 1:].reshape(RECORDS, CHANNELS, SIDE, SIDE)
    return checked_classes(rows[:, 0], name), planes.transpose(0, 2, 3, 1)


def _of_folder(folder: Path, batches: Sequence[str]) -> dict[str, Bytes]:
    """The files that are there, mapped into memory."""
    paths = {batch: folder / f"{batch}.bin" for batch in batches}
    return {
        batch: np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        for batch, path in paths.items()
        if path.is_file()
    }


def _unpacked(path: Path, batches: Sequence[str]) -> dict[str, Bytes]:
    """The files of an archive, unpacked into memory: nothing is written to the disk, no link is followed, and only the
    last part of a member's path is looked at."""
    try:
        with gzip.open(path) as packed:
            content = packed.read(LARGEST + 1)
        _checks.require(
            len(content) <= LARGEST,
            f"{str(path)!r} unpacks to more than {LARGEST} bytes, but CIFAR-10 to 184 million. Name another archive.",
        )
        found, array = {}, np.frombuffer(content, np.uint8)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for number, member in enumerate(archive):
                _checks.require(
                    number < MOST_MEMBERS,
                    f"{str(path)!r} has more than {MOST_MEMBERS} files, but CIFAR-10 has 8. Name another archive.",
                )
                name = PurePosixPath(member.name)
                if member.isreg() and not member.issparse() and name.suffix == ".bin" and name.stem in batches:
                    found[name.stem] = array[member.offset_data : member.offset_data + member.size]
        return found
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged or not a .tar.gz archive ({type(error).__name__}: {error}). Fetch it again."
        ) from None
