"""The training loop and what it is told: configuration, learning rate, moving average."""

import dataclasses
import itertools
import math
import sys

import pytest
import torch
from torch import nn

from enumerated import oracle, seeded, uniform
from sddm import Diffusion, losses
from sddm.losses import Loss, conditional_ratio_matching, denoising_cross_entropy, x0_cross_entropy
from sddm.marginals import Energy, Hollow, LeaveOneOut, Masked
from sddm.training import EMA, TrainingConfig, train
from sddm.training import diffusion as diffusion_training
from sddm.training.batches import generator_of

DIM = 4
PROCESS = uniform()
SIZES = {"width": 8, "layers": 1, "heads": 2, "mlp": 16}


def tiny(seed=0, make=Energy.mlp, **sizes):
    torch.manual_seed(seed)
    return Diffusion(PROCESS, make(PROCESS, DIM, **(sizes or {"width": 16, "layers": 2})))


def copies(batch=32, seed=0):
    """Rows whose tokens are all the same: as strong a dependence as there can be."""

    def rows(step):
        return torch.randint(3, (batch, 1), generator=seeded(1000 * seed + step)).expand(-1, DIM).contiguous()

    return rows


def weights(diffusion):
    return torch.cat([w.detach().flatten() for w in diffusion.parameters()])


def run(diffusion=None, *, data_seed=0, noise_seed=0, steps=5, **options):
    config = TrainingConfig(steps=steps, batch_size=32, seed=noise_seed, **options.pop("config", {}))
    options = {"progress": False, **options}
    return train(tiny() if diffusion is None else diffusion, copies(seed=data_seed), config, **options)


# ---- the configuration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, but it is 0"),
        ({"steps": 10.0}, TypeError, "steps must be a whole number, but it is 10.0 of type float"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be above 0, but it is 0"),
        ({"learning_rate": -1e-3}, ValueError, "learning_rate must be above 0, but it is -0.001"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate must be finite, but it is nan"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate must be a number, but it is 'fast' of type str"),
        ({"clip": 0.0}, ValueError, "clip must be above 0, but it is 0"),
        ({"warmup": 1.0}, ValueError, r"warmup must lie in \[0, 1\), but it is 1.0"),
        ({"warmup": -0.1}, ValueError, r"warmup must lie in \[0, 1\), but it is -0.1"),
        ({"ema": 1.0}, ValueError, r"ema must lie in \[0, 1\), but it is 1.0"),
        ({"ema_share": 0.0}, ValueError, r"ema_share must lie in \(0, 1\], but it is 0.0"),
        ({"noise_weight": -0.1}, ValueError, r"noise_weight must lie in \[0, 2\], but it is -0.1"),
        ({"ema": -0.5}, ValueError, r"ema must lie in \[0, 1\), but it is -0.5"),
    ],
)
def test_a_configuration_says_what_is_wrong_with_it(without_annotation_checks, options, error, sentence):
    with pytest.raises(error, match=sentence):
        TrainingConfig(**options)


def test_a_configuration_cannot_be_changed_only_replaced():
    config = TrainingConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.steps = 3
    assert dataclasses.replace(config, steps=3).steps == 3
    with pytest.raises(ValueError, match="steps must be at least 1"):
        dataclasses.replace(config, steps=-3)


def test_the_learning_rate_rises_in_a_line_and_falls_in_a_cosine_to_zero():
    config = TrainingConfig(steps=1000, warmup=0.1)
    shares = [config.rate_at(step) for step in range(1001)]
    assert shares[:100] == pytest.approx([(step + 1) / 100 for step in range(100)])
    assert shares[100:] == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 900)) for step in range(901)])
    assert shares[99] == shares[100] == max(shares) == 1
    assert shares[1000] == 0
    assert min(shares[:1000]) > 0
    assert all(later < earlier for earlier, later in itertools.pairwise(shares[100:]))


@pytest.mark.parametrize("warmup", [0.0, 0.02, 0.99])
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_the_learning_rate_is_a_share_of_the_peak_at_every_step_of_any_run(steps, warmup):
    config = TrainingConfig(steps=steps, warmup=warmup)
    assert all(0 < config.rate_at(step) <= 1 for step in range(steps))
    assert max(config.rate_at(step) for step in range(steps)) == 1


