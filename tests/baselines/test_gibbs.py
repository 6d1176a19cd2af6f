"""Gibbs moves against the chain's matrix written out over all states."""

import pytest
import torch

from enumerated import (
    UNLIKELY,
    all_states,
    conditionals,
    counts_of,
    draw_states,
    index_of,
    p_value,
    random_law,
    single_changes,
)
from sddm.baselines.base import TimelessEnergy
from sddm.baselines.gibbs import frozen, random_scan, sweep

ROUNDING = 1e-12
DIM = 4
STATES = all_states(2, DIM)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


LAW = random_law(2, DIM, seed=0)
"""A law far from uniform, without any independence between the bits."""


def energy(x):
    """f = -log p by the table, up to a constant."""
    return 3.0 - LAW.log()[index_of(x, 2)]


def network(seed=0):
    torch.manual_seed(seed)
    return TimelessEnergy(DIM, width=16).double()


def position_kernels():
    """K_d, row = from: the bit at d drawn from its conditional under the enumerated law."""
    p = conditionals(LAW, 2, DIM)
    to = single_changes(STATES, 2)
    n = len(STATES)
    return [torch.zeros(n, n, dtype=torch.float64).scatter_add(1, to[:, d], p[:, d]) for d in range(DIM)]


def ends(move, start, num=20_000, seed=1):
    """Where `num` independent chains from one state stand after a move."""
    return counts_of(move(STATES[start].repeat(num, 1), seeded(seed)), 2)


@pytest.mark.parametrize("start", [0, 6, 15])
def test_one_move_of_random_scan_redraws_a_uniform_position_from_its_conditional(start):
    kernel = sum(position_kernels()) / DIM
    counts = ends(lambda x, g: random_scan(energy, x, 1, g), start)
    assert p_value(counts, kernel[start]) > UNLIKELY


def test_moves_of_random_scan_are_powers_of_the_kernel():
    kernel = torch.linalg.matrix_power(sum(position_kernels()) / DIM, 3)
    counts = ends(lambda x, g: random_scan(energy, x, 3, g), 5)
    assert p_value(counts, kernel[5]) > UNLIKELY


def test_the_kernel_of_random_scan_is_in_detailed_balance_with_the_law():
    """So that the test above compares with a kernel which leaves exp(-f) as it is."""
    flow = LAW[:, None] * sum(position_kernels()) / DIM
    torch.testing.assert_close(flow, flow.T, atol=ROUNDING, rtol=0)


def test_a_sweep_visits_every_position_once_in_random_order():
    kernels = position_kernels()
    orders = [order for order in torch.cartesian_prod(*[torch.arange(DIM)] * DIM).tolist() if len({*order}) == DIM]
    mean = sum(torch.linalg.multi_dot([kernels[d] for d in order]) for order in orders) / len(orders)
    counts = ends(lambda x, g: sweep(energy, x, 1, g), 9)
    assert p_value(counts, mean[9]) > UNLIKELY


@pytest.mark.parametrize("move", [lambda e, x, g: random_scan(e, x, 7, g), lambda e, x, g: sweep(e, x, 2, g)])
def test_draws_from_the_law_stay_draws_from_the_law(move):
    x = draw_states(LAW, 20_000, 2, DIM, seed=2)
    assert p_value(counts_of(move(energy, x, seeded(3)), 2), LAW) > UNLIKELY


def test_a_long_chain_forgets_where_it_started():
    # The second eigenvalue of the kernel bounds what is left of the start.
    kernel = sum(position_kernels()) / DIM
    moves = 150
    assert float((torch.linalg.matrix_power(kernel, moves)[0] - LAW).abs().sum()) < 1e-3
    counts = ends(lambda x, g: random_scan(energy, x, moves, g), 0, num=4_000)
    assert p_value(counts, LAW) > UNLIKELY


def test_rows_move_at_positions_of_their_own():
    x = random_scan(lambda rows: torch.zeros(len(rows)), torch.zeros(2_000, DIM, dtype=torch.int64), 1, seeded(0))
    assert int(x.sum(1).max()) == 1
    # A flat energy turns a position with probability 1/2, so each position is turned in 1 of 8 rows; 5 deviations.
    share = x.double().mean(0)
    assert (share - 1 / 8).abs().max() < 5 * (1 / 8 * 7 / 8 / 2_000) ** 0.5


def test_any_function_of_rows_is_an_energy():
    module = network()
    x = STATES.repeat(10, 1)
    by_module = random_scan(module, x, 20, seeded(4))
    by_function = random_scan(lambda rows: module(rows), x, 20, seeded(4))
    assert torch.equal(by_module, by_function)


def test_frozen_layers_are_the_same_function():
    module = network()
    with torch.no_grad():
        torch.testing.assert_close(frozen(module)(STATES), module(STATES), atol=ROUNDING, rtol=ROUNDING)


def test_frozen_layers_do_not_follow_the_weights():
    module = network()
    fixed = frozen(module)
    before = fixed(STATES)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(2)
    assert torch.equal(fixed(STATES), before)


def test_no_moves_change_nothing_and_the_rows_given_are_left_alone():
    x = STATES.clone()
    assert torch.equal(random_scan(energy, x, 0, seeded(0)), STATES)
    assert torch.equal(sweep(energy, x, 0, seeded(0)), STATES)
    assert not torch.equal(sweep(energy, x, 3, seeded(0)), STATES)
    assert torch.equal(x, STATES)


def test_the_generator_decides_everything():
    first, again, other = (random_scan(energy, STATES, 9, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bad_arguments_are_named_in_a_sentence():
    with pytest.raises(ValueError, match="moves must be at least 0"):
        random_scan(energy, STATES, -1, seeded(0))
    with pytest.raises(ValueError, match="sweeps must be at least 0"):
        sweep(energy, STATES, -1, seeded(0))
    with pytest.raises(ValueError, match="x must hold tokens from 0 to 1"):
        random_scan(energy, STATES + 1, 1, seeded(0))
