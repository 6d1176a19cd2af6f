"""ALOE against exact enumeration: a sampler of 3 to 5 bits has few enough trajectories to write all of them down."""

import copy
import itertools
from functools import reduce

import pytest
import torch

from enumerated import (
    UNLIKELY,
    all_states,
    counts_of,
    index_of,
    p_value,
    random_law,
    seeded,
    single_changes,
    total_variation,
)
from sddm.baselines.aloe import ALOE
from sddm.baselines.editor import Draft, EditingSampler, Trajectories
from sddm.baselines.gibbs import sweep
from sddm.training import RunConfig, learn

FLOAT32 = 1e-5
"""Sums of some tens of float32 logarithms of order 1 to 10."""

NOISE = 0.02
"""Averaged weights hold some 50 batches of 256 rows: 16 frequencies in these err by sqrt(16 / (50 * 256)) / 2."""


def lively(module, seed=0):
    """Weights so large that no probability is near uniform and all depend on all that they may."""
    generator = seeded(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 2 / weight.shape[-1] ** 0.5)
    return module


def editing_sampler(length, max_edits, seed=0, inverse_stop=0.4):
    return lively(EditingSampler(length, width=8, max_edits=max_edits, inverse_stop=inverse_stop), seed)


@torch.no_grad()
def law_of(sampler):
    """The law of what the sampler draws: its drafts pushed through one edit after another, the stopped set aside."""
    states = all_states(2, sampler.length)
    going = sampler.draft.log_prob(states).double().exp()
    choices = sampler.choices(states).double().exp()
    turned = single_changes(states, 2).gather(-1, 1 - states[..., None]).squeeze(-1)
    stopped = torch.zeros_like(going)
    for _ in range(sampler.max_edits):
        stopped += going * choices[:, -1]
        edited = torch.zeros_like(going)
        edited.index_add_(0, turned.flatten(), (going[:, None] * choices[:, :-1]).flatten())
        going = edited
    return stopped + going


@torch.no_grad()
def law_of_energy(energy):
    return (-energy(all_states(2, energy.length)).double()).softmax(0)


def sweep_kernel(energy):
    """One Gibbs sweep: all positions redrawn from their conditionals, in an order drawn uniformly."""
    law, length = law_of_energy(energy), energy.length
    states = all_states(2, length)
    turned = single_changes(states, 2).gather(-1, 1 - states[..., None]).squeeze(-1)
    moves = []
    for d in range(length):
        move = torch.zeros(len(states), len(states), dtype=torch.float64)
        move.scatter_(1, turned[:, d : d + 1], (law[turned[:, d]] / (law[turned[:, d]] + law))[:, None])
        moves.append(move + torch.diag(1 - move.sum(1)))
    orders = list(itertools.permutations(moves))
    return sum(reduce(torch.matmul, order) for order in orders) / len(orders)


def all_trajectories(length, max_edits):
    """Every choice of the inverse proposal for one row: the positions in the order in which they are turned back."""
    return [p for t in range(max_edits + 1) for p in itertools.permutations(range(length), t)]


def as_ways(chosen, length, batch):
    """The same trajectories for every row, without their proposal's probability."""
    edits = torch.tensor([len(p) for p in chosen])
    order = torch.empty(len(chosen), length, dtype=torch.int64)
    for number, positions in enumerate(chosen):
        rest = [d for d in range(length) if d not in positions]
        order[number, torch.tensor([*positions, *rest])] = torch.arange(length)
    shape = (batch, len(chosen))
    return Trajectories(edits.expand(shape), order.expand(*shape, length), torch.zeros(shape))


# ---- the draft -----------------------------------------------------------------------------------------------------


def test_the_draft_is_a_law_whose_conditionals_see_only_what_stands_before():
    draft = lively(Draft(5, units=3))
    states = all_states(2, 5)
    with torch.no_grad():
        logits = draft(states)
    assert float(draft.log_prob(states).double().exp().sum().detach()) == pytest.approx(1, abs=FLOAT32)
    for d in range(5):
        by_prefix = logits[:, d].reshape(2**d, -1)
        # Rows of one multiply may be rounded differently, by where in a block of it they stand.
        torch.testing.assert_close(by_prefix, by_prefix[:, :1].expand_as(by_prefix), rtol=0, atol=FLOAT32)
        assert by_prefix[:, 0].unique().numel() == 2**d, "and it does see all of that"


