"""Half precision is for networks. The mathematics of a process runs in float32 at least."""

from __future__ import annotations

import torch
from torch import Tensor


def full_precision(device: torch.device) -> torch.autocast:
    """A block in which autocast rounds nothing."""
    return torch.autocast(device.type, enabled=False)


def at_least_float32(values: Tensor) -> Tensor:
    """What a network said in half precision, in float32."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
