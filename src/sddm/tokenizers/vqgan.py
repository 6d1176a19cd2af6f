"""The VQGAN of the paper: pictures as a grid of codes, and back.

    picture --encoder--> features --nearest code--> tokens --codebook--> features --decoder--> picture

The paper follows MaskGIT's network "with adaptations for a smaller down sample rate and fewer parameters", and counts
12.35 M of them. Three blocks of 64, 128 and 256 filters with two residual blocks each make 7.6 M. MaskGIT's encoder and
decoder have two more residual blocks of the widest size beside the codes, its residual blocks have no biases, and a
convolution follows each enlargement of the decoder. With these there are 12,349,379 parameters:

    encoder 5.20 M   a 3x3 convolution; blocks of residual blocks with average pooling between; two residual blocks;
                     a 1x1 convolution to the width of a code
    codebook 0.13 M  512 x 256
    decoder 7.02 M   the same in the opposite order, from a 3x3 convolution of codes; each enlargement repeats pixels

A residual block is (group norm, SiLU, 3x3 convolution) twice, and a 1x1 convolution beside them where its width
changes. There is no attention, so pictures may have any size that the pooling divides.

Pictures and features are kept in channels-last order, in which convolutions on a CPU need no reordering. Weights keep
the usual order, so that a checkpoint restores what an optimizer had, bit for bit.
"""

from __future__ import annotations

from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from sddm import _checks, _pretrained
from sddm._modes import evaluating
from sddm.config import Configurable, build, describe
from sddm.tokenizers.quantizer import Quantized, Quantizer
from sddm.tokenizers.sizes import VQGANSizes

Pictures = UInt8[Tensor, "num height width channels"]
"""Pictures as they are in files."""
Planes = Float[Tensor, "num channels height width"]
"""Pictures as networks see them: from -1 to 1, in channels-last order."""
Features = Float[Tensor, "num width rows columns"]
Grids = Int[Tensor, "num rows columns"]
"""A token for each place of the grid of codes."""

GROUPS = 32
"""Groups of a group norm, if each has at least two filters."""
AT_ONCE = 1 << 18
"""How many pixels are encoded or decoded at once."""


class Reconstruction(NamedTuple):
    """Pictures after the way through the codes, and what the losses of the codes need."""

    planes: Planes
    features: Features
    """What the encoder made of the pictures."""
    quantized: Quantized


