"""Positions that shall lie in a range: weights w_d(c) in [0, 1] of the tokens at some positions d_1 < d_2 < ...

The model is asked for these positions first, one after the other, at time T, given all that is known:

    q_j(c) = p_{0|T}(X_0^{d_j} = c | x_T, what is given, x^{d_1}, ..., x^{d_{j-1}}).

Each is drawn in proportion to q_j w_j, whose sum is Z_j. The row of draws is kept with probability Z_2 Z_3 ..., and
drawn anew otherwise. (Z_1 does not depend on what was drawn, so one position alone is always kept.) So what is kept has
exactly the law that is proportional to prod_j q_j w_j: the model's own joint law of these positions, with the weights.
The other positions are then generated given these, as they are given any others.

Under absorbing noise x_T is all MASK, and says nothing. Under other noise it is drawn once for each sample, and says as
much of x_0 as is left at T (2% of the data unless it is set).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float64
from torch import Tensor

from sddm import _checks
from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, invert_cdf
from sddm.shapes import Tokens

ROUNDS = 1_000
"""How often a row is drawn anew before its ranges are taken to contradict each other."""
Ranges = Mapping[int, Float64[Tensor, "states"]]


def check_ranges(diffusion: Diffusion, ranges: Ranges) -> None:
    """Raise a ValueError if the model cannot be asked for positions in ranges."""
    _checks.require(
        not ranges or diffusion.model.implicit,
        "A condition with ranges needs a model that predicts x0, but this one predicts x_t directly.",
    )


def with_ranges(diffusion: Diffusion, query: Query, ranges: Ranges, randomness: Randomness) -> Query:
    """The same question in which the positions of the ranges are drawn, and given from now on."""
    noise = diffusion.process.draw_prior(query.xt.shape, randomness, query.xt.device)
    settled = torch.zeros_like(query.xt, dtype=torch.bool) if query.settled is None else query.settled
    given = torch.zeros_like(settled) if query.given is None else query.given
    noisy = query._replace(xt=torch.where(settled, query.xt, noise), given=given)
    drawn, open_rows = query.xt.clone(), torch.arange(len(noise))
    for _ in range(ROUNDS):
        proposed, kept = _proposed(diffusion, noisy.rows(open_rows), ranges, randomness.of(open_rows))
        drawn[open_rows[kept]] = proposed[kept]
        open_rows = open_rows[~kept]
        if not len(open_rows):
            break
    _checks.require(
        len(open_rows) == 0,
        f"The ranges hardly ever hold together: {len(open_rows)} of {len(drawn)} samples were drawn {ROUNDS:,} times "
        "without success. Ask for wider ranges, or for fewer.",
    )
    here = torch.zeros(given.shape[1], dtype=torch.bool, device=given.device)
    here[list(ranges)] = True
    return query._replace(xt=torch.where(settled | ~here, query.xt, drawn), given=given | (here & ~settled))


def _proposed(
    diffusion: Diffusion, query: Query, ranges: Ranges, randomness: Randomness
) -> tuple[Tokens, Bool[Tensor, "batch"]]:
    """Rows with draws at the positions of the ranges, and whether each is kept."""
    assert query.settled is not None
    assert query.given is not None
    num, device, states = len(query.xt), query.xt.device, diffusion.process.num_states
    x, given, begun = query.xt.clone(), query.given.clone(), torch.zeros(num, dtype=torch.bool, device=device)
    chance = torch.ones(num, dtype=torch.float64, device=device)
    for position, weights in sorted(ranges.items()):
        free = ~query.settled[:, position]
        uniform = randomness.uniform((num,), device)
        asked = query._replace(xt=x, given=given).at(torch.full((num, 1), position, device=device))
        law = diffusion(asked).require_x0("A range").exp()[:, 0, :states].double()
        law = law / law.sum(1, keepdim=True)
        allowed = law * F.pad(weights.to(device), (0, states - len(weights)))
        mass = allowed.sum(1)
        possible = mass > 0
        _checks.require(
            not bool((free & ~begun & ~possible).any()),
            f"The model gives no probability to the range at position {position}. Ask for more of it.",
        )
        drawn = invert_cdf(torch.where(possible[:, None], allowed, law), uniform)
        chance = torch.where(free & begun, chance * mass, chance)
        x[:, position] = torch.where(free, drawn, x[:, position])
        given[:, position] |= free
        begun |= free
    return x, randomness.uniform((num,), device) < chance
