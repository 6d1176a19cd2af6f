"""Targets averaged over a pool of data: their laws against brute force, the mean of each loss against the plain one."""

import pytest
import torch

from enumerated import (
    ROUNDING,
    absorbing,
    all_states,
    one_way,
    process_named,
    random_law,
    seeded,
    table,
    times,
    transition,
    uniform,
)
from sddm import Diffusion, pool
from sddm.data import Toy
from sddm.losses import (
    conditional_ratio_matching,
    ct_elbo,
    denoising_cross_entropy,
    ratio_matching,
    x0_cross_entropy,
)
from sddm.marginals import Energy
from sddm.noising import Batch, noise_batch
from sddm.training import DiffusionLearner, TrainingConfig, train

DIM = 3
POOL = torch.tensor([[0, 1, 2], [0, 1, 1], [2, 2, 0], [0, 0, 0], [1, 1, 2]])
LINEAR = [conditional_ratio_matching, x0_cross_entropy, denoising_cross_entropy]
"""Losses that are linear in the law of x_0^d."""


@pytest.fixture(params=[uniform, one_way, lambda: process_named("birth-death")], ids=["uniform", "one-way", "ordinal"])
def process(request):
    return request.param()


@pytest.fixture(autouse=True)
def _double(request):
    """Targets are computed in the default precision, and held against exact sums here."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def rows_and_noised(process, t):
    """Every row of the pool with every x_t, and the probability of the pair if each row is as likely."""
    xt = all_states(process.num_symbols, DIM)
    index = (POOL * process.num_symbols ** torch.arange(DIM - 1, -1, -1)).sum(1)
    joint = transition(process, DIM, 0, t)[index] / len(POOL)
    rows = torch.arange(len(POOL)).repeat_interleave(len(xt))
    return POOL[rows], xt.repeat(len(POOL), 1), joint.flatten()


@pytest.mark.parametrize("t", [0.02, 0.4, 1.0])
def test_the_posterior_is_that_of_the_row_that_was_noised(process, t):
    _, _, joint = rows_and_noised(process, t)
    joint = joint.view(len(POOL), -1)
    weights = joint / joint.sum(0)  # p(row i | x_t)
    xt = all_states(process.num_symbols, DIM)
    law = pool.posterior(process, xt, times(t, len(xt)), POOL)
    for d in range(DIM):
        for c in range(process.num_states):
            torch.testing.assert_close(law[:, d, c], weights[POOL[:, d] == c].sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("t", [0.02, 0.4, 1.0])
def test_without_its_own_token_the_posterior_is_that_given_the_other_positions(process, t):
    xt = all_states(process.num_symbols, DIM)
    law = pool.without_own_token(process, pool.posterior(process, xt, times(t, len(xt)), POOL), xt, times(t, len(xt)))
    single = process.transition(times(0, 1), times(t, 1))[0]
    for d in range(DIM):
        others = [e for e in range(DIM) if e != d]
        weights = torch.stack([single[POOL[:, e]][:, xt[:, e]] for e in others]).prod(0)
        weights = weights / weights.sum(0)
        expected = torch.stack([weights[POOL[:, d] == c].sum(0) for c in range(process.num_states)], dim=-1)
        torch.testing.assert_close(law[:, d, : process.num_states], expected, rtol=1e-9, atol=1e-12)
        moved = xt.clone()
        moved[:, d] = (moved[:, d] + 1) % process.num_states
        law_moved = pool.without_own_token(
            process, pool.posterior(process, moved, times(t, len(xt)), POOL), moved, times(t, len(xt))
        )
        torch.testing.assert_close(law_moved[:, d], law[:, d], rtol=1e-9, atol=1e-12)


def mean_and_gradients(loss, diffusion, t, rows):
    """The exact mean of the loss over rows of the pool and their noise, its gradient, and the gradient's variance."""
    x0, xt, weight = rows_and_noised(diffusion.process, t)
    values = loss(diffusion, x0, t=times(t, len(x0)), xt=xt, pool=rows).sum(-1)
    gradients = torch.stack(
        [torch.autograd.grad(v, diffusion.model.table, retain_graph=True)[0].flatten() for v in values]
    )
    mean = weight @ gradients
    return float(weight @ values.detach()), mean, float((weight @ (gradients - mean).square()).sum())


