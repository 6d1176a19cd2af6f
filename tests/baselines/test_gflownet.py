"""Policies over partly filled rows, against every trajectory of a few bits."""

import itertools
import math

import pytest
import torch

from enumerated import ROUNDING, UNLIKELY, all_states, counts_of, index_of, p_value, random_law, seeded
from sddm.baselines.gflownet import VOID, Fillings, Policy, explored

DIM = 3
DRAWS = 20_000


def random_policy(dim=DIM, learned_backward=True, seed=0, sharpness=4.0):
    """A policy in double precision that is far from uniform."""
    torch.manual_seed(seed)
    policy = Policy(dim, width=16, layers=2, learned_backward=learned_backward).double()
    with torch.no_grad():
        policy.last.weight *= sharpness
    return policy


class TablePolicy(Policy):
    """Any logits for every state."""

    def __init__(self, table):
        super().__init__(table.shape[1] // 3, width=1, layers=1, learned_backward=True)
        self.table = table

    def forward(self, states):
        return self.table[(states * 3 ** torch.arange(states.shape[-1] - 1, -1, -1)).sum(-1)]


def all_trajectories(dim):
    """Every row with every order of its positions; the orders of a row are neighbours."""
    rows, orders = all_states(2, dim), torch.tensor(list(itertools.permutations(range(dim))))
    return Fillings(rows.repeat_interleave(len(orders), 0), orders.repeat(len(rows), 1))


def probabilities(policy, trajectory):
    """The products of P_F and of P_B over the steps."""
    with torch.no_grad():
        forward, backward = policy.log_probabilities(trajectory)
    return forward.sum(1).exp(), backward.sum(1).exp()


def terminal_law(policy, dim=DIM):
    forward, _ = probabilities(policy, all_trajectories(dim))
    return forward.reshape(2**dim, math.factorial(dim)).sum(1)


def balanced_table(reward, dim, seed):
    """Logits of exact flows for a reward and an arbitrary P_B, and Z: F(s) = R(s) if s is full, else what flows out."""
    states = all_states(3, dim)
    emptying = torch.rand(3**dim, dim, generator=seeded(seed), dtype=torch.float64) + 0.1
    flow = torch.zeros(3**dim, dtype=torch.float64)
    edges = torch.zeros(3**dim, 2, dim, dtype=torch.float64)
    for voids in range(dim + 1):
        for index in (states == VOID).sum(1).eq(voids).nonzero().flatten().tolist():
            state = states[index]
            if voids == 0:
                flow[index] = reward[int(index_of(state[None], 2))]
                continue
            for d, b in itertools.product((state == VOID).nonzero().flatten().tolist(), (0, 1)):
                child = state.clone()
                child[d] = b
                to = int(index_of(child[None], 3))
                edges[index, b, d] = flow[to] * emptying[to, d] / emptying[to][child != VOID].sum()
            flow[index] = edges[index].sum()
    return torch.cat([edges.flatten(1), emptying], dim=1).log(), float(flow[-1])


# ---- trajectories --------------------------------------------------------------------------------------------------


def test_a_trajectory_fills_one_position_a_step_in_its_order():
    trajectory = Fillings(torch.tensor([[1, 0, 1]]), torch.tensor([[2, 0, 1]]))
    expected = torch.tensor([[[VOID, VOID, VOID], [VOID, VOID, 1], [1, VOID, 1], [1, 0, 1]]])
    assert trajectory.states().equal(expected)
    for steps in range(4):
        assert trajectory.state(steps).equal(expected[:, steps])


# ---- probabilities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned_backward", [True, False])
@pytest.mark.parametrize("dim", [3, 4])
def test_the_probabilities_of_all_trajectories_sum_to_one(dim, learned_backward):
    policy = random_policy(dim, learned_backward)
    forward, backward = probabilities(policy, all_trajectories(dim))
    assert abs(float(forward.sum()) - 1) < ROUNDING
    of_each_row = backward.reshape(2**dim, -1).sum(1)
    assert (of_each_row - 1).abs().max() < ROUNDING


def test_the_steps_of_a_trajectory_have_the_probabilities_of_the_masked_softmax():
    policy = random_policy()
    trajectory = all_trajectories(DIM)
    states = trajectory.states()
    with torch.no_grad():
        forward, backward = policy.log_probabilities(trajectory)
        for n, step in itertools.product(range(0, len(states), 5), range(DIM)):
            d = int(trajectory.order[n, step])
            bit = int(trajectory.rows[n, d])
            before, after = states[n, step], states[n, step + 1]
            fillings = policy(before[None])[0, : 2 * DIM].reshape(2, DIM).exp() * (before == VOID)
            emptyings = policy(after[None])[0, 2 * DIM :].exp() * (after != VOID)
            assert abs(float(forward[n, step].exp() - fillings[bit, d] / fillings.sum())) < ROUNDING
            assert abs(float(backward[n, step].exp() - emptyings[d] / emptyings.sum())) < ROUNDING


def test_a_backward_policy_that_is_not_learned_gives_all_orders_the_same_probability():
    _, backward = probabilities(random_policy(4, learned_backward=False), all_trajectories(4))
    assert (backward - 1 / math.factorial(4)).abs().max() < ROUNDING


@pytest.mark.parametrize("dim", [3, 4, 5])
def test_where_all_trajectories_are_balanced_the_terminal_law_is_the_reward_over_z(dim):
    reward = 7 * random_law(2, dim, seed=dim)
    table, z = balanced_table(reward, dim, seed=1)
    policy, trajectory = TablePolicy(table), all_trajectories(dim)
    forward, backward = probabilities(policy, trajectory)
    residual = (z * forward).log() - (reward[index_of(trajectory.rows, 2)] * backward).log()
    assert residual.abs().max() < ROUNDING
    assert abs(z - float(reward.sum())) < 7 * ROUNDING
    assert (terminal_law(policy, dim) - reward / reward.sum()).abs().max() < ROUNDING


def test_no_gradient_is_lost_to_fillings_that_are_not_possible():
    policy = random_policy()
    forward, backward = policy.log_probabilities(all_trajectories(DIM))
    (forward.sum() + backward.sum()).backward()
    assert all(bool(torch.isfinite(weight.grad).all()) for weight in policy.parameters())


# ---- draws ---------------------------------------------------------------------------------------------------------


def test_samples_follow_the_terminal_law():
    policy = random_policy()
    drawn = policy.sample(DRAWS, seeded(1))
    assert p_value(counts_of(drawn, 2), terminal_law(policy)) > UNLIKELY


def order_counts(order):
    """How often each order occurs, in the sequence of `itertools.permutations`."""
    known = torch.tensor(list(itertools.permutations(range(order.shape[1]))))
    return (order[:, None] == known).all(-1).sum(0)


@pytest.mark.parametrize("learned_backward", [True, False])
def test_rows_are_emptied_in_orders_of_the_backward_policy(learned_backward):
    policy = random_policy(learned_backward=learned_backward)
    _, backward = probabilities(policy, all_trajectories(DIM))
    row = 5
    rows = all_states(2, DIM)[row].expand(DRAWS, -1)
    trajectory = policy.empty(rows, seeded(2))
    assert trajectory.rows.equal(rows)
    assert p_value(order_counts(trajectory.order), backward.reshape(2**DIM, -1)[row]) > UNLIKELY


@pytest.mark.parametrize("exploration", [0.0, 0.3])
@pytest.mark.parametrize("steps", [1, 2, DIM])
def test_back_and_forth_keeps_the_way_to_the_state_between_and_goes_on_with_the_forward_policy(steps, exploration):
    policy = random_policy()
    start = Fillings(torch.tensor([[1, 0, 1]]), torch.tensor([[2, 0, 1]]))
    many = Fillings(*(part.expand(DRAWS, -1) for part in start))
    proposed = policy.back_and_forth(many, steps, seeded(3), exploration)
    kept = DIM - steps
    assert proposed.order[:, :kept].equal(many.order[:, :kept])
    assert proposed.state(kept).equal(many.state(kept))
    with torch.no_grad():
        forward = explored(policy.log_probabilities(all_trajectories(DIM))[0], exploration)
    every = all_trajectories(DIM)
    through = (every.state(kept) == start.state(kept)).all(1) & (every.order[:, :kept] == start.order[:, :kept]).all(1)
    law = forward[:, kept:].sum(1).exp() * through
    assert abs(float(law.sum()) - 1) < ROUNDING
    orders = torch.tensor(list(itertools.permutations(range(DIM))))
    place = index_of(proposed.rows, 2) * len(orders)
    place += (proposed.order[:, None] == orders).all(-1).long().argmax(1)
    assert p_value(torch.bincount(place, minlength=len(law)), law) > UNLIKELY


def test_exploration_mixes_each_step_with_a_uniform_choice():
    policy = random_policy()
    with torch.no_grad():
        forward, _ = policy.log_probabilities(all_trajectories(DIM))
    choices = torch.tensor([6.0, 4.0, 2.0], dtype=torch.float64)
    expected = 0.75 * forward.exp() + 0.25 / choices
    assert (explored(forward, 0.25).exp() - expected).abs().max() < ROUNDING
    assert explored(forward, 0.0).equal(forward)
