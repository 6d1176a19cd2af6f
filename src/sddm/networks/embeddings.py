"""Embeddings of time."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

TIME_SCALE = 1000.0
"""Times in [0, 1] are multiplied by this, so that the fastest sinusoid tells apart steps of a thousandth."""


def sinusoidal(t: Float[Tensor, "batch"], width: int) -> Float[Tensor, "batch width"]:
    """sin and cos of 1000 t at `width / 2` frequencies from 1 down to 1e-4, in float32 (the phase in float64)."""
    half = width // 2
    frequency = torch.exp(-math.log(1e4) * torch.arange(half, dtype=torch.float64, device=t.device) / max(1, half - 1))
    phase = TIME_SCALE * t.double()[:, None] * frequency
    embedding = torch.cat([phase.sin(), phase.cos()], dim=1).float()
    return torch.nn.functional.pad(embedding, (0, width - 2 * half))
