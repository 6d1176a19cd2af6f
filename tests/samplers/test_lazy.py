"""Steps that ask the model only where a position may move, against exact laws on small spaces."""

import pytest
import torch

from enumerated import (
    UNLIKELY,
    TableModel,
    Watched,
    absorbing,
    analytical_laws,
    euler_laws,
    fit,
    one_way,
    seeded,
    states_of,
    times,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.marginals import MarginalModel, Marginals
from sddm.processes import Uniform
from sddm.query import Query
from sddm.randomness import Stream
from sddm.samplers import Analytical, Euler, Lazy, Sweep, lazy
from sddm.samplers.lazy import move_or_stay
from sddm.schedules import LogSquare

STEPS = {"analytical": (Analytical(), analytical_laws), "euler": (Euler(), euler_laws)}
PROCESSES = {"uniform": uniform, "absorbing": absorbing, "one way": one_way}


def watched(process, dim, by_position):
    model = Watched(TableModel(process, dim))
    model.by_position = by_position
    return Diffusion(process, model)


@pytest.mark.parametrize("make", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize(("t", "s"), [(0.5, 0.45), (0.5, 0.1), (0.1, 0.0)])
def test_a_lazy_step_has_the_law_of_the_step(make, name, by_position, t, s):
    diffusion, (step, laws_of) = watched(make(), 2, by_position), STEPS[name]
    assert fit(diffusion, Lazy(step), laws_of(diffusion, t, s, 2), t, s, 2, each=3000) > UNLIKELY


@pytest.mark.parametrize("make", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(("t", "s"), [(1.0, 0.9), (0.5, 0.45), (0.5, 0.1), (0.02, 0.0)])
def test_no_model_of_x0_leaves_a_value_more_often_than_the_process_allows(make, name, t, s):
    process = make()
    step, laws_of = STEPS[name]
    most = step.most(process, times(t, 1), times(s, 1))[0]
    for seed in range(5):
        diffusion = Diffusion(process, TableModel(process, 2, scale=4.0, seed=seed))
        states = states_of(process, 2)
        stays = laws_of(diffusion, t, s, 2).gather(-1, states[..., None]).squeeze(-1)
        assert bool((1 - stays <= most[states] + 1e-9).all())


@pytest.mark.parametrize("name", STEPS)
def test_single_positions_are_asked_for_and_the_more_steps_the_smaller_the_share(name):
    process, shares = Uniform(2, LogSquare(1.0)).leaving(0.02), []
    for steps in (20, 200):
        diffusion = watched(process, 8, by_position=True)
        sample(diffusion, 64, steps, Lazy(STEPS[name][0]), generator=seeded(0))
        asked = [call["positions"] for call in diffusion.model.asked]
        assert min(positions.shape[1] for positions in asked if positions is not None) == 1
        shares.append(sum(64 * 8 if p is None else p.numel() for p in asked) / (64 * 8 * steps))
    assert shares[0] < 0.5
    assert shares[1] < 0.1


@pytest.mark.parametrize(("name", "num", "batch"), [("analytical", 6, 1), ("analytical", 60, 60), ("euler", 60, 60)])
def test_rows_with_as_many_positions_go_together_and_nothing_else_changes(monkeypatch, name, num, batch):
    process, drawn, rows = Uniform(2, LogSquare(1.0)).leaving(0.02), [], []
    for together in (0, 2, 10**9):
        monkeypatch.setattr(lazy, "TOGETHER", together)
        diffusion = watched(process, 8, by_position=True)
        drawn.append(sample(diffusion, num, 25, Lazy(STEPS[name][0]), generator=seeded(0), batch_size=batch))
        rows.append(sum(len(call["xt"]) for call in diffusion.model.asked))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])
    assert rows[0] <= rows[1] < rows[2]


def test_of_a_model_that_sees_all_positions_at_once_only_the_rows_where_one_may_move_are_asked_for():
    process = Uniform(2, LogSquare(1.0)).leaving(0.02)
    diffusion = watched(process, 2, by_position=False)
    sample(diffusion, 100, 200, Lazy(), generator=seeded(0))
    assert all(call["positions"] is None for call in diffusion.model.asked)
    assert sum(len(call["xt"]) for call in diffusion.model.asked) < 0.2 * 100 * 200


@pytest.mark.parametrize("by_position", [False, True])
def test_given_positions_are_never_asked_for_and_stay(by_position):
    condition = Condition(torch.tensor([True, False, True, False]), torch.tensor([2, 0, 1, 0]))
    diffusion = watched(uniform(), 4, by_position)
    x = sample(diffusion, 50, 30, Lazy(), condition=condition, generator=seeded(0))
    assert bool((x[:, [0, 2]] == torch.tensor([2, 1])).all())
    for call in diffusion.model.asked:
        assert bool(call["given"].any())
        if call["positions"] is not None and call["positions"].shape[1] == 1:
            assert bool((call["positions"] % 2 == 1).all())


def test_the_batch_does_not_matter():
    diffusion = watched(uniform(), 4, by_position=True)
    whole, *parts = (sample(diffusion, 16, 20, Lazy(), generator=seeded(0), batch_size=n) for n in (16, 7, 1))
    assert all(torch.equal(whole, part) for part in parts)


class Certain(MarginalModel):
    """A model of x_t that is certain of a value, more than any law that has been noised can be."""

    length, implicit, by_position = 1, False, True

    def forward(self, process, query):
        log_p = torch.tensor([-50.0, 0.0], dtype=torch.float64)
        return Marginals(log_p.expand(*query.xt.shape, 2))


@pytest.mark.parametrize("name", STEPS)
def test_more_certainty_than_noise_allows_is_cut_off(name):
    process, num, step = uniform(0.1, num_states=2), 40_000, STEPS[name][0]
    x, t, s = torch.zeros(num, 1, dtype=torch.int64), times(0.5, num), times(0.45, num)
    moved = float(Lazy(step)(Diffusion(process, Certain()), Query(x, t), s, Stream(seeded(0))).double().mean())
    most = float(step.most(process, t[:1], s[:1])[0, 0])
    assert most < 0.5
    assert moved == pytest.approx(most, abs=4 * (most * (1 - most) / num) ** 0.5)


def test_a_move_is_drawn_with_the_weights_of_the_other_values():
    weights, num = torch.tensor([2.0, 5.0, 0.0, 3.0]), 10_000
    u = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    drawn = move_or_stay(weights.expand(num, 4), torch.full((num,), 1), u)
    assert torch.bincount(drawn, minlength=4).tolist() == pytest.approx([2000, 5000, 0, 3000], abs=1)


def test_a_prediction_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="The model predicts NaN"):
        move_or_stay(torch.full((1, 2), torch.nan), torch.tensor([0]), torch.tensor([0.5], dtype=torch.float64))


def test_only_a_step_of_one_draw_can_be_lazy(without_annotation_checks):
    with pytest.raises(TypeError, match=r"step must be Analytical\(\) or Euler\(\), but it is Sweep"):
        Lazy(Sweep())
