"""The corrector: jumps at one time s that leave the law of x_s unchanged, and so repair the error of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.randomness import Randomness, categorical
from sddm.samplers.ends import with_settled
from sddm.samplers.jumps import euler_weights, over, reverse_rates
from sddm.shapes import Laws, Times, Tokens


class Correction(ABC):
    """A change of x_s at one time s that leaves its law q_s as it is, or nearly so. It runs `rounds` times after each
    step to s, where 0 < s <= entry.
    """

    rounds: int
    entry: float

    def __post_init__(self) -> None:
        _checks.whole(self.rounds, "rounds", 1)
        _checks.finite(self.entry, "entry")
        _checks.require(0 < self.entry <= HORIZON, f"entry must lie in (0, {HORIZON:g}], but it is {self.entry}.")

    @abstractmethod
    def once(self, diffusion: Diffusion, query: Query, t: Times, randomness: Randomness) -> Tokens:
        """One round at the time of the query, after a step from t. What is settled may be changed: it is put back."""

    def __call__(self, diffusion: Diffusion, query: Query, t: Times, randomness: Randomness) -> Tokens:
        """Correct x_s, which the query holds, after the step from t to s."""
        if not 0 < float(query.t[0]) <= self.entry:
            return query.xt
        for _ in range(self.rounds):
            query = query.holding(with_settled(self.once(diffusion, query, t, randomness), query))
        return query.xt


@dataclass(frozen=True)
class Corrector(Correction):
    """After a step from t to s, run the jump process with rates R_s + Q_s (backwards and forwards at once), whose
    stationary law is q_s. It runs for a time factor * tau(s, t), `rounds` times, where 0 < s <= entry.
    """

    rounds: int = 1
    factor: float = 1.0
    entry: float = HORIZON

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.positive(self.factor, "factor")

    def once(self, diffusion: Diffusion, query: Query, t: Times, randomness: Randomness) -> Tokens:
        return categorical(self.weights(diffusion, query, t), randomness)

    def weights(self, diffusion: Diffusion, query: Query, t: Times) -> Laws:
        """How likely each value is after a round, up to a factor."""
        rates, process = reverse_rates(diffusion, query), diffusion.process
        rates += process.rates_out_of(query.xt, rates.dtype)
        return euler_weights(query.xt, over(self.factor * process.tau(query.t, t), rates))
