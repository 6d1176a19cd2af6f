"""A law of six bits and exact conditionals of it, from tables, so that samplers can be compared without a network."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float64, Int
from torch import Tensor

from sddm.diffusion import Diffusion
from sddm.marginals import MarginalModel, Marginals, Oracle, Tempered
from sddm.processes import Absorbing, Process, Uniform
from sddm.query import Query, at_positions
from sddm.samplers.corrector import Correction, Corrector
from sddm.samplers.ends import start_log_law
from sddm.samplers.informed import Informed
from sddm.samplers.steps import OneDraw
from sddm.samplers.trapezoidal import Trapezoidal
from sddm.schedules import LogSquare
from sddm.shapes import Times

DIM, STATES, LEFT = 6, 2, 0.02
FLATTENED = 1.3
"""The temperature of the imperfect model: its conditionals are flatter than the truth."""
MOST_TABLES, PAIRS = 256, 4096
PROCESSES = {"uniform": Uniform, "absorbing": Absorbing}


def all_rows(num_symbols: int) -> Int[Tensor, "rows dim"]:
    return torch.cartesian_prod(*[torch.arange(num_symbols)] * DIM)


def index_of(x: Tensor, num_symbols: int) -> Tensor:
    """Where each row stands among all rows."""
    return (x * num_symbols ** torch.arange(DIM - 1, -1, -1)).sum(1)


def law_of_bits() -> Float64[Tensor, "rows"]:
    """Neighbours like to agree, and every row has a weight of its own besides."""
    rows = all_rows(STATES)
    own = torch.randn(len(rows), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.softmax(1.2 * (rows[:, 1:] == rows[:, :-1]).sum(1) + 0.5 * own, dim=0)


class Tabulated(MarginalModel):
    """Another model, whose answers for all rows at a time are computed once."""

    def __init__(self, inner: MarginalModel) -> None:
        super().__init__()
        self.inner, self.length, self.implicit = inner, inner.length, inner.implicit
        self._tables: dict[float, Tensor] = {}

    def forward(self, process: Process, query: Query) -> Marginals:
        t, rows = float(query.t[0]), all_rows(process.num_symbols)
        if len(query.xt) < len(rows) or bool((query.t != t).any()):
            return self.inner(process, query)
        if t not in self._tables:
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            self._tables[t] = self.inner(process, Query(rows, query.t[:1].expand(len(rows)))).log_x0
        log_x0 = self._tables[t][index_of(query.xt, process.num_symbols)]
        return Marginals.from_x0(at_positions(log_x0, query.positions), process, query.t)


@dataclass(frozen=True)
class Bits:
    """The law of six bits, under one kind of noise, and a model of it: the oracle, or the oracle flattened."""

    column: str
    """Such as "uniform, oracle"."""

    num_states = STATES
    length = DIM

    def tokens(self, num: int, generator: torch.Generator) -> Tensor:
        return all_rows(STATES)[torch.multinomial(law_of_bits(), num, replacement=True, generator=generator)]

    def diffusion(self) -> Diffusion:
        noise, kind = self.column.split(", ")
        process = PROCESSES[noise](STATES, LogSquare(1.0)).leaving(LEFT)
        oracle = Oracle.from_joint(law_of_bits().reshape([STATES] * DIM))
        return Diffusion(process, Tabulated(oracle if kind == "oracle" else Tempered(oracle, FLATTENED)))


Step = OneDraw | Trapezoidal


def exact_law(
    diffusion: Diffusion, step: Step, corrector: Correction | None, grid: Float64[Tensor, "times"]
) -> Float64[Tensor, "rows"]:
    """The law of samples that are drawn by this step on this grid, by multiplying its transition matrices."""
    process = diffusion.process
    rows = all_rows(process.num_symbols)
    law = product(start_log_law(diffusion, Query(rows[:1], grid[:1])).double().exp())[0]
    for t, s in pairwise(grid):
        query, s = Query(rows, t.expand(len(rows))), s.expand(len(rows))
        law = after(diffusion, step, query, s, law)
        if corrector is not None and float(s[0]) > 0:
            law = corrected(diffusion, corrector, query.holding(rows, s), query.t, law)
    last = diffusion(query).log_xt.double().exp()
    last[..., STATES:] = 0
    own = F.one_hot(rows, process.num_symbols).double()
    law = law @ product(torch.where((rows >= STATES)[..., None], last, own))
    return law[index_of(all_rows(STATES), process.num_symbols)]


def after(diffusion: Diffusion, step: Step, query: Query, s: Times, law: Tensor) -> Tensor:
    """The law at s, from that of all rows at the time of the query."""
    if isinstance(step, OneDraw):
        return law @ product(step.weights(diffusion, query, s, query.t).double())
    process, t, rho = diffusion.process, query.t, step.between(diffusion.process, s, query.t)
    first, second = diffusion(query), diffusion(query.holding(query.xt, rho))
    both = law[:, None] * product(step.step.weights_by(process, first, query.xt, t, rho, t).double())
    x, y = both.nonzero(as_tuple=True)  # where each row may be at t and at rho

    def told(marginals: Marginals, at: Tensor, u: Times) -> Marginals:
        return Marginals.from_x0(marginals.require_x0("Trapezoidal")[at], process, u[at])

    mixture = step.mixture(process, told(first, x, t), told(second, y, rho), query.xt[y], s[x], rho[x], t[x]).double()
    parts = zip(both[x, y].split(PAIRS), mixture.split(PAIRS), strict=True)
    return torch.stack([weights @ product(some) for weights, some in parts]).sum(0)


def corrected(diffusion: Diffusion, corrector: Correction, query: Query, t: Times, law: Tensor) -> Tensor:
    """The law after a round of jumps, or after one position was drawn again."""
    if isinstance(corrector, Corrector):
        return law @ product(corrector.weights(diffusion, query, t).double())
    assert isinstance(corrector, Informed)
    assert corrector.positions == 1
    assert not corrector.accept
    drawn, scores = corrector.seen(diffusion, query)
    chance = torch.nan_to_num(scores.softmax(dim=1))  # of each position; there is none if all of a row is MASK
    stays = law * (1 - chance.sum(1))
    for d in range(DIM):
        own = F.one_hot(query.xt, diffusion.process.num_symbols).double()
        own[:, d] = 0
        own[:, d, :STATES] = drawn[:, d] / drawn[:, d].sum(-1, keepdim=True)
        stays = stays + (law * chance[:, d]) @ product(own)
    return stays


def product(weights: Float64[Tensor, "rows dim symbols"]) -> Float64[Tensor, "rows all"]:
    """The law of a row whose positions are drawn from these weights by themselves."""
    laws = weights / weights.sum(-1, keepdim=True)
    matrix = torch.ones(len(laws), 1, dtype=laws.dtype)
    for d in range(laws.shape[1]):
        matrix = (matrix[:, :, None] * laws[:, d, None]).flatten(1)
    return matrix
