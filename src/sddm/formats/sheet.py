"""Pictures as files: many on one sheet, or one pixel for pixel."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from sddm import _checks

Picture = UInt8[np.ndarray, "height width channels"]
Pictures = UInt8[np.ndarray, "num height width channels"]
CHANNELS = (1, 3)
"""Grey, or red, green and blue."""
SIDE = 768
"""Pictures are enlarged while the longer side of their sheet has at most this many pixels."""
GAP = 2
"""White pixels between the pictures of a sheet."""
MOST_PIXELS = 1 << 26
"""The most pixels of a sheet."""
MARK = ("Software", "sddm")
"""The note in every file that is written here."""


def sheet(pictures: Pictures, path: Path, columns: int | None = None) -> None:
    """Write pictures in rows on a white .png sheet, the first at the top left.

    Few small pictures are enlarged, a pixel to a square of pixels, so that they can be seen. A sheet has room for 67
    million pixels. If there are more pictures, it has the first of them, and a warning says how many.

    columns: how many stand in a row; unless given, so many that the sheet is about square.

    >>> sheet(np.zeros((16, 8, 8, 3), np.uint8), Path("sheet.png"))
    """
    pictures = check(pictures)
    num, height, width, channels = pictures.shape
    if columns is None:
        columns = max(1, round(math.sqrt(num * height / width)))
    columns = min(_checks.whole(columns, "columns", 1), num)
    most = columns * max(1, MOST_PIXELS // (columns * (height + GAP) * (width + GAP)))
    if num > most:
        warnings.warn(
            f"{str(path)!r} shows the first {most} of {num} pictures. Name an .npy file or a folder to have all."
        )
    shown = pictures[:most]
    rows = math.ceil(len(shown) / columns)
    factor = max(1, SIDE // max(rows * height, columns * width))
    high, wide = factor * height + GAP, factor * width + GAP
    page = np.full((rows * high - GAP, columns * wide - GAP, channels), 255, np.uint8)
    for place, picture in enumerate(shown):
        top, left = place // columns * high, place % columns * wide
        large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
        page[top : top + factor * height, left : left + factor * width] = large
    write_picture(page, path)


def write_picture(picture: Picture, path: Path) -> None:
    """Write one picture as a .png file, pixel for pixel."""
    note = PngInfo()
    note.add_text(*MARK)
    picture = check(picture[None], "picture")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).save(path, format="PNG", pnginfo=note)


def written_here(path: Path) -> bool:
    """Whether a file is a picture that was written by `write_picture` or `sheet`."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            return image.info.get(MARK[0]) == MARK[1]
    except Exception:  # whatever it is, it is no such picture
        return False


def check(pictures: Pictures, name: str = "pictures") -> Pictures:
    """Check the type and the shape of pictures."""
    _checks.require(
        isinstance(pictures, np.ndarray)
        and pictures.dtype == np.uint8
        and pictures.ndim == 4
        and pictures.shape[-1] in CHANNELS
        and pictures.size > 0,
        f"{name} must be an array of uint8 of shape (num, height, width, channels) with 1 or 3 channels, but it is "
        f"{getattr(pictures, 'dtype', type(pictures).__name__)} of shape {np.shape(pictures)}.",
    )
    return pictures
