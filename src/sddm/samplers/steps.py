"""Reverse steps that need one evaluation of the model at each position: from x_t to x_s, s < t."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Float64
from torch import Tensor

from sddm.diffusion import Diffusion
from sddm.marginals import Marginals
from sddm.processes import Process, Undoable
from sddm.query import Query
from sddm.randomness import Randomness, categorical
from sddm.samplers.jumps import euler_weights, or_stay, over, rates_by, reverse_rates, single_leap, summed_leap
from sddm.shapes import Asked, AskedLaws, Times, Tokens


@runtime_checkable
class ReverseStep(Protocol):
    """A step of the reverse process. To add one: a small class like those below, and one line in `SAMPLERS`."""

    def check(self, diffusion: Diffusion) -> None:
        """Raise a ValueError if this step cannot sample this diffusion."""

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        """Draw x_s given x_t, which the query holds."""


@runtime_checkable
class OwnStart(Protocol):
    """A step that does not start from x_T of the process."""

    def start(self, diffusion: Diffusion, query: Query, randomness: Randomness) -> Tokens:
        """What sampling starts from; settled positions hold what they hold in the query."""

    def usual_steps(self, length: int) -> int:
        """How many steps to take if no number is given."""


class OneDraw(ABC):
    """A step that draws each position once, from the position's own weights. It can be taken at some positions only."""

    @abstractmethod
    def check(self, diffusion: Diffusion) -> None:
        """Raise a ValueError if this step cannot sample this diffusion."""

    @abstractmethod
    def weights_by(
        self, process: Process, marginals: Marginals, here: Asked, asked: Times, s: Times, t: Times
    ) -> AskedLaws:
        """How likely each value is at s, up to a factor, in positions that hold `here` at t.

        asked: the time at which the model was asked for the marginals; it may differ from t.
        """

    def weights(self, diffusion: Diffusion, query: Query, s: Times, t: Times) -> AskedLaws:
        """The same for the positions that the query asks for, which are at time t, at the time of the query."""
        return self.weights_by(diffusion.process, diffusion(query), query.here, query.t, s, t)

    @abstractmethod
    def most(self, process: Process, t: Times, s: Times) -> Float64[Tensor, "batch symbols"]:
        """The largest probability of leaving each value in this step, whatever the data are."""

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        return categorical(self.weights(diffusion, query, s, query.t), randomness)


@dataclass(frozen=True)
class Euler(OneDraw):
    """Rates held fixed over the step: to y with probability tau(s, t) R(x -> y), otherwise x stays (Section 4.2).

    If these probabilities sum to more than 1, x is left, and they are divided by their sum.
    """

    def check(self, diffusion: Diffusion) -> None:
        pass

    def weights_by(
        self, process: Process, marginals: Marginals, here: Asked, asked: Times, s: Times, t: Times
    ) -> AskedLaws:
        return euler_weights(here, over(process.tau(s, t), rates_by(process, marginals, here)))

    def most(self, process: Process, t: Times, s: Times) -> Float64[Tensor, "batch symbols"]:
        return (process.tau(s, t)[:, None] * process.exit_bound(process.tau(0.0, t))).clamp_(max=1)


@dataclass(frozen=True)
class Analytical(OneDraw):
    """The reverse transition itself, one position at a time (Section 4.3):

        p(X_s^d = y | x_t)  is proportional to  P_{s->t}(x_t^d | y) * (p_{0|t}(. | x_t^{\\d}) P_{0->s})(y).

    Exact in one dimension for any step. The second factor is the law of X_s^d given x_t^{\\d}, which the process turns
    into p_t(. | x_t^{\\d}): for a model of p_t it is found by undoing P_{s->t}, if the process can.
    """

    def check(self, diffusion: Diffusion) -> None:
        if not can_be_analytical(diffusion):
            raise ValueError(
                f"sampler: Analytical needs a model that predicts x0, but this one predicts x_t directly, and "
                f"{type(diffusion.process).__name__} cannot be undone. Use Euler(), or build the model with "
                "implicit=True."
            )

    def weights_by(
        self, process: Process, marginals: Marginals, here: Asked, asked: Times, s: Times, t: Times
    ) -> AskedLaws:
        if marginals.log_x0 is not None:
            earlier = process.log_push_by(marginals.log_x0, process.tau(0.0, s)).exp_()
        else:
            assert isinstance(process, Undoable)
            earlier = process.pull_by(marginals.log_xt.exp(), process.tau(s, asked))
        return or_stay(process.times_likelihood_by(earlier, here, process.tau(s, t)), here)

    def most(self, process: Process, t: Times, s: Times) -> Float64[Tensor, "batch symbols"]:
        return process.move_bound(process.tau(0.0, s), process.tau(s, t))


def can_be_analytical(diffusion: Diffusion) -> bool:
    """Whether the law of X_s^d given x_t^{\\d} follows from what the model predicts."""
    return diffusion.model.implicit or isinstance(diffusion.process, Undoable)


@dataclass(frozen=True)
class TakenBy:
    """A step that takes another one at some positions at a time."""

    step: OneDraw = field(default_factory=Analytical)

    def __post_init__(self) -> None:
        if not isinstance(self.step, OneDraw):
            raise TypeError(f"step must be Analytical() or Euler(), but it is {self.step!r}.")

    def check(self, diffusion: Diffusion) -> None:
        self.step.check(diffusion)


@dataclass(frozen=True)
class TauLeaping:
    """Rates held fixed over the step, with a Poisson number of jumps to each value.

    A categorical position that would jump more than once does not jump. Jumps between ordered states (ordinal=True)
    add up.
    """

    ordinal: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.ordinal, bool):
            raise TypeError(f"ordinal must be True or False, but it is {self.ordinal!r}.")

    def check(self, diffusion: Diffusion) -> None:
        if self.ordinal and not diffusion.process.ordinal:
            raise ValueError(
                f"sampler: TauLeaping(ordinal=True) adds up jumps, but {type(diffusion.process).__name__} "
                "has no ordered states. Use TauLeaping()."
            )

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        leap = summed_leap if self.ordinal else single_leap
        hazard = over(diffusion.process.tau(s, query.t), reverse_rates(diffusion, query))
        return leap(query.xt, hazard, randomness)
