"""A corrector that is told where to look: the positions that fit the others least are drawn again (Gibbs).

The models here predict a position without looking at it, p_s(. | x_s^{\\d}). So one evaluation gives both how well the
token of each position fits, and what to draw in its place (Zhao et al., 2024, arXiv 2407.21243). The certainty of the
position d is

    c_d = log p_s(x^d | x^{\\d}) - max_{y != x^d} log p_s(y | x^{\\d}),

and positions are chosen without replacement, in proportion to exp(-c_d / temperature). Under absorbing noise only
positions that are shown are drawn again, among the data states.

Is q_s left as it is? To draw a position afresh from its conditional does so, if the choice of the position does not
depend on its token. With temperature = inf and one position it does not: this is Gibbs sampling, and exact. With a
temperature the choice does depend on the token, and tokens that fit badly are replaced too often: the law is sharpened.
`accept=True` repairs this for one position: with pi_d(x) the probability of choosing d, the new row x' is accepted with
probability min(1, pi_d(x') / pi_d(x)) (Metropolis-Hastings; the conditionals cancel). Then q_s is invariant at any
temperature, for one more evaluation. Several positions drawn at once do not see each other, and no choice of them is
exact. docs/sampling.md says how far each of these is from q_s on an enumerated space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.samplers.corrector import Correction
from sddm.shapes import Laws, Times, Tokens


@dataclass(frozen=True)
class Informed(Correction):
    """After a step to s, draw the `positions` least certain positions again, `rounds` times, where 0 < s <= entry.

    positions: how many at once; more repair more in a round, and neglect that they change together.
    temperature: of the choice; near 0, always the least certain ones; math.inf, any with equal probability.
    accept: leave q_s exactly invariant, by a test of the new row. One position at a time, two evaluations a round.

    >>> sample(diffusion, 64, steps=16, corrector=Informed(positions=4))
    """

    positions: int = 1
    temperature: float = 1.0
    accept: bool = False
    rounds: int = 1
    entry: float = HORIZON

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.whole(self.positions, "positions", 1)
        if self.temperature != math.inf:
            _checks.positive(self.temperature, "temperature")
        _checks.require(
            not self.accept or self.positions == 1,
            f"accept=True tests one position at a time, but positions is {self.positions}. Leave one of the two out.",
        )

    def once(self, diffusion: Diffusion, query: Query, t: Times, randomness: Randomness) -> Tokens:
        x = query.xt
        u = randomness.uniform((x.shape[0], 3, x.shape[1]), x.device)
        law, scores = self.seen(diffusion, query)
        gumbel = -torch.log(-torch.log(u[:, 0].clamp_min(torch.finfo(u.dtype).tiny)))
        chosen = (scores + gumbel).topk(min(self.positions, x.shape[1]), dim=1).indices
        turn = torch.zeros_like(x, dtype=torch.bool).scatter(1, chosen, True) & scores.isfinite()
        new = torch.where(turn, invert_cdf(law, u[:, 1]), x)
        if not self.accept:
            return new
        _, then = self.seen(diffusion, query.holding(new))
        before, after = (s.log_softmax(dim=1).gather(1, chosen) for s in (scores, then))
        return torch.where(u[:, 2, :1].log() < after - before, new, x)

    def seen(self, diffusion: Diffusion, query: Query) -> tuple[Laws, Float64[Tensor, "batch dim"]]:
        """The conditionals among the data states, and -c_d / temperature: -inf for what is settled or MASK."""
        states = diffusion.process.num_states
        law, here = diffusion(query).log_xt.exp()[..., :states], query.xt.clamp(max=states - 1)[..., None]
        own, other = law.gather(-1, here).squeeze(-1), law.scatter(-1, here, 0).amax(-1)
        least = torch.finfo(law.dtype).tiny
        scores = (other.clamp_min(least).log() - own.clamp_min(least).log()).double() / self.temperature
        closed = query.xt >= states
        return law, scores.masked_fill(closed if query.settled is None else closed | query.settled, -math.inf)
