"""The reverse steps, the corrector, the grids and the loop, against exact laws on small spaces."""

import io
import itertools
import math

import numpy as np
import pytest
import torch

from enumerated import (
    ENUMERABLE,
    ONE_WAY,
    ROUNDING,
    UNLIKELY,
    TableModel,
    Watched,
    absorbing,
    all_states,
    analytical_laws,
    as_kernel,
    conditionals,
    corrector_laws,
    counts_of,
    draw_states,
    elapsed,
    euler_laws,
    fit,
    generated_law,
    index_of,
    law_after,
    law_at,
    log_log_slope,
    on_all_symbols,
    on_data_states,
    one_way,
    oracle,
    p_value,
    process_named,
    random_law,
    seeded,
    single_leap_laws,
    start_law,
    states_of,
    summed_leap_laws,
    table,
    times,
    total_variation,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.marginals import MarginalModel, Oracle
from sddm.processes import PROCESSES, Absorbing, BirthDeath, CustomRate, Uniform
from sddm.query import Query
from sddm.randomness import Stream, StreamPerSample
from sddm.samplers import (
    GRIDS,
    SAMPLERS,
    Analytical,
    Corrector,
    Euler,
    Exact,
    Sweep,
    TauLeaping,
    Trajectory,
    plan,
    uniform_in_log_share,
    uniform_in_share,
    uniform_in_time,
)
from sddm.samplers.jumps import summed_leap
from sddm.samplers.steps import OwnStart
from sddm.schedules import Constant, Exponential, LogSquare, SqrtCosine

STEPS = {"euler": Euler(), "analytical": Analytical(), "tau-leaping": TauLeaping()}
LAWS = {"euler": euler_laws, "analytical": analytical_laws, "tau-leaping": single_leap_laws}


def birth_death(share=0.1):
    return BirthDeath(3, LogSquare(1.0)).leaving(share)


def differs(one, other):
    return float((one - other).abs().max())


# ---- every sampler with every process ------------------------------------------------------------------------------

FOR = {name: ["absorbing"] if isinstance(make(), OwnStart) else PROCESSES for name, make in SAMPLERS.items()}
EVERY = pytest.mark.parametrize(
    ("sampler_name", "process_name"), [(name, process) for name, processes in FOR.items() for process in processes]
)


@EVERY
def test_every_sampler_draws_tokens_from_every_process(sampler_name, process_name):
    process, dim = process_named(process_name), 3
    diffusion = table(process, dim)

    def draw(seed):
        return sample(diffusion, 5, steps=2, sampler=SAMPLERS[sampler_name](), generator=seeded(seed))

    x = draw(1)
    assert x.shape == (5, dim)
    assert x.dtype == torch.int64
    assert int(x.min()) >= 0
    assert int(x.max()) < process.num_states
    assert torch.equal(x, draw(1))
    assert not torch.equal(x, draw(2))


@pytest.mark.usefixtures("at_full_speed")
@EVERY
def test_every_sampler_survives_states_that_the_model_holds_impossible(sampler_name, process_name):
    """Steps that move all positions at once reach states of probability 0, from which they must find back or stay."""
    law = random_law(3, 2, seed=1, impossible=5)
    diffusion = oracle(process_named(process_name), law, 2)
    x = sample(diffusion, 200, steps=3, sampler=SAMPLERS[sampler_name](), corrector=Corrector(), generator=seeded(0))
    assert int(x.min()) >= 0
    assert int(x.max()) < 3


# ---- the order of Euler, the exactness of the analytical step ------------------------------------------------------


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("make", [uniform, one_way])
@pytest.mark.parametrize("dim", [1, 2])
def test_eulers_error_falls_with_the_first_power_of_the_step(make, dim):
    process, law = make(0.3), random_law(3, dim, seed=dim)
    diffusion, start = oracle(process, law, dim), law_at(process, law, dim, 1.0)
    numbers = [16, 32, 64, 128]
    errors = [
        total_variation(law_after(euler_laws, diffusion, start, uniform_in_time(process, n), dim), law) for n in numbers
    ]
    assert log_log_slope(1 / np.array(numbers), errors) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_analytical_step_is_exact_in_one_dimension(make, steps):
    process, law = make(), random_law(3, 1, seed=1)
    start = law_at(process, law, 1, 1.0)
    end = law_after(analytical_laws, oracle(process, law, 1), start, uniform_in_time(process, steps), 1)
    assert differs(end, on_all_symbols(process, law, 1)) < 1e-10


CONSTANT_SPEED = {
    "uniform": Uniform(3, Constant(1.0)),
    "absorbing": Absorbing(3, Constant(1.0)),
    "not reversible": CustomRate(ONE_WAY, Constant(1.0)),
}


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("name", CONSTANT_SPEED)
@pytest.mark.parametrize("steps", [4, 8, 16])
def test_at_constant_speed_the_analytical_step_is_closer_than_euler_in_three_dimensions(name, steps):
    """Both neglect that the positions move together; the analytical step neglects nothing else."""
    process = CONSTANT_SPEED[name].leaving(0.1)
    grid = uniform_in_time(process, steps)
    for seed in (3, 4):
        law = random_law(3, 3, seed=seed)
        diffusion, start, data = oracle(process, law, 3), law_at(process, law, 3, 1.0), on_all_symbols(process, law, 3)
        euler, analytical = (
            total_variation(law_after(laws, diffusion, start, grid, 3), data) for laws in (euler_laws, analytical_laws)
        )
        assert analytical < euler


# ---- the library draws from these laws -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*ENUMERABLE.values(), birth_death], ids=[*ENUMERABLE, "birth-death"])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(("t", "s"), [(0.9, 0.8), (0.5, 0.1), (0.3, 0.0)])
def test_a_step_draws_every_position_from_its_exact_law(make, name, t, s):
    """The steps are long enough for Euler's to be clipped now and then."""
    diffusion = table(make(), 2)
    assert fit(diffusion, STEPS[name], LAWS[name](diffusion, t, s, 2), t, s, 2) > UNLIKELY


@pytest.mark.parametrize(("t", "s"), [(0.9, 0.8), (0.5, 0.1), (0.3, 0.0)])
def test_an_ordinal_leap_adds_up_its_jumps(t, s):
    diffusion = table(birth_death(), 2)
    laws = summed_leap_laws(diffusion, t, s, 2)
    assert differs(laws.sum(-1), torch.ones(1)) < ROUNDING
    assert fit(diffusion, TauLeaping(ordinal=True), laws, t, s, 2) > UNLIKELY


def test_an_explicit_model_steps_by_its_own_rates():
    diffusion = table(one_way(), 2, implicit=False)
    for step, laws in ((Euler(), euler_laws), (TauLeaping(), single_leap_laws)):
        assert fit(diffusion, step, laws(diffusion, 0.6, 0.5, 2), 0.6, 0.5, 2) > UNLIKELY


def test_euler_is_clipped_where_the_rates_ask_for_more_than_certainty():
    """Then the jump is certain, and goes to each state in proportion to its rate."""
    process = uniform()
    law = torch.tensor([0.98, 0.01, 0.01], dtype=torch.float64)
    diffusion = oracle(process, law, 1)
    laws = euler_laws(diffusion, 1.0, 0.0, 1)
    assert float(laws[1, 0, 1]) == 0
    assert fit(diffusion, Euler(), laws, 1.0, 0.0, 1) > UNLIKELY


def test_an_ordinal_leap_of_any_hazard_ends_in_the_range():
    """Rates may be as large as e^60 times a forward rate: then the leap goes to the end of the range it points to."""
    x = torch.tensor([[1, 1]])
    hazard = torch.zeros(1, 2, 3, dtype=torch.float64)
    hazard[0, 0, 2] = hazard[0, 1, 0] = math.exp(60)
    assert summed_leap(x, hazard, Stream(seeded(0))).tolist() == [[2, 0]]


# ---- exact simulation ----------------------------------------------------------------------------------------------


def drawn_by(step, diffusion, start, num, dim, seed, grid=(1.0, 0.0)):
    """Samples at the end of the grid that start from this law at its beginning."""
    x = draw_states(start, num, diffusion.process.num_symbols, dim, seed)
    randomness = Stream(seeded(seed))
    with torch.inference_mode():
        for t, s in itertools.pairwise(grid):
            x = step(diffusion, Query(x, times(t, num)), times(s, num), randomness)
    return x


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("impossible", [0, 4])
@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
def test_exact_simulation_of_the_oracle_draws_the_data(make, impossible):
    process, law, num = make(), random_law(3, 2, seed=7, impossible=impossible), 6000
    diffusion, start = oracle(process, law, 2), law_at(process, law, 2, 1.0)
    x = drawn_by(Exact(), diffusion, start, num, 2, seed=1)
    # From its floor on, the way is one analytical step, which misses the second of two events:
    # (dim * floor)^2 / 2 = 2e-8 of the samples, none of these.
    assert p_value(counts_of(x, process.num_symbols), on_all_symbols(process, law, 2)) > UNLIKELY


@pytest.mark.usefixtures("at_full_speed")
def test_exact_simulation_has_the_same_law_for_any_number_of_steps():
    process, law = one_way(), random_law(3, 2, seed=7)
    diffusion, start = oracle(process, law, 2), law_at(process, law, 2, 1.0)
    x = drawn_by(Exact(), diffusion, start, 6000, 2, seed=2, grid=(1.0, 0.7, 0.2, 1e-5, 0.0))
    assert p_value(counts_of(x, 3), law) > UNLIKELY


@pytest.mark.usefixtures("at_full_speed")
def test_exact_simulation_to_a_time_before_the_end_draws_the_noised_data():
    process, law = uniform(), random_law(3, 2, seed=7)
    diffusion, start = oracle(process, law, 2), law_at(process, law, 2, 1.0)
    x = drawn_by(Exact(), diffusion, start, 6000, 2, seed=3, grid=(1.0, 0.4))
    assert p_value(counts_of(x, 3), law_at(process, law, 2, 0.4)) > UNLIKELY


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
def test_exact_simulation_of_any_model_draws_from_its_own_law(make):
    """Not the data's: that which the model's reverse rates lead to, by the master equation."""
    process = make()
    diffusion = table(process, 2, scale=0.7)
    x = drawn_by(Exact(), diffusion, start_law(diffusion, 2), 6000, 2, seed=4)
    assert p_value(counts_of(x, process.num_symbols), generated_law(diffusion, 2)) > UNLIKELY


@pytest.mark.usefixtures("at_full_speed")
def test_the_loop_draws_the_data_by_exact_simulation_from_the_prior():
    """Sampling starts from the prior, which leaves out a share of 1e-6 of the data: less than one sample."""
    law = random_law(3, 2, seed=7)
    x = sample(oracle(uniform(1e-6), law, 2), 2500, steps=2, sampler=Exact(), generator=seeded(5))
    assert p_value(counts_of(x, 3), law) > UNLIKELY


def test_many_analytical_steps_draw_from_the_law_of_exactly_as_many():
    """The whole loop, with its own start, against the product of the exact kernels."""
    diffusion, grid = table(one_way(), 2), uniform_in_time(one_way(), 5)
    x = sample(diffusion, 8000, steps=5, generator=seeded(6))
    law = law_after(analytical_laws, diffusion, start_law(diffusion, 2), grid, 2)
    assert p_value(counts_of(x, 3), law) > UNLIKELY


# ---- the corrector -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize("s", [0.1, 0.5, 1.0])
def test_a_corrector_leaves_the_law_invariant_in_one_dimension(make, s):
    process, law = make(), random_law(3, 1, seed=2)
    q = law_at(process, law, 1, s)
    laws = corrector_laws(oracle(process, law, 1), s, 0.01, 1)
    assert float(laws.min()) >= 0
    assert differs(q @ as_kernel(laws, process.num_symbols), q) < ROUNDING


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
def test_a_corrector_changes_the_law_of_two_positions_to_second_order_only(make):
    """Both positions jump at once with probability of order h^2, which no rate at one time can account for."""
    process, law, s = make(), random_law(3, 2, seed=2), 0.5
    q = law_at(process, law, 2, s)
    durations = [1e-2, 5e-3, 2.5e-3, 1.25e-3]
    defects = [
        total_variation(q @ as_kernel(corrector_laws(oracle(process, law, 2), s, h, 2), process.num_symbols), q)
        for h in durations
    ]
    assert defects[0] > 1e-9
    assert log_log_slope(durations, defects) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
def test_a_corrector_jumps_forwards_and_backwards_at_once(make):
    """A step from t to s is corrected for factor * tau(s, t), at s; two rounds are two such jumps."""
    diffusion = table(make(), 2)
    t, s, factor = 0.6, 0.5, 0.3
    tau = factor * elapsed(diffusion, s, t)
    once = as_kernel(corrector_laws(diffusion, s, tau, 2), diffusion.process.num_symbols)
    for rounds, kernel in ((1, once), (2, once @ once)):
        assert fit(diffusion, Corrector(rounds=rounds, factor=factor), kernel, s, t, 2, seed=rounds) > UNLIKELY


def evaluation_times(corrector, sampler, steps=4):
    watched = Watched(Oracle.from_joint(random_law(3, 2, seed=0).reshape(3, 3)))
    options = {"sampler": sampler, "corrector": corrector, "grid": uniform_in_time}
    sample(Diffusion(uniform(), watched), 5, steps=steps, generator=seeded(0), **options)
    return watched.times


def test_a_corrector_acts_at_the_arrival_time_and_never_at_zero():
    assert evaluation_times(None, Euler()) == [1.0, 0.75, 0.5, 0.25]
    assert evaluation_times(Corrector(), Euler()) == [1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25]
    assert evaluation_times(Corrector(rounds=2), Euler(), steps=2) == [1.0, 0.5, 0.5, 0.5]


def test_a_corrector_acts_only_below_its_entry():
    assert evaluation_times(Corrector(entry=0.5), Analytical()) == [1.0, 0.75, 0.5, 0.5, 0.25, 0.25]
    assert evaluation_times(Corrector(entry=0.1), Analytical()) == [1.0, 0.75, 0.5, 0.25]


def test_a_corrector_brings_a_wrong_law_closer_to_the_right_one():
    process, law, s = uniform(), random_law(3, 2, seed=2), 0.4
    q = law_at(process, law, 2, s)
    kernel = as_kernel(corrector_laws(oracle(process, law, 2), s, 0.02, 2), 3)
    wrong = random_law(3, 2, seed=9)
    assert total_variation(wrong @ torch.linalg.matrix_power(kernel, 200), q) < total_variation(wrong, q) / 10


# ---- seeds ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("process_name", ["uniform", "absorbing", "birth-death", "custom-rate"])
@pytest.mark.parametrize("sampler", [*STEPS.values(), TauLeaping(ordinal=True), Exact(floor=0.05)], ids=repr)
def test_the_same_seed_gives_the_same_samples_whatever_the_batch_size(sampler, process_name):
    process = process_named(process_name)
    if getattr(sampler, "ordinal", False) and not process.ordinal:
        process = birth_death()
    diffusion, num = table(process, 3), 5
    blanks = torch.where(
        torch.rand(num, 3, generator=seeded(0)) < 0.3, torch.randint(3, (num, 3), generator=seeded(1)), -1
    )
    for options in ({}, {"corrector": Corrector(factor=0.2)}, {"condition": Condition.from_blanks(blanks)}):
        together, *apart = (
            sample(diffusion, num, steps=3, sampler=sampler, generator=seeded(3), batch_size=size, **options)
            for size in (num, 1, 3)
        )
        for samples in apart:
            assert torch.equal(samples, together)


def test_a_sample_does_not_depend_on_how_many_follow():
    diffusion = table(uniform(), 2)
    few, many = (sample(diffusion, num, steps=3, generator=seeded(3)) for num in (4, 9))
    assert torch.equal(few, many[:4])


# ---- conditions ----------------------------------------------------------------------------------------------------


def conditional_law(law, mask, values, dim):
    """The law of the whole, given some positions of a (3, ..., 3) space."""
    states = all_states(3, dim)
    agrees = ((states == values) | ~mask).all(1)
    given = torch.where(agrees, law, 0)
    return given / given.sum()


SUBSETS = [torch.tensor([bool(n >> d & 1) for d in range(3)]) for n in range(7)]


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize("make", [uniform, absorbing])
def test_a_condition_on_any_positions_draws_the_exact_conditional_law(make):
    """Every set of given positions, from none to all but one, each in rows of its own, by exact simulation."""
    law, each = random_law(3, 3, seed=4), 700
    values = torch.tensor([2, 0, 1])
    masks = torch.stack(SUBSETS).repeat_interleave(each, dim=0)
    diffusion = oracle(make(1e-6), law, 3)
    condition = Condition(masks, values.expand_as(masks).contiguous())
    x = sample(
        diffusion, len(masks), steps=1, sampler=Exact(), condition=condition, generator=seeded(8), batch_size=len(masks)
    )
    for mask, drawn in zip(SUBSETS, x.split(each), strict=True):
        assert torch.equal(drawn[:, mask], values[mask].expand(each, -1))
        assert p_value(counts_of(drawn, 3), conditional_law(law, mask, values, 3)) > UNLIKELY


def test_the_last_free_position_is_drawn_exactly_by_a_single_analytical_step():
    law, values = random_law(3, 3, seed=4), torch.tensor([2, 0, -1])
    x = sample(oracle(one_way(1e-6), law, 3), 4000, 1, condition=Condition.from_blanks(values), generator=seeded(0))
    assert p_value(counts_of(x, 3), conditional_law(law, values >= 0, values, 3)) > UNLIKELY


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("sampler", [*STEPS.values(), Exact()], ids=repr)
@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
def test_given_positions_never_change_at_any_time(sampler, make):
    diffusion, path = table(make(), 3), Trajectory()
    given = torch.rand(30, 3, generator=seeded(1)) < 0.5
    values = torch.randint(3, (30, 3), generator=seeded(2))
    condition = Condition(given, values)
    x = sample(diffusion, 30, 4, sampler, Corrector(), condition, seeded(3), path, batch_size=13)
    assert bool((path.tokens[:, given] == values[given]).all())
    assert torch.equal(x[given], values[given])
    assert not torch.equal(x[~given], path.tokens[0][~given])


def test_the_model_is_told_which_positions_are_given():
    watched = Watched(Oracle.from_joint(random_law(3, 2, seed=0).reshape(3, 3)))
    condition = Condition.from_blanks(torch.tensor([1, -1]))
    for sampler in (*STEPS.values(), Exact()):
        sample(Diffusion(absorbing(), watched), 4, 2, sampler, Corrector(), condition, seeded(0))
    assert all(
        torch.equal(call["given"], torch.tensor([[True, False]]).expand_as(call["given"])) for call in watched.asked
    )


def test_a_prefix_gives_the_first_positions():
    condition = Condition.from_prefix(torch.tensor([2, 1]), length=4)
    assert condition.mask.tolist() == [True, True, False, False]
    assert condition.values[:2].tolist() == [2, 1]
    rows = Condition.from_prefix(torch.tensor([[2], [0]]), length=3)
    x = sample(table(uniform(), 3), 2, 3, condition=rows, generator=seeded(0))
    assert x[:, 0].tolist() == [2, 0]
    with pytest.raises(ValueError, match="leaves nothing to generate"):
        Condition.from_prefix(torch.tensor([2, 1]), length=2)


def test_blanks_are_what_is_not_given():
    condition = Condition.from_blanks(torch.tensor([[7, 0], [2, 7]]), blank=7)
    assert condition.mask.tolist() == [[False, True], [True, False]]


def test_conditions_join_and_must_not_clash():
    first, last = Condition.from_blanks(torch.tensor([2, -1, -1])), Condition.from_blanks(torch.tensor([-1, -1, 0]))
    both = first | last
    assert both.mask.tolist() == [True, False, True]
    assert both.values[[0, 2]].tolist() == [2, 0]
    per_row = first | Condition.from_blanks(torch.tensor([[-1, 1, -1], [-1, -1, -1]]))
    assert per_row.mask.tolist() == [[True, True, False], [True, False, False]]
    with pytest.raises(ValueError, match="different tokens for position 0"):
        first | Condition.from_blanks(torch.tensor([1, -1, -1]))
    with pytest.raises(ValueError, match="different lengths"):
        first | Condition.from_blanks(torch.tensor([2, -1]))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([0, -1, -1], "has 3 positions, but the samples have 2"),
        ([[0, -1]] * 3, "has 3 rows, but 4 samples were asked for"),
        ([3, -1], "tokens from 0 to 2"),
    ],
)
def test_a_condition_that_does_not_fit_is_refused(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        sample(table(uniform(), 2), 4, 2, condition=Condition.from_blanks(torch.tensor(values)))


def test_a_condition_on_everything_returns_it():
    values = torch.randint(3, (6, 2), generator=seeded(0))
    for sampler in (*STEPS.values(), Exact()):
        x = sample(table(absorbing(), 2), 6, 3, sampler, Corrector(), Condition.from_blanks(values), seeded(0))
        assert torch.equal(x, values)


# ---- MASK at both ends ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("sampler", [*STEPS.values(), Exact()], ids=repr)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_no_mask_is_left_in_a_sample(sampler, steps):
    path = Trajectory()
    x = sample(table(absorbing(), 4), 300, steps, sampler, generator=seeded(0), callback=path)
    assert bool((path.tokens[0] == 3).any())
    assert int(x.max()) < 3
    assert torch.equal(path.tokens[-1], x)


def test_what_is_left_masked_is_drawn_from_its_conditional():
    """One leap from T to 0 leaves many MASKs, which are drawn given what the leap revealed."""
    process, law = absorbing(1e-6), random_law(3, 2, seed=4)
    diffusion = oracle(process, law, 2)
    x = sample(diffusion, 6000, 1, TauLeaping(), generator=seeded(0))
    after_leap = law_after(single_leap_laws, diffusion, start_law(diffusion, 2), torch.tensor([1.0, 0.0]), 2)
    fill = torch.zeros(16, 16, dtype=torch.float64)
    for i, state in enumerate(states_of(process, 2)):
        log_xt = diffusion.marginals(state[None], times(1, 1)).log_xt[0, :, :3]
        drawn = torch.nn.functional.one_hot(state, 4).double()
        free = state == 3
        drawn[free] = torch.cat([log_xt.softmax(-1)[free], torch.zeros(int(free.sum()), 1)], dim=-1).double()
        fill[i] = torch.kron(drawn[0], drawn[1])
    assert p_value(counts_of(x, 3), on_data_states(process, after_leap @ fill, 2)) > UNLIKELY


def test_the_share_of_the_data_left_at_the_start_is_drawn_from_the_model():
    """x_T^d ~ p_T(. | MASK ... MASK), position by position."""
    diffusion, path = table(absorbing(0.4), 2), Trajectory()
    sample(diffusion, 6000, 1, generator=seeded(0), callback=path)
    law = start_law(diffusion, 2)
    assert float(law[-1]) == pytest.approx(0.6**2)
    assert p_value(counts_of(path.tokens[0], 4), law) > UNLIKELY


@pytest.mark.parametrize("make", [uniform, one_way])
def test_other_processes_start_from_their_prior(make):
    diffusion, path = table(make(), 2), Trajectory()
    sample(diffusion, 6000, 1, generator=seeded(0), callback=path)
    assert p_value(counts_of(path.tokens[0], 3), start_law(diffusion, 2)) > UNLIKELY


# ---- grids ---------------------------------------------------------------------------------------------------------

SCHEDULES = [Constant(0.7), LogSquare(2.0), SqrtCosine(1.5), Exponential(0.3, 1.6)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("steps", [1, 2, 50])
def test_a_grid_descends_from_noise_to_data_and_includes_both(name, schedule, steps):
    grid = GRIDS[name](Uniform(3, schedule), steps)
    assert len(grid) == steps + 1
    assert grid.dtype == torch.float64
    assert float(grid[0]) == 1
    assert float(grid[-1]) == 0
    assert bool((grid[1:] < grid[:-1]).all())


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_uniform_in_log_share_takes_steps_of_equal_noise(schedule):
    grid = uniform_in_log_share(Uniform(3, schedule), 20)
    noise = schedule.integral(grid[1:], grid[:-1])
    torch.testing.assert_close(
        noise, torch.full_like(noise, float(schedule.integral(0.0, 1.0)) / 20), rtol=0, atol=ROUNDING
    )


def test_uniform_in_log_share_is_uniform_in_time_at_constant_speed():
    process = Uniform(3, Constant(0.7))
    torch.testing.assert_close(uniform_in_log_share(process, 13), uniform_in_time(process, 13), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_uniform_in_share_takes_steps_that_restore_equal_shares(schedule):
    process = Uniform(3, schedule)
    shares = process.remaining(uniform_in_share(process, 20))
    increments = shares[1:] - shares[:-1]
    left = float(process.remaining(torch.ones(1)))
    torch.testing.assert_close(increments, torch.full_like(increments, (1 - left) / 20), rtol=0, atol=ROUNDING)


def test_uniform_in_time_takes_equal_steps():
    assert uniform_in_time(uniform(), 4).tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_a_grid_of_one_s_own_is_followed():
    path, grid = Trajectory(), torch.tensor([1.0, 0.5, 0.125, 0.0])
    x = sample(table(uniform(), 2), 4, generator=seeded(0), callback=path, grid=grid)
    assert path.times == grid.tolist()
    same = sample(table(uniform(), 2), 4, steps=99, generator=seeded(0), grid=lambda process, steps: grid.double())
    assert torch.equal(x, same)


@pytest.mark.parametrize("name", GRIDS)
def test_the_loop_follows_every_listed_grid(name):
    path, process = Trajectory(), uniform()
    sample(table(process, 2), 4, 5, generator=seeded(0), callback=path, grid=GRIDS[name])
    assert path.times == GRIDS[name](process, 5).tolist()


@pytest.mark.parametrize("grid", [[1.0, 0.5], [0.9, 0.0], [1.0, 0.5, 0.5, 0.0], [0.0, 1.0], [1.0]])
def test_a_grid_that_does_not_descend_from_one_to_zero_is_refused(grid):
    with pytest.raises(ValueError, match="grid must"):
        sample(table(uniform(), 2), 4, grid=torch.tensor(grid))


# ---- the loop ------------------------------------------------------------------------------------------------------


def test_a_callback_sees_the_start_and_every_step():
    seen = []
    options = {"callback": seen.append, "batch_size": 3, "grid": uniform_in_time}
    x = sample(table(uniform(), 2), 5, 4, generator=seeded(0), **options)
    assert [p.step for p in seen] == [0, 1, 2, 3, 4] * 2
    assert {p.steps for p in seen} == {4}
    assert [p.t for p in seen[:5]] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert [p.rows for p in seen] == [slice(0, 3)] * 5 + [slice(3, 5)] * 5
    assert torch.equal(torch.cat([seen[4].tokens, seen[9].tokens]), x)


def test_a_cpu_is_given_small_batches():
    seen = []
    sample(table(uniform(), 2), 2 * plan.ROWS_ON_CPU + 1, 1, generator=seeded(0), callback=seen.append)
    assert [len(p.tokens) for p in seen if p.step == 0] == [plan.ROWS_ON_CPU, plan.ROWS_ON_CPU, 1]


def test_a_trajectory_joins_the_batches_and_ends_in_the_samples():
    path = Trajectory()
    x = sample(table(uniform(), 2), 10, 6, generator=seeded(0), callback=path, batch_size=4)
    assert path.tokens.shape == (7, 10, 2)
    assert len(path.times) == 7
    assert torch.equal(path.tokens[-1], x)


def test_a_callback_changes_nothing():
    diffusion = table(uniform(), 2)
    plain = sample(diffusion, 6, 4, generator=seeded(0))
    assert torch.equal(plain, sample(diffusion, 6, 4, generator=seeded(0), callback=Trajectory()))


def test_a_progress_bar_is_drawn_only_when_asked_or_watched(capsys):
    sample(table(uniform(), 2), 2, 2, generator=seeded(0))
    assert capsys.readouterr().err == ""
    sample(table(uniform(), 2), 2, 2, generator=seeded(0), progress=True)
    assert "sampling" in capsys.readouterr().err


def test_a_terminal_is_shown_a_progress_bar_unless_it_is_declined(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for progress, shown in ((None, True), (False, False)):
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        sample(table(uniform(), 2), 2, 2, generator=seeded(0), progress=progress)
        assert ("sampling" in terminal.getvalue()) == shown


@pytest.mark.parametrize("training", [True, False])
def test_the_model_samples_in_evaluation_mode_and_is_put_back(training):
    watched = Watched(TableModel(uniform(), 2))
    diffusion = Diffusion(uniform(), watched).train(training)
    sample(diffusion, 2, 2, generator=seeded(0))
    assert not any(call["training"] for call in watched.asked)
    assert diffusion.training == watched.training == training

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(diffusion, 2, 2, generator=seeded(0), callback=stop)
    assert diffusion.training == training


def test_samples_can_be_trained_on():
    path = Trajectory()
    x = sample(table(uniform(), 2), 4, 2, generator=seeded(0), callback=path)
    weights = torch.nn.Embedding(3, 5)
    for tokens in (x, path.tokens[0]):
        assert not tokens.is_inference()
        weights(tokens).sum().backward()


def test_sampling_leaves_no_graph_behind():
    watched = Watched(TableModel(uniform(), 2))
    sample(Diffusion(uniform(), watched), 2, 2, generator=seeded(0))
    assert watched.inner.table.grad is None
    assert all(call["xt"].is_inference() for call in watched.asked)


@pytest.mark.parametrize(
    ("make", "implicit", "step"),
    [
        (uniform, True, Analytical()),
        (uniform, False, Analytical()),
        (one_way, True, Analytical()),
        (one_way, False, Euler()),
    ],
)
def test_a_model_is_sampled_analytically_where_it_can_and_else_by_euler(make, implicit, step):
    diffusion = table(make(), 2, implicit=implicit)
    default, chosen = (sample(diffusion, 50, 4, s, generator=seeded(0)) for s in (None, step))
    assert torch.equal(default, chosen)


def test_the_analytical_step_is_not_eulers():
    other = sample(table(uniform(), 2), 50, 4, Euler(), generator=seeded(0))
    assert not torch.equal(sample(table(uniform(), 2), 50, 4, generator=seeded(0)), other)


def test_steps_that_cannot_sample_a_model_say_so():
    with pytest.raises(ValueError, match="Analytical needs a model that predicts x0"):
        sample(table(one_way(), 2, implicit=False), 2, 2, Analytical())
    with pytest.raises(ValueError, match="Analytical needs a model that predicts x0"):
        sample(table(one_way(), 2, implicit=False), 2, 2, Sweep())
    with pytest.raises(ValueError, match="Uniform has no ordered states"):
        sample(table(uniform(), 2), 2, 2, TauLeaping(ordinal=True))


def test_a_step_counts_one_evaluation_of_the_model():
    for sampler in STEPS.values():
        watched = Watched(TableModel(uniform(), 2))
        sample(Diffusion(uniform(), watched), 3, 5, sampler, generator=seeded(0))
        assert watched.times == pytest.approx(uniform_in_share(uniform(), 5)[:-1].tolist())


def test_exact_simulation_asks_for_one_position_an_event():
    watched = Watched(TableModel(uniform(), 3))
    sample(Diffusion(uniform(), watched), 3, 1, Exact(), generator=seeded(0))
    shapes = {None if call["positions"] is None else call["positions"].shape[1] for call in watched.asked}
    assert shapes == {1, None}  # None: the analytical step from the floor to 0


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"num": 0}, ValueError, "num must be at least 1"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"length": 3}, ValueError, "the model was built for 2 positions"),
        ({"sampler": Euler}, TypeError, "sampler must be a reverse step"),
    ],
)
def test_bad_arguments_are_named(arguments, error, sentence):
    options = {"num": 2, "steps": 2, **arguments}
    with pytest.raises(error, match=sentence):
        sample(table(uniform(), 2), **options)


