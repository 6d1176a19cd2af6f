import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sddm import randomness
from sddm.randomness import (
    AHEAD,
    Randomness,
    Stream,
    StreamPerSample,
    categorical,
    draw_seeds,
    invert_cdf,
    random_positions,
    stratified_times,
)

SIGNIFICANCE = 1e-4
"""Every draw has a fixed seed, so that a test of a law either always passes or never does."""
CPU = torch.device("cpu")
LARGEST_UNIFORM = 1 - 2.0**-53


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def stream(seed=0):
    return Stream(seeded(seed))


ROWS = 200

each_source = pytest.mark.parametrize(
    "make_source", [stream, lambda: StreamPerSample(range(ROWS))], ids=["one stream", "stream per sample"]
)


def follows(counts, law):
    counts, law = np.asarray(counts, dtype=float), np.asarray(law, dtype=float)
    return stats.chisquare(counts, law / law.sum() * counts.sum()).pvalue > SIGNIFICANCE


# ---- the law of a categorical draw ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_follow_weights_that_need_not_be_normalised(scale, dtype):
    weights = scale * torch.tensor([1, 0, 2, 3, 4, 0], dtype=dtype)
    counts = categorical(weights.expand(100_000, 6), stream()).bincount(minlength=6)
    assert counts[1] == counts[5] == 0
    assert follows(counts[[0, 2, 3, 4]], [1, 2, 3, 4])