def test_drafts_drawn_block_by_block_have_the_law_of_the_whole_pass():
    draft = lively(Draft(4, units=3), seed=1)
    law = draft.log_prob(all_states(2, 4)).double().exp().detach()
    assert p_value(counts_of(draft.sample(20_000, seeded(0)), 2), law) > UNLIKELY


# ---- the sampler and its trajectories ------------------------------------------------------------------------------


@pytest.mark.parametrize("max_edits", [0, 1, 3])
def test_samples_have_the_law_of_draft_and_edits(max_edits):
    sampler = editing_sampler(4, max_edits)
    law = law_of(sampler)
    assert float(law.sum()) == pytest.approx(1, abs=FLOAT32)
    assert p_value(counts_of(sampler.sample(20_000, seeded(1)), 2), law) > UNLIKELY


def test_an_untrained_editor_stops_about_as_soon_as_the_inverse_proposal():
    sampler = EditingSampler(32, width=64, inverse_stop=0.4)
    stop = sampler.choices(torch.randint(2, (200, 32), generator=seeded(0)))[:, -1].exp()
    assert float(stop.mean().detach()) == pytest.approx(0.4, abs=0.1)


def test_the_inverse_proposal_draws_trajectories_with_the_probability_that_it_states():
    sampler = editing_sampler(3, max_edits=2)
    ways = sampler.inverse(200, 100, seeded(2))
    chosen = all_trajectories(3, 2)
    names = {positions: number for number, positions in enumerate(chosen)}
    drawn, stated = [], torch.zeros(len(chosen), dtype=torch.float64)
    for t, order, log_p in zip(*(part.flatten(0, 1) for part in ways), strict=True):
        number = names[tuple(order.argsort()[: int(t)].tolist())]
        drawn.append(number)
        stated[number] = float(log_p.double().exp())
    assert float(stated.sum()) == pytest.approx(1, abs=FLOAT32), "every trajectory was drawn, and there are no others"
    assert p_value(torch.bincount(torch.tensor(drawn), minlength=len(chosen)), stated) > UNLIKELY


def test_the_joint_probability_is_the_product_along_the_trajectory():
    sampler, max_edits = editing_sampler(3, max_edits=2, seed=3), 2
    states, chosen = all_states(2, 3), all_trajectories(3, 2)
    with torch.no_grad():
        joint = sampler.log_joint(states, as_ways(chosen, 3, len(states)))
        log_drafts, choices = sampler.draft.log_prob(states), sampler.choices(states)
    for (i, x), (k, positions) in itertools.product(enumerate(states), enumerate(chosen)):
        here = x.clone()
        here[list(positions)] = 1 - here[list(positions)]
        expected = float(log_drafts[index_of(here[None], 2)])
        for d in reversed(positions):
            expected += float(choices[index_of(here[None], 2), d])
            here[d] = 1 - here[d]
        assert torch.equal(here, x)
        expected += float(choices[i, -1]) if len(positions) < max_edits else 0
        assert float(joint[i, k]) == pytest.approx(expected, abs=FLOAT32)


def test_with_one_edit_the_trajectories_add_up_to_the_law_of_the_samples():
    sampler = editing_sampler(4, max_edits=1, seed=4)
    states = all_states(2, 4)
    with torch.no_grad():
        joint = sampler.log_joint(states, as_ways(all_trajectories(4, 1), 4, len(states)))
    torch.testing.assert_close(joint.double().exp().sum(1), law_of(sampler), rtol=FLOAT32, atol=0)


def test_without_edits_the_bound_is_the_draft_itself():
    sampler = editing_sampler(4, max_edits=0)
    x = all_states(2, 4)
    torch.testing.assert_close(sampler.bound(x, 3, seeded(0)), sampler.draft.log_prob(x), rtol=0, atol=FLOAT32)


def test_more_trajectories_bring_the_bound_up_to_the_log_probability():
    sampler = editing_sampler(4, max_edits=1, seed=5)
    x, rounds = all_states(2, 4), 400
    log_law = law_of(sampler).log()
    gaps, errors = {}, {}
    with torch.no_grad():
        for num in (1, 4, 64):
            gap = log_law - sampler.bound(x.repeat(rounds, 1), num, seeded(6)).double().reshape(rounds, -1)
            gaps[num], errors[num] = float(gap.mean()), float(gap.std()) / gap.numel() ** 0.5
        joint = sampler.log_joint(x, as_ways(all_trajectories(4, 1), 4, len(x))).double().exp()
    proposal = torch.tensor([0.4] + [0.6 / 4] * 4, dtype=torch.float64)
    variance = (joint**2 / proposal).sum(1) / log_law.exp() ** 2 - 1
    assert gaps[1] > gaps[4] > gaps[64] > -4 * errors[64]
    # The gap is V / 2K to leading order; twice that covers the next.
    assert gaps[64] < float(variance.mean()) / 64 + 4 * errors[64]


