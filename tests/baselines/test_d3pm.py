"""D3PM against its matrices: posteriors, ancestral steps and the bound, over all trajectories of a small space."""

import math
from itertools import pairwise, product

import pytest
import torch

from enumerated import (
    ROUNDING,
    UNLIKELY,
    TableModel,
    Watched,
    all_states,
    analytical_laws,
    as_kernel,
    counts_of,
    index_of,
    kron,
    law_after,
    on_all_symbols,
    on_data_states,
    p_value,
    random_law,
    seeded,
    states_of,
    times,
)
from sddm import Condition
from sddm.baselines import D3PM, AbsorbingChain, D3PMLearner, GaussianChain, UniformChain
from sddm.baselines.chains import Staircase
from sddm.baselines.d3pm import hybrid, step_divergence
from sddm.likelihood import Bound, bound
from sddm.losses import denoising_cross_entropy
from sddm.marginals import Hollow, LeaveOneOut, MarginalModel, Marginals, Oracle
from sddm.noising import Batch
from sddm.query import Query
from sddm.samplers import Analytical, Euler, sample
from sddm.training import Epochs, Mask, TrainingConfig, learn

STATES, DIM, N = 3, 2, 4
CHAINS = {"uniform": UniformChain, "absorbing": AbsorbingChain, "gaussian": GaussianChain}
LAW = random_law(STATES, DIM, seed=3)
X0 = all_states(STATES, DIM)


@pytest.fixture(params=CHAINS.values(), ids=list(CHAINS))
def kind(request):
    return request.param


def written_out(kind, num_states, steps):
    """Q_1 ... Q_N from the paper's formulas, row = from."""
    eye, steps_made = torch.eye(num_states, dtype=torch.float64), range(1, steps + 1)
    if kind is UniformChain:
        share = [math.cos((k / steps + 0.008) / 1.008 * math.pi / 2) for k in range(steps + 1)]
        betas = [min(1 - share[k] / share[k - 1], 0.999) for k in steps_made]
        return [(1 - beta) * eye + beta / num_states for beta in betas]
    if kind is AbsorbingChain:
        matrices = [torch.eye(num_states + 1, dtype=torch.float64) for _ in steps_made]
        for k, matrix in zip(steps_made, matrices, strict=True):
            matrix[:-1] *= 1 - 1 / (steps - k + 1)
            matrix[:-1, -1] = 1 / (steps - k + 1)
        return matrices
    matrices = []
    for k in steps_made:
        beta = 1000 / steps * (1e-4 + (0.02 - 1e-4) * (k - 1) / max(1, steps - 1))
        line = {n: math.exp(-4 * n**2 / ((num_states - 1) ** 2 * beta)) for n in range(1 - num_states, num_states)}
        matrix = torch.zeros(num_states, num_states, dtype=torch.float64)
        for i, j in product(range(num_states), repeat=2):
            if i != j:
                matrix[i, j] = line[abs(i - j)] / sum(line.values())
        matrices.append(matrix + torch.diag(1 - matrix.sum(1)))
    return matrices


def multiplied(matrices, size):
    return torch.linalg.multi_dot([torch.eye(size, dtype=torch.float64)] * 2 + matrices)


def model(kind, dim=DIM, steps=N, **options):
    chain = kind(STATES, steps)
    return D3PM(chain, TableModel(chain, dim, **{"sees_own_token": True, **options}))


def oracle(kind, law, dim, steps=N):
    return D3PM(kind(STATES, steps), Oracle.from_joint(law.reshape([STATES] * dim)))


def time_of(k, rows=1):
    return times(k / N, rows)


