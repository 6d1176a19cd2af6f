"""Tables of a known law, with a small network in place of the published ones."""

import gzip
import json
import math
from dataclasses import replace

import pytest
import torch

from archives import checksum, wheel
from enumerated import all_states, seeded
from sddm.baselines.trees import chow_liu
from sddm.data import load, published
from sddm.data.packages import Package
from sddm.experiments import corpora, tables, timed
from sddm.experiments.questions import MATTERS, MOST, RAREST, Question, answer, questions
from sddm.experiments.runner import reproduce
from sddm.experiments.table_laws import LAWS, Empirical
from sddm.recipe import ModelConfig, suited
from sddm.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
# A value that is rare, a column that depends on two others, and rows that never occur.
SMALL = """
variable A { type discrete [ 3 ] { no, some, much }; }
variable B { type discrete [ 2 ] { no, yes }; }
variable C { type discrete [ 2 ] { no, yes }; }
variable D { type discrete [ 2 ] { no, yes }; }
probability ( A ) { table 0.9, 0.08, 0.02; }
probability ( B | A ) { (no) 0.9, 0.1; (some) 0.5, 0.5; (much) 0.2, 0.8; }
probability ( C | A, B ) {
  (no, no) 0.9, 0.1; (some, no) 0.5, 0.5; (much, no) 0.3, 0.7; (no, yes) 0.2, 0.8; (some, yes) 0.6, 0.4;
  (much, yes) 1.0, 0.0;
}
probability ( D | C ) { (no) 0.7, 0.3; (yes) 0.2, 0.8; }
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The experiment on one small network, with seconds of training."""
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    source = wheel(tmp_path, {"pgmpy/utils/example_models/alarm.bif.gz": gzip.compress(SMALL.encode())}, "PGMPY")
    package = Package("pypi", "PGMPY", "1.0", checksum(source))
    package.path.parent.mkdir(parents=True)
    source.rename(package.path)
    monkeypatch.setattr(published, "PGMPY", package)
    for name, value in (("TRAINED_ON", 30), ("TRUE_ROWS", 200), ("SAMPLES", 200), ("QUESTIONS", 3), ("ASKED", 20)):
        monkeypatch.setattr(tables, name, value)
    monkeypatch.setattr(timed, "POINTS", 2)
    kept = (corpora.of_network, tables._questions)
    for function in kept:
        function.cache_clear()
    yield made
    for function in kept:
        function.cache_clear()


def made():
    experiment = tables.Tables("small")
    row = experiment.rows["ordered hollow"]
    recipe = row.system.recipe.but(model={"width": 8, "layers": 1, "heads": 2, "mlp": 8})
    experiment.rows["ordered hollow"] = replace(row, system=replace(row.system, minutes=1e-4, recipe=recipe))
    experiment.columns = ["alarm"]
    return experiment


def test_every_row_runs_and_leaves_its_figures_tables_and_a_picture(small, tmp_path):
    results = reproduce(small(), tmp_path / "out", tmp_path / "work")
    assert [result["row"] for result in results] == [*LAWS, "ordered hollow"]
    for result in results:
        figures = result["figures"]
        assert (figures["kl"] is None) == (result["row"] == "resampled rows")
        assert (figures["covered"] == 1) == (figures["kl"] is not None)
        assert figures["reverse_kl"] > 0
        assert 0 <= figures["impossible"] < (1e-9 if result["row"] == "resampled rows" else 0.3)
        assert len(figures["answers"]) == 3
    assert results[-1]["figures"]["training_seconds"] > 0
    table = (tmp_path / "out" / "tables" / "tables.md").read_text()
    assert table.count("infinite") == 1
    assert "## Questions about alarm" in table
    assert (tmp_path / "out" / "tables" / "conditionals.png").stat().st_size > 1_000
    json.loads((tmp_path / "out" / "tables.json").read_text(), parse_constant=pytest.fail)


