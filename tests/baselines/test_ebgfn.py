"""EB-GFN: its chain against exact kernels on a few bits, its losses against sums over all moves, and what it learns."""

import math

import pytest
import torch
from test_gflownet import TablePolicy, all_trajectories, balanced_table, terminal_law

from enumerated import ROUNDING, all_states, draw_states, index_of, random_law, seeded, total_variation
from sddm.baselines.ebgfn import EBGFN
from sddm.baselines.gflownet import explored
from sddm.training import RunConfig, learn

DIM = 3


def random_system(dim=DIM, seed=0, sharpness=4.0, **options):
    """A system in double precision whose energy and policies have nothing to do with each other."""
    torch.manual_seed(seed)
    options = {"learned_backward": True} | options
    system = EBGFN(dim, energy_width=16, energy_layers=2, policy_width=16, policy_layers=2, **options).double()
    with torch.no_grad():
        system.policy.last.weight *= sharpness
        system.energy.network.last.weight *= sharpness
        system.log_partition.fill_(0.7)
    return system


def energy_law(system):
    with torch.no_grad():
        return torch.softmax(-system.energy(all_states(2, system.length)), dim=0)


def moves(system):
    """All pairs of a trajectory tau and a proposal tau', the probability of this move from the end of tau, and both
    residuals with the forward policy that draws."""
    every = all_trajectories(system.length)
    kept = system.length - system.steps_back
    with torch.no_grad():
        forward, backward = system.policy.log_probabilities(every)
        _, residuals = system.residuals(every, system.energy(every.rows))
    # the way that both have in common: the same state in between, reached in the same order
    state, order = every.state(kept), every.order[:, :kept]
    common = (state[:, None] == state).all(-1) & (order[:, None] == order).all(-1)
    first, second = common.nonzero().T
    drawn = explored(forward, system.exploration)[:, kept:].sum(1)
    probability = (backward.sum(1)[first] + drawn[second]).exp()
    return every, first, second, probability, residuals


def chain(system):
    """The kernel of the move with its test, row = from."""
    every, first, second, probability, residuals = moves(system)
    states = 2**system.length
    accepted = probability * (residuals[first] - residuals[second]).exp().clamp(max=1)
    kernel = torch.zeros(states * states, dtype=torch.float64)
    index = index_of(every.rows, 2)
    kernel.index_add_(0, index[first] * states + index[second], accepted)
    kernel = kernel.reshape(states, states)
    return kernel + torch.diag(1 - kernel.sum(1))


# ---- the chain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exploration", [0.0, 0.2])
@pytest.mark.parametrize("learned_backward", [True, False])
@pytest.mark.parametrize(("dim", "steps_back"), [(3, 1), (3, 2), (3, 3), (4, 2), (4, 4)])
def test_the_chain_leaves_the_law_of_the_energy_invariant_whatever_the_policies(
    dim, steps_back, learned_backward, exploration
):
    options = {"steps_back": steps_back, "learned_backward": learned_backward, "exploration": exploration}
    system = random_system(dim, **options)
    law, kernel = energy_law(system), chain(system)
    assert float(moves(system)[3].sum()) == pytest.approx(2**dim, abs=1e-9)  # proposals are laws: one for each row
    flux = law[:, None] * kernel
    assert (flux - flux.T).abs().max() < ROUNDING
    assert (law @ kernel - law).abs().max() < ROUNDING
    assert total_variation(terminal_law(system.policy, dim), law) > 0.05  # so that the test has something to do


def test_the_log_ratio_is_that_of_the_energies_and_of_the_proposals():
    system = random_system(steps_back=2)
    every, first, second, _, residuals = moves(system)
    with torch.no_grad():
        forward, backward = system.policy.log_probabilities(every)
        f = system.energy(every.rows)
    there = backward[first, 1:].sum(1) + forward[second, 1:].sum(1)
    returning = backward[second, 1:].sum(1) + forward[first, 1:].sum(1)
    ratio = f[first] - f[second] + returning - there
    assert (residuals[first] - residuals[second] - ratio).abs().max() < ROUNDING


def test_where_trajectories_are_balanced_the_loss_vanishes_and_every_proposal_is_accepted():
    system = random_system()
    rewards = (-system.energy(all_states(2, DIM))).exp().detach()
    table, z = balanced_table(rewards, DIM, seed=4)
    system.policy = TablePolicy(table.requires_grad_())
    with torch.no_grad():
        system.log_partition.fill_(math.log(z))
    losses = system.losses(all_states(2, DIM).repeat(20, 1), seeded(0))
    assert float(losses.balance.detach()) < ROUNDING
    # The ratio is 1 up to rounding, and a uniform exceeds it with the probability of that rounding.
    assert bool(losses.accepted.all())


