"""Bayesian networks: laws of rows of categories that can be sampled and evaluated exactly.

p(x) = prod_d p(x^d | the parents of d)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.data.elimination import Factor, summed
from sddm.formats.bif import Variable
from sddm.randomness import Stream, invert_cdf


class BayesianNetwork:
    """The joint law of some variables. Position d of a row is variable d, its token i the state `states[d][i]`.

    >>> network = BayesianNetwork(read_bif(text, "rain.bif"))
    >>> rows = network.sample(1000, torch.Generator().manual_seed(0))
    >>> -network.log_prob(rows).mean()             # an estimate of the entropy in nats
    """

    def __init__(self, variables: Sequence[Variable]) -> None:
        _checks.require(len(variables) > 0, "variables must hold at least one variable.")
        self.names = [variable.name for variable in variables]
        self.states = [list(variable.states) for variable in variables]
        _checks.require(
            len(set(self.names)) == len(self.names), f"Names of variables must differ: {_checks.shown(self.names)}."
        )
        for variable in variables:
            _checks.require(
                len(set(variable.states)) == len(variable.states) > 0,
                f"The states of {variable.name!r} must differ: {_checks.shown(variable.states)}.",
            )
            for parent in variable.parents:
                _checks.require(parent in self.names, f"{variable.name!r} has a parent {parent!r}, which is unknown.")
        self.sizes = [len(states) for states in self.states]
        self.parents = [[self.names.index(parent) for parent in variable.parents] for variable in variables]
        self._laws = [self._law(variable, parents) for variable, parents in zip(variables, self.parents, strict=True)]
        self._order = self._parents_first()

    def sample(self, num: int, generator: torch.Generator | None = None) -> Int[Tensor, "{num} dim"]:
        """Independent rows. Each takes its own uniforms, so the first rows are the same whatever their number."""
        _checks.whole(num, "num", least=1)
        source = Stream(_checks.generator(generator))
        uniforms = source.uniform((num, len(self.names)), torch.device("cpu")).cpu()
        rows = torch.zeros(num, len(self.names), dtype=torch.int64)
        for d in self._order:
            rows[:, d] = invert_cdf(self._given_parents(rows, d), uniforms[:, d])
        return rows

    def log_prob(self, tokens: Int[Tensor, "num dim"]) -> Float64[Tensor, "num"]:
        """log p(x) of each row in nats, exact; -inf for rows that never occur."""
        tokens = _checks.tokens(tokens, max(self.sizes), "tokens", length=len(self.names)).cpu()
        total = torch.zeros(len(tokens), dtype=torch.float64)
        for d, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            highest = int(tokens[:, d].max())
            _checks.require(highest < size, f"tokens holds {highest} for {name!r}, whose tokens are 0 to {size - 1}.")
        for d in range(len(self.names)):
            total += self._given_parents(tokens, d).gather(1, tokens[:, d : d + 1]).squeeze(1).log()
        return total

    def joint(self, kept: Sequence[int], given: Mapping[int, int] | None = None) -> Float64[Tensor, "..."]:
        """p(X^kept = ., X^d = given[d]), exact, with an axis for each of the kept variables in their order.

        Divided by its sum it is the law of the kept variables given the others.

        >>> both = network.joint([0], {4: 1, 7: 0})
        >>> both.sum()                             # how often variables 4 and 7 are 1 and 0
        >>> both / both.sum()                      # the law of variable 0 in these rows
        """
        given = given or {}
        asked = [*kept, *given]
        for d in asked:
            _checks.whole(d, "a variable", 0, len(self.names) - 1)
        _checks.require(len(set(asked)) == len(asked), f"kept and given must name variables once, but are {asked}.")
        for d, token in given.items():
            _checks.whole(token, f"the token of {self.names[d]!r}", 0, self.sizes[d] - 1)
        return summed([self._factor(d, given) for d in self._with_ancestors(asked)], tuple(kept))

    def _factor(self, d: int, given: Mapping[int, int]) -> Factor:
        """The law of variable d given its parents, as far as they are not given."""
        variables = [*self.parents[d], d]
        values = self._laws[d].reshape([self.sizes[v] for v in variables])
        values = values[tuple(given.get(v, slice(None)) for v in variables)]
        return Factor(tuple(v for v in variables if v not in given), values)

    def _with_ancestors(self, variables: Sequence[int]) -> list[int]:
        """The variables that the law of these depends on; all others sum to 1."""
        found: set[int] = set()
        left = list(variables)
        while left:
            if (d := left.pop()) not in found:
                found.add(d)
                left += self.parents[d]
        return sorted(found)

    def _given_parents(self, rows: Int[Tensor, "num dim"], d: int) -> Float64[Tensor, "num states"]:
        """The law of variable d in each row."""
        case = torch.zeros(len(rows), dtype=torch.int64)
        for parent in self.parents[d]:
            case = case * self.sizes[parent] + rows[:, parent]
        return self._laws[d][case]

    def _law(self, variable: Variable, parents: Sequence[int]) -> Float64[Tensor, "cases states"]:
        """A row for each combination of the parents' states, the last parent's changing fastest."""
        cases = math.prod(self.sizes[parent] for parent in parents)
        _checks.require(
            len(variable.table) == cases,
            f"The law of {variable.name!r} has {len(variable.table)} rows, but its parents have {cases} combinations "
            "of states. Give one row for each.",
        )
        rows = []
        for case in product(*(self.states[parent] for parent in parents)):
            told = f"{variable.name!r}" + (f" given {', '.join(case)}" if case else "")
            _checks.require(case in variable.table, f"The law of {told} is missing. Check the names of the states.")
            numbers = torch.tensor(variable.table[case], dtype=torch.float64)
            rows.append(_checks.law(numbers, len(variable.states), f"The law of {told}"))
        return torch.stack(rows)

    def _parents_first(self) -> list[int]:
        """The variables in an order in which every one comes after its parents."""
        order: list[int] = []
        left = list(range(len(self.names)))
        while left:
            ready = [d for d in left if set(self.parents[d]) <= set(order)]
            cycle = _checks.shown([self.names[d] for d in left])
            _checks.require(len(ready) > 0, f"These variables, or their parents, depend on themselves: {cycle}.")
            order += ready
            left = [d for d in left if d not in ready]
        return order