def test_training_takes_each_step_at_the_learning_rate_of_the_curve(monkeypatch):
    used, step = [], torch.optim.AdamW.step

    def recorded(self, *arguments, **options):
        used.append(self.param_groups[0]["lr"])
        return step(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", recorded)
    config = {"learning_rate": 3e-3, "warmup": 0.25}
    run(steps=12, config=config)
    shares = [TrainingConfig(steps=12, **config).rate_at(i) for i in range(12)]
    assert used == pytest.approx([3e-3 * share for share in shares])


# ---- the moving average --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.999])
def test_the_moving_average_is_its_formula(decay, share):
    """shadow <- d * shadow + (1 - d) * weights, with d = min(decay, (1 + step) / (1 / share + step))."""
    module = nn.Linear(3, 2).double()
    average = EMA(module.parameters(), decay, share)
    shadow = weights(module).clone()
    generator = seeded(0)
    for step in range(30):
        with torch.no_grad():
            for weight in module.parameters():
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        average.update()
        d = min(decay, (1 + step) / (1 / share + step))
        shadow = d * shadow + (1 - d) * weights(module)
        with average.applied():
            torch.testing.assert_close(weights(module), shadow, rtol=1e-13, atol=1e-13)
    assert average.steps == 30


def test_the_average_of_a_constant_is_the_constant_and_the_module_is_left_alone():
    module = nn.Linear(3, 2)
    before = weights(module).clone()
    average = EMA(module.parameters(), 0.9)
    for _ in range(10):
        average.update()
    assert torch.equal(weights(module), before)
    with average.applied():
        torch.testing.assert_close(weights(module), before, rtol=0, atol=1e-6)
    assert torch.equal(weights(module), before)
    assert all(w.requires_grad for w in module.parameters())


def test_the_start_is_soon_forgotten():
    """After n updates the start has the weight prod (1 + i) / (10 + i) = 9! n! / (n + 9)!, however slow the decay."""
    module = nn.Linear(1, 1).double()
    with torch.no_grad():
        module.weight.fill_(1)
        average = EMA(module.parameters(), 0.9999)
        module.weight.fill_(0)
    for _ in range(20):
        average.update()
    expected = math.factorial(9) * math.factorial(20) / math.factorial(29)
    assert module.weight.item() == 0
    with average.applied():
        assert module.weight.item() == pytest.approx(expected, rel=1e-12)


# ---- the loop ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (Energy.mlp, {"width": 32, "layers": 2}),
        (Masked.for_process, SIZES),
        (Hollow.for_process, SIZES),
        (LeaveOneOut.for_process, SIZES),
    ],
    ids=["energy", "masked", "hollow", "leave-one-out"],
)
def test_training_lowers_the_loss_towards_that_of_the_oracle(make, sizes):
    diffusion = tiny(make=make, **sizes)
    loss = denoising_cross_entropy if diffusion.model.sees_own_token else conditional_ratio_matching
    law = torch.zeros(3**DIM, dtype=torch.float64)
    law[[0, 40, 80]] = 1 / 3  # 0000, 1111, 2222
    test = copies(2000, seed=9)(0)

    def average(some):
        """On the same rows, times and noise each time."""
        with torch.no_grad():
            return loss(some, test, generator=seeded(3)).sum(-1).double().mean().item()

    start, best = average(diffusion), average(oracle(PROCESS, law, DIM))
    trained = run(diffusion, steps=150, config={"learning_rate": 1e-2, "ema": 0.9})
    assert best < average(trained) < best + 0.5 * (start - best)


def test_training_reports_each_step_and_its_loss():
    heard = []
    noise = generator_of(0, "noise", 0)
    first = conditional_ratio_matching(tiny(), copies()(0), generator=noise).sum(-1).mean().item()
    run(steps=7, report=lambda step, value: heard.append((step, value)))
    assert [step for step, _ in heard] == list(range(7))
    assert heard[0][1] == pytest.approx(first, rel=1e-6)
    assert all(isinstance(value, float) and math.isfinite(value) for _, value in heard)


def test_the_same_seeds_give_the_same_weights():
    first, again = weights(run()), weights(run())
    assert torch.equal(first, again)
    assert not torch.equal(first, weights(run(noise_seed=1)))
    assert not torch.equal(first, weights(run(data_seed=1)))
    assert not torch.equal(first, weights(run(tiny(seed=1))))