# ---- the losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps_back", "exploration"), [(2, 0.0), (3, 0.2)])
def test_losses_and_gradients_are_those_of_the_sum_over_all_moves(steps_back, exploration):
    system = random_system(steps_back=steps_back, exploration=exploration, data_share=0.3)
    data = random_law(2, DIM, seed=5)
    every, first, second, probability, _ = moves(system)
    weight = data[index_of(every.rows[first], 2)] * probability
    squares = system.residuals(every, system.energy(every.rows).detach())[0].square()
    balance = (weight * (0.3 * squares[first] + 0.7 * squares[second])).sum()
    f = system.energy(all_states(2, DIM))
    divergence = data @ (f - chain(system) @ f)
    exact = _gradients(system, balance + divergence)

    batches = []
    for seed in range(40):
        rows = draw_states(data, 2_000, 2, DIM, seed)
        losses = system.losses(rows, seeded(seed))
        batches.append(_gradients(system, losses.balance + losses.divergence))
    batches = torch.stack(batches)
    error = batches.std(0) / math.sqrt(len(batches))
    deviations = ((batches.mean(0) - exact) / error.clamp(min=1e-9))[error > 1e-9]
    # Some 400 deviations of Student's law with 39 degrees, each beyond 5 with probability 1e-5.
    assert len(deviations) > 300
    assert float(deviations.abs().max()) < 5


def _gradients(system, loss):
    """Of the weights of the energy, of the policies and of log Z, in one row."""
    weights = [weight for weight in system.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    pairs = zip(gradients, weights, strict=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for g, w in pairs])


def test_the_policies_get_no_gradient_from_the_divergence_and_the_energy_none_from_the_balance():
    system = random_system()
    losses = system.losses(all_states(2, DIM), seeded(0))
    learners = [*system.policy.parameters(), system.log_partition]
    assert all(
        g is None for g in torch.autograd.grad(losses.divergence, learners, retain_graph=True, allow_unused=True)
    )
    assert all(
        g is None for g in torch.autograd.grad(losses.balance, list(system.energy.parameters()), allow_unused=True)
    )


# ---- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize(("steps_back", "learned_backward"), [(None, False), (2, True)])
def test_a_short_training_brings_both_laws_near_the_data(steps_back, learned_backward):
    dim, steps, batch = 3, 300, 256
    data = random_law(2, dim, seed=6)
    torch.manual_seed(0)
    options = {"energy_rate": 1e-2, "policy_rate": 1e-2, "decay_steps": steps, "averaging": 0.98}
    options |= {"steps_back": steps_back, "learned_backward": learned_backward}
    system = EBGFN(dim, energy_width=64, energy_layers=2, policy_width=64, policy_layers=2, **options)
    assert total_variation(terminal_law(system.averaged_policy, dim), data) > 0.2
    learn(system, lambda step: draw_states(data, batch, 2, dim, step), RunConfig(steps), progress=False)
    # What 10 batches of data themselves are from their law, about 0.4 sqrt(states / rows) = 0.022, twice.
    assert total_variation(terminal_law(system.averaged_policy, dim), data) < 0.045
    assert total_variation(energy_law(system), data) < 0.045


def test_samples_are_those_of_the_average_of_the_policies():
    system = random_system(averaging=0.9)
    for step in range(3):
        system.update(all_states(2, DIM), seeded(step))
    average = {name: weight.clone() for name, weight in system.averaged_policy.named_parameters()}
    system.update(all_states(2, DIM), seeded(3))
    decay = 4 / 13  # (1 + n) / (10 + n) while that is below 0.9
    for name, weight in system.policy.named_parameters():
        now = dict(system.averaged_policy.named_parameters())[name]
        assert (now - (decay * average[name] + (1 - decay) * weight)).abs().max() < ROUNDING
    assert system.sample(50, seeded(0)).equal(system.averaged_policy.sample(50, seeded(0)))
    assert system.sample(5_000, seeded(0)).shape == (5_000, DIM)


def test_rates_fall_to_zero_along_half_a_cosine():
    system = random_system(decay_steps=4, energy_rate=0.01, partition_rate=0.5)
    seen = []
    for step in range(6):
        system.update(all_states(2, DIM), seeded(step))
        seen.append([optimizer.param_groups[0]["lr"] for optimizer in system.optimizers().values()])
    shares = torch.tensor([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0], dtype=torch.float64)
    assert torch.tensor(seen, dtype=torch.float64) == pytest.approx(
        shares[:, None] * torch.tensor([0.01, 2e-3, 0.5], dtype=torch.float64), abs=ROUNDING
    )


# ---- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps_back": 4}, "steps_back must be at most 3"),
        ({"exploration": 1.0}, r"exploration must lie in \[0, 1\), but it is 1.0"),
        ({"data_share": 1.1}, r"data_share must lie in \[0, 1\], but it is 1.1"),
        ({"policy_rate": 0.0}, "policy_rate must be above 0"),
        ({"decay_steps": 0}, "decay_steps must be at least 1"),
        ({"averaging": 1.0}, r"averaging must lie in \[0, 1\), but it is 1.0"),
    ],
)
def test_bad_arguments_are_named_in_a_sentence(options, said):
    with pytest.raises(ValueError, match=said):
        EBGFN(3, **options)


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="built for 3"):
        random_system().update(torch.zeros(2, 4, dtype=torch.int64), seeded(0))
