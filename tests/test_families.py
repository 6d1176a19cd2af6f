"""One conformance suite over every member of every family, from the tables alone: what is listed is tested.

Members are built from the names of what their constructors need, so that a new one needs no line here. What is special
to a family has tests of its own: schedules and processes against closed forms, models, codecs and baselines.
"""

import inspect
import json
import math
import statistics
from dataclasses import asdict

import pytest
import torch

from enumerated import ONE_WAY, seeded
from scripted import tiny_inception
from sddm import Condition, Diffusion, losses, sample
from sddm.codecs import Characters, Columns, Integers, Notes, Pixels
from sddm.config import build, describe
from sddm.diffusion import saved_types
from sddm.experiments import EXPERIMENTS
from sddm.experiments.runner import same_recipe
from sddm.losses import Loss
from sddm.marginals import MODELS, Masked
from sddm.metrics import FID, METRICS, MMD, inception
from sddm.networks import NETWORKS, Places, Sizes
from sddm.processes import PROCESSES, Uniform
from sddm.query import Query
from sddm.samplers import GRIDS, SAMPLERS
from sddm.schedules import SCHEDULES, Constant, LogSquare
from sddm.training import TrainingConfig, train
from sddm.training.optimizers import OPTIMIZERS

STATES, DIM = 3, 4
SMALL = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
T = torch.tensor([0.05, 0.3, 0.6, 0.95], dtype=torch.float64)
LOSSES = {name: value for name, value in vars(losses).items() if isinstance(value, Loss)}


def every(table):
    return pytest.mark.parametrize("name", table)


def needs(make):
    """The names of the arguments that have no default."""
    return [name for name, p in inspect.signature(make).parameters.items() if p.default is p.empty and p.kind < 2]


def schedule(name):
    return SCHEDULES[name](*[0.5, 1.5, 2.5][: len(needs(SCHEDULES[name]))])


def process(name="uniform"):
    values = {"num_states": STATES, "schedule": LogSquare(1.0), "rate_matrix": ONE_WAY}
    return PROCESSES[name](**{need: values[need] for need in needs(PROCESSES[name])}).leaving(0.1)


def model(name, process):
    torch.manual_seed(0)
    kind = MODELS[name]
    if hasattr(kind, "from_joint"):
        law = torch.rand([STATES] * DIM, generator=seeded(0), dtype=torch.float64)
        return kind.from_joint(law / law.sum())
    if "model" in needs(kind):
        return kind(Masked.for_process(process, length=DIM, **SMALL), [STATES] * DIM)
    return kind.for_process(process, length=DIM, **SMALL)


def tokens(num_symbols=STATES):
    return torch.randint(num_symbols, (len(T), DIM), generator=seeded(1))


# ---- schedules and processes ---------------------------------------------------------------------------------------


@every(SCHEDULES)
def test_the_rate_of_a_schedule_is_the_derivative_of_its_integral_and_what_is_scaled_is_both(name):
    made, t = schedule(name), T.clone().requires_grad_()
    integral = made.integral(0.0, t)
    (slope,) = torch.autograd.grad(integral.sum(), t)
    torch.testing.assert_close(slope, made.rate(T), rtol=1e-9, atol=0)
    torch.testing.assert_close(made.inverse(integral.detach()), T, rtol=1e-9, atol=0)
    torch.testing.assert_close(made.scaled(3.0).rate(T), 3 * made.rate(T), rtol=1e-12, atol=0)


@every(PROCESSES)
def test_the_transitions_of_a_process_are_laws_that_compose_and_its_push_and_likelihood_are_theirs(name):
    made = process(name)
    s, t = torch.zeros_like(T), T
    P, x = made.transition(s, t), tokens(made.num_symbols)
    torch.testing.assert_close(P.sum(-1), torch.ones(P.shape[:2], dtype=P.dtype))
    torch.testing.assert_close(made.transition(s, t / 3) @ made.transition(t / 3, t), P)
    p = torch.rand(len(T), DIM, made.num_symbols, generator=seeded(2), dtype=torch.float64)
    torch.testing.assert_close(made.push(p, s, t), p @ P)
    torch.testing.assert_close(made.likelihood(x, s, t), P.mT[torch.arange(len(T))[:, None], x])