# ---- chains --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_states", "steps"), [(3, 4), (5, 7), (2, 30)])
def test_the_transitions_between_any_two_steps_are_products_of_the_paper_s_matrices(kind, num_states, steps):
    chain, matrices = kind(num_states, steps), written_out(kind, num_states, steps)
    for s, t in product(range(steps + 1), repeat=2):
        if s <= t:
            found = chain.transition(times(s / steps, 1), times(t / steps, 1))[0]
            wanted = multiplied(matrices[s:t], chain.num_symbols)
            torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_between_its_steps_a_chain_does_not_move(kind):
    chain = kind(STATES, N)
    middle, early = (
        chain.transition(times(0, 2), torch.tensor([0.6, 0.5])),
        chain.transition(times(0, 1), times(0.5, 1)),
    )
    assert torch.equal(middle[0], early[0])
    assert torch.equal(middle[1], early[0])


def test_all_ways_to_use_a_transition_agree(kind):
    chain = kind(STATES, N)
    x, rows = torch.randint(chain.num_symbols, (5, DIM), generator=seeded(0)), torch.arange(5)[:, None]
    tau = chain.tau(torch.tensor([0, 0, 0.25, 0.25, 0.5]), torch.tensor([0.5, 0.25, 0.5, 0.75, 0.75]))
    P = chain.transition_by(tau)
    p = torch.rand(5, DIM, chain.num_symbols, generator=seeded(1), dtype=torch.float64)
    p = p / p.sum(-1, keepdim=True)
    for found, wanted in (
        (chain.push_by(p, tau), p @ P),
        (chain.log_push_by(p.log(), tau).exp(), p @ P),
        (chain.law_by(x, tau, torch.float64), P[rows, x]),
        (chain.likelihood_by(x, tau, torch.float64), P.mT[rows, x]),
    ):
        torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_the_shares_are_the_paper_s():
    left = AbsorbingChain(STATES, 10).remaining(torch.arange(11) / 10)
    torch.testing.assert_close(left, 1 - torch.arange(11, dtype=torch.float64) / 10)
    left = UniformChain(STATES, 1000).remaining(torch.arange(1001) / 1000)
    aimed = torch.cos((torch.arange(1000, dtype=torch.float64) / 1000 + 0.008) / 1.008 * math.pi / 2)
    torch.testing.assert_close(left[:-1], aimed / aimed[0])
    assert float(left[-1] / left[-2]) == pytest.approx(0.001)


def test_the_gaussian_chain_forgets_and_its_share_is_that_of_a_uniform_chain_where_there_is_one():
    chain = GaussianChain(20, 1000)
    left = chain.remaining(torch.tensor([0.0, 0.3, 1.0]))
    assert float(left[0]) == 1
    assert float(left[1]) > 5 * float(left[2]) > 0
    two = GaussianChain(2, 10)  # two states: every symmetric chain is uniform
    kept = two.transition(times(0, 1), times(0.5, 1))[0, 0, 0]
    assert float(two.remaining(times(0.5, 1))) == pytest.approx(float(2 * kept - 1))


def test_a_grid_has_the_chain_s_own_times(kind):
    chain = kind(STATES, 10)
    assert (10 * chain.grid(4)).tolist() == [10, 8, 5, 2, 0]
    assert (10 * chain.grid(10)).tolist() == [*range(10, -1, -1)] == (10 * chain.grid(99)).tolist()


# ---- the ancestral step --------------------------------------------------------------------------------------------


class Certain(MarginalModel):
    """Knows x_0."""

    def __init__(self, x0):
        super().__init__()
        self.x0, self.length, self.implicit = x0, x0.shape[1], True

    def forward(self, process, query):
        law = torch.zeros(*query.xt.shape, process.num_symbols, dtype=torch.float64)
        return Marginals.from_x0(law.scatter(-1, self.x0[..., None], 1).log(), process, query.t)


def ancestral_laws(diffusion, xt, k, s):
    weights = Analytical().weights(diffusion, Query(xt, time_of(k, len(xt))), time_of(s, len(xt)), time_of(k, len(xt)))
    return (weights / weights.sum(-1, keepdim=True)).detach()


def posterior(matrices, s, k, x0, xk):
    """q(x_s | x_k, x_0) by Bayes' rule."""
    size = len(matrices[0])
    joint = multiplied(matrices[:s], size)[x0] * multiplied(matrices[s:k], size)[:, xk]
    return joint / joint.sum()


