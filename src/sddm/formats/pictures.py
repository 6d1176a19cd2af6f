"""Picture files, read as squares of one size: cut from the middle, scaled by Lanczos' filter, without aliasing.

Pictures come from anybody: what is damaged, what is no picture and what would fill the memory is left out, and counted.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from tqdm import tqdm

from sddm import _checks
from sddm.formats.sheet import Picture, Pictures
from sddm.formats.unusable import LeftOut, UnusableError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")
"""What a file may hold, whatever its ending; of a film, the first picture is read."""
MOST_PIXELS = 1 << 26
"""The most pixels of a picture file."""
USUAL_SIZE = 32
"""The side of the pictures in pixels, unless it is given or half of the files have a smaller one."""
MANY = 1_000
"""From this number of files on, a bar shows the progress."""


class Squares(NamedTuple):
    """Pictures of one size, and what was not read."""

    pictures: Pictures
    labels: list[int] | None
    """The number of the sub-folder of each, if all files are in sub-folders."""
    report: str
    classes: list[str]
    """The names of these sub-folders."""


def usual_size(paths: Sequence[Path]) -> int:
    """32, or the median of the shorter sides of all pictures if that is smaller. Only the heads of files are read."""
    sides = []
    for path in paths:
        with suppress(UnusableError), _opened(path) as image:
            sides.append(min(image.size))
    return min(USUAL_SIZE, sorted(sides)[len(sides) // 2]) if sides else USUAL_SIZE


def read_squares(paths: Sequence[Path], size: int, grey: bool = False) -> Squares:
    """The pictures of all files that can be used; a ValueError with the reasons if there are none.

    They are grey if `grey` is given, or if all of them are. What is transparent becomes white. A sub-folder's name is
    the label of the pictures in it and below it.
    """
    left = LeftOut()
    kept: list[Path] = []
    pictures = np.empty((len(paths), size, size, 1 if grey else 3), np.uint8)
    coloured = False
    for path in tqdm(paths, desc="reading pictures", unit="file", file=sys.stderr, disable=len(paths) < MANY):
        try:
            picture = _square(path, size, grey)
        except UnusableError as error:
            left.leave_out(path.name, error.reason)
            continue
        coloured = coloured or bool((picture != picture[:, :, :1]).any())
        pictures[len(kept)] = picture
        kept.append(path)
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    _checks.require(
        bool(kept), f"None of the {len(paths)} picture files of {str(folder)!r} can be used: {left.reasons}."
    )
    said = [f"{len(kept)} of {len(paths)} picture files were read as squares of {size} x {size} pixels."]
    if left.left_out:
        said.append(f"Files left out: {left.reasons}.")
    names = _sub_folders(kept, folder)
    classes = sorted(set(names))
    if classes:
        said.append(f"Labels from 0: {_checks.shown(classes)}.")
    pictures = pictures[: len(kept)]
    return Squares(
        pictures if coloured or grey else pictures[..., :1].copy(),
        [classes.index(name) for name in names] if classes else None,
        " ".join(said),
        classes,
    )


def resized(pictures: Pictures, size: int | None, grey: bool) -> UInt8[np.ndarray, "num rows columns values"]:
    """Pictures of an array as squares of this size, and in grey, as picture files are; the same array if nothing is to
    be done."""
    num, height, width, channels = pictures.shape
    grey, fitting = grey and channels > 1, size is None or (height, width) == (size, size)
    if fitting and not grey:
        return pictures
    rows, columns = (height, width) if size is None else (size, size)
    found = np.empty((num, rows, columns, 1 if grey else channels), np.uint8)
    for place, picture in enumerate(pictures):
        image = Image.fromarray(picture[..., 0] if channels == 1 else picture)
        found[place] = _as_array(image if fitting else _fitted(image, rows), grey)
    return found


def read_known(path: Path) -> tuple[Picture, UInt8[np.ndarray, "height width"]]:
    """The colours of a picture in its own size, and how opaque each pixel is (0 where nothing is known)."""
    with _opened(path) as image:
        image = _upright(image)
        opacity = np.asarray(image.convert("RGBA"))[..., 3]
        return np.asarray(_on_white(image)), opacity


def _square(path: Path, size: int, grey: bool) -> Picture:
    with _opened(path) as image:
        image.draft(None, (4 * size, 4 * size))  # a large JPEG file is read in a fraction of its size, in less time
        return _as_array(_fitted(_on_white(_upright(image)), size), grey)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The picture of a file, of which only the head has been read; an UnusableError, now or in the block, if it cannot
    be read."""
    large = UnusableError(
        f"of more than {MOST_PIXELS // 10**6} megapixels",
        f"{str(path)!r} has more than {MOST_PIXELS} pixels. Make it smaller.",
    )
    try:
        with warnings.catch_warnings(), Image.open(path, formats=FORMATS) as image:
            warnings.simplefilter("ignore")
            if image.width * image.height > MOST_PIXELS:
                raise large
            yield image
    except UnusableError:
        raise
    except Image.DecompressionBombError:
        raise large from None
    except UnidentifiedImageError:
        raise UnusableError(
            "not a picture", f"{str(path)!r} holds no picture of a format that is read ({', '.join(FORMATS)})."
        ) from None
    except Exception as error:  # a damaged picture makes Pillow raise errors of many kinds
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UnusableError("damaged", f"{str(path)!r} is damaged ({said}). Save it again.") from None


def _upright(image: Image.Image) -> Image.Image:
    """The picture as a camera says that it is to be looked at; as it is, if what the camera says cannot be read."""
    with suppress(Exception):
        return ImageOps.exif_transpose(image)
    return image


def _on_white(image: Image.Image) -> Image.Image:
    """A picture of any mode as red, green and blue of 8 bits each; what is transparent is on white."""
    if image.mode.startswith("I"):  # 16 bits of grey
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _fitted(image: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle, scaled."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.LANCZOS, box)


def _as_array(image: Image.Image, grey: bool) -> Picture:
    return np.atleast_3d(np.asarray(image.convert("L") if grey else image))


def _sub_folders(paths: Sequence[Path], folder: Path) -> list[str]:
    """The first sub-folder on the way to each file; none if a file is in the folder itself."""
    parts = [path.relative_to(folder).parts for path in paths]
    return [] if any(len(way) == 1 for way in parts) else [way[0] for way in parts]