# ---- networks ------------------------------------------------------------------------------------------------------


@every(NETWORKS)
def test_a_network_sees_tokens_and_time_takes_each_row_alone_and_is_built_again_from_what_is_saved(name):
    values = {
        "length": DIM,
        "num_tokens": STATES,
        "num_classes": STATES,
        "places": Places(DIM),
        "sizes": Sizes(**SMALL),
    }
    taken = {key: values[key] for key in values.keys() & inspect.signature(NETWORKS[name]).parameters.keys()}
    torch.manual_seed(0)
    network, query = NETWORKS[name](**taken), Query(tokens(), T)
    types = saved_types()
    again = build(describe(network, {kind: key for key, kind in types.items()}), types)
    again.load_state_dict(network.state_dict())
    with torch.no_grad():
        whole = network(query)
        assert torch.equal(again(query), whole)
        torch.testing.assert_close(network(query.rows(slice(1, 3))), whole[1:3])
        assert not torch.allclose(network(Query(query.xt, T.flip(0))), whole)
        for d in range(DIM):
            other = query.xt.clone()
            other[:, d] = (other[:, d] + 1) % STATES
            assert not torch.allclose(network(Query(other, T)), whole)


# ---- models --------------------------------------------------------------------------------------------------------


@every(MODELS)
@pytest.mark.parametrize("process_name", ["uniform", "absorbing"])
def test_a_model_predicts_laws_at_any_positions_and_hides_the_token_it_says_it_hides(name, process_name):
    made = process(process_name)
    diffusion = Diffusion(made, model(name, made)).eval()
    x = tokens(made.num_symbols)
    with torch.no_grad():
        whole = diffusion.marginals(x, T).log_xt.exp()
        torch.testing.assert_close(whole.sum(-1), torch.ones_like(whole[..., 0]))
        some = diffusion.marginals(x, T, torch.tensor([[2], [0], [3], [2]])).log_xt.exp()
        torch.testing.assert_close(some[:, 0], whole[torch.arange(4), [2, 0, 3, 2]])
        x[:, 1] = (x[:, 1] + 1) % made.num_symbols
        moved = diffusion.marginals(x, T).log_xt.exp()
    hidden = torch.allclose(moved[:, 1], whole[:, 1], rtol=0, atol=1e-6)
    assert hidden or diffusion.model.sees_own_token
    assert not torch.allclose(moved[:, 2], whole[:, 2], rtol=0, atol=1e-6)


# ---- losses --------------------------------------------------------------------------------------------------------


@every(LOSSES)
def test_a_loss_has_a_value_a_position_where_something_is_asked_and_a_finite_gradient(name):
    loss, made = LOSSES[name], process()
    diffusion = Diffusion(made, model("leave-one-out" if "denoising" in name else "hollow", made))
    x0, given = tokens(), torch.tensor([True, False, False, False]).expand(len(T), -1)
    padding = torch.arange(DIM) >= torch.tensor([4, 3, 4, 3])[:, None]
    options = {"t": T, "xt": made.noise(x0, T, seeded(3)), "given": given, "padding": padding}
    values = loss(diffusion, x0, **options)
    assert values.shape == x0.shape
    assert torch.equal(values[given | padding], torch.zeros(6))
    assert (values[~(given | padding)] != 0).all()
    weighted = loss(diffusion, x0, **options, weight=lambda t: 1 + t)
    torch.testing.assert_close(weighted, values * (1 + T.to(values.dtype))[:, None])
    values.sum().backward()
    assert all(torch.isfinite(w.grad).all() for w in diffusion.parameters() if w.grad is not None)


# ---- sampling ------------------------------------------------------------------------------------------------------


def able(name, process_name):
    """Whether a sampler takes a hollow model under this noise."""
    made = process(process_name)
    try:
        SAMPLERS[name]().check(Diffusion(made, model("hollow", made)))
    except ValueError:
        return False
    return True


NOISES = {name: [noise for noise in ("uniform", "absorbing") if able(name, noise)] for name in SAMPLERS}


@every(NOISES)
def test_a_sampler_takes_some_noise(name):
    assert NOISES[name]


