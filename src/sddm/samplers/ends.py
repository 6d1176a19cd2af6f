"""Where sampling starts and ends, for processes whose prior does not cover all states.

The prior of an absorbing process is all MASK, although a share of the data is still left at T. That share has to come
from the model, so each position of x_T is drawn from its conditional given all MASK: p_T(x^d | MASK ... MASK).
At the end, a step that is an approximation may have left a MASK, or a value that the data cannot have at this position.
Such a position is drawn again, from its conditional.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import Randomness, Stream, categorical
from sddm.shapes import Laws, Tokens


def start(diffusion: Diffusion, query: Query, randomness: Randomness) -> Tokens:
    """Draw x_T; settled positions hold what they hold in the query, whose time is T."""
    x = with_settled(diffusion.process.draw_prior(query.xt.shape, randomness, query.xt.device), query)
    if diffusion.process.prior_covers_all:
        return x
    return with_settled(categorical(diffusion(query.holding(x)).log_xt.exp(), randomness), query)


def start_log_law(diffusion: Diffusion, query: Query) -> Laws:
    """The logarithm of the law of each position of x_T, given what the settled positions of the query hold."""
    process = diffusion.process
    if process.prior_covers_all:
        return process.prior_law().log().to(query.xt.device).expand(*query.xt.shape, -1)
    x = process.draw_prior(query.xt.shape, Stream(), query.xt.device)  # there is nothing else to draw
    return diffusion(query.holding(with_settled(x, query))).log_xt


def finish(diffusion: Diffusion, query: Query, randomness: Randomness) -> Tokens:
    """Draw positions that hold no possible value from their conditionals at t, the last time before 0."""
    process, support, x = diffusion.process, diffusion.model.support, query.xt
    unfinished = x >= process.num_states
    if support is not None:
        possible = F.pad(support.to(x.device), (0, process.num_symbols - support.shape[1]))
        unfinished = ~possible[torch.arange(x.shape[1], device=x.device), x]
    if not bool(unfinished.any()):
        return x
    marginals = diffusion(query)
    log_p = marginals.log_xt if marginals.log_x0 is None else marginals.log_x0
    drawn = categorical(log_p[..., : process.num_states].exp(), randomness)
    return with_settled(torch.where(unfinished, drawn, x), query)


def with_settled(x: Tokens, query: Query) -> Tokens:
    """x, but where the query says that a position is given or padding, what it holds there."""
    return x if query.settled is None else torch.where(query.settled, query.xt, x)
