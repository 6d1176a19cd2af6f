"""A GFlowNet over rows of bits: it makes a row by filling one void position after another.

    s_0 = all void  ->  s_1  ->  ...  ->  s_D = x            each position is void, 0 or 1

P_F(s_i | s_{i-1}) picks a void position and its bit, P_B(s_{i-1} | s_i) a filled position to empty. So a trajectory is
a row x and the order in which its positions were filled. Let Z be a number and R(x) a reward. A trajectory is balanced
if

    Z prod_i P_F(s_i | s_{i-1}) = R(x) prod_i P_B(s_{i-1} | s_i).

If all trajectories are balanced, P_F ends in x with probability R(x) / Z: this follows by summing both sides over the
orders, since the product of P_B sums to 1. (Malkin, Jain, Bengio, Sun, Bengio: Trajectory Balance, 2022.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.randomness import Stream, categorical, random_positions

VOID = 2
"""The token of a position that is not filled."""


class Fillings(NamedTuple):
    """Ways from the void state to rows of bits."""

    rows: Int[Tensor, "batch dim"]
    """The rows x in which they end."""
    order: Int[Tensor, "batch dim"]
    """The position that each step fills."""

    def state(self, steps: int) -> Int[Tensor, "batch dim"]:
        """The state after this number of steps."""
        return self.rows.scatter(1, self.order[:, steps:], VOID)

    def states(self) -> Int[Tensor, "batch states dim"]:
        """All D + 1 states, from the void one to x."""
        steps = torch.arange(self.order.shape[1] + 1, device=self.order.device)
        filled_by = torch.empty_like(self.order).scatter_(1, self.order, steps[1:].expand_as(self.order))
        return torch.where(filled_by[:, None] <= steps[:, None], self.rows[:, None], VOID)

    def joined(self, other: Fillings) -> Fillings:
        """These trajectories and then the others, in one batch."""
        return Fillings(torch.cat([self.rows, other.rows]), torch.cat([self.order, other.order]))


class Policy(nn.Module):
    """P_F and P_B: one MLP that sees a state and gives 2 D logits of fillings and D logits of emptyings.

    Void positions enter as two zeros, filled ones as the one-hot code of their bit.

    length: the number D of positions.
    width, layers: of the hidden layers (relu).
    learned_backward: whether P_B is learned, or empties every filled position with the same probability.
    """

    def __init__(self, length: int, width: int = 128, layers: int = 3, learned_backward: bool = False) -> None:
        super().__init__()
        self.length = _checks.whole(length, "length", 1)
        self.learned_backward = learned_backward
        _checks.whole(width, "width", 1)
        _checks.whole(layers, "layers", 1)
        self.first = nn.Linear(2 * length, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.last = nn.Linear(width, (3 if learned_backward else 2) * length)

    def forward(self, states: Int[Tensor, "*batch dim"]) -> Float[Tensor, "*batch logits"]:
        """The logit of bit b in position d at b D + d and then, if P_B is learned, that of emptying d at 2 D + d."""
        bits = torch.cat([states == 0, states == 1], dim=-1)
        h = F.relu_(self.first(bits.to(self.first.weight.dtype)))
        for layer in self.hidden:
            h = F.relu_(layer(h))
        return self.last(h)

    def log_fillings(
        self, states: Int[Tensor, "*batch dim"], logits: Float[Tensor, "*batch logits"]
    ) -> Float[Tensor, "*batch fillings"]:
        """log P_F of every filling in these states, none of which may be full."""
        fillings = logits[..., : 2 * self.length].unflatten(-1, (2, self.length))
        possible = fillings.masked_fill((states != VOID)[..., None, :], -math.inf)
        return F.log_softmax(possible.flatten(-2), dim=-1)

    def log_emptyings(
        self, states: Int[Tensor, "*batch dim"], logits: Float[Tensor, "*batch logits"]
    ) -> Float[Tensor, "*batch dim"]:
        """log P_B of every emptying in these states, none of which may be void all over; for a P_B that is learned."""
        return F.log_softmax(logits[..., 2 * self.length :].masked_fill(states == VOID, -math.inf), dim=-1)

    def log_probabilities(self, trajectory: Fillings) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"]]:
        """log P_F(s_i | s_{i-1}) and log P_B(s_{i-1} | s_i) of every step, from one evaluation of all states."""
        states, order = trajectory.states(), trajectory.order
        if not self.learned_backward:
            states = states[:, :-1]
        logits = self(states)
        filling = self.length * trajectory.rows.gather(1, order) + order
        fillings = self.log_fillings(states[:, : self.length], logits[:, : self.length])
        forward = fillings.gather(2, filling[..., None]).squeeze(2)
        if self.learned_backward:
            emptyings = self.log_emptyings(states[:, 1:], logits[:, 1:])
            return forward, emptyings.gather(2, order[..., None]).squeeze(2)
        choices = torch.arange(1, self.length + 1, dtype=forward.dtype, device=forward.device)
        return forward, -choices.log().expand_as(forward)

    @torch.no_grad()
    def fill(
        self, states: Int[Tensor, "batch dim"], steps: int, generator: torch.Generator, exploration: float = 0.0
    ) -> tuple[Int[Tensor, "batch dim"], Int[Tensor, "batch steps"]]:
        """Follow P_F for a number of steps: the states then, and the positions that were filled, in order.

        exploration: the probability with which a step takes any filling that is possible.
        """
        order = states.new_empty(len(states), steps)
        for step in range(steps):
            log_probabilities = self.log_fillings(states, self(states))
            probabilities = log_probabilities.exp()
            if exploration > 0:
                possible = (log_probabilities > -math.inf).to(probabilities.dtype)
                probabilities.lerp_(possible / possible.sum(1, keepdim=True), exploration)
            filling = categorical(probabilities, Stream(generator))
            order[:, step] = filling % self.length
            states = states.scatter(1, order[:, step, None], (filling // self.length)[:, None])
        return states, order

    @torch.no_grad()
    def empty(self, rows: Int[Tensor, "batch dim"], generator: torch.Generator) -> Fillings:
        """Follow P_B from rows of bits to the void state."""
        if not self.learned_backward:
            return Fillings(rows, random_positions(len(rows), self.length, self.length, generator, rows.device))
        states, order = rows, torch.empty_like(rows)
        for step in reversed(range(self.length)):
            order[:, step] = categorical(self.log_emptyings(states, self(states)).exp(), Stream(generator))
            states = states.scatter(1, order[:, step, None], VOID)
        return Fillings(rows, order)

    def back_and_forth(
        self, trajectory: Fillings, steps: int, generator: torch.Generator, exploration: float = 0.0
    ) -> Fillings:
        """Go back on trajectories that P_B has drawn, and as many steps forth with P_F."""
        kept = self.length - steps
        rows, order = self.fill(trajectory.state(kept), steps, generator, exploration)
        return Fillings(rows, torch.cat([trajectory.order[:, :kept], order], dim=1))

    def sample(self, num: int, generator: torch.Generator) -> Int[Tensor, "num dim"]:
        """The ends of `num` trajectories of P_F."""
        void = torch.full((num, self.length), VOID, device=self.first.weight.device)
        return self.fill(void, self.length, generator)[0]


def explored(log_forward: Float[Tensor, "batch dim"], exploration: float) -> Float[Tensor, "batch dim"]:
    """The log probabilities of the steps of whole trajectories when `fill` explores: log((1 - e) P_F + e / choices)."""
    if exploration == 0:
        return log_forward
    length = log_forward.shape[1]
    choices = 2 * torch.arange(length, 0, -1, dtype=log_forward.dtype, device=log_forward.device)
    at_random = math.log(exploration) - choices.log()
    return torch.logaddexp(log_forward + math.log1p(-exploration), at_random)