@pytest.mark.parametrize(("name", "process_name"), [(name, noise) for name, able in NOISES.items() for noise in able])
def test_a_sampler_repeats_itself_at_any_batch_size_and_keeps_what_is_given(name, process_name, at_full_speed):
    made = process(process_name)
    diffusion = Diffusion(made, model("hollow", made))
    known = Condition.from_blanks(torch.tensor([1, -1, -1, 2]))

    def draw(seed, size):
        options = {"sampler": SAMPLERS[name](), "condition": known, "batch_size": size}
        return sample(diffusion, 5, steps=3, generator=seeded(seed), **options)

    first = draw(0, 5)
    assert torch.equal(first, draw(0, 2))
    assert not torch.equal(first, draw(1, 5))
    assert torch.equal(first[:, [0, 3]], torch.tensor([1, 2]).expand(5, -1))
    assert 0 <= int(first.min()) <= int(first.max()) < STATES


@every(GRIDS)
@pytest.mark.parametrize("schedule_name", SCHEDULES)
def test_a_grid_descends_from_noise_to_data_under_every_schedule(name, schedule_name):
    grid = GRIDS[name](Uniform(STATES, schedule(schedule_name)), 7)
    assert (len(grid), float(grid[0]), float(grid[-1])) == (8, 1.0, 0.0)
    assert bool((grid[1:] < grid[:-1]).all())


# ---- training and experiments --------------------------------------------------------------------------------------


@every(OPTIMIZERS)
def test_an_optimizer_learns(name, at_full_speed):
    """Rows whose tokens are all the same: in the end the loss is below that of a model that knows nothing."""
    made, heard = Uniform(STATES, Constant(1.0)).leaving(0.1), []

    def rows(step):
        return torch.randint(STATES, (32, 1), generator=seeded(step)).expand(-1, DIM).contiguous()

    config = TrainingConfig(steps=60, batch_size=32, learning_rate=1e-2, optimizer=name)
    diffusion = Diffusion(made, model("hollow", made))
    train(diffusion, rows, config, progress=False, report=lambda _, loss: heard.append(loss))
    last = heard[-10:]
    assert statistics.mean(last) + 4 * statistics.stdev(last) / math.sqrt(len(last)) < DIM * math.log(STATES)


@every(EXPERIMENTS)
def test_an_experiment_has_cells_of_different_names_and_recipes_that_are_recognised_once_saved(name):
    experiment = EXPERIMENTS[name]("small")
    names = [cell.name for cell in experiment.cells()]
    assert len(names) == len(set(names)) > 0
    for cell in experiment.cells():
        recipe = experiment.recipe(cell)
        assert same_recipe(json.loads(json.dumps(asdict(recipe))), recipe)


# ---- metrics -------------------------------------------------------------------------------------------------------

EXAMPLES = {
    "numbers": (Integers(3), 4),
    "molecules": (Characters("CNO", padded=False), 4),
    "a table": (Columns(["left", "right"], [["a", "b", "c"]] * 2), 2),
    "a melody": (Notes(), 32),
    "four voices": (Notes(voices=4), 128),
    "pictures": (Pixels(2, 2, channels=1, levels=4), 4),
}
"""A codec, and how many positions its rows have."""


@every(METRICS)
def test_a_metric_is_one_finite_number_for_some_codec_whatever_the_order_of_the_rows(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path))
    monkeypatch.setenv(inception.VARIABLE, str(tiny_inception(tmp_path)))
    metric = METRICS[name]
    suited = [one for one in EXAMPLES.values() if isinstance(one[0], metric.codec) and metric.suits(one[0])]
    assert suited
    for codec, length in suited:
        num = min(40, max(20, metric.rows))  # of FID fewer than it asks for, whose noise does not matter here
        samples, data = (torch.randint(codec.num_states, (num, length), generator=seeded(seed)) for seed in (4, 5))
        values = [metric.measure(*rows, codec) for rows in ((samples, data), (samples.flip(0), data.flip(0)))]
        first, again = (float(value.value if isinstance(value, (MMD, FID)) else value) for value in values)
        assert math.isfinite(first)
        assert again == pytest.approx(first, rel=1e-9, abs=1e-12)
