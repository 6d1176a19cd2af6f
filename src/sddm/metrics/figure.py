"""What a metric is to a command: a figure of samples against data, for the codecs that it suits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from sddm.codecs import Codec
from sddm.metrics.frechet import FID
from sddm.metrics.u_statistic import MMD

Tokens = Int[Tensor, "num dim"]
OtherTokens = Int[Tensor, "others dim"]


def always(codec: Codec) -> bool:
    return True


def nothing() -> str:
    return ""


@dataclass(frozen=True)
class Metric:
    """How far samples are from data: a line of the table `METRICS`, by the name under which the figure is saved."""

    title: str
    """What the figure is called where people read it."""
    measure: Callable[[Tokens, OtherTokens, Codec], float | MMD | FID]
    """The value from samples, data and their codec, with its standard error if it has one."""
    codec: type = Codec
    """The codecs that the metric suits: this one and those derived from it."""
    rows: int = 1
    """The least rows of samples and of data that it needs."""
    suits: Callable[[Any], bool] = always
    """Which of these codecs it suits."""
    compared: bool = False
    """Whether the figure says something only next to the same figure of data against other data."""
    training: bool = False
    """Whether samples are compared with the rows that the model was trained on, and not with other data."""
    missing: Callable[[], str] = nothing
    """A sentence, if the metric needs what is not on this machine and is not fetched unasked; otherwise ''."""


@dataclass(frozen=True)
class Figure:
    """A comparison of samples with data: the key under which it is saved, what it is called, and its value."""

    name: str
    title: str
    value: float
    standard_error: float | None = None
    of_data: float | None = None
    """The same figure of some of the data against the others."""
    of_data_standard_error: float | None = None

    def saved(self) -> dict[str, float]:
        keys = ("standard_error", "of_data", "of_data_standard_error")
        others = {key: getattr(self, key) for key in keys}
        return {self.name: self.value, **{f"{self.name}_{key}": n for key, n in others.items() if n is not None}}

    def __str__(self) -> str:
        of_data = "" if self.of_data is None else f", of data {_shown(self.of_data, self.of_data_standard_error)}"
        return f"{self.title}  {_shown(self.value, self.standard_error)}{of_data}"


def _shown(value: float, error: float | None) -> str:
    return f"{value:.6g}" + ("" if error is None else f" +- {error:.2g}")
