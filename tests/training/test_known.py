"""Training inputs: what is known of each row, its length and class, the times of noise, and the learning rate."""

import json

import pytest
import torch
from torch import nn

import sddm
from enumerated import draw_states, oracle, random_law, seeded, uniform
from sddm.cli import main
from sddm.codecs import Integers
from sddm.data import Dataset
from sddm.marginals import Energy, Hollow, LeaveOneOut, MarginalModel
from sddm.noising import Batch
from sddm.training import (
    DiffusionLearner,
    Mask,
    Mixture,
    Nothing,
    OnGrid,
    Prefix,
    Scattered,
    Spans,
    Stratified,
    TrainingConfig,
    train,
)
from sddm.training.config import known_from_text
from sddm.training.rules import KNOWN

LENGTH, ROWS = 6, 20_000
SIZES = {"width": 8, "layers": 1, "heads": 2, "mlp": 16}
POSITION = torch.arange(LENGTH, dtype=torch.float64)

FREQUENCIES = {
    Nothing(): 0 * POSITION,
    Prefix(): (LENGTH - 1 - POSITION) / LENGTH,
    Prefix(2): (POSITION < 2).double(),
    Prefix(2, 4): torch.tensor([3, 3, 2, 1, 0, 0]) / 3,
    Spans(2): 0 * POSITION + 1 / 2,
    Spans(4): 0 * POSITION + 1 / 2,
    # Where all would be known, one of them is left out: p - p^L / L, for a given p and for the mean over p in [0, 1].
    Scattered(0.6): 0 * POSITION + 0.6 - 0.6**LENGTH / LENGTH,
    Scattered(): 0 * POSITION + 1 / 2 - 1 / (LENGTH + 1) / LENGTH,
    Mask((1, 4)): torch.tensor([0, 1, 0, 0, 1, 0]).double(),
    Mixture((Prefix(2), Mask((1, 4))), (1.0, 3.0)): torch.tensor([1, 4, 0, 0, 3, 0]) / 4,
}
"""How often each position is known."""


@pytest.mark.parametrize("rule", FREQUENCIES, ids=repr)
def test_each_position_is_known_as_often_as_the_rule_says_and_never_are_all(rule):
    rule.check(LENGTH)
    known = rule.draw(ROWS, LENGTH, seeded(0))
    frequencies = FREQUENCIES[rule].double()
    error = (frequencies * (1 - frequencies) / ROWS).sqrt()
    assert bool(((known.double().mean(0) - frequencies).abs() <= 4.5 * error).all())
    assert not bool(known.all(1).any())
    assert torch.equal(known, rule.draw(ROWS, LENGTH, seeded(0)))
    rows_differ = bool((known != known[0]).any())
    assert rows_differ == (not isinstance(rule, (Nothing, Mask)) and rule != Prefix(2))


def test_all_kinds_are_tested():
    kinds = {type(rule) for rule in FREQUENCIES}
    assert {type(known_from_text(name if name != "mask" else "mask:0")) for name in KNOWN} | {Mixture} == kinds


@pytest.mark.parametrize("pieces", [2, 3, 6])
def test_spans_alternate_as_often_as_there_are_pieces(pieces):
    known = Spans(pieces).draw(200, LENGTH, seeded(1))
    assert bool(((known[:, 1:] != known[:, :-1]).sum(1) == pieces - 1).all())


