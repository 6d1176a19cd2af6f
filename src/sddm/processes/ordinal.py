"""Processes for ordered states (pixel values, counts), where a jump goes to states nearby."""

from __future__ import annotations

import torch

from sddm import _checks
from sddm.processes.dense import DenseProcess, with_diagonal
from sddm.schedules import Schedule


class BirthDeath(DenseProcess):
    """Q(c, c + 1) = Q(c, c - 1) = 1: one state up or down at a time. Its stationary law is uniform."""

    ordinal = True

    def __init__(self, num_states: int, schedule: Schedule) -> None:
        num_states = _checks.whole(num_states, "num_states", 2)
        step = torch.ones(num_states - 1, dtype=torch.float64)
        super().__init__(with_diagonal(torch.diag(step, 1) + torch.diag(step, -1)), schedule)


class DiscretizedGaussian(DenseProcess):
    """Jumps whose size is roughly Gaussian:

        Q(i, j) = exp(-(i - j)^2 / (2 width^2)) * min(1, pi(j) / pi(i)),

    reversible with stationary law pi. Without `target_width` pi is uniform (the kernel of D3PM); with it, pi is a
    Gaussian of that width about the middle of the range (the kernel of tauLDR, which takes width 6 and target width 512
    for 256 states). The default width keeps tauLDR's proportion, 6 in 256, but is at least 1.
    """

    ordinal = True

    def __init__(
        self, num_states: int, schedule: Schedule, width: float | None = None, target_width: float | None = None
    ) -> None:
        num_states = _checks.whole(num_states, "num_states", 2)
        width = max(1.0, 6 * num_states / 256) if width is None else _checks.positive(width, "width")
        level = torch.arange(num_states, dtype=torch.float64)
        kernel = torch.exp(-((level[:, None] - level) ** 2) / (2 * width**2))
        _checks.require(
            float(kernel[0, 1]) > 1e-30,
            f"width is {width:g}, so that not even neighbouring states would ever be reached. Give at least 0.1.",
        )
        log_target = torch.zeros_like(level)
        if target_width is not None:
            middle = (num_states - 1) / 2
            log_target = -((level - middle) ** 2) / (2 * _checks.positive(target_width, "target_width") ** 2)
        self.width, self.target_width = width, target_width
        accept = torch.exp((log_target - log_target[:, None]).clamp(max=0))
        super().__init__(with_diagonal(kernel * accept), schedule)
