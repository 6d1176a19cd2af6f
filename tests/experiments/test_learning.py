"""Systems at equal time on real data, with a small corpus in its place."""

import json
import math
from dataclasses import replace

import pytest
import torch

from enumerated import seeded
from sddm.baselines import Autoregressive
from sddm.codecs import Characters
from sddm.data import Dataset
from sddm.experiments import learning, orders, timed
from sddm.experiments.corpora import Corpus
from sddm.experiments.runner import reproduce
from sddm.metrics.molecules import canonical

MOLECULES = ["CCO", "CC", "CCC", "CCN", "OCC", "CCCO", "C=O", "CN", "NCC", "CCCC"] * 4
CODEC = Characters("CNO=", padded=True)
LAW = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], dtype=torch.float64)
SMALL = {"width": 8, "layers": 1}


def molecules(name):
    data = Dataset(CODEC.encode(MOLECULES), CODEC)
    return Corpus(name, data, data, data)


def known(name):
    """Two independent columns."""
    tokens = torch.stack(
        [torch.multinomial(law, 200, replacement=True, generator=seeded(i)) for i, law in enumerate(LAW)]
    )
    data = Dataset.from_tokens(tokens.T.contiguous(), 3)
    return Corpus(name, data, data, data, lambda x: LAW[0][x[:, 0]].log() + LAW[1][x[:, 1]].log())


@pytest.fixture
def small(monkeypatch, without_annotation_checks):
    """The experiment with seconds of training, small models, and few rows and samples."""
    monkeypatch.setattr(learning, "corpus", lambda name: known(name) if name == "alarm" else molecules(name))
    for name, value in (("SAMPLED", 8), ("FEW_SAMPLES", 4), ("BOUND_ROWS", 8), ("BOUND_TIMES", 8)):
        monkeypatch.setattr(learning, name, value)
    monkeypatch.setattr(timed, "POINTS", 2)

    def made(kind=learning.Learning):
        experiment = kind("small")
        experiment.rows = {name: replace(row, system=smaller(row.system)) for name, row in experiment.rows.items()}
        return experiment

    return made


def smaller(system):
    system = replace(system, minutes=1e-4)
    if isinstance(system, timed.LeftToRight):
        return replace(system, sizes=replace(system.sizes, width=8, layers=1, heads=2, mlp=8))
    return replace(system, recipe=system.recipe.but(model={**SMALL, "heads": 2, "mlp": 8}, sampling={"steps": 4}))


@pytest.mark.parametrize("column", ["molecules", "alarm"])
def test_every_row_runs_and_leaves_its_figures_a_table_and_pictures(column, small, tmp_path):
    results = reproduce(small(), tmp_path / "out", tmp_path / "work", [f"*/{column}"])
    assert [r["row"] for r in results] == [cell.row for cell in small().cells() if cell.column == column]
    for result in results:
        figures, ordered = result["figures"], result["row"].startswith(("left", "ordered"))
        assert ("exact" in figures) == ordered
        assert ("bound" in figures) == (not result["row"].startswith("left"))
        assert figures["training_seconds"] > 0
        assert len(figures["curve"]) in (2, 3)  # the last step is evaluated, whether or not it is a half
        assert figures["curve"][-1][1] == figures["rows_seen"] > 0
    table = (tmp_path / "out" / "learning" / "tables.md").read_text()
    assert f"## {column}" in table
    assert ("valid" in table) == (column == "molecules")
    assert ("KL from the law" in table) == (column == "alarm")
    assert (tmp_path / "out" / "learning" / f"{column}.png").stat().st_size > 1_000


def test_the_kl_from_the_law_is_the_mean_of_the_difference_row_by_row(small, tmp_path):
    (result,) = reproduce(small(), tmp_path / "out", tmp_path / "work", ["left to right, Muon/alarm"])
    figures, source = result["figures"], known("alarm")
    entropy = -float(source.log_prob(source.test.tokens[:]).mean())
    assert figures["exact_kl"] == pytest.approx(figures["exact"] - entropy, rel=1e-9)


def test_the_number_of_steps_follows_from_the_pace_and_is_kept_for_an_interrupted_training(small, tmp_path):
    reproduce(small(), tmp_path / "out", tmp_path / "work", ["left to right, Muon/molecules"])
    (pace,) = (tmp_path / "work").rglob(timed.PACE_FILE)
    kept = json.loads(pace.read_text())
    assert kept["steps"] == max(2, round(60 * 1e-4 / kept["seconds"]))
    pace.write_text(json.dumps({**kept, "steps": 7}))
    for cell in (tmp_path / "out").rglob("*muon-molecules-0.json"):
        cell.unlink()
    for line in (tmp_path / "work").rglob("checkpoints"):
        for checkpoint in line.iterdir():
            checkpoint.unlink()
    (result,) = reproduce(small(), tmp_path / "out", tmp_path / "work", ["left to right, Muon/molecules"])
    assert result["figures"]["rows_seen"] <= 7 * 64


def test_several_trainings_of_a_cell_are_shown_with_the_error_over_them(small, tmp_path):
    cells = ["mdlm, absorbing/molecules"]
    results = reproduce(small(learning.Objectives), tmp_path / "out", tmp_path / "work", cells, repeats=3)
    bounds = [r["figures"]["bound"] for r in results]
    shown = f"{sum(bounds) / 3:.3f} ± {torch.tensor(bounds).double().std() / math.sqrt(3):.3f}"
    assert shown in (tmp_path / "out" / "learning" / "objectives" / "tables.md").read_text()


def test_orders_share_the_trainings_of_their_models_and_differ_in_sampling_alone(small, tmp_path):
    experiment, few = small(orders.Orders), 3
    cells = [f"{name}/molecules" for name in experiment.rows if name.endswith(" 8 steps")]
    results = reproduce(experiment, tmp_path / "out", tmp_path / "work", cells[:few])
    assert all(0 <= result["figures"]["valid"] <= 1 for result in results)
    assert len(list((tmp_path / "work").rglob(timed.PACE_FILE))) == 1
    table = (tmp_path / "out" / "learning" / "orders" / "tables.md").read_text()
    assert table.count("±") == few
    trainings = {row.system.training for row in experiment.rows.values()}
    assert len(trainings) == len(orders.MODELS)
    assert trainings <= {row.system.training for row in small().rows.values()}


def test_a_row_with_an_end_counts_it_as_a_character():
    longest = max(map(len, MOLECULES))
    assert molecules("x").marks == pytest.approx(sum(min(len(m) + 1, longest) for m in MOLECULES) / len(MOLECULES))


def test_the_objectives_differ_in_nothing_but_the_objective_and_the_noise():
    rows = learning.Objectives("small").rows.values()
    recipes = [row.system.recipe.but(model={"process": "uniform"}, training={"loss": None}) for row in rows]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert len({row.system for row in rows}) == len(recipes) == 12


def test_the_left_to_right_model_is_scored_exactly():
    source = known("x")
    model = Autoregressive(3, 2)
    nats = learning._exact(model, source.test.tokens[:])
    assert torch.equal(nats, -model.log_prob(source.test.tokens[:]))
    assert canonical(["CCO"]) == canonical(["OCC"])