def test_a_text_names_each_rule():
    texts = {
        "nothing": Nothing(),
        "prefix": Prefix(),
        "prefix:32": Prefix(32),
        "prefix:8:64": Prefix(8, 64),
        "scattered:0.25": Scattered(0.25),
        "mask:0-3,9": Mask((0, 1, 2, 3, 9)),
        "mask:1-9/4": Mask((1, 5, 9)),
        "nothing@2+prefix+spans:5@0.5": Mixture((Nothing(), Prefix(), Spans(5)), (2.0, 1.0, 0.5)),
    }
    assert {text: known_from_text(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"known": "suffix"}, "known must be one of nothing, prefix, spans, scattered, mask, but it is 'suffix'"),
        ({"known": "prefix:1:2:3"}, "known is 'prefix:1:2:3', but prefix takes other numbers"),
        ({"known": "prefix:x"}, "known is 'prefix:x'"),
        ({"known": "prefix:5:2"}, "most of a known prefix must be at least 5, but it is 2"),
        ({"known": "spans:1"}, "pieces of known spans must be at least 2, but it is 1"),
        ({"known": "scattered:1.5"}, "share of known positions must lie between 0 and 1, but it is 1.5"),
        ({"known": "mask:a-b"}, "A known mask is given by positions and ranges"),
        ({"known": "mask:7-3"}, "names no position"),
        ({"known": "prefix+spans@0"}, "a weight after @ must be a number above 0"),
        ({"known": "prefix@much"}, "a weight after @ must be a number above 0"),
        ({"known": "prefix", "pool": 64}, "pool: its targets are for whole rows. Leave out known, or the pool"),
        ({"times": "grid"}, "times is 'grid', but grid takes other numbers"),
        ({"times": "grid:0"}, "number of times must be at least 1, but it is 0"),
        ({"times": "uniform:1"}, r"The lowest time must lie in \[0, 1\), but it is 1"),
        ({"decay": "step"}, "decay must be one of cosine, linear, constant, but it is 'step'"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_a_sentence(without_annotation_checks, options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        TrainingConfig(**options)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (Prefix(LENGTH), "6 positions of a row cannot be known when it has 6"),
        (Spans(LENGTH + 1), "Known spans need 7 pieces, but rows have 6 positions only"),
        (Mask((LENGTH,)), "names position 6, but rows have positions 0 to 5"),
        (Mixture((Nothing(), Mask(tuple(range(LENGTH)))), (1.0, 1.0)), "nothing would be left to learn"),
    ],
)
def test_a_rule_that_does_not_fit_the_rows_is_refused_before_training(rule, sentence):
    with pytest.raises(ValueError, match=sentence):
        sddm.fit(torch.randint(3, (20, LENGTH), generator=seeded(0)), known=rule, steps=1, **SIZES)


def test_an_energy_that_cannot_be_told_what_is_known_is_refused():
    diffusion = sddm.Diffusion(uniform(), Energy.mlp(uniform(), LENGTH, width=8))
    with pytest.raises(ValueError, match="an MLP energy cannot be told which positions are known"):
        train(diffusion, torch.zeros(4, LENGTH, dtype=torch.int64), TrainingConfig(1, 4), known=Prefix(2))


# ---- what a step learns from ---------------------------------------------------------------------------------------


class Nudged(MarginalModel):
    """An oracle whose logits are moved in each row, by numbers, and by numbers times how many known tokens are c."""

    def __init__(self, model, told, rows, dim, states):
        super().__init__()
        self.model, self.told, self.length, self.implicit = model, told, dim, True
        self.nudges = nn.Parameter(torch.zeros(2, rows, dim, states, dtype=torch.float64))

    def forward(self, process, query):
        told = query if self.told else query._replace(given=None)
        held = nn.functional.one_hot(query.xt, process.num_states).double() * query.given[..., None]
        others = held.sum(1, keepdim=True) - held
        logits = self.model(process, told).log_x0 + self.nudges[0] + others * self.nudges[1]
        return self.from_logits(logits, process, query.t)


@pytest.mark.parametrize("rule", [Prefix(1, 2), Spans(2), Scattered(), Mask((1,))], ids=repr)
def test_the_minimiser_is_the_law_of_each_position_given_what_is_known(rule):
    """At the oracle that is told what is known, no nudge lowers the loss: its mean gradient is 0 but for chance. At the
    oracle that takes known tokens for noised ones it is not."""
    process, dim, rows = uniform(0.2), 3, 10_000
    law = random_law(3, dim, seed=4)
    law[[0, 13, 26]] += 3  # 000, 111, 222: what is known tells much of the rest
    law /= law.sum()
    x0 = draw_states(law, rows, 3, dim, seed=5)
    largest = {}
    for told in (True, False):
        model = Nudged(oracle(process, law, dim).model, told, rows, dim, 3)
        learner = DiffusionLearner(sddm.Diffusion(process, model), TrainingConfig(1, rows), known=rule)
        drawn = learner.draw(x0, seeded(6))
        assert torch.equal(drawn.query.xt[drawn.query.given], x0[drawn.query.given])
        losses = learner.losses(drawn)
        (gradients,) = torch.autograd.grad(losses.sum(), model.nudges)
        varied = gradients.std(1) > 0  # a position that is always known has none
        scores = gradients.mean(1)[varied] / gradients.std(1)[varied] * rows**0.5
        largest[told] = float(scores.abs().max())
    chance = 4.5  # of the largest of at most 18 standard scores
    assert largest[True] < chance
    assert largest[False] > 2 * chance


