"""The corrector: jumps at one time s that leave the law of x_s unchanged, and so repair the error of a step."""

from __future__ import annotations

from dataclasses import dataclass

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.randomness import Randomness, categorical
from sddm.samplers.ends import with_settled
from sddm.samplers.jumps import euler_weights, over, reverse_rates
from sddm.shapes import Times, Tokens


@dataclass(frozen=True)
class Corrector:
    """After a step from t to s, run the jump process with rates R_s + Q_s (backwards and forwards at once), whose
    stationary law is q_s. It runs for a time factor * tau(s, t), `rounds` times, where 0 < s <= entry.
    """

    rounds: int = 1
    factor: float = 1.0
    entry: float = HORIZON

    def __post_init__(self) -> None:
        _checks.whole(self.rounds, "rounds", 1)
        _checks.positive(self.factor, "factor")
        _checks.finite(self.entry, "entry")
        _checks.require(0 < self.entry <= HORIZON, f"entry must lie in (0, {HORIZON:g}], but it is {self.entry}.")

    def __call__(self, diffusion: Diffusion, query: Query, t: Times, randomness: Randomness) -> Tokens:
        """Correct x_s, which the query holds, after the step from t to s."""
        s, process = query.t, diffusion.process
        if not 0 < float(s[0]) <= self.entry:
            return query.xt
        for _ in range(self.rounds):
            rates = reverse_rates(diffusion, query)
            rates += process.rates_out_of(query.xt, rates.dtype)
            corrected = categorical(euler_weights(query.xt, over(self.factor * process.tau(s, t), rates)), randomness)
            query = query.holding(with_settled(corrected, query))
        return query.xt
