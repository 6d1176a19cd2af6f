"""Steps with a share of fresh noise, against exact laws."""

import pytest
import torch

from enumerated import (
    ENUMERABLE,
    UNLIKELY,
    absorbing,
    analytical_laws,
    as_kernel,
    fit,
    law_at,
    oracle,
    random_law,
    states_of,
    table,
    times,
    total_variation,
    uniform,
)
from sddm.query import Query
from sddm.samplers import Analytical, Lazy, Refreshing, Sweep

LARGE, SMALL = (0.9, 0.4), (0.3, 0.2)


def refreshing_laws(diffusion, t, s, dim, share):
    """The mixture, with x_0^d drawn from p(x_0^d | x_t) where x_t^d counts as well: an analytical step to 0."""
    process = diffusion.process
    fresh = analytical_laws(diffusion, t, 0.0, dim) @ process.transition(times(0, 1), times(s, 1))[0]
    return (1 - share) * analytical_laws(diffusion, t, s, dim) + share * fresh


def one_position(law, num_symbols, dim, d):
    return law.reshape([num_symbols] * dim).sum([e for e in range(dim) if e != d])


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("t", "s"), [LARGE, SMALL])
def test_the_law_of_each_position_stays_right_whatever_the_share(make, share, t, s):
    process = make()
    symbols = process.num_symbols
    for dim in (1, 2):
        law = random_law(3, dim, seed=3)
        step = as_kernel(refreshing_laws(oracle(process, law, dim), t, s, dim, share), symbols)
        after, expected = law_at(process, law, dim, t) @ step, law_at(process, law, dim, s)
        for d in range(dim):
            found, right = (one_position(each, symbols, dim, d) for each in (after, expected))
            assert total_variation(found, right) < 1e-10


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize(("t", "s"), [LARGE, SMALL, (0.2, 0.0)])
def test_the_library_draws_from_this_law_also_in_sweeps_of_one_group_and_lazily(make, t, s):
    diffusion, step = table(make(), 2), Refreshing(share=0.3)
    for way in (step, Lazy(step)):
        assert fit(diffusion, way, refreshing_laws(diffusion, t, s, 2, 0.3), t, s, 2) > UNLIKELY
    Sweep(step).check(diffusion)


def test_a_token_that_is_shown_is_masked_again_with_the_share_of_what_is_masked():
    """sigma = share (1 - a(s)) of ReMDM, and as many more masked ones are shown."""
    diffusion, t, s, share = table(absorbing(), 1), 0.6, 0.4, 0.25
    a_s, a_t = (float(diffusion.process.remaining(times(u, 1))) for u in (s, t))
    x = torch.tensor([[1], [3]])
    with torch.no_grad():
        law = Refreshing(share=share).weights(diffusion, Query(x, times(t, 2)), times(s, 2), times(t, 2))
    sigma = share * (1 - a_s)
    assert float(law[0, 0, 3]) == pytest.approx(sigma)
    assert float(law[1, 0, :3].sum()) == pytest.approx((a_s - (1 - sigma) * a_t) / (1 - a_t))


def test_without_a_share_it_is_the_analytical_step():
    diffusion, x = table(uniform(), 2), states_of(uniform(), 2)
    asked = (diffusion, Query(x, times(0.5, 9)), times(0.2, 9), times(0.5, 9))
    with torch.no_grad():
        plain = Analytical().weights(*asked)
        torch.testing.assert_close(Refreshing(share=0.0).weights(*asked), plain / plain.sum(-1, keepdim=True))


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\], but it is"):
        Refreshing(share=share)