def test_known_positions_leave_the_loss_and_only_then_their_mark_is_trained():
    tokens, marks = torch.randint(3, (64, LENGTH), generator=seeded(0)), {}
    for rule in (None, Prefix(2)):
        torch.manual_seed(0)
        diffusion = sddm.Diffusion(uniform(), Hollow.for_process(uniform(), LENGTH, **SIZES))
        train(diffusion, tokens, TrainingConfig(3, 16), known=rule, progress=False)
        marks[rule] = diffusion.model.network.embed.given.detach()
    assert not bool(marks[None].any())
    assert bool(marks[Prefix(2)].all())
    learner = DiffusionLearner(diffusion, TrainingConfig(1, 64), known=Prefix(2))
    values = learner.loss.at(diffusion, learner.draw(tokens, seeded(0)))
    assert not bool(values[:, :2].any())
    assert bool((values[:, 2:] > 0).all())


def test_rows_in_pieces_have_the_same_known_positions():
    tokens, grown = torch.randint(3, (16, LENGTH), generator=seeded(0)), {}
    for pieces in (1, 4):
        torch.manual_seed(0)
        diffusion = sddm.Diffusion(uniform(), Hollow.for_process(uniform(), LENGTH, **SIZES)).double()
        learner = DiffusionLearner(diffusion, TrainingConfig(1, 16, accumulate=pieces, known="scattered+prefix"))
        learner.update(tokens, seeded(1))
        grown[pieces] = diffusion.model.network.embed.given.grad
    torch.testing.assert_close(grown[1], grown[4], rtol=1e-9, atol=1e-12)


# ---- rows of different lengths, and classes ------------------------------------------------------------------------


def lengths_and_tokens(filler):
    lengths = torch.randint(2, LENGTH + 1, (40,), generator=seeded(1))
    tokens = torch.randint(3, (40, LENGTH), generator=seeded(0))
    return lengths, torch.where(torch.arange(LENGTH) < lengths[:, None], tokens, filler)


@pytest.mark.parametrize("rule", [None, Spans(2)], ids=["nothing", "spans"])
def test_what_stands_beyond_the_end_of_a_row_does_not_matter(rule):
    trained = []
    for filler in (0, 2):
        lengths, tokens = lengths_and_tokens(filler)
        torch.manual_seed(0)
        diffusion = sddm.Diffusion(uniform(), LeaveOneOut.for_process(uniform(), LENGTH, **SIZES))
        data = Dataset(tokens, Integers(3), lengths=lengths)
        trained.append(train(diffusion, data, TrainingConfig(4, 8), known=rule, progress=False))
    one, other = (torch.cat([w.flatten() for w in model.parameters()]) for model in trained)
    assert torch.equal(one, other)


def test_padding_leaves_the_loss_and_no_row_is_known_whole():
    lengths, tokens = lengths_and_tokens(0)
    diffusion = sddm.Diffusion(uniform(), Hollow.for_process(uniform(), LENGTH, **SIZES))
    learner = DiffusionLearner(diffusion, TrainingConfig(1, 40), known=Mask((0, 1, 2)))
    padding = torch.arange(LENGTH) >= lengths[:, None]
    drawn = learner.draw(Batch(tokens, padding=padding, labels=lengths), seeded(0))
    assert torch.equal(drawn.query.padding, padding)
    assert torch.equal(drawn.query.label, lengths)
    given = drawn.query.given
    assert not bool((given & padding).any())
    # Rows of at most three positions would be known whole: nothing of them is.
    assert torch.equal(given.sum(1), torch.where(lengths <= 3, 0, 3))
    values = learner.loss.at(diffusion, drawn)
    assert torch.equal(values == 0, given | padding)


