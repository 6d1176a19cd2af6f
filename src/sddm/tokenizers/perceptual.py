"""A distance of pictures in the features of VGG16: what changes little to the eye is near.

    d(x, y) = mean over stages and places of |f(x) / |f(x)| - f(y) / |f(y)||^2

The stages are the last rectified convolutions before each pooling. So does LPIPS, which weighs the channels by numbers
that were fitted to people's answers; here all channels count the same, as the file of weights has no such numbers.
Pictures that are too small for a stage are compared on those before.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks, _files
from sddm.formats.text import readable

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""The channels of the convolutions of VGG16 (configuration D), pooling after each stage."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the pictures that VGG16 was trained on, from 0 to 1."""
ENDINGS = (".safetensors", ".pth", ".pt")
SMALLEST = 1e-10


class Perceptual(nn.Module):
    """The distance, with the weights of a file; they are not trained.

    >>> Perceptual.from_file("vgg16.pth")(planes, others)
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        layers: dict[str, nn.Module] = {}
        inside = 3
        self._stages: list[list[str]] = []
        number = 0
        for stage in STAGES:
            names = []
            for width in stage:
                layers[str(number)] = nn.Conv2d(inside, width, 3, padding=1)
                names.append(str(number))
                inside, number = width, number + 2  # a rectifier follows
            self._stages.append(names)
            number += 1  # and then pooling
        self.features = nn.ModuleDict(layers)
        self.requires_grad_(False).eval()
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION)[:, None, None], persistent=False)

    @classmethod
    def from_file(cls, path: str | Path) -> Perceptual:
        """From a state dict of VGG16 in a .safetensors or a .pth file; layers other than `features.` are left."""
        path = Path(path)
        weights = _read(path)
        made = cls()
        own = made.state_dict()
        for name, value in own.items():
            found = weights.get(name)
            shape = "missing" if found is None else f"of shape {tuple(found.shape)}"
            _checks.require(
                found is not None and found.shape == value.shape and found.is_floating_point(),
                f"{str(path)!r} does not hold the features of VGG16: {name} is {shape} there, but must be of shape "
                f"{tuple(value.shape)}. Name the state dict of the usual VGG16 without batch norm.",
            )
        made.load_state_dict({name: weights[name] for name in own})
        return made

    def forward(
        self, planes: Float[Tensor, "num channels height width"], others: Float[Tensor, "num channels height width"]
    ) -> Float[Tensor, ""]:
        """The mean distance of pictures from -1 to 1; grey ones count as three equal channels."""
        x, y = (self._normal(each) for each in (planes, others))
        distances = []
        for number, stage in enumerate(self._stages):
            if number:
                if min(x.shape[2:]) < 2:
                    break
                x, y = F.max_pool2d(x, 2), F.max_pool2d(y, 2)
            for name in stage:
                x, y = (F.relu(self.features[name](each)) for each in (x, y))
            distances.append((_unit(x) - _unit(y)).square().sum(1).mean())
        return torch.stack(distances).mean()

    def _normal(self, planes: Tensor) -> Tensor:
        coloured = planes.expand(-1, 3, -1, -1) if planes.shape[1] == 1 else planes
        return ((coloured + 1) / 2 - self.mean) / self.deviation


def _unit(features: Float[Tensor, "num width rows columns"]) -> Float[Tensor, "num width rows columns"]:
    return features * (features.square().sum(1, keepdim=True) + SMALLEST).rsqrt()


def _read(path: Path) -> dict[str, Tensor]:
    readable(path, "Name a file with the weights of VGG16.")
    _checks.require(
        path.suffix in ENDINGS,
        f"{str(path)!r} ends in {path.suffix!r}. Weights are read from files that end in {', '.join(ENDINGS)}.",
    )
    if path.suffix == ".safetensors":
        return _files.load_tensors(path)[1]
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as weights ({type(error).__name__}). Only tensors are read from it: save a "
            "state dict with torch.save."
        ) from None
    _checks.require(
        isinstance(found, dict) and all(isinstance(value, Tensor) for value in found.values()),
        f"{str(path)!r} holds no state dict: names and tensors were expected.",
    )
    return found