class VQGAN(nn.Module, Configurable):
    """A tokenizer of pictures.

    >>> tokenizer = VQGAN()
    >>> tokens = tokenizer.encode(pictures)            # uint8 (num, 32, 32, 3) -> (num, 8, 8), from 0 to 511
    >>> tokenizer.decode(tokens)                       # uint8 (num, 32, 32, 3)
    """

    def __init__(self, sizes: VQGANSizes | None = None) -> None:
        super().__init__()
        self.sizes = sizes = VQGANSizes() if sizes is None else sizes
        widths = [sizes.filters * multiplier for multiplier in sizes.multipliers]
        self.encoder = _encoder(sizes, widths)
        self.quantizer = Quantizer(sizes.codes, sizes.code_width)
        self.decoder = _decoder(sizes, widths[::-1])

    @property
    def last_layer(self) -> nn.Parameter:
        """The weights that make pixels."""
        weight = self.decoder[-1].weight
        assert isinstance(weight, nn.Parameter)
        return weight

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.last_layer.device

    def forward(self, planes: Planes) -> Reconstruction:
        """Encode, quantize and decode, with the gradient of the codes passed straight through."""
        features = self.encoder(planes)
        quantized = self.quantizer(features)
        return Reconstruction(self.decoder(quantized.features), features, quantized)

    def encode(self, pictures: Pictures) -> Grids:
        """The nearest code of each patch."""
        _checks.require(
            pictures.ndim == 4 and pictures.shape[-1] == self.sizes.channels and len(pictures) > 0,
            f"pictures must have shape (num, height, width, {self.sizes.channels}), but they have "
            f"{tuple(pictures.shape)}.",
        )
        self.sizes.grid(*pictures.shape[1:3])

        def tokens(some: Tensor) -> Tensor:
            features = self.encoder(to_planes(some.to(self.device)))
            return self.quantizer.tokens(features).cpu()

        return self._in_pieces(tokens, pictures, pictures[0, ..., 0].numel())

    def decode(self, tokens: Grids) -> Pictures:
        """The pictures that a grid of codes stands for."""
        _checks.require(
            tokens.ndim == 3 and tokens.numel() > 0,
            f"tokens must have shape (num, rows, columns), but they have {tuple(tokens.shape)}.",
        )
        _checks.tokens(tokens.flatten(1), self.sizes.codes, "tokens")

        def pictures(some: Tensor) -> Tensor:
            return to_pictures(self.decoder(self.quantizer.look_up(some.to(self.device)))).cpu()

        return self._in_pieces(pictures, tokens, tokens[0].numel() * self.sizes.factor**2)

    @torch.no_grad()
    def _in_pieces(self, change: Any, rows: Tensor, pixels: int) -> Tensor:
        with evaluating(self):
            return torch.cat([change(some) for some in rows.split(max(1, AT_ONCE // pixels))])

    def config(self) -> dict[str, Any]:
        """How to build this tokenizer, without its weights."""
        return {"format": _pretrained.FORMAT, "tokenizer": describe(self, {VQGAN: "vqgan", VQGANSizes: "vqgan-sizes"})}

    @classmethod
    def from_config(cls, config: dict[str, Any], name: str = "The config") -> VQGAN:
        """Build what `config` described, with fresh weights; `name` is for error messages."""
        try:
            made = build(config["tokenizer"], {"vqgan": VQGAN, "vqgan-sizes": VQGANSizes})
            return _checks.instance(made, cls, "tokenizer")
        except Exception as error:  # whatever goes wrong here, the config is to blame
            raise ValueError(
                f"{name} describes no tokenizer that can be built: {_pretrained.reason(error)}."
            ) from error

    def save_pretrained(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors, all that is needed to build the same tokenizer again, and a card."""
        _pretrained.save(directory, self.config(), self.state_dict(), _card(self))

    @classmethod
    def from_pretrained(
        cls, source: str | Path, device: str | torch.device = "cpu", revision: str | None = None
    ) -> VQGAN:
        """Load from a directory, or from a repository of the Hugging Face hub ("owner/name")."""
        return _pretrained.load(cls.from_config, "tokenizer", ("tokenizer",), source, device, revision)


def to_planes(pictures: Pictures) -> Planes:
    """Values from -1 to 1. The order in memory stays, which is now called channels-last."""
    return (pictures.float() / 127.5 - 1).permute(0, 3, 1, 2)


def to_pictures(planes: Planes) -> Pictures:
    return ((planes.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


class Residual(nn.Module):
    """x plus two convolutions, each after a group norm and SiLU."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = _activated(inside, nn.Conv2d(inside, outside, 3, padding=1, bias=False))
        self.second = _activated(outside, nn.Conv2d(outside, outside, 3, padding=1, bias=False))
        self.shortcut = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1, bias=False)

    def forward(self, x: Float[Tensor, "num inside rows columns"]) -> Float[Tensor, "num outside rows columns"]:
        return self.shortcut(x) + self.second(self.first(x))


def _activated(width: int, last: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.GroupNorm(gcd(gcd(GROUPS, max(1, width // 2)), width), width), nn.SiLU(), last)


def _residuals(inside: int, outside: int, number: int) -> list[nn.Module]:
    return [Residual(inside if n == 0 else outside, outside) for n in range(number)]


def _encoder(sizes: VQGANSizes, widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(sizes.channels, widths[0], 3, padding=1)]
    for before, width in zip([widths[0], *widths], widths, strict=False):
        layers += [nn.AvgPool2d(2)] if len(layers) > 1 else []
        layers += _residuals(before, width, sizes.blocks)
    layers += _residuals(widths[-1], widths[-1], sizes.blocks)
    return nn.Sequential(*layers, *_activated(widths[-1], nn.Conv2d(widths[-1], sizes.code_width, 1)))


def _decoder(sizes: VQGANSizes, widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(sizes.code_width, widths[0], 3, padding=1)]
    layers += _residuals(widths[0], widths[0], sizes.blocks)
    for number, (before, width) in enumerate(zip([widths[0], *widths], widths, strict=False)):
        if number:
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(before, before, 3, padding=1)]
        layers += _residuals(before, width, sizes.blocks)
    return nn.Sequential(*layers, *_activated(widths[-1], nn.Conv2d(widths[-1], sizes.channels, 3, padding=1)))


def _card(tokenizer: VQGAN) -> str:
    """A README.md in the hub's convention."""
    sizes, parameters = tokenizer.sizes, sum(p.numel() for p in tokenizer.parameters())
    return f"""---
library_name: sddm
tags: [sddm, vqgan, image-tokenizer]
---
# A tokenizer of pictures

- Pictures: {sizes.channels} channels, any height and width that are multiples of {sizes.factor}
- Tokens: one of {sizes.codes} for each {sizes.factor} x {sizes.factor} pixels
- Model: VQGAN, {parameters:,} parameters

```python
from sddm.tokenizers import VQGAN

tokenizer = VQGAN.from_pretrained("this repository or folder")
tokens = tokenizer.encode(pictures)  # uint8 (num, height, width, channels) -> (num, rows, columns)
```
"""
