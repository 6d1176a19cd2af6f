"""The corrector: jumps at one time that leave the law of x_s as it is, and so repair what a step got wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import HORIZON
from sddm.randomness import Randomness, categorical
from sddm.samplers.jumps import euler_weights, rates_at


@dataclass(frozen=True)
class Corrector:
    """After a step from t to s, run the process with rates R_s + Q_s (backwards and forwards at once), which has q_s as
    its stationary law, for a time factor * (t - s), `rounds` times; at arrival times s with 0 < s <= entry only."""

    rounds: int = 1
    factor: float = 1.0
    entry: float = HORIZON

    def __post_init__(self) -> None:
        _checks.whole(self.rounds, "rounds", 1)
        _checks.positive(self.factor, "factor")
        _checks.finite(self.entry, "entry")
        _checks.require(0 < self.entry <= HORIZON, f"entry must lie in (0, {HORIZON:g}], but it is {self.entry}.")

    def __call__(
        self,
        diffusion: Diffusion,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        s: Float64[Tensor, "batch"],
        given: Bool[Tensor, "batch dim"] | None,
        randomness: Randomness,
    ) -> Int[Tensor, "batch dim"]:
        """Correct x_s after the step from t to s."""
        if not 0 < float(s[0]) <= self.entry:
            return x
        process = diffusion.process
        for _ in range(self.rounds):
            rates = rates_at(diffusion, x, s, given)
            rates += process.rates_out_of(x, rates.dtype) * process.speed(s, rates.dtype)
            hazard = rates.mul_((self.factor * (t - s)).to(rates.dtype)[:, None, None])
            corrected = categorical(euler_weights(x, hazard), randomness)
            x = corrected if given is None else torch.where(given, x, corrected)
        return x