def test_the_gradient_weights_trajectories_by_their_normalised_importance():
    sampler = editing_sampler(4, max_edits=3, seed=7)
    x = all_states(2, 4)
    parameters = list(sampler.parameters())
    bound = torch.autograd.grad(sampler.bound(x, 5, seeded(8)).sum(), parameters)
    ways = sampler.inverse(len(x), 5, seeded(8))
    log_joint = sampler.log_joint(x, ways)
    weights = (log_joint - ways.log_proposal).softmax(1).detach()
    weighted = torch.autograd.grad((weights * log_joint).sum(), parameters)
    for ours, theirs in zip(bound, weighted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


# ---- training ------------------------------------------------------------------------------------------------------


def small_system(**options):
    torch.manual_seed(0)
    return ALOE(**{"length": 4, "energy_width": 32, "dual_width": 32, "max_edits": 3, "averaging": 0.98, **options})


def test_a_step_lowers_the_energy_of_the_data_against_improved_rows_and_makes_these_likelier():
    system = small_system(averaging=0.0)
    before = copy.deepcopy(system)
    rows = torch.zeros(64, 4, dtype=torch.int64)
    shown = system.update(rows, seeded(0))
    generator = seeded(0)
    drawn = before.dual.sample(64, generator)
    improved = sweep(before.energy, drawn, before.gibbs_sweeps, generator)
    with torch.no_grad():
        contrast = before.energy(rows).mean() - before.energy(improved).mean()
        after = system.energy(rows).mean() - system.energy(improved).mean()
        bound = before.dual.bound(improved, before.trajectories, generator).mean()
    assert shown == {"contrast": contrast.item(), "bound": bound.item()}
    assert float(after) < float(contrast), "a small step down the gradient"
    old, new = (dual.bound(improved, 64, seeded(1)).mean().detach() for dual in (before.dual, system.dual))
    assert float(new) > float(old), "and one up"


@pytest.mark.usefixtures("at_full_speed")
def test_power_iteration_alone_teaches_the_dual_sampler_a_fixed_energy():
    system = small_system(energy_rate=1e-12, dual_rate=5e-3)
    lively(system.energy, seed=9)
    target = law_of_energy(system.energy)
    far = total_variation(law_of(system.dual), target)
    for step in range(200):
        system.update(torch.zeros(256, 4, dtype=torch.int64), seeded(step))
    near = total_variation(law_of(system.averaged_dual), target)
    assert far > 0.3
    assert near < 3 * NOISE


@pytest.mark.usefixtures("at_full_speed")
def test_joint_training_brings_energy_sampler_and_samples_near_the_data():
    data = random_law(2, 3, seed=10)
    states = all_states(2, 3)
    system = small_system(length=3, dual_rate=5e-3, energy_rate=5e-3)

    def batches(step):
        return states[torch.multinomial(data, 256, replacement=True, generator=seeded(step))]

    learn(system, batches, RunConfig(200), progress=False)
    dual, energy = law_of(system.averaged_dual), law_of_energy(system.averaged_energy)
    for law in (dual, energy):
        assert total_variation(law, data) < 4 * NOISE
    assert total_variation(torch.full((8,), 1 / 8), data) > 8 * NOISE, "which is not where it began"

    kernel = torch.linalg.matrix_power(sweep_kernel(system.averaged_energy), system.sample_sweeps)
    assert p_value(counts_of(system.sample(20_000, seeded(11)), 2), dual @ kernel) > UNLIKELY


def test_samples_follow_from_the_generator_and_pieces_do_not_repeat():
    system = small_system()
    x = system.sample(5_000, seeded(12))
    assert x.shape == (5_000, 4)
    assert torch.equal(x, system.sample(5_000, seeded(12)))
    assert not torch.equal(x[:2_000], x[2_048:4_048])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"inverse_stop": 1.0}, "inverse_stop must be below 1"),
        ({"averaging": 1.0}, r"averaging must lie in \[0, 1\), but it is 1.0"),
        ({"trajectories": 0}, "trajectories must be at least 1"),
        ({"dual_rate": 0.0}, "dual_rate must be above 0"),
        ({"gibbs_sweeps": 0}, "gibbs_sweeps must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        small_system(**options)
