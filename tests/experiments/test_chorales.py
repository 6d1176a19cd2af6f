"""The experiment on chorales, with a few made-up chorales in place of the corpus."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from enumerated import seeded
from sddm.codecs import Notes
from sddm.data import Dataset
from sddm.experiments import chorales, timed
from sddm.experiments.corpora import Corpus
from sddm.experiments.runner import reproduce
from sddm.formats.midi import read_parts
from sddm.noising import Batch
from sddm.recipe import ModelConfig, suited
from sddm.training import TrainingConfig
from sddm.training.batches import Epochs

BARS, BAR = 4, 2


def made_rows(num, first):
    """Rows of four bars of two steps, in four voices that stay within their ranges; two rows of each chorale."""
    low = torch.tensor([67, 60, 55, 43]).repeat(BARS * BAR)
    pitches = low + torch.randint(0, 7, (num, len(low)), generator=seeded(first))
    return Dataset(pitches, Notes(4), groups=[first + i // 2 for i in range(num)])


def made(name):
    return Corpus(name, made_rows(16, 0), made_rows(6, 100), made_rows(6, 200))


@pytest.fixture
def small(monkeypatch, without_annotation_checks):
    steps = chorales.WHOLE, slice(BAR, 3 * BAR), slice(BAR, None)
    tasks = zip(chorales.TASKS.items(), steps, strict=True)
    monkeypatch.setattr(chorales, "TASKS", {n: chorales.Task(t.title, t.voices, own) for (n, t), own in tasks})
    for name, value in (("CHORALE_WINDOW", BARS * BAR), ("RUNS", 2), ("TIMES", 8), ("corpus", made)):
        monkeypatch.setattr(chorales, name, value)
    monkeypatch.setattr(chorales, "SCALES", {"small": {"minutes": 1e-4, "width": 16, "layers": 1}})
    monkeypatch.setattr(timed, "POINTS", 1)
    return chorales.Chorales("small")


def test_every_way_keeps_what_is_given_and_generates_the_rest_of_the_same_chorales(small, tmp_path):
    results = reproduce(small, tmp_path / "out", tmp_path / "work")
    assert [(r["row"], r["column"]) for r in results] == small.cells()
    assert len(list((tmp_path / "work").rglob(timed.PACE_FILE))) == 1  # one training for all rows and tasks
    test = made("").test.tokens[:]
    for result in results:
        task, figures = result["column"], result["figures"]
        (kept,) = (tmp_path / "work").glob(f"{chorales.slug(result['row'] + '/' + task)}-0/*.safetensors")
        tensors, given = load_file(kept), chorales.TASKS[task].mask()
        assert torch.equal(tensors["truth"], test[::2].repeat_interleave(2, dim=0))
        made_here, right = tensors["tokens"][:, ~given], tensors["truth"][:, ~given]
        assert torch.equal(tensors["tokens"][:, given], tensors["truth"][:, given])
        assert figures["same"][0] == pytest.approx(float((made_here == right).double().mean()))
        assert ("bits" in figures) == (result["row"] in ("in order", "analytical, 64 steps"))
        assert (figures["tunes"], figures["runs"], figures["rows"]) == (3, 2, 6)
    table = (tmp_path / "out" / "music" / "chorales" / "tables.md").read_text()
    assert table.count("| another chorale |") == table.count("| Bach |") == 3


def test_a_soprano_is_seen_beside_bach_and_can_be_heard(small, tmp_path):
    reproduce(small, tmp_path / "out", tmp_path / "work", ["in order/harmonise"])
    folder = tmp_path / "out" / "music" / "chorales"
    assert (folder / "harmonise.png").stat().st_size > 1_000
    written = (folder / "chorale-1-harmonise.mid").read_bytes()
    assert len(read_parts(written, "a file", 4)) == 4
    assert sorted(path.name for path in folder.glob("*.mid")) == [
        f"chorale-{number}-{name}.mid" for number in (1, 2) for name in ("bach", "harmonise")
    ]
    assert json.loads((tmp_path / "out" / "music" / "chorales.json").read_text())[0]["figures"]["bits"][0] > 0


def test_the_model_is_what_a_user_gets_who_trains_on_chorales():
    recipe = chorales.rows(1.0)["in order"].system.recipe
    row = torch.zeros(2, chorales.VOICES * chorales.CHORALE_WINDOW, dtype=torch.int64)
    data = Dataset(row, Notes(chorales.VOICES))
    model, training = suited(ModelConfig(), TrainingConfig(transpose=5), data)
    assert model.labels is False  # chorales have none, so that nothing is to be chosen
    assert (recipe.model, recipe.training) == (replace(model, labels=None), training)


def test_a_blind_model_does_not_see_the_soprano_that_follows(small, tmp_path):
    source = small.source("harmonise")
    model = small.rows["in order"].system.trained(source, 0, tmp_path)
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(0.5 * torch.randn(weights.shape, generator=seeded(1)))  # so that every token matters
    truth, condition = chorales.asked(source, 3)
    last = 4 * (BARS * BAR - 1)  # the last soprano
    other = replace(condition, values=truth.clone().index_fill(1, torch.tensor([last]), 60))
    for way, sees in (("in order", True), ("in order, blind to what follows", False)):
        draw = partial(small.rows[way].system.sample, model, len(truth), 0)
        assert bool((draw(condition) != draw(other))[:, :last].any()) == sees


def test_timed_systems_train_in_other_keys_if_that_is_asked_for():
    source = made("")
    rows = timed._batches(source, TrainingConfig(transpose=5, batch_size=16))(0)
    plain = Epochs(source.train, 16, 0)(0)
    assert isinstance(rows, Batch)
    by = rows.x0 - plain.x0
    assert (by == by[:, :1]).all()
    assert set(by[:, 0].tolist()) <= set(range(-5, 6))
    assert len(by[:, 0].unique()) > 1
    assert torch.equal(timed._batches(source, TrainingConfig(batch_size=16))(0).x0, plain.x0)