def test_the_global_generator_is_left_as_it_was():
    torch.manual_seed(3)
    diffusion = tiny()
    before = torch.get_rng_state()
    run(diffusion)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_returns_averaged_weights_and_leaves_the_last_ones_in_place():
    """The average of the weights after each step, by the formula."""
    diffusion = tiny()
    start, path = weights(diffusion).double(), []
    returned = run(diffusion, steps=6, report=lambda step, value: path.append(weights(diffusion).double()))
    assert returned is not diffusion
    torch.testing.assert_close(weights(diffusion).double(), path[-1], rtol=0, atol=0)
    expected = start
    for step, point in enumerate(path):
        d = (1 + step) / (10 + step)
        expected = d * expected + (1 - d) * point
    torch.testing.assert_close(weights(returned).double(), expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(weights(returned), weights(diffusion))
    assert (returned.training, diffusion.training) == (False, True)
    assert repr(returned.process) == repr(diffusion.process)


class Heard(Loss):
    """A loss that remembers at what draws it was evaluated."""

    def __init__(self, loss):
        self.loss, self.calls = loss, []

    def at(self, diffusion, draws, weight=None):
        self.calls.append(draws)
        return self.loss.at(diffusion, draws, weight)


@pytest.fixture
def heard(monkeypatch):
    """Both losses that training chooses from."""
    both = {name: Heard(getattr(losses, name)) for name in ("conditional_ratio_matching", "denoising_cross_entropy")}
    for name, loss in both.items():
        monkeypatch.setattr(diffusion_training, name, loss)
    return {name: loss.calls for name, loss in both.items()}


@pytest.mark.parametrize("make", [Energy.for_process, Masked.for_process, Hollow.for_process])
def test_models_that_do_not_see_the_token_are_trained_by_conditional_ratio_matching(heard, make):
    run(tiny(make=make, **SIZES), steps=2)
    assert (len(heard["conditional_ratio_matching"]), len(heard["denoising_cross_entropy"])) == (2, 0)


def test_a_model_that_sees_the_token_is_trained_as_a_denoiser(heard):
    run(tiny(make=LeaveOneOut.for_process, **SIZES), steps=2)
    assert (len(heard["conditional_ratio_matching"]), len(heard["denoising_cross_entropy"])) == (0, 2)


def test_a_loss_that_is_passed_is_the_one_that_is_used(heard):
    run(steps=2, loss=x0_cross_entropy)
    assert heard == {"conditional_ratio_matching": [], "denoising_cross_entropy": []}


def test_a_loss_that_cannot_train_a_model_says_so():
    with pytest.raises(
        ValueError, match="conditional_ratio_matching needs a model whose prediction at d does not look"
    ):
        run(tiny(make=LeaveOneOut.for_process, **SIZES), loss=conditional_ratio_matching)


def test_the_number_of_positions_reaches_the_loss_and_each_step_has_its_own_noise(heard):
    run(steps=2, config={"num_positions": 2})
    first, second = heard["conditional_ratio_matching"]
    assert first.query.positions.shape == second.query.positions.shape == (32, 2)
    assert not torch.equal(first.query.t, second.query.t)


def test_a_gradient_is_scaled_down_to_the_norm_where_it_is_larger(monkeypatch):
    norms, step = [], torch.optim.AdamW.step

    def recorded(self, *arguments, **options):
        gradients = [w.grad.flatten() for group in self.param_groups for w in group["params"]]
        norms.append(torch.cat(gradients).norm().item())
        return step(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", recorded)
    run(steps=3, config={"clip": 1e-3})
    assert norms == pytest.approx([1e-3] * 3, rel=1e-2)  # clipping divides by the norm plus 1e-6
    norms.clear()
    run(steps=3, config={"clip": 1e6})
    assert min(norms) > 1e-2


def test_the_model_is_trained_with_dropout_on_and_returned_with_dropout_off():
    diffusion = tiny(make=Hollow.for_process, **SIZES, dropout=0.5).eval()
    modes = []
    hook = diffusion.model.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    returned = run(diffusion, steps=2)
    hook.remove()
    assert modes == [True, True]
    assert not any(module.training for module in returned.modules())


def test_a_run_asks_for_the_rows_of_each_step_once():
    asked, rows = [], copies()

    def batches(step):
        asked.append(step)
        return rows(step)

    train(tiny(), batches, TrainingConfig(steps=3, batch_size=32), progress=False)
    assert asked == [0, 1, 2]


# ---- the progress bar ----------------------------------------------------------------------------------------------


def test_a_progress_bar_is_shown_when_asked_for(capsys):
    run(steps=3, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training" in shown.err
    assert "3/3" in shown.err
    assert "loss=" in shown.err


@pytest.mark.parametrize("progress", [False, None])
def test_no_progress_bar_is_shown_when_not_asked_for_or_nobody_watches(capsys, progress):
    run(steps=3, progress=progress)
    assert capsys.readouterr() == ("", "")


def test_a_progress_bar_is_shown_to_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(steps=3, progress=None)
    assert "3/3" in capsys.readouterr().err
    run(steps=3, progress=False)
    assert capsys.readouterr().err == ""
