"""Training a tokenizer: it learns, it goes on bit for bit where it was stopped, and it says what it measures."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from enumerated import seeded
from sddm.data import load
from sddm.errors import BadCheckpointError, StoppedError
from sddm.tokenizers import Perceptual
from sddm.tokenizers.config import TokenizerConfig
from sddm.tokenizers.learner import TokenizerLearner, fresh, squared_error, train_tokenizer
from sddm.tokenizers.vqgan import to_planes
from sddm.training import checkpoints
from sddm.training.optimizers import rate_at
from tiny_pictures import SIZES, dataset, pictures

CONFIG = TokenizerConfig(
    steps=12,
    batch_size=8,
    filters=SIZES.filters,
    multipliers=SIZES.multipliers,
    blocks=SIZES.blocks,
    codes=SIZES.codes,
    code_width=SIZES.code_width,
    save_every=4,
    log_every=2,
    evaluate_every=6,
    patience=2,
)
LEARNT = 5
"""The squared error of reconstructions is smaller than that of one grey, by this factor at least."""


@pytest.mark.usefixtures("at_full_speed")
def test_sixteen_pictures_are_learnt_by_heart():
    data = dataset(16)
    options = {"steps": 120, "batch_size": 16, "filters": 8, "learning_rate": 1e-2, "patience": 10, "ema": 0.9}
    config = replace(CONFIG, **options, adversarial_start=0.75)
    values = []
    tokenizer = train_tokenizer(data, config, report=lambda step, each: values.append(each), progress=False)
    shown = torch.from_numpy(pictures(16))
    spread = float((shown.double() / 255).var())
    error = squared_error(shown, tokenizer.decode(tokenizer.encode(shown)))
    assert error < spread / LEARNT
    assert values[-1]["loss"] < values[0]["loss"] / LEARNT
    assert [each["adversarial_factor"] > 0 for each in values] == [False] * 90 + [True] * 30
    assert values[0]["codes_replaced"] > 0


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def lines(folder):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def test_a_training_that_was_stopped_ends_as_if_it_had_not_been(tmp_path, without_annotation_checks):
    rows, apart = dataset().split(0.25, 0)
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    whole = train_tokenizer(rows, CONFIG, held_out=apart, out=straight, progress=False)

    def killed(step, values):
        if step == 6:  # the adversary has begun, and the newest checkpoint is two steps old
            raise StoppedError("killed", 9)

    with pytest.raises(StoppedError, match="killed"):
        train_tokenizer(rows, CONFIG, held_out=apart, out=stopped, progress=False, report=killed)
    assert checkpoints.newest(stopped / "checkpoints").step == 4
    again = train_tokenizer(rows, CONFIG, held_out=apart, out=stopped, progress=False, resume=True)
    assert all(torch.equal(again.state_dict()[name], value) for name, value in whole.state_dict().items())
    assert weights(straight).keys() == weights(stopped).keys()
    assert all(torch.equal(weights(stopped)[name], value) for name, value in weights(straight).items())
    assert lines(straight) == lines(stopped)
    states = [checkpoints.newest(folder / "checkpoints") for folder in (straight, stopped)]
    assert states[0].tensors.keys() == states[1].tensors.keys()
    assert all(torch.equal(states[1].tensors[name], value) for name, value in states[0].tensors.items())
    assert {"weights.revival.unused", "weights.discriminator.layers.0.weight"} <= states[0].tensors.keys()
    samples = [{path.name: path.read_bytes() for path in (f / "samples").iterdir()} for f in (straight, stopped)]
    assert samples[0] == samples[1]
    assert sorted(samples[0]) == ["step-000000006.png", "step-000000012.png"]


def perceptual():
    torch.manual_seed(0)
    return Perceptual()


def test_a_training_does_not_go_on_with_another_distance(tmp_path, without_annotation_checks):
    config = replace(CONFIG, steps=1, batch_size=2)
    values = []
    train_tokenizer(
        dataset(),
        config,
        perceptual=perceptual(),
        out=tmp_path,
        progress=False,
        report=lambda step, each: values.append(each),
    )
    assert values[0]["perceptual"] > 0
    with pytest.raises(BadCheckpointError, match="belongs to another run: there perceptual is"):
        train_tokenizer(dataset(), config, out=tmp_path, progress=False, resume=True)


def test_the_terms_of_the_loss_add_up_at_the_reconstructions():
    """The gradient that is passed on is that of all terms with their weights, and the factor of that moment."""
    config = replace(CONFIG, perceptual_weight=0.3, adversarial_weight=0.7)
    learner = TokenizerLearner(fresh(dataset(), config), config, perceptual())
    planes = to_planes(torch.from_numpy(pictures(2)))
    made = learner.tokenizer(planes).planes
    slope, values = learner._slope(planes, made, adversarial=True)
    leaf = made.detach().requires_grad_()
    loss = (leaf - planes).square().mean() + 0.3 * learner.perceptual(planes, leaf)
    loss = loss - 0.7 * values["adversarial_factor"] * learner.discriminator(leaf).mean()
    (expected,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(slope, expected)
    assert values["adversarial"] == pytest.approx(-float(learner.discriminator(leaf).mean().detach()), rel=1e-6)


def test_evaluation_says_how_near_reconstructions_come(without_annotation_checks):
    rows, apart = dataset().split(0.25, 0)
    learner = TokenizerLearner(fresh(rows, CONFIG), CONFIG, held_out=apart)
    figures = learner.evaluate()
    shown = torch.from_numpy(np.ascontiguousarray(apart.codec.decode(apart.tokens[:])))
    tokens = learner.tokenizer.encode(shown)
    error = ((learner.tokenizer.decode(tokens).double() - shown.double()) / 255).square().mean()
    assert figures["squared_error"] == pytest.approx(float(error), rel=1e-12)
    assert figures["psnr"] == pytest.approx(-10 * math.log10(float(error)), rel=1e-12)
    assert figures["codes_used"] == len(tokens.unique()) / SIZES.codes
    assert 1 <= figures["perplexity_held_out"] <= len(tokens.unique()) + 1e-9
    assert TokenizerLearner(fresh(rows, CONFIG), CONFIG).evaluate() == {}


def test_the_sheet_shows_pictures_above_their_reconstructions(tmp_path, without_annotation_checks):
    data = dataset(20)
    learner = TokenizerLearner(fresh(data, CONFIG), CONFIG, held_out=data)
    learner.show(tmp_path, 3)
    page = np.asarray(Image.open(tmp_path / "samples" / "step-000000003.png"))
    high, wide = (page.shape[0] + 2) // 4, (page.shape[1] + 2) // 8  # two rows of 8, each above its copies
    shown = torch.from_numpy(pictures(20))
    made = learner.tokenizer.decode(learner.tokenizer.encode(shown[:16])).numpy()
    for row, line in enumerate([shown[:8], made[:8], shown[8:16], made[8:]]):
        for column, picture in enumerate(line):
            corner = page[row * high, column * wide]
            assert corner.tolist() == picture[0, 0].tolist()


def test_the_same_seed_gives_the_same_network_and_torch_s_generator_is_unchanged():
    before = torch.get_rng_state()
    first, second = (fresh(dataset(), CONFIG).state_dict() for _ in range(2))
    other = fresh(dataset(), replace(CONFIG, seed=1)).state_dict()
    TokenizerLearner(fresh(dataset(), CONFIG), CONFIG)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["quantizer.codebook"], other["quantizer.codebook"])


def test_the_learning_rate_rises_and_falls_along_a_cosine():
    config = TokenizerConfig(steps=100, warmup=0.1)
    assert [config.rate_at(step) for step in (0, 4, 9)] == [0.1, 0.5, 1.0]
    assert config.rate_at(10) == 1
    assert config.rate_at(55) == pytest.approx(0.5, rel=1e-12)
    assert config.rate_at(99) == pytest.approx(0.5 * (1 + math.cos(math.pi * 89 / 90)), rel=1e-9)
    assert rate_at(5, 10, 0.0, "constant") == 1


def test_a_step_moves_the_average_towards_the_weights(without_annotation_checks):
    learner = TokenizerLearner(fresh(dataset(), CONFIG), CONFIG)
    start = learner.tokenizer.last_layer.detach().clone()
    learner.update(torch.from_numpy(pictures(8)), seeded(0))
    now = learner.tokenizer.last_layer.detach().clone()
    with learner.averaged():
        averaged = learner.tokenizer.last_layer.detach().clone()
    # after the first step the average keeps 1 / 10 of where it began (see sddm.training.ema)
    torch.testing.assert_close(averaged, start + 0.9 * (now - start))


def test_the_average_of_a_code_that_was_replaced_begins_anew(without_annotation_checks):
    config = replace(CONFIG, steps=100, warmup=0.0, patience=1)
    learner, steps = TokenizerLearner(fresh(dataset(), config), config), 5
    codebook = learner.tokenizer.quantizer.codebook
    for step in range(steps):
        before = codebook.detach().clone()
        values = learner.update(torch.from_numpy(pictures(8, seed=step)), seeded(step))
    now = codebook.detach().clone()
    with learner.averaged():
        same = (codebook.detach() == now).all(1)
    # Adam moves a number by about its learning rate; a code that was replaced is a feature, far from where it was.
    replaced = ((now - before).abs() > 100 * config.learning_rate).any(1)
    assert replaced.sum() == values["codes_replaced"] > 0
    assert torch.equal(same, replaced)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"filters": 0}, "filters must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"adversarial_start": 1.0}, r"adversarial_start must lie in \[0, 1\)"),
        ({"adversarial_weight": -1.0}, "adversarial_weight must be at least 0"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        TokenizerConfig(**options)


def test_data_that_are_no_pictures_and_odd_sizes_are_refused():
    with pytest.raises(ValueError, match=r"moons holds points, but a tokenizer is for pictures"):
        fresh(load("moons"), CONFIG)
    with pytest.raises(ValueError, match="Pictures of 8 x 8 pixels cannot be cut into patches of 16 x 16"):
        fresh(dataset(), replace(CONFIG, multipliers=(1, 1, 1, 1, 1)))


def test_a_damaged_checkpoint_is_passed_over(tmp_path, without_annotation_checks):
    rows, apart = dataset().split(0.25, 0)
    straight, other = tmp_path / "a", tmp_path / "b"
    train_tokenizer(rows, CONFIG, held_out=apart, out=straight, progress=False)
    shutil.copytree(straight, other)
    newest = checkpoints.paths(other / "checkpoints")[0]
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="Going on from the one before, step 8"):
        train_tokenizer(rows, CONFIG, held_out=apart, out=other, progress=False, resume=True)
    assert all(torch.equal(weights(other)[name], value) for name, value in weights(straight).items())