def test_each_row_has_a_law_of_its_own():
    weights = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [[0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]])
    drawn = categorical(weights.repeat(20_000, 1, 1), stream()).reshape(20_000, 2, 2)
    for row, column in np.ndindex(2, 2):
        law, counts = weights[row, column], drawn[:, row, column].bincount(minlength=3)
        assert counts[law == 0].sum() == 0
        assert (law > 0).sum() == 1 or follows(counts[law > 0], law[law > 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fifty_thousand_states_are_drawn_with_the_right_law(dtype):
    """In 20 groups of neighbours, and in 20 groups of like weight, from the rarest states to those 20,000 times as
    common; the groups have about the same total."""
    states, draws = 50_000, 1500
    weights = torch.logspace(0, -4.3, states)[torch.randperm(states, generator=seeded(1))].to(dtype)
    counts = categorical(weights.expand(draws, -1), stream(2)).bincount(minlength=states)
    law = weights.double() / weights.double().sum()
    for order in (torch.arange(states), weights.argsort()):
        group = (20 * law[order].cumsum(0)).long().clamp(max=19)
        expected = torch.zeros(20, dtype=torch.float64).index_add_(0, group, law[order])
        assert follows(torch.zeros(20, dtype=torch.int64).index_add_(0, group, counts[order]), expected)


# ---- rare states: the exact chance to be drawn, over all equally likely uniforms ------------------------------------
#
# A uniform in float64 is k 2^-53 for one of 2^53 equally likely k, one in float32 is k 2^-24. So the chance of a state
# is not estimated from draws but counted: it is how many of the possible uniforms lead to it.


def chance_by_inverse_cdf(weights, state):
    """How many of the 2^53 uniforms are turned into this state, divided by their number."""

    def first_beyond(limit):
        """The smallest k whose draw is above the limit, by bisection: a draw grows with its uniform."""
        low, high = 0, 2**53
        while low < high:
            middle = (low + high) // 2
            u = torch.tensor([middle * 2.0**-53], dtype=torch.float64)
            low, high = (low, middle) if int(invert_cdf(weights[None], u)) > limit else (middle + 1, high)
        return low

    return (first_beyond(state) - first_beyond(state - 1)) / 2**53


def gumbel_noise(u):
    """Standard Gumbel noise from uniforms, in the uniforms' own precision."""
    return -torch.log(-torch.log(u.clamp_min(torch.finfo(u.dtype).tiny)))


def gumbel_max(weights, generator):
    """The draw that this library does not use: argmax of log-weights and float32 Gumbel noise."""
    noise = gumbel_noise(torch.rand(weights.shape, generator=generator, dtype=torch.float32))
    return (weights.log().float() + noise).argmax(-1)


def chance_by_gumbel_max(rare, how_many=1):
    """How likely float32 Gumbel-max is to draw one of `how_many` states of probability `rare`, and not the one other.

    All 2^24 values of the common state's noise are gone through, with the share of noise that lets a rare state win.
    """
    noise = gumbel_noise(torch.arange(2**24, dtype=torch.float32) / 2**24)
    common = noise + torch.tensor(1 - how_many * rare, dtype=torch.float64).log().float()
    scores = noise + torch.tensor(rare, dtype=torch.float64).log().float()
    reachable = common[common <= scores[-1]]  # noise grows with its uniform, so both are sorted
    losing = torch.searchsorted(scores, reachable, right=True).double() / 2**24
    return float((1 - losing**how_many).sum()) / 2**24


def is_right(chance, probability, roundings=4):
    """To a few roundings of a number below 1, each of at most 2^-53."""
    return abs(chance - probability) <= roundings * 2.0**-53


RARE = [1e-6, 1e-7, 1e-8, 1e-9]


@pytest.mark.parametrize("rare", RARE)
def test_a_rare_state_is_drawn_with_exactly_its_probability(rare):
    law = torch.tensor([1 - rare, rare], dtype=torch.float64)
    assert is_right(chance_by_inverse_cdf(law, 1), rare)
    assert is_right(chance_by_inverse_cdf(law.flip(0), 0), rare)
    hidden = torch.tensor([0.25, 0.0, rare, 0.75 - rare], dtype=torch.float64)
    assert is_right(chance_by_inverse_cdf(hidden, 2), rare)
    assert chance_by_inverse_cdf(hidden, 1) == 0


@pytest.mark.parametrize("rare", RARE)
def test_float32_gumbel_noise_does_not_pass_the_same_check(rare):
    chance = chance_by_gumbel_max(rare)
    assert not is_right(chance, rare)
    assert chance < 0.98 * rare  # always too rarely: this is what lowers the temperature


def test_float32_gumbel_noise_all_but_never_draws_what_has_probability_1e_9():
    assert chance_by_gumbel_max(1e-8) < 1e-8 / 10
    assert chance_by_gumbel_max(1e-9) < 1e-9 / 1000


def test_the_chances_counted_for_gumbel_noise_are_those_of_its_draws():
    """The count above against real draws, where a state is common enough to be drawn."""
    weights = torch.tensor([0.99, 0.01])
    draws = 1_000_000
    drawn = int(gumbel_max(weights.expand(draws, 2), seeded(3)).sum())
    assert stats.binomtest(drawn, draws, chance_by_gumbel_max(0.01)).pvalue > SIGNIFICANCE
    float32_uniforms = torch.rand(100_000, generator=seeded(4), dtype=torch.float32) * 2**24
    assert torch.equal(float32_uniforms, float32_uniforms.round())


def test_among_fifty_thousand_states_each_of_probability_1e_9_is_drawn_exactly_so():
    others = 49_999
    law = torch.full((others + 1,), 1e-9, dtype=torch.float64)
    law[0] = 1 - others * 1e-9
    for state in (1, 25_000, others):
        assert is_right(chance_by_inverse_cdf(law, state), 1e-9)
    # each of the 49,999 sums may have been rounded
    assert is_right(1 - chance_by_inverse_cdf(law, 0), others * 1e-9, roundings=others)
    assert not is_right(chance_by_gumbel_max(1e-9, others), others * 1e-9, roundings=others)
    assert chance_by_gumbel_max(1e-9, others) < others * 1e-9 / 1000


def test_float32_weights_are_added_up_in_float64():
    """Beside a weight of 1, sums in float32 would grow by 0 or 1e-7, and most states of weight 1e-8 never be drawn."""
    weights = torch.full((50_000,), 1e-8, dtype=torch.float32)
    weights[0] = 1
    assert len(weights.cumsum(0).unique()) < 50_000 / 10
    total = math.fsum(weights.tolist())
    for state in (1, 25_000, 49_999):
        assert is_right(chance_by_inverse_cdf(weights, state), float(weights[state]) / total)


@each_source
def test_uniforms_have_all_53_bits(make_source):
    """Every multiple of 2^-53 may come; otherwise the chances counted above would not be those of draws."""
    k = make_source().uniform((ROWS, 500), CPU) * 2.0**53
    assert torch.equal(k, k.round())
    assert float(k.min()) >= 0
    assert float(k.max()) < 2.0**53
    k = k.long().flatten()
    assert follows((k & 15).bincount(minlength=16), np.ones(16))
    assert follows((k >> 49).bincount(minlength=16), np.ones(16))


def test_a_state_of_probability_1e_6_is_drawn_one_time_in_a_million():
    draws = 20_000_000
    law = torch.tensor([1 - 1e-6, 1e-6], dtype=torch.float64)
    drawn = int(categorical(law.expand(draws, 2), stream(5)).sum())
    assert stats.binomtest(drawn, draws, 1e-6).pvalue > SIGNIFICANCE


class Tail:
    """Uniforms from the last 2^-20 of the unit interval only, to look there with few draws."""

    def uniform(self, shape, device):
        return 1 - 2.0**-20 * (1 - stream(6).uniform(shape, device))

    def poisson(self, mean):
        raise AssertionError("the tail holds uniforms only")

    def of(self, rows):
        raise AssertionError("the tail is the same for all rows")


def test_states_of_probability_1e_9_share_the_tail_in_proportion():
    rare = 1e-9 * torch.tensor([1, 2, 3, 4, 5, 50, 500], dtype=torch.float64)
    law = torch.cat([1 - rare.sum()[None], rare])
    counts = categorical(law.expand(200_000, -1), Tail()).bincount(minlength=8)
    assert follows(counts, torch.cat([2.0**-20 - rare.sum()[None], rare]))


# ---- the edges of the unit interval ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 3.0, 1e-38, 1e30])
def test_states_of_weight_zero_are_never_drawn_not_even_at_the_edges(dtype, scale):
    weights = scale * torch.tensor([0, 0, 1, 0, 2, 0, 0], dtype=dtype)
    u = torch.tensor([0.0, 2.0**-53, 1 / 3 - 1e-9, 1 / 3 + 1e-9, LARGEST_UNIFORM], dtype=torch.float64)
    assert invert_cdf(weights.expand(5, -1), u).tolist() == [2, 2, 2, 4, 4]


def test_the_smallest_weights_that_exist_are_drawn():
    """A total of 5e-324 times a uniform near 1 rounds up to the total itself."""
    weights = torch.tensor([[0.0, 5e-324, 0.0]], dtype=torch.float64)
    for u in (0.0, 0.5, LARGEST_UNIFORM):
        assert invert_cdf(weights, torch.tensor([u], dtype=torch.float64)).tolist() == [1]


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e6)), min_size=1, max_size=30).filter(any),
    u=st.one_of(st.just(0.0), st.just(LARGEST_UNIFORM), st.floats(0, LARGEST_UNIFORM)),
)
def test_a_draw_is_the_state_whose_interval_holds_the_uniform(weights, u):
    (drawn,) = invert_cdf(torch.tensor([weights], dtype=torch.float64), torch.tensor([u], dtype=torch.float64)).tolist()
    assert weights[drawn] > 0
    exact = [Fraction(w) for w in weights]
    below, above = sum(exact[:drawn], Fraction(0)), sum(exact[: drawn + 1], Fraction(0))
    rounding = len(weights) * Fraction(1, 2**52)
    assert below / sum(exact) - rounding <= Fraction(u) <= above / sum(exact) + rounding


