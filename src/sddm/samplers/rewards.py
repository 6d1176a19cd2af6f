"""What a reward of samples says of them on the way, when they are still noised."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.samplers.ends import with_settled
from sddm.samplers.ragged import with_pad
from sddm.shapes import Laws

LEAST_REWARD = -700.0
"""A reward of minus infinity counts as this before the end: about the smallest whose exponential is not 0. So a
particle whose prediction is forbidden is almost surely replaced, and is not lost if all others are forbidden, too."""
Function = Callable[[Tensor], Tensor]


class Reward(ABC):
    """How a function tells the reward of x_t, for t > 0 as for t = 0."""

    def __init__(self, function: Function) -> None:
        if not callable(function):
            raise TypeError(f"reward must be a function of tokens, but it is a {type(function).__name__}.")
        self.function = function

    @abstractmethod
    def seen(self, diffusion: Diffusion, query: Query) -> Tensor:
        """What the function is asked about at t > 0."""

    def at_end(self, diffusion: Diffusion, query: Query) -> Tensor:
        """What the function is asked about at t = 0."""
        return with_pad(diffusion, query.xt, query.padding)

    def __call__(self, diffusion: Diffusion, query: Query) -> Float64[Tensor, "rows"]:
        """The reward of each row, checked."""
        end = not bool((query.t > 0).any())
        asked = self.at_end(diffusion, query) if end else self.seen(diffusion, query)
        value = self.function(asked)
        if not isinstance(value, Tensor):
            raise TypeError(
                f"reward must return a torch.Tensor with a number for each row, not {type(value).__name__}."
            )
        rows = len(query.xt)
        _checks.require(
            value.shape == (rows,) and not value.is_complex(),
            f"reward was asked about {rows} rows and must return a tensor of shape ({rows},), but it returned one of "
            f"shape {tuple(value.shape)}.",
        )
        value = value.to(query.xt.device, torch.float64)
        _checks.require(
            not bool(value.isnan().any()), "reward returned NaN. Rewards are numbers, or -inf to forbid a row."
        )
        _checks.require(not bool((value == math.inf).any()), "reward returned inf. Rewards are finite, or -inf.")
        return value if end else value.clamp(min=LEAST_REWARD)


class OfPrediction(Reward):
    """A function of tokens (n, D) -> (n,), asked about the most likely value of p(x_0^d | x_t) at every position."""

    def seen(self, diffusion: Diffusion, query: Query) -> Int[Tensor, "rows dim"]:
        return with_pad(diffusion, with_settled(predicted(diffusion, query).argmax(-1), query), query.padding)


class OfLaw(Reward):
    """A function of p(x_0^d | x_t), (n, D, C) -> (n,); at the end each law is certain."""

    def seen(self, diffusion: Diffusion, query: Query) -> Laws:
        law = predicted(diffusion, query)
        if query.settled is None:
            return law
        held = F.one_hot(query.xt.clamp(max=law.shape[-1] - 1), law.shape[-1]).to(law.dtype)
        return torch.where(query.settled[..., None], held, law)

    def at_end(self, diffusion: Diffusion, query: Query) -> Tensor:
        return F.one_hot(query.xt, diffusion.process.num_states).to(torch.get_default_dtype())


class OfNoised(Reward):
    """A function of x_t itself, (n, D) -> (n,). Under absorbing noise, tokens that are MASK hold `num_states`."""

    def seen(self, diffusion: Diffusion, query: Query) -> Int[Tensor, "rows dim"]:
        return with_pad(diffusion, query.xt, query.padding)


def predicted(diffusion: Diffusion, query: Query) -> Laws:
    """p(x_0^d = c | x_t), proportional to p_{0|t}(c | x_t^{\\d}) q_{t|0}(x_t^d | c)."""
    process, log_x0 = diffusion.process, diffusion(query).require_x0("A reward of the prediction")
    seen = process.likelihood_by(query.xt, process.tau(0.0, query.t), log_x0.dtype).log()
    return F.softmax((log_x0 + seen)[..., : process.num_states], dim=-1).nan_to_num(1 / process.num_states)