def test_each_row_has_a_stream_of_its_own():
    """The rows of a batch draw the same as each would by itself."""
    device = torch.device("cpu")
    together = StreamPerSample([5, 6, 7])
    alone = StreamPerSample([6])
    for shape in ((4,), (2, 3)):
        assert torch.equal(together.uniform((3, *shape), device)[1:2], alone.uniform((1, *shape), device))


def test_conditional_samples_of_a_step_use_the_given_values():
    """One analytical step at the last position, in law: the conditional given the other position, which is clean."""
    law = random_law(3, 2, seed=0)
    p = conditionals(law, 3, 2)
    diffusion = oracle(uniform(), law, 2)
    for value in range(3):
        x = torch.tensor([[0, value]])
        given = torch.tensor([[False, True]])
        log_x0 = diffusion.marginals(x, times(0.9, 1), given=given).log_x0[0, 0]
        assert differs(log_x0.exp(), p[int(index_of(x, 3)), 0]) < ROUNDING


class Diverged(MarginalModel):
    """What is left of a model whose training diverged."""

    def __init__(self):
        super().__init__()
        self.length, self.implicit = 2, True

    def forward(self, process, query):
        return self.from_logits(torch.full((*query.here.shape, 3), float("nan")), process, query.t)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("sampler", [Euler(), Analytical(), Sweep(groups=2)], ids=lambda step: type(step).__name__)
def test_a_model_that_predicts_nan_is_named(sampler, steps):
    with pytest.raises(ValueError, match="predicts NaN"):
        sample(Diffusion(uniform(), Diverged()), 3, steps, sampler, generator=seeded(0))