@pytest.mark.parametrize("chunk", [1, 7, 12, 100])
def test_chunks_do_not_change_the_draws(monkeypatch, chunk):
    weights = torch.rand(5, 7, 6, generator=seeded(7))
    whole = categorical(weights, stream(8))
    monkeypatch.setattr(randomness, "CHUNK_ELEMENTS", chunk)
    assert torch.equal(categorical(weights, stream(8)), whole)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (2, 1, 4)])
def test_draws_have_the_shape_of_the_weights_without_their_states(shape):
    drawn = categorical(torch.ones(*shape, 5), stream())
    assert drawn.shape == shape
    assert drawn.dtype == torch.int64


# ---- streams --------------------------------------------------------------------------------------------------------


def three_draws(source, rows):
    mean = torch.linspace(0.1, 3, 4).expand(rows, 4).contiguous()
    return [source.uniform((rows, 2, 3), CPU), source.poisson(mean), source.uniform((rows, 5), CPU)]


def test_a_row_depends_on_its_own_seed_alone():
    seeds = [11, 22, 33, 44]
    together = three_draws(StreamPerSample(seeds), 4)
    for row, seed in enumerate(seeds):
        for whole, alone in zip(together, three_draws(StreamPerSample([seed]), 1), strict=True):
            assert torch.equal(whole[row], alone[0])
    backwards = three_draws(StreamPerSample(seeds[::-1]), 4)
    assert all(torch.equal(a, b.flip(0)) for a, b in zip(together, backwards, strict=True))


def test_equal_seeds_give_equal_rows_and_others_do_not():
    u = StreamPerSample([5, 6, 5]).uniform((3, 100), CPU)
    assert torch.equal(u[0], u[2])
    assert not torch.equal(u[0], u[1])


def test_a_stream_goes_on_where_it_stopped():
    source = StreamPerSample([1])
    assert not torch.equal(source.uniform((1, 10), CPU), source.uniform((1, 10), CPU))


