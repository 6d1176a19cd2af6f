"""Noise schedules: beta(t), the speed of the forward process, and its integral B(s, t).

The forward rate matrix at time t is Q_t = beta(t) Q, so a process needs only one function of its schedule:

    B(s, t) = integral of beta over [s, t],        0 <= s <= t <= T = 1.

Both are computed in float64 whatever is passed in, and both are differentiable in the times.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float64
from torch import Tensor

from sddm import _checks
from sddm.config import Configurable

Time = float | Tensor


def _float64(t: Time, name: str = "t") -> Tensor:
    """A time in float64. Numbers are checked here; tensors of times are checked where they enter the library."""
    if not isinstance(t, Tensor):
        _checks.require(0 <= _checks.finite(t, name) <= 1, f"{name} must lie in [0, 1], but it is {t}.")
    return torch.as_tensor(t, dtype=torch.float64)


class Schedule(Configurable, ABC):
    """A speed beta(t) >= 0. A new schedule implements `rate`, `primitive` (the integral from 0) and `scaled`."""

    @abstractmethod
    def rate(self, t: Time) -> Float64[Tensor, "*shape"]:
        """beta(t)."""

    @abstractmethod
    def primitive(self, t: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        """B(0, t)."""

    @abstractmethod
    def scaled(self, factor: float) -> Schedule:
        """The schedule with speed factor * beta(t)."""

    def integral(self, s: Time, t: Time) -> Float64[Tensor, "*shape"]:
        """B(s, t), the integral of beta from s to t."""
        return self.primitive(_float64(t)) - self.primitive(_float64(s, "s"))

    def inverse(self, integral: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        """The time t in [0, 1] with B(0, t) = integral."""
        return self._inverse(_checks.tensor(integral, "integral")).clamp(max=1)

    def _inverse(self, integral: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        """By bisection, for schedules that have no closed form."""
        low, high = torch.zeros_like(integral), torch.ones_like(integral)
        for _ in range(60):
            middle = (low + high) / 2
            below = self.primitive(middle) < integral
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high


class Constant(Schedule):
    """beta(t) = rate."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = _checks.positive(rate, "rate")

    def rate(self, t: Time) -> Float64[Tensor, "*shape"]:
        return torch.full_like(_float64(t), self._rate)

    def primitive(self, t: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return self._rate * t

    def _inverse(self, integral: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return integral / self._rate

    def scaled(self, factor: float) -> Constant:
        return Constant(self._rate * _checks.positive(factor, "factor"))


class LogSquare(Schedule):
    """B(0, t) = scale * log(1 + t^2), so beta(t) = scale * 2 t / (1 + t^2): little noise at first."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = _checks.positive(scale, "scale")

    def rate(self, t: Time) -> Float64[Tensor, "*shape"]:
        t = _float64(t)
        return self.scale * 2 * t / (1 + t**2)

    def primitive(self, t: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return self.scale * torch.log1p(t**2)

    def _inverse(self, integral: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return torch.expm1(integral / self.scale).sqrt()

    def scaled(self, factor: float) -> LogSquare:
        return LogSquare(self.scale * _checks.positive(factor, "factor"))


class SqrtCosine(Schedule):
    """B(0, t) = scale * (1 - sqrt(cos(pi t / 2))), the schedule of the paper's appendix.

    Its rate, scale * (pi / 4) sin(pi t / 2) / sqrt(cos(pi t / 2)), diverges at t = 1 although the integral does not.
    On the last `EDGE` = 1e-6 of the time axis the rate is therefore replaced by its mean there. So the rate is finite
    everywhere (at most scale * 1253.4), it is still the exact derivative of the integral, and B(0, 1) is still scale.
    """

    EDGE = 1e-6

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = _checks.positive(scale, "scale")

    def rate(self, t: Time) -> Float64[Tensor, "*shape"]:
        t = _float64(t)
        angle = math.pi / 2 * (1 - t.clamp(max=1 - self.EDGE))
        smooth = math.pi / 4 * torch.cos(angle) / torch.sqrt(torch.sin(angle))
        return self.scale * torch.where(t > 1 - self.EDGE, self._root_at_edge / self.EDGE, smooth)

    def primitive(self, t: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        # cos(pi t / 2) = sin(pi (1 - t) / 2), which keeps its digits where t is near 1.
        smooth = torch.sqrt(torch.sin(math.pi / 2 * (1 - t.clamp(max=1 - self.EDGE))))
        linear = self._root_at_edge * (1 - t) / self.EDGE
        return self.scale * (1 - torch.where(t > 1 - self.EDGE, linear, smooth))

    def _inverse(self, integral: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        root = 1 - integral / self.scale
        smooth = 1 - 2 / math.pi * torch.asin(root.clamp(0, 1) ** 2)
        return torch.where(root < self._root_at_edge, 1 - self.EDGE * root / self._root_at_edge, smooth)

    @property
    def _root_at_edge(self) -> float:
        return math.sqrt(math.sin(math.pi / 2 * self.EDGE))

    def scaled(self, factor: float) -> SqrtCosine:
        return SqrtCosine(self.scale * _checks.positive(factor, "factor"))


class Exponential(Schedule):
    """The schedule of tauLDR: a noise scale sigma(t) = low * (high / low)^t that grows from low to high, with

    beta(t) = low^2 (high / low)^(2t) log(high / low),      B(s, t) = (sigma(t)^2 - sigma(s)^2) / 2.
    """

    def __init__(self, low: float = 1.0, high: float = 100.0) -> None:
        self.low = _checks.positive(low, "low")
        self.high = _checks.positive(high, "high")
        _checks.require(self.high > self.low, f"high must be above low={self.low:g}, but it is {self.high:g}.")
        self._log_ratio = math.log(self.high / self.low)

    def rate(self, t: Time) -> Float64[Tensor, "*shape"]:
        return self.low**2 * self._log_ratio * torch.exp(2 * self._log_ratio * _float64(t))

    def primitive(self, t: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return self.low**2 / 2 * torch.expm1(2 * self._log_ratio * t)

    def _inverse(self, integral: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        return torch.log1p(2 * integral / self.low**2) / (2 * self._log_ratio)

    def scaled(self, factor: float) -> Exponential:
        root = math.sqrt(_checks.positive(factor, "factor"))
        return Exponential(self.low * root, self.high * root)


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "log-square": LogSquare,
    "sqrt-cosine": SqrtCosine,
    "exponential": Exponential,
}