def test_divergences_both_ways_are_those_of_the_two_laws_written_out(small):
    law, corpus = published.network("alarm"), corpora.of_network("alarm", 300, 20_000)
    tree = chow_liu(corpus.train.tokens[:], law.names, law.sizes)
    rows = all_states(3, 4)
    rows = rows[(rows < torch.tensor(law.sizes)).all(dim=1)]
    p, q = law.log_prob(rows).exp(), tree.log_prob(rows).exp()
    possible = p > 0
    assert not bool(possible.all())
    kl = float((p * (p / q).log())[possible].sum())
    inside = float(q[possible].sum())
    reverse = float((q / inside * (q / inside / p).log())[possible].sum())
    there = tables._divergence(tree, law.log_prob, corpus.test.tokens[:])
    assert abs(there["kl"] - kl) < 4 * there["kl_standard_error"]
    back = tables._reverse(tree, law.log_prob, tree.sample(20_000, seeded(0)))
    assert abs(back["reverse_kl"] - reverse) < 4 * back["reverse_kl_standard_error"]
    assert abs(back["impossible"] - (1 - inside)) < 4 * back["impossible_standard_error"]
    assert kl > 10 * there["kl_standard_error"]  # otherwise nothing was shown


def test_where_no_sample_is_possible_there_is_no_divergence(small):
    law = published.network("alarm")
    never = torch.tensor([[2, 1, 1, 0]] * 3)
    assert tables._reverse(Empirical(never), law.log_prob, never) == {
        "reverse_kl": None,
        "impossible": 1.0,
        "impossible_standard_error": 0.0,
    }


def test_questions_are_about_rare_combinations_in_which_both_values_matter(small):
    law = published.network("alarm")
    asked = questions(law, 5)
    assert len(asked) == 5
    for target, value, given, truth, share in asked:
        assert RAREST <= share <= MOST
        joint = law.joint([target], given)
        assert (share, truth) == pytest.approx((float(joint.sum()), float(joint[value] / joint.sum())))
        for d in given:
            less = law.joint([target], {d: given[d]})
            assert float((joint / share - less / less.sum()).abs().sum()) / 2 >= MATTERS
    assert questions(law, 5) == asked


def test_an_answer_is_the_share_of_the_rows_that_hold_what_is_given_with_its_error(small):
    law = published.network("alarm")
    rows = law.sample(4_000, seeded(0))
    question = Question(2, 1, {0: 1, 1: 0}, 0.5, 0.04)
    said = answer(Empirical(rows), question, 0, seeded(0))
    some = rows[(rows[:, 0] == 1) & (rows[:, 1] == 0)]
    assert said.chance == float((some[:, 2] == 1).double().mean())
    assert said.error == pytest.approx(math.sqrt(0.25 / len(some)), rel=0.1)
    assert abs(said.chance - 0.5) < 4 * said.error
    assert answer(law, question, 0, seeded(0)) == (pytest.approx(0.5), 0.0)
    assert math.isnan(answer(Empirical(rows[:0]), question, 0, seeded(0)).chance)


def test_a_diffusion_is_asked_by_samples_that_are_given_the_two_values(small):
    source = corpora.of_network("alarm", 300, 200)
    model = ModelConfig(ordered=True, width=8, layers=1).build(source.train)
    said = answer(model, Question(2, 1, {0: 1, 3: 0}, 0.5, 0.04), 50, seeded(0))
    assert 0 < said.chance < 1  # untrained
    assert 0 < said.error < 0.1


def test_the_recipe_is_what_train_chooses_for_a_table(small):
    model, training = suited(ModelConfig(), TrainingConfig(), load("alarm", rows=50))
    chosen = replace(tables.DEFAULT.model, labels=False), tables.DEFAULT.training
    assert (model, training) == chosen


def test_the_empirical_law_is_that_of_its_rows():
    rows = torch.tensor([[0, 1], [0, 1], [1, 1], [0, 0]])
    law = Empirical(rows)
    found = law.log_prob(torch.tensor([[0, 1], [1, 0], [0, 0]])).exp()
    assert found.tolist() == pytest.approx([0.5, 0.0, 0.25])
    drawn = law.sample(4_000, seeded(0))
    assert abs(float((drawn == torch.tensor([0, 1])).all(dim=1).double().mean()) - 0.5) < 4 * math.sqrt(0.25 / 4_000)