def test_uniforms_drawn_ahead_are_those_of_the_generator():
    """In pieces of any size, beyond what one block holds too; and some rows go on where all of them stopped."""
    source, pieces = StreamPerSample([3, 4]), (1, 32, AHEAD, 2 * AHEAD + 5, 7)
    drawn = torch.cat([source.uniform((2, n), CPU) for n in pieces], dim=1)
    more = source.of(torch.tensor([1])).uniform((1, 3), CPU)
    for row, seed in enumerate((3, 4)):
        expected = torch.rand(10 * AHEAD, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert torch.equal(drawn[row], expected[: sum(pieces)])
    assert bool((more[0][:, None] == expected[sum(pieces) :]).any(1).all())


def test_one_stream_is_repeated_by_its_seed():
    first, again, other = (three_draws(stream(seed), 4) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_without_a_generator_torchs_own_is_used():
    with torch.random.fork_rng():
        torch.manual_seed(9)
        first = Stream().uniform((3, 4), CPU)
        torch.manual_seed(9)
        assert torch.equal(Stream().uniform((3, 4), CPU), first)


@each_source
def test_poisson_counts_follow_their_law(make_source):
    means = (0.0, 0.3, 2.5)
    counts = make_source().poisson(torch.tensor(means).expand(ROWS, 150, 3)).long().flatten(0, 1)
    assert int(counts[:, 0].max()) == 0
    for column in (1, 2):
        law = stats.poisson(means[column])
        top = int(law.ppf(0.999))
        expected = [*law.pmf(np.arange(top)), law.sf(top - 1)]
        assert follows(counts[:, column].clamp(max=top).bincount(minlength=top + 1), expected)


@each_source
def test_both_streams_are_sources_of_randomness(make_source):
    assert isinstance(make_source(), Randomness)


def test_seeds_are_repeated_by_the_generator_and_all_different():
    seeds = draw_seeds(1000, seeded(10))
    assert seeds == draw_seeds(1000, seeded(10))
    assert seeds != draw_seeds(1000, seeded(11))
    # 2^62 possible seeds: two of 1,000 meet with probability 1e-13
    assert len(set(seeds)) == 1000
    assert all(isinstance(seed, int) and 0 <= seed < 2**62 for seed in seeds)


def test_drawing_seeds_advances_the_generator():
    generator = seeded(12)
    assert draw_seeds(5, generator) != draw_seeds(5, generator)


# ---- times and positions --------------------------------------------------------------------------------------------


@given(batch=st.integers(1, 200), seed=st.integers(0, 2**32))
def test_stratified_times_lie_one_in_each_stratum(batch, seed):
    t = stratified_times(batch, seeded(seed))
    assert t.dtype == torch.float64
    strata = torch.arange(batch, dtype=torch.float64)
    ascending = t.sort().values
    assert bool(((strata / batch <= ascending) & (ascending <= (strata + 1) / batch)).all())


def test_stratified_times_are_uniform_within_their_strata():
    t = torch.stack([stratified_times(8, seeded(seed)) for seed in range(2000)])
    within = t.sort(dim=1).values * 8 - torch.arange(8)
    for stratum in within.T:
        assert stats.kstest(stratum.numpy(), "uniform").pvalue > SIGNIFICANCE
    # and independent from stratum to stratum
    correlation = np.corrcoef(within.T.numpy())[np.triu_indices(8, 1)]
    assert np.abs(correlation).max() < stats.norm.isf(SIGNIFICANCE / len(correlation)) / math.sqrt(2000)


def test_the_time_of_each_row_is_uniform_over_all_strata():
    t = torch.stack([stratified_times(2, seeded(seed)) for seed in range(2000)])
    for row in t.T:
        assert stats.kstest(row.numpy(), "uniform").pvalue > SIGNIFICANCE


def test_a_mean_over_stratified_times_has_far_less_variance():
    """For f(t) = t the variance falls from 1/(12 B) to 1/(12 B^3)."""
    means = torch.stack([stratified_times(10, seeded(seed)).mean() for seed in range(4000)])
    # the relative standard error of a variance from n normal numbers is sqrt(2 / n)
    assert float(means.var()) == pytest.approx(1 / (12 * 10**3), rel=5 * math.sqrt(2 / 4000))


@given(batch=st.integers(1, 5), length=st.integers(1, 20), data=st.data())
def test_random_positions_are_not_repeated(batch, length, data):
    num = data.draw(st.integers(1, length))
    drawn = random_positions(batch, length, num, seeded(13))
    assert drawn.shape == (batch, num)
    assert all(len(set(row)) == num and set(row) <= set(range(length)) for row in drawn.tolist())


def test_every_order_of_random_positions_is_equally_likely():
    drawn = random_positions(60_000, 4, 2, seeded(14))
    counts = (4 * drawn[:, 0] + drawn[:, 1]).bincount(minlength=16)
    pairs = [4 * a + b for a, b in permutations(range(4), 2)]
    assert counts.sum() == counts[pairs].sum()
    assert follows(counts[pairs], np.ones(12))


def test_given_positions_come_last_and_the_free_ones_are_uniform():
    given_mask = torch.tensor([[False, True, False, False, True]]).expand(30_000, -1)
    drawn = random_positions(30_000, 5, 4, seeded(15), given=given_mask)
    is_given = given_mask.gather(1, drawn)
    assert is_given.tolist() == [[False, False, False, True]] * 30_000
    assert follows(drawn[:, 0].bincount(minlength=5)[[0, 2, 3]], np.ones(3))
    assert follows(drawn[:, 3].bincount(minlength=5)[[1, 4]], np.ones(2))