@pytest.mark.parametrize("loss", LINEAR, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("t", [0.1, 0.6])
def test_the_pool_keeps_the_mean_and_its_gradient_and_takes_variance_away(process, loss, t):
    """The tower rule: the posterior is the mean of the target given x_t and the pool."""
    diffusion = table(process, DIM, sees_own_token=loss is denoising_cross_entropy)
    plain, pooled = (mean_and_gradients(loss, diffusion, t, rows) for rows in (None, POOL))
    assert pooled[0] == pytest.approx(plain[0], rel=1e-9)
    torch.testing.assert_close(pooled[1], plain[1], rtol=1e-9, atol=ROUNDING)
    assert pooled[2] < plain[2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("t", [0.0, 1e-9, 1e-5])
def test_without_noise_rows_that_agree_everywhere_else_share_a_position(process, t, dtype):
    torch.set_default_dtype(dtype)
    now = times(t, len(POOL))
    law = pool.without_own_token(process, pool.posterior(process, POOL, now, POOL), POOL, now)
    expected = torch.zeros(len(POOL), DIM, process.num_symbols)
    for i, row in enumerate(POOL):
        for d in range(DIM):
            others = [e for e in range(DIM) if e != d]
            alike = POOL[(POOL[:, others] == row[others]).all(1)]
            expected[i, d] = torch.bincount(alike[:, d], minlength=process.num_symbols) / len(alike)
    torch.testing.assert_close(law, expected, rtol=0, atol=1e-3)


def test_a_pool_of_the_one_row_changes_nothing(process):
    x0, xt, _ = rows_and_noised(process, 0.5)
    diffusion = table(process, DIM)
    for row in POOL:
        mine = (x0 == row).all(1)
        t = times(0.5, int(mine.sum()))
        values = [
            conditional_ratio_matching(diffusion, x0[mine], t=t, xt=xt[mine], pool=rows) for rows in (None, row[None])
        ]
        torch.testing.assert_close(*values, rtol=1e-9, atol=1e-12)


def test_under_much_noise_the_targets_of_a_large_pool_have_little_of_their_noise_left():
    """32 bits, of which a tenth is left, and 512 rows: measured, less than a hundredth of the variance remains."""
    toy, process = Toy("8gaussians"), uniform(num_states=2)
    rows, many = toy.tokens(512, seeded(0)), toy.tokens(20_000, seeded(1))
    t = times(1.0, 512)
    xt = process.noise(rows, t, generator=seeded(2))

    def law(data):
        return pool.without_own_token(process, pool.posterior(process, xt, t, data), xt, t)[..., 1]

    truth = law(many)
    own, pooled = rows.double(), law(rows)
    assert (pooled - truth).square().mean() < 0.01 * (own - truth).square().mean()


def test_pieces_of_a_batch_are_scored_as_the_whole(process, monkeypatch):
    x0, xt, _ = rows_and_noised(process, 0.3)
    t = torch.linspace(0, 1, len(x0), dtype=torch.float64)
    whole = pool.posterior(process, xt, t, POOL)
    monkeypatch.setattr(pool, "CHUNK_ELEMENTS", 4 * len(POOL))
    torch.testing.assert_close(pool.posterior(process, xt, t, POOL), whole)
    diffusion = table(process, DIM)
    draws = noise_batch(diffusion, Batch(x0), t=t, xt=xt, pool=POOL, num_positions=2, generator=seeded(0))
    pieces = [conditional_ratio_matching.at(diffusion, draws.rows(slice(i, i + 50))) for i in range(0, len(x0), 50)]
    torch.testing.assert_close(torch.cat(pieces), conditional_ratio_matching.at(diffusion, draws))


def test_targets_of_the_whole_support_are_the_truth():
    """Where the pool is the data's law itself, the loss of x_t does not depend on the row that was noised."""
    process, law = uniform(), random_law(3, 2, seed=0)
    diffusion, states = table(process, 2), all_states(3, 2)
    rows = states.repeat_interleave((law * 400).round().long().clamp_min(1), dim=0)
    xt = states[:1].expand(len(states), -1)
    values = conditional_ratio_matching(diffusion, states, t=times(0.5, len(states)), xt=xt, pool=rows)
    torch.testing.assert_close(values, values[:1].expand_as(values))


@pytest.mark.parametrize("loss", [ratio_matching, ct_elbo], ids=lambda loss: loss.__name__)
def test_losses_that_are_not_linear_in_the_target_refuse_a_pool(loss):
    with pytest.raises(ValueError, match=rf"{loss.__name__} cannot take its mean over a pool\."):
        loss(table(uniform(), DIM), POOL, pool=POOL)


def test_bad_pools_are_refused(without_annotation_checks):
    diffusion = table(uniform(), DIM)
    with pytest.raises(ValueError, match="pool"):
        conditional_ratio_matching(diffusion, POOL, pool=POOL + 1)
    with pytest.raises(ValueError, match="pool"):
        conditional_ratio_matching(diffusion, POOL, pool=POOL[:, :2])
    with pytest.raises(ValueError, match="Leave out given, padding and labels, or the pool"):
        conditional_ratio_matching(diffusion, POOL, pool=POOL, given=POOL == 0)
    with pytest.raises(ValueError, match="pool needs a process under which every value can become every other"):
        conditional_ratio_matching(table(absorbing(), DIM), POOL, pool=POOL)


# ---- in training -----------------------------------------------------------------------------------------------------


def energy():
    torch.manual_seed(0)
    process = uniform(num_states=2)
    return Diffusion(process, Energy.mlp(process, 6, implicit=False, width=8))


def bits(num, seed=0):
    return torch.randint(2, (num, 6), generator=seeded(seed))


def gradients_after(config, rows):
    learner = DiffusionLearner(energy(), config)
    learner.update(rows, seeded(0))
    return learner.diffusion.model.network.first.weight.grad


def test_a_step_noises_batch_size_rows_of_the_pool():
    rows, config = bits(32), TrainingConfig(1, 8, pool=32)
    whole = gradients_after(config, rows)
    in_pieces = gradients_after(TrainingConfig(1, 8, pool=32, accumulate=4), rows)
    torch.testing.assert_close(in_pieces, whole)
    changed = rows.clone()
    changed[8:] = 1 - changed[8:]
    assert not torch.equal(gradients_after(config, changed), whole)  # the others are seen


def test_training_on_a_table_takes_its_pool_from_the_table():
    seen = []
    train(
        energy(), bits(40), TrainingConfig(3, 4, pool=16), progress=False, report=lambda step, loss: seen.append(loss)
    )
    assert len(seen) == 3
    assert all(0 < loss < 100 for loss in seen)


def test_a_pool_smaller_than_the_batch_is_refused():
    with pytest.raises(ValueError, match=r"pool must be .*at least 8"):
        TrainingConfig(1, 8, pool=4)


def test_noise_weight_counts_times_of_much_noise_more():
    """1 / a^2 at the share a of the data that is left; 0 is the plain loss."""
    rows = bits(8)
    losses = {}
    for weight in (0.0, 2.0):
        learner = DiffusionLearner(energy(), TrainingConfig(1, 8, noise_weight=weight))
        drawn = learner.draw(rows, seeded(3))
        losses[weight] = learner.losses(drawn)
        share = learner.diffusion.process.remaining(drawn.query.t)
    torch.testing.assert_close(losses[2.0], losses[0.0] / share**2)
