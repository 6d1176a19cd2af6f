"""The runner of experiments, and the seven densities at a tiny size."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
import torch

from sddm.cli import main
from sddm.data import DENSITIES, Toy
from sddm.experiments import curves, densities, pictures, synthetic
from sddm.experiments.densities import Measured
from sddm.experiments.experiment import Cell, Experiment, markdown, with_error
from sddm.experiments.runner import reproduce, same_recipe
from sddm.experiments.systems import Compared, Diffused, Drawn, Fresh
from sddm.metrics import MMD
from sddm.training.batches import generator_of

ROOT = Path(__file__).parents[2]


class Squares(Experiment):
    """An experiment that can be counted: row times column."""

    family = "squares"

    def __init__(self, factor=1, fails_at=None):
        super().__init__("squares", "small", {"2": None, "3": None}, ["5", "7"])
        self.factor, self.fails_at, self.ran, self.reported = factor, fails_at, [], []

    def source(self, column):
        raise NotImplementedError

    def measure(self, drawn, source, row, seed):
        raise NotImplementedError

    def recipe(self, cell):
        return {"factor": self.factor}

    def run(self, cell, seed, folder):
        if cell.name == self.fails_at:
            raise RuntimeError("stopped")
        self.ran.append((cell.name, seed))
        return {"value": self.factor * int(cell.row) * int(cell.column) + seed}

    def headline(self, figures):
        return str(figures["value"])

    def report(self, results, folder):
        self.reported.append(len(results))

    def pictures(self, results, work, folder):
        self.drawn = len(results)


def values(out):
    return [cell["figures"]["value"] for cell in json.loads((out / "squares.json").read_text())]


def test_all_cells_are_run_in_order_and_collected(tmp_path, capsys):
    experiment = Squares()
    reproduce(experiment, tmp_path / "results", tmp_path / "work", repeats=2)
    assert [name for name, seed in experiment.ran if seed == 0] == ["2/5", "2/7", "3/5", "3/7"]
    assert values(tmp_path / "results") == [10, 11, 14, 15, 15, 16, 21, 22]
    assert experiment.reported[0] == 1  # a report after the first cell already
    assert "[8/8] 3/7: 22" in capsys.readouterr().err


def test_a_second_call_goes_on_where_the_first_one_stopped(tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        reproduce(Squares(fails_at="3/5"), tmp_path, tmp_path / "work")
    assert values(tmp_path) == [10, 14]
    second = Squares()
    reproduce(second, tmp_path, tmp_path / "work")
    assert second.ran == [("3/5", 0), ("3/7", 0)]
    assert values(tmp_path) == [10, 14, 15, 21]


def test_a_cell_with_another_recipe_is_run_again(tmp_path):
    reproduce(Squares(), tmp_path, tmp_path / "work")
    second = Squares(factor=2)
    reproduce(second, tmp_path, tmp_path / "work")
    assert len(second.ran) == 4
    assert values(tmp_path) == [20, 28, 30, 42]


def test_cells_of_another_recipe_are_not_mixed_with_those_of_todays(tmp_path):
    reproduce(Squares(), tmp_path, tmp_path / "work")
    reproduce(Squares(factor=2), tmp_path, tmp_path / "work", cells=["3/*"])
    assert values(tmp_path) == [30, 42]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [(["2"], ["2/5", "2/7"]), (["7"], ["2/7", "3/7"]), (["3/*"], ["3/5", "3/7"]), (["2/5", "3/7"], ["2/5", "3/7"])],
)
def test_cells_can_be_chosen(tmp_path, patterns, names):
    experiment = Squares()
    reproduce(experiment, tmp_path, tmp_path / "work", patterns)
    assert [name for name, _ in experiment.ran] == names


def test_a_choice_without_cells_names_those_there_are(tmp_path):
    with pytest.raises(ValueError, match=r"No cell matches 'moon'\. The cells are: 2/5, 2/7, 3/5, 3/7\."):
        reproduce(Squares(), tmp_path / "results", tmp_path / "work", ["moon"])
    assert not (tmp_path / "results").exists()


def test_a_result_says_how_it_was_made(tmp_path):
    (cell, *_) = reproduce(Squares(), tmp_path, tmp_path / "work")
    assert cell["recipe"] == {"factor": 1}
    assert {"row", "column", "seed", "figures", "seconds", "versions"} <= cell.keys()
    assert {"python", "torch", "sddm"} <= cell["versions"].keys()


def test_tables_are_markdown():
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert with_error(0.12345, 0.01) == "0.123 ± 0.010"


# ---- the seven densities -------------------------------------------------------------------------------------------


SMALLER = {
    "PCD": {"chains": 16, "sampling_moves": 8},
    "ALOE+": {"dual_width": 16, "energy_width": 16},
    "EB-GFN": {"policy_width": 16, "energy_width": 16},
}


def shrunk(row):
    system = row.system
    if isinstance(system, Diffused):
        tiny = {"steps": 3, "batch_size": 4, "pool": 8}
        system = Diffused(system.recipe.but(training=tiny, sampling={"steps": 2}))
    elif isinstance(system, Compared):
        system = replace(system, steps=3, batch_size=4, settings={**system.settings, **SMALLER[system.system]})
    return Measured(system, many=16, samples=8, repeats=2, held_out=4)


@pytest.fixture
def tiny(monkeypatch):
    small = {name: shrunk(row) for name, row in synthetic.small().items()}
    monkeypatch.setattr(densities, "BOUND_TIMES", 8)
    monkeypatch.setitem(synthetic.SCALES, "small", lambda: small)
    return small


def test_a_row_for_each_figure_of_the_paper_and_a_cell_for_each_density():
    experiment = synthetic.Synthetic("small")
    assert set(synthetic.PAPER) <= {cell.row for cell in experiment.cells()}
    assert {cell.column for cell in experiment.cells()} == set(DENSITIES)
    assert all(len(row) == len(DENSITIES) for row in synthetic.PAPER.values())
    assert len(experiment.cells()) == 14 * 7


def test_one_recipe_serves_all_densities():
    for scale in synthetic.SCALES:
        experiment = synthetic.Synthetic(scale)
        for row in {cell.row for cell in experiment.cells()}:
            recipes = [experiment.recipe(cell) for cell in experiment.cells() if cell.row == row]
            assert all(recipe == recipes[0] for recipe in recipes)


def test_every_row_draws_as_many_samples_as_its_repeats_need():
    for scale in synthetic.SCALES:
        for experiment in (synthetic.Synthetic(scale), curves.Steps(scale), curves.Training(scale)):
            assert all(row.many >= row.samples * row.repeats for row in experiment.rows.values())


@pytest.mark.usefixtures("without_annotation_checks")
def test_training_data_and_the_metrics_fresh_data_come_from_different_streams(tmp_path, monkeypatch, tiny):
    """No seed that makes points to train on makes points to measure with, or another such draw of the metric."""
    drawn, tokens = [], Toy.tokens

    def recorded(self, num, generator):
        drawn.append(generator.initial_seed())
        return tokens(self, num, generator)

    monkeypatch.setattr(Toy, "tokens", recorded)
    row = tiny["SDDM"]
    trained = row.system.trained(Toy("moons"), 0, tmp_path)
    training = set(drawn)
    assert len(training) == len(drawn) == row.system.recipe.training.steps
    drawn.clear()
    measured(trained.sample(16, steps=2, seed=0), row)
    assert len(set(drawn)) == len(drawn) == row.repeats + 1
    assert not training & set(drawn)
    for name, system in ((name, row.system) for name, row in tiny.items()):
        drawn.clear()
        synthetic.Synthetic("small").run(Cell(name, "moons"), 0, tmp_path / "work" / name)
        assert len(set(drawn)) == len(drawn)  # the held-out points, and data as samples, as well
        made = {generator_of(0, "training data", step).initial_seed() for step in range(10)}
        assert len(set(drawn) - made) == row.repeats + 1 + isinstance(system, Diffused) + isinstance(system, Fresh)


@pytest.mark.usefixtures("without_annotation_checks")
def test_every_row_runs_and_leaves_its_figures(tmp_path, capsys, tiny):
    arguments = ["reproduce", "synthetic", "--out", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    main([*arguments, "--cells", "*/moons"])
    results = json.loads((tmp_path / "results" / "synthetic.json").read_text())
    assert [cell["row"] for cell in results] == list(tiny)
    for cell in results:
        figures = cell["figures"]
        assert figures["mmd_standard_error"] > 0
        assert figures.get("nats_standard_error", 0) > 0 or not isinstance(tiny[cell["row"]].system, Diffused)
        assert cell["recipe"] == asdict(tiny[cell["row"]])
        assert figures["rows_seen"] == {Diffused: 24, Compared: 12, Fresh: 0}[type(tiny[cell["row"]].system)]
    table = (tmp_path / "results" / "synthetic" / "tables.md").read_text()
    assert "paper: SDDM" in table
    assert all(f"| {row} |" in table for row in tiny)
    assert "`sddm reproduce synthetic --scale small`" in table
    assert table.count("0.00 M, ") == len(tiny) - 1  # rows of data and seconds of all trainings
    assert "0.00 M, <=" not in table
    capsys.readouterr()
    main([*arguments, "--cells", "*/moons"])
    assert "running" not in capsys.readouterr().err  # all of it was kept


def test_rows_that_differ_in_sampling_share_a_training_and_others_do_not():
    small = synthetic.small()
    names = [row.system.training for row in small.values()]
    assert small["hollow + analytical"].system.training == small["hollow + euler"].system.training
    assert len(set(names)) == len(names) - 5
    recipe = small["SDDM"].system.recipe
    assert Diffused(recipe.but(training={"steps": 10})).training != Diffused(recipe).training
    assert Diffused(recipe.but(sampling={"steps": 10})).training == Diffused(recipe).training


def test_a_stored_recipe_is_todays_if_what_it_does_not_name_has_its_default():
    row = synthetic.small()["SDDM"]
    stored = json.loads(json.dumps(asdict(row)))
    assert same_recipe(stored, row)
    assert not same_recipe(stored, replace(row, many=10))
    assert not same_recipe(stored, Measured(Diffused(row.system.recipe.but(sampling={"steps": 9})), row.many))
    assert not same_recipe({**stored, "more": 1}, row)

    @dataclass(frozen=True)
    class Newer(Measured):
        option: int = 3

    newer = Newer(row.system, row.many)
    assert same_recipe(stored, newer)
    assert not same_recipe(stored, replace(newer, option=4))


def test_the_stored_cells_of_the_tables_are_of_todays_recipes():
    """Cells are matched by recipe: if a recipe changes, or how it is written, its cells have to be run again."""
    experiments = [synthetic.Synthetic("small"), curves.Steps("small"), curves.Training("small")]
    for experiment in experiments:
        stored = json.loads((ROOT / "results" / f"{experiment.name}.json").read_text())
        for cell in stored:
            assert same_recipe(cell["recipe"], experiment.recipe(Cell(cell["row"], cell["column"]))), cell["row"]
        assert len(stored) == len(experiment.cells())


def test_the_pictures_show_data_and_every_row_and_the_reverse_process(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(synthetic, "REVERSE_POINTS", 50)
    experiment = synthetic.Synthetic("small")
    shown = []
    monkeypatch.setattr(synthetic, "matrix", lambda rows, columns, clouds, path: shown.append((rows, columns, clouds)))
    reproduce(experiment, tmp_path / "results", tmp_path / "work", ["SDDM/2spirals", "data/moons", "PCD/moons"])
    (rows_shown, columns, clouds), *_ = shown
    assert rows_shown == ["data", "PCD", "SDDM"]
    assert columns == list(DENSITIES)
    first = [[points is not None for points in row].index(True) for row in clouds]
    assert first == [0, 3, 0]  # data are drawn on all densities, whatever has been run
    assert (tmp_path / "results" / "synthetic" / "reverse.png").stat().st_size > 5_000
    assert (tmp_path / "results" / "synthetic" / "reverse.gif").read_bytes()[:6] == b"GIF89a"


def test_a_picture_is_drawn_again_from_the_kept_samples_and_never_with_fewer_rows(tmp_path, tiny, monkeypatch):
    shown = {}
    monkeypatch.setattr(synthetic, "matrix", lambda rows, columns, clouds, path: shown.update({path.name: clouds}))
    results, first, second = tmp_path / "results", tmp_path / "first", tmp_path / "second"
    cells = ["PCD/moons", "ALOE+/moons", "masked + euler/moons"]
    reproduce(synthetic.Synthetic("small"), results, first, cells)
    drawn = dict(shown)
    assert [len(clouds) for clouds in drawn.values()] == [3, 2]  # data, and the rows of Table 1 or of the ablation
    tokens = synthetic.load_file(first / "pcd-moons-0" / synthetic.SAMPLES)["tokens"]
    assert (drawn["samples.png"][1][3] == Toy("moons").decode(tokens.long()).numpy()).all()
    shown.clear()
    reproduce(synthetic.Synthetic("small"), results, second, cells)
    assert shown.keys() == drawn.keys() == {"samples.png", "ablation.png"}
    for name, clouds in shown.items():
        assert (clouds[1][3] == drawn[name][1][3]).all()
    (results / "synthetic" / "samples" / "pcd-moons.npy").unlink()
    shown.clear()
    reproduce(synthetic.Synthetic("small"), results, second, cells)
    assert list(shown) == ["ablation.png"]


def test_values_are_named_once_with_all_that_have_them():
    assert synthetic.grouped({"a": "1", "b": "2", "c": "1"}) == "1: `a`, `c`; 2: `b`"


@pytest.mark.parametrize(("name", "x"), [("steps", "steps"), ("training", "training_seconds")])
def test_a_curve_is_one_system_under_many_settings(tmp_path, tiny, monkeypatch, name, x):
    monkeypatch.setitem(curves.NUMBERS, "small", (2, 5))
    monkeypatch.setitem(curves.TRAININGS, "small", {"energy MLP": (1, 2, 3), "masked transformer": (1, 2)})
    monkeypatch.setattr(curves, "STEPS_SAMPLES", 16)
    monkeypatch.setitem(curves.TRAINING_SAMPLES, "small", 16)
    drawn = []
    monkeypatch.setattr(curves, "curves", lambda lines, *rest: drawn.append(lines))
    main(["reproduce", name, "--out", str(tmp_path / "results"), "--work", str(tmp_path / "work")])
    results = json.loads((tmp_path / "results" / f"{name}.json").read_text())
    lines = drawn[-1]
    assert sum(len(points) for points in lines.values()) == len(results)
    assert {point[0] for points in lines.values() for point in points} == {
        result["figures"][x] if x in result["figures"] else result["recipe"]["system"]["recipe"]["sampling"]["steps"]
        for result in results
    }
    trainings = {path.parent.name for path in tmp_path.glob("work/synthetic-small/*/checkpoints")}
    assert len(trainings) == (1 if name == "steps" else 5)  # those that differ in sampling share one
    assert len((tmp_path / "results" / name / "table.md").read_text().splitlines()) == 4 + len(results)


def test_curves_are_drawn(tmp_path):
    pictures.curves(
        {"one": [(10, 0.5, 0.1), (5, 1.0, 0.1)], "two": [(5, -0.1, 0.1)]}, 0.1, ("x", "y"), tmp_path / "c.png"
    )
    assert (tmp_path / "c.png").stat().st_size > 5_000


def measured(tokens, row, name="moons", groups=None):
    return synthetic.Synthetic("small").measure(Drawn(tokens, groups), Toy(name), row, seed=0)


def test_data_measured_as_samples_are_at_the_floor():
    row, toy = Measured(Fresh(), samples=300, repeats=8, many=2_000), Toy("pinwheel")
    figures = measured(toy.tokens(2_400, torch.Generator().manual_seed(5)), row, "pinwheel")
    assert abs(figures["mmd"]) < 4 * figures["mmd_standard_error"]
    assert abs(figures["mmd_many"]) < 4 * figures["mmd_many_standard_error"]
    assert abs(figures["plane"]) < 4 * figures["plane_standard_error"]
    noise = torch.randint(2, (2_400, 32), generator=torch.Generator().manual_seed(6))
    of_noise = measured(noise, row, "pinwheel")
    assert of_noise["mmd"] > 100 * abs(figures["mmd"])
    assert of_noise["plane"] > 0.5


def test_samples_of_chains_are_measured_by_chain_and_no_two_repeats_share_one(monkeypatch):
    asked = []

    def watched(x, y, dtype, groups):
        asked.append(groups)
        return MMD(0.0, 0.0)

    monkeypatch.setattr(densities, "hamming_mmd", watched)
    row = Measured(Fresh(), samples=80, repeats=5, many=400)
    measured(torch.zeros(400, 32, dtype=torch.int64), row, groups=torch.arange(400) % 20)
    *repeats, many = [groups.tolist() for groups in asked]
    assert [len(groups) for groups in repeats] == [80] * 5
    assert sorted(chain for groups in repeats for chain in set(groups)) == list(range(20))
    assert sorted(many) == sorted(list(range(20)) * 20)
