"""How far a completed row is from the true one, by the tokens that it holds, wherever they stand.

These are the figures by which the paper compares systems that complete music: each is a number a row, over all
positions, those that were given too. The mean over rows is what is reported.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks

CHUNK = 1 << 24
"""At most this many counts are in memory at a time."""


def hellinger(
    generated: Int[Tensor, "num dim"], truth: Int[Tensor, "num dim"], num_states: int
) -> Float64[Tensor, "num"]:
    """The Hellinger distance between the histograms p and q of the tokens of each row and of its true row.

        sqrt( sum_c (sqrt p(c) - sqrt q(c))^2 / 2 )

    It is 0 if the histograms are equal, and 1 if they have no token in common.

    >>> hellinger(torch.tensor([[0, 0, 1, 1]]), torch.tensor([[0, 0, 0, 0]]), num_states=2)
    tensor([0.5412], dtype=torch.float64)
    """
    _checks.whole(num_states, "num_states", 1)
    generated, truth = _pair(generated, truth, num_states)
    dim, rows = generated.shape[1], max(1, CHUNK // num_states)
    distances = []
    for some, others in zip(generated.split(rows), truth.split(rows), strict=True):
        p, q = (_counts(tokens, num_states).sqrt_() for tokens in (some, others))
        distances.append(((p - q).square().sum(1) / (2 * dim)).sqrt())
    return torch.cat(distances)


def outlier_fraction(generated: Int[Tensor, "num dim"], truth: Int[Tensor, "num dim"]) -> Float64[Tensor, "num"]:
    """The share of the tokens of each row that its true row never holds.

    >>> outlier_fraction(torch.tensor([[0, 1, 2, 2]]), torch.tensor([[0, 1, 1, 1]]))
    tensor([0.5000], dtype=torch.float64)
    """
    generated, truth = _pair(generated, truth, 2**62)
    truth = truth.sort(dim=1).values
    place = torch.searchsorted(truth, generated.contiguous()).clamp_(max=truth.shape[1] - 1)
    return (truth.gather(1, place) != generated).double().mean(1)


def _counts(tokens: Int[Tensor, "rows dim"], num_states: int) -> Float64[Tensor, "rows {num_states}"]:
    counts = torch.zeros(len(tokens), num_states, dtype=torch.float64, device=tokens.device)
    return counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=torch.float64))


def _pair(generated: Tensor, truth: Tensor, num_states: int) -> tuple[Tensor, Tensor]:
    generated = _checks.tokens(generated, num_states, "generated")
    truth = _checks.tokens(truth, num_states, "truth")
    _checks.require(
        generated.shape == truth.shape,
        f"generated and truth must have the same shape, one true row a row, but they have {tuple(generated.shape)} and "
        f"{tuple(truth.shape)}. Repeat the true row of a tune that was completed several times.",
    )
    _checks.same_device(truth, generated.device, "truth", "generated")
    return generated, truth