def test_classes_and_lengths_follow_their_rows_through_epochs_and_splits():
    numbers = torch.arange(40)
    data = Dataset(numbers[:, None] % 5 + torch.zeros(1, 3, dtype=torch.int64), Integers(5), labels=numbers % 5)
    rows, apart = data.split(0.25, seed=0)
    for part in (rows, apart):
        batch = sddm.training.Epochs(part, 7, seed=0)(3)
        assert torch.equal(batch.x0[:, 0], batch.labels)
        assert batch.padding is None
    ends = Dataset(torch.zeros(4, 3, dtype=torch.int64), Integers(2), lengths=[1, 2, 3, 3])
    batch = sddm.training.Epochs(ends, 4, seed=0)(0)
    assert sorted((~batch.padding).sum(1).tolist()) == [1, 2, 3, 3]
    other = Dataset(torch.zeros(4, 3, dtype=torch.int64), Integers(2), lengths=[1, 2, 2, 3])
    assert ends.fingerprint() != other.fingerprint()
    with pytest.raises(ValueError, match="lengths of tokens must lie between 1 and the 3 positions of a row"):
        Dataset(torch.zeros(1, 3, dtype=torch.int64), Integers(2), lengths=[4])


# ---- times and learning rates --------------------------------------------------------------------------------------


def test_times_from_a_lowest_one_on_have_one_in_each_stratum():
    t = Stratified(0.2).draw(50, seeded(0), torch.device("cpu"))
    assert sorted(((t - 0.2) / 0.8 * 50).floor().tolist()) == list(range(50))


def test_times_on_a_grid_are_its_points_equally_often():
    t = OnGrid(5).draw(20, seeded(0), torch.device("cpu"))
    assert (t * 5).round().long().bincount().tolist() == [0, 4, 4, 4, 4, 4]
    torch.testing.assert_close(t, (t * 5).round() / 5, rtol=0, atol=1e-15)


def test_the_times_of_a_run_follow_its_rule():
    diffusion = sddm.Diffusion(uniform(), Hollow.for_process(uniform(), LENGTH, **SIZES))
    learner = DiffusionLearner(diffusion, TrainingConfig(1, 8, times="grid:4"))
    t = learner.draw(torch.zeros(8, LENGTH, dtype=torch.int64), seeded(0)).query.t
    assert sorted(t.tolist()) == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]


def test_the_learning_rate_falls_in_a_line_or_not_at_all():
    line, flat = (TrainingConfig(100, warmup=0.1, decay=decay) for decay in ("linear", "constant"))
    for config in (line, flat):
        assert [config.rate_at(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert [line.rate_at(step) for step in range(10, 100)] == pytest.approx([1 - i / 90 for i in range(90)])
    assert {flat.rate_at(step) for step in range(10, 100)} == {1.0}


# ---- from the command line -----------------------------------------------------------------------------------------


def test_a_run_with_rules_goes_on_as_if_it_had_not_been_stopped_and_shows_completions(tmp_path, capsys):
    text = tmp_path / "words.txt"
    text.write_text("\n".join(["abcabc", "bcabca", "cabcab"] * 12))
    options = ["--width", "8", "--layers", "1", "--batch-size", "8", "--save-every", "3", "--evaluate-every", "6"]
    options += ["--known", "prefix:3@3+spans:2", "--times", "uniform:0.01", "--decay", "constant"]
    for folder, steps in (("straight", 6), ("stopped", 3)):
        main(["train", "--data", str(text), "--out", str(tmp_path / folder), "--steps", str(steps), *options])
    main(["train", "--out", str(tmp_path / "stopped"), "--resume", "--steps", "6"])
    straight, longer = (
        sddm.Diffusion.from_pretrained(tmp_path / folder / "model").state_dict() for folder in ("straight", "stopped")
    )
    assert all(torch.equal(straight[name], longer[name]) for name in straight)
    recorded = json.loads((tmp_path / "stopped" / "run.json").read_text())["options"]["training"]
    assert (recorded["known"], recorded["times"], recorded["decay"]) == (
        "prefix:3@3+spans:2",
        "uniform:0.01",
        "constant",
    )
    assert (tmp_path / "straight" / "samples" / "step-000000006.txt").read_text().count("\n") == 4
    with pytest.raises(SystemExit) as stop:
        main(["train", "--out", str(tmp_path / "stopped"), "--resume", "--known", "prefix"])
    assert stop.value.code == 2
    assert "known is prefix, but the run" in capsys.readouterr().err