STEPS_TAKEN = [(4, 3), (3, 2), (1, 0), (4, 2), (3, 0), (4, 0)]


@pytest.mark.parametrize(("k", "s"), STEPS_TAKEN)
def test_for_a_model_that_knows_x0_the_step_is_the_posterior(kind, k, s):
    matrices, chain = written_out(kind, STATES, N), kind(STATES, N)
    for x0, xk in product(range(STATES), range(chain.num_symbols)):
        if float(multiplied(matrices[:k], chain.num_symbols)[x0, xk]) > 0:
            found = ancestral_laws(D3PM(chain, Certain(torch.tensor([[x0]]))), torch.tensor([[xk]]), k, s)[0, 0]
            torch.testing.assert_close(found, posterior(matrices, s, k, x0, xk), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize(("k", "s"), STEPS_TAKEN)
def test_the_analytical_step_is_the_mean_of_the_posterior_under_an_ordinary_denoiser(kind, k, s):
    """D3PM's p(x_s | x_k) = sum_{x_0} q(x_s | x_k, x_0) p(x_0 | x_k), by the leave-one-out identity."""
    diffusion, matrices = model(kind), written_out(kind, STATES, N)
    xk = states_of(diffusion.chain, DIM)
    with torch.no_grad():
        without_own = diffusion.marginals(xk, time_of(k, len(xk))).log_x0.exp()[..., :STATES]
    likelihood = multiplied(matrices[:k], diffusion.chain.num_symbols)[:STATES].T[xk]  # q(x_k^d | x_0^d)
    possible = (likelihood.sum(-1) > 0).all(1)
    denoiser = without_own * likelihood
    denoiser = denoiser / denoiser.sum(-1, keepdim=True)
    found = ancestral_laws(diffusion, xk, k, s)
    for row, d in product(possible.nonzero()[:, 0].tolist(), range(DIM)):
        wanted = sum(
            denoiser[row, d, c] * posterior(matrices, s, k, c, int(xk[row, d]))
            for c in range(STATES)
            if float(denoiser[row, d, c]) > 0
        )
        torch.testing.assert_close(found[row, d], wanted, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_in_one_dimension_the_oracle_s_chain_gives_the_data_in_any_number_of_steps(kind, steps):
    law = random_law(STATES, 1, seed=5)
    diffusion = oracle(kind, law, 1)
    start = on_all_symbols(diffusion.chain, law, 1) @ multiplied(
        written_out(kind, STATES, N), diffusion.chain.num_symbols
    )
    end = law_after(step_laws, diffusion, start, diffusion.chain.grid(steps), 1)
    torch.testing.assert_close(on_data_states(diffusion.chain, end, 1), law, rtol=1e-10, atol=0)


def step_laws(diffusion, t, s, dim):
    """0 where x_t cannot be."""
    return analytical_laws(diffusion, t, s, dim).nan_to_num(0)


def generated_law(diffusion, steps=N, dim=DIM):
    """The law of the model's own samples, by multiplying the kernels of its steps."""
    start = kron([diffusion.chain.prior_law()] * dim)
    end = law_after(step_laws, diffusion, start, diffusion.chain.grid(steps), dim)
    return on_data_states(diffusion.chain, end, dim)


@pytest.mark.parametrize("steps", [2, 4])
def test_samples_have_the_law_of_the_steps_multiplied(kind, steps, at_full_speed):
    diffusion = model(kind)
    x = diffusion.sample(5_000, generator=seeded(1), steps=steps)
    assert p_value(counts_of(x, STATES), generated_law(diffusion, steps)) > UNLIKELY


# ---- the bound -----------------------------------------------------------------------------------------------------


def elbo(diffusion, steps=N):
    """E_q[log q(x_1 ... x_N | x_0) - log p(x_0 ... x_N)] for every x_0, over all trajectories at once."""
    chain, states = diffusion.chain, states_of(diffusion.chain, DIM)
    matrices = written_out(type(chain), STATES, steps)
    forward = [kron([matrix] * DIM) for matrix in matrices]
    grid = chain.grid(steps).tolist()
    backward = [as_kernel(step_laws(diffusion, t, s, DIM), chain.num_symbols) for t, s in pairwise(grid)][::-1]
    rows = index_of(X0, chain.num_symbols)
    paths = torch.ones(len(X0), 1, dtype=torch.float64)  # of each x_0, over all x_1 ... x_k
    total, here = torch.zeros(len(X0), dtype=torch.float64), rows[:, None]
    for ahead, back in zip(forward, backward, strict=True):
        law = paths[..., None] * ahead[here]
        surprise = ahead[here].log() - back.T[here].log()
        total += torch.where(law > 0, law * surprise, 0).sum((1, 2))
        paths = law.flatten(1)
        here = torch.arange(len(states)).expand(*here.shape, -1).flatten(1)
    prior = kron([chain.prior_law()] * DIM)[here]
    return total - torch.where(paths > 0, paths * prior.log(), 0).sum(1)


def terms_added_up(diffusion, steps=N):
    """The sum of the means of all terms, and the divergence of the start, for every x_0."""
    chain, states = diffusion.chain, states_of(diffusion.chain, DIM)
    x0, xt, rows = X0.repeat_interleave(len(states), 0), states.repeat(len(X0), 1), index_of(X0, chain.num_symbols)
    total = torch.zeros(len(X0), dtype=torch.float64)
    for k in range(1, steps + 1):
        law = kron([multiplied(written_out(type(chain), STATES, steps)[:k], chain.num_symbols)] * DIM)[rows]
        with torch.no_grad():
            values = step_divergence(diffusion, x0, t=times(k / steps, len(x0)), xt=xt).sum(1).reshape(law.shape)
        total += torch.where(law > 0, law * values, 0).sum(1)
    return total + torch.where(law > 0, law * (law / kron([chain.prior_law()] * DIM)).log(), 0).sum(1)


def deviations(estimates, truth):
    """How many standard errors the mean of many independent estimates is from the truth."""
    error = estimates.std(0) / math.sqrt(len(estimates))
    return float(((estimates.mean(0) - truth).abs() / (error + ROUNDING)).max())


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_terms_add_up_to_the_bound_over_all_trajectories_which_dominates_the_likelihood(kind, steps):
    diffusion = model(kind, steps=steps, seed=steps)
    exact = elbo(diffusion, steps)
    torch.testing.assert_close(terms_added_up(diffusion, steps), exact, rtol=1e-10, atol=ROUNDING)
    assert bool((exact > -generated_law(diffusion, steps).log() - ROUNDING).all())


@pytest.mark.parametrize(("steps", "num_times"), [(4, 32), (4, 8), (20, 24)])
def test_the_bound_has_the_mean_of_all_terms_whatever_the_number_of_times(kind, steps, num_times, at_full_speed):
    diffusion = model(kind, steps=steps)
    estimates = diffusion.bound(X0.repeat(300, 1), num_times, generator=seeded(0)).nats.reshape(300, -1)
    assert deviations(estimates, terms_added_up(diffusion, steps)) < 4


def test_two_standard_errors_of_the_mean_over_rows_cover_the_exact_bound(at_full_speed):
    diffusion = model(UniformChain, steps=20)
    truth, group = float(terms_added_up(diffusion, 20).mean()), len(X0) * 10
    estimate = diffusion.bound(X0.repeat(10 * 100, 1), 16, generator=seeded(0))
    means = [Bound(*(part[i : i + group] for part in estimate)).mean for i in range(0, len(estimate.nats), group)]
    assert 0.89 <= sum(abs(mean - truth) <= 2 * error for mean, error in means) / 100 <= 0.995


def test_in_one_dimension_the_oracle_s_bound_is_exact_up_to_the_start(kind, at_full_speed):
    """-log p(x_0) where the last step leaves nothing, and otherwise above the entropy by KL(q_N || prior)."""
    law = random_law(STATES, 1, seed=5)
    diffusion = oracle(kind, law, 1)
    nats = diffusion.bound(all_states(STATES, 1).repeat(400, 1), 8 * N, generator=seeded(0)).nats.reshape(400, STATES)
    if kind is AbsorbingChain:
        assert deviations(nats, -law.log()) < 4
    last = on_all_symbols(diffusion.chain, law, 1) @ multiplied(
        written_out(kind, STATES, N), diffusion.chain.num_symbols
    )
    gap = torch.where(last > 0, last * (last / diffusion.chain.prior_law()).log(), 0).sum()
    assert deviations(nats @ law, gap - law @ law.log()) < 4


def every_noised_row(diffusion, law):
    """Every x_0, k and x_k that can be, with its probability."""
    rows = []
    for k in range(1, N + 1):
        kernel = kron([diffusion.chain.transition(time_of(0), time_of(k))[0]] * DIM)
        states = states_of(diffusion.chain, DIM)
        weight = (law[:, None] * kernel[index_of(X0, diffusion.chain.num_symbols)]).flatten() / N
        rows.append((X0.repeat_interleave(len(states), 0), states.repeat(len(X0), 1), time_of(k, len(weight)), weight))
    x0, xt, t, weight = (torch.cat(part) for part in zip(*rows, strict=True))
    return x0[weight > 0], xt[weight > 0], t[weight > 0], weight[weight > 0]


@pytest.mark.parametrize("own", [False, True])
def test_the_oracle_minimises_the_loss(kind, own):
    chain = kind(STATES, N)
    truth = Oracle.from_joint(LAW.reshape(STATES, STATES))
    diffusion = D3PM(chain, TableModel(chain, DIM, scale=0.0, base=truth, sees_own_token=own))
    x0, xt, t, weight = every_noised_row(diffusion, LAW)

    def mean(loss):
        return weight @ loss(diffusion, x0, t=t, xt=xt).sum(1)

    for loss in (step_divergence, hybrid(0.5)):
        at_truth = mean(loss)
        (slope,) = torch.autograd.grad(at_truth, diffusion.model.table)
        assert float(slope.abs().max()) < ROUNDING
        with torch.no_grad():
            diffusion.model.table.add_(0.1 * torch.randn(slope.shape, generator=seeded(0), dtype=torch.float64))
            assert float(mean(loss)) > float(at_truth) + 1e-4
            diffusion.model.table.zero_()


def test_the_auxiliary_loss_is_the_denoiser_s_cross_entropy_and_0_leaves_it_out(kind):
    diffusion = model(kind)
    x0, xt, t, _ = every_noised_row(diffusion, LAW)
    terms, whole, plain = (loss(diffusion, x0, t=t, xt=xt) for loss in (step_divergence, hybrid(0.01), hybrid(0)))
    entropy = denoising_cross_entropy(diffusion, x0, t=t, xt=xt)
    torch.testing.assert_close(whole, terms + 0.01 * entropy, rtol=ROUNDING, atol=ROUNDING)
    assert torch.equal(plain, terms)


def test_the_first_term_is_minus_log_p_of_the_data(kind):
    diffusion = model(kind)
    noised = every_noised_row(diffusion, LAW)
    x0, xt, t, _ = (part[noised[2] == 1 / N] for part in noised)
    torch.testing.assert_close(
        step_divergence(diffusion, x0, t=t, xt=xt),
        -ancestral_laws(diffusion, xt, 1, 0).gather(-1, x0[..., None]).squeeze(-1).log(),
        rtol=1e-9,
        atol=ROUNDING,
    )


def test_under_absorbing_noise_the_terms_are_cross_entropies_of_what_is_hidden_over_the_step():
    diffusion = model(AbsorbingChain)
    x0, xt, t, _ = every_noised_row(diffusion, LAW)
    log_x0 = diffusion.marginals(xt, t).log_x0
    k = (t * N).round()[:, None]
    wanted = torch.where(xt == STATES, -log_x0.gather(-1, x0[..., None]).squeeze(-1) / k, 0)
    torch.testing.assert_close(step_divergence(diffusion, x0, t=t, xt=xt), wanted, rtol=1e-9, atol=ROUNDING)


# ---- what is given -------------------------------------------------------------------------------------------------


def test_given_positions_are_kept_and_the_samples_do_not_depend_on_the_batch(kind):
    diffusion, known = model(kind, dim=4), Condition.from_blanks(torch.tensor([2, -1, 0, -1]))
    x = diffusion.sample(7, generator=seeded(0), condition=known, steps=3)
    assert torch.equal(x[:, [0, 2]], torch.tensor([2, 0]).expand(7, -1))
    again = diffusion.sample(7, generator=seeded(0), condition=known, steps=3, batch_size=2)
    assert torch.equal(x, again)
    assert not torch.equal(x, diffusion.sample(7, generator=seeded(1), condition=known, steps=3))
    assert torch.equal(diffusion.sample(3, seed=4), diffusion.sample(3, seed=4, steps=N))


def test_with_a_position_given_the_bound_is_one_on_the_other_given_it(kind, at_full_speed):
    """For the oracle, whose chain is exact in one dimension, it is the data's own conditional where nothing is left."""
    diffusion = oracle(kind, LAW, DIM)
    given = torch.tensor([True, False]).expand(len(X0), -1)
    estimate = diffusion.bound(X0.repeat(60, 1), 8 * N, given=given.repeat(60, 1), generator=seeded(0))
    assert estimate.free.tolist() == [1] * 60 * len(X0)
    conditional = LAW.reshape(3, 3) / LAW.reshape(3, 3).sum(1, keepdim=True)
    gap = deviations(estimate.nats.reshape(60, -1), -conditional.log().flatten())
    assert gap < 4 or kind is not AbsorbingChain
    mean = estimate.nats.reshape(60, 3, 3).mean(0)
    assert bool(((conditional * mean).sum(1) > -(conditional * conditional.log()).sum(1) - 0.05).all())


def test_the_model_is_asked_at_the_chain_s_own_times():
    chain = UniformChain(STATES, N)
    watched = Watched(TableModel(chain, DIM))
    D3PM(chain, watched).sample(2, seed=0, steps=2)
    assert watched.times == [1.0, 0.5]


@pytest.mark.parametrize("network", [LeaveOneOut, Hollow])
def test_what_is_given_or_padding_leaves_the_loss_and_its_gradient(kind, network):
    """Also after the last absorbing step, which no given token could have survived."""
    torch.manual_seed(0)
    chain = kind(STATES, N)
    diffusion = D3PM(chain, network.for_process(chain, 3, width=8, layers=1, heads=2, mlp=8))
    x0 = torch.randint(STATES, (8, 3), generator=seeded(0))
    given, padding = (
        torch.tensor([[True, False, False]]).expand(8, -1),
        torch.tensor([[False, False, True]]).expand(8, -1),
    )
    t = time_of(1, 8).clone()
    t[4:] = 1
    values = hybrid(0.1)(diffusion, x0, t=t, given=given, padding=padding, generator=seeded(1))
    assert torch.equal(values[:, [0, 2]], torch.zeros(8, 2).to(values))
    assert bool((values[:, 1] >= 0).all())
    assert float(values[:, 1].sum().detach()) > 0
    values.sum().backward()
    slopes = [w.grad for w in diffusion.parameters() if w.grad is not None]
    assert all(bool(slope.isfinite().all()) for slope in slopes)
    assert sum(float(slope.abs().sum()) for slope in slopes) > 0


# ---- training ------------------------------------------------------------------------------------------------------


def rows(num, seed=0):
    """The third position repeats the first."""
    pairs = X0[torch.multinomial(LAW, num, replacement=True, generator=seeded(seed))]
    return torch.cat([pairs, pairs[:, :1]], dim=1)


def test_the_common_loop_trains_it_and_a_training_goes_on(kind, tmp_path, at_full_speed):
    data, held_out = rows(400), rows(60, 1)

    def trained(steps, out=None):
        torch.manual_seed(0)
        chain = kind(STATES, 10)
        fresh = D3PM(chain, LeaveOneOut.for_process(chain, 3, width=16, layers=1, heads=2, mlp=16))
        config = TrainingConfig(
            steps=steps,
            batch_size=64,
            learning_rate=1e-2,
            decay="constant",
            warmup=0,
            evaluate_every=100,
            known="mask:0",
        )
        learner = D3PMLearner(fresh, config, auxiliary=0.01, held_out=held_out)
        made = learn(learner, Epochs(data, 64), config, out=out, resume=out is not None, progress=False)
        return made, learner

    whole, learner = trained(100)
    trained(50, tmp_path)
    again, _ = trained(100, tmp_path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())
    with torch.no_grad():
        figures = learner.evaluate()
    assert {"held_out_loss", "bits_per_dim", "bits_standard_error"} == figures.keys()
    given = torch.tensor([True, False, False]).expand(60, -1)
    bits, error = whole.bound(held_out, 80, given=given, generator=seeded(0)).bits_per_dim
    assert bits + 3 * error < math.log2(3)  # that of a guess
    known = Condition.from_blanks(torch.tensor([1, -1, -1]))
    samples = whole.sample(200, seed=0, condition=known)
    assert float((samples[:, 2] == 1).double().mean()) > 0.6


def test_the_learner_s_loss_is_the_hybrid_one_at_steps_of_the_chain():
    diffusion = model(UniformChain)
    learner = D3PMLearner(diffusion, TrainingConfig(batch_size=8), auxiliary=0.3, known=Mask((0,)))
    drawn = learner.draw(Batch(X0[:8]), seeded(0))
    assert set((drawn.query.t * N).tolist()) == {1.0, 2.0, 3.0, 4.0}
    wanted = hybrid(0.3).at(diffusion, drawn)
    assert torch.equal(learner.losses(drawn), wanted.sum(-1))
    assert torch.equal(wanted[:, 0], torch.zeros(8).double())
    assert learner.identity()["auxiliary"] == 0.3
    assert "steps=4" in learner.identity()["chain"]


# ---- what does not fit ---------------------------------------------------------------------------------------------


def test_what_needs_rates_or_other_parts_is_refused(without_annotation_checks):
    chain = UniformChain(STATES, N)
    diffusion, gaussian = model(UniformChain), model(GaussianChain)
    for wrong, sentence in (
        (lambda: bound(diffusion, X0), "A chain of D3PM moves in steps, so that it has no rates"),
        (lambda: bound(gaussian, X0), "A chain of D3PM moves in steps"),
        (lambda: sample(gaussian, 2, 3, Euler(), grid=gaussian.chain.grid(3)), "A chain of D3PM moves in steps"),
        (lambda: D3PM(chain, TableModel(chain, DIM, implicit=False)), "D3PM needs a model that predicts x0"),
        (lambda: UniformChain(STATES, 0), "steps must be at least 1"),
        (lambda: GaussianChain(1), "num_states must be at least 2"),
        (lambda: hybrid(-1.0), "auxiliary must be at least 0"),
        (lambda: D3PMLearner(diffusion, TrainingConfig(loss="ct-elbo")), "D3PM has its own loss"),
        (lambda: D3PMLearner(diffusion, TrainingConfig(times="grid:7")), "D3PM has its own loss"),
        (lambda: step_divergence(diffusion, X0, pool=X0), "The loss of D3PM cannot take its mean over a pool"),
        (lambda: diffusion.bound(X0, 12), "num_times must be a multiple of 8"),
        (lambda: Staircase(torch.ones(2).double(), 0.0), "scale must be above 0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            wrong()
    for wrong in (lambda: D3PM(LAW, Certain(X0)), lambda: D3PMLearner(object(), TrainingConfig())):
        with pytest.raises(TypeError, match="must be an sddm"):
            wrong()
