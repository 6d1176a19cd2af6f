"""The report on a model of a table: what it says of samples of the same law and of others, and the page itself."""

import json
from base64 import b64decode
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from enumerated import seeded
from sddm.cli import main
from sddm.codecs import Columns
from sddm.codecs.fields import Number
from sddm.report import measured, target_of, write_report
from sddm.report.cells import MOST, Cells
from sddm.report.drawn import plain

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "td", "img"}
NASTY = '<script>alert("$x$ & \\frac{1}{0}")</script>'
CODEC = Columns(["colour", NASTY, "size"], [["red", "green", "<b>blue</b>"], ["$a$", "b\\"], ["S", "M", "L", "XL"]])


def rows(num, seed, dependent=True):
    """The second and the third column follow the first one, or are independent with the same laws."""
    generator = seeded(seed)
    first = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), 3 * num, replacement=True, generator=generator)
    first = first.reshape(3, num)
    if dependent:
        first[1:] = first[0].clone()
    noise = torch.rand(2, num, generator=generator) < 0.1
    second, third = (first[1] > 0).long() ^ noise[0].long(), torch.where(noise[1], 3, first[2])
    return torch.stack([first[0], second, third], dim=1)


@pytest.fixture(scope="module")
def reports():
    """Of samples of the same law, and of independent columns."""
    train, held_out = rows(600, 0), rows(300, 1)
    return {kind: measured(rows(250, 2, kind == "same"), train, held_out, CODEC, 2) for kind in ("same", "independent")}


def values(report):
    return {figure.name: figure for figure in report.figures}


def test_samples_of_the_same_law_are_as_near_to_the_data_as_training_rows(reports):
    for figure in reports["same"].figures:
        error = (figure.standard_error**2 + figure.of_data_standard_error**2) ** 0.5
        assert abs(figure.value - figure.of_data) <= 4 * error, figure.name
    assert abs(values(reports["same"])["auc"].value - 0.5) < 4 * values(reports["same"])["auc"].standard_error


def test_samples_of_independent_columns_are_told_apart_by_pairs_and_classifier_and_are_of_no_use(reports):
    found = values(reports["independent"])
    for name in ("pair_gap", "auc"):
        assert found[name].value > found[name].of_data + 5 * found[name].standard_error
    assert found["utility"].value < found["utility"].of_data - 5 * found["utility"].standard_error
    same = found["column_variation"]
    assert abs(same.value - same.of_data) < 4 * (same.standard_error + same.of_data_standard_error)


def test_samples_and_training_rows_are_compared_in_equal_numbers(reports):
    report = reports["same"]
    assert (report.rows, report.trained_on) == (250, 600)
    assert len(report.closeness.distances[0]) == len(report.closeness.distances[1]) == 250
    again = measured(rows(250, 2), rows(600, 0), rows(300, 1), CODEC, 2)
    assert again.saved() == report.saved()


def test_copied_rows_are_found():
    """Rows of many columns, of which data hardly ever hold two alike."""
    codec = Columns([f"{d}" for d in range(12)], [["a", "b", "c"]] * 12)
    train, held_out = (torch.randint(3, (200, 12), generator=seeded(seed)) for seed in (0, 1))
    found = values(measured(train[:100], train, held_out, codec, 0))
    assert (found["copies"].value, found["copies"].of_data) == (1, 0)
    assert found["nearer"].value == 1
    assert found["nearer"].of_data <= 0.5


def test_what_is_saved_has_every_figure_with_its_errors_and_every_column(reports):
    saved = json.loads(json.dumps(reports["same"].saved()))
    for name in ("column_variation", "pair_gap", "auc", "utility", "nearer", "copies"):
        for key in ("", "_standard_error", "_of_data", "_of_data_standard_error"):
            assert isinstance(saved[name + key], float)
    assert list(saved["columns"]) == CODEC.names


def test_too_few_rows_are_refused():
    with pytest.raises(ValueError, match=r"at least 40 samples, .* but there are 39, 50 and 60\. Raise --samples"):
        measured(rows(39, 0), rows(50, 1), rows(60, 2), CODEC, 0)


def test_the_column_to_predict_is_the_last_one_of_few_values_or_the_one_named():
    codec = Columns(["a", "b", "c"], [["x", "y"], ["x", "y"], [str(i) for i in range(21)]])
    assert target_of(codec, None) == 1
    assert target_of(codec, "a") == 0
    with pytest.raises(ValueError, match=r"target is 'd', but the table has no such column\. It has 'a', 'b', 'c'"):
        target_of(codec, "d")


# ---- cells ---------------------------------------------------------------------------------------------------------


def cells_of(values, tokens):
    cells = Cells(Columns(["a"], [values]), tokens[:, None])
    return cells(tokens[:, None])[:, 0], cells.labels[0]


def test_few_values_keep_a_cell_each_the_more_frequent_ones_first():
    tokens = torch.tensor([2, 2, 2, 0, 0, 1])
    cells, labels = cells_of(["x", "y", "z"], tokens)
    assert labels == ["z", "x", "y"]
    assert [labels[cell] for cell in cells] == ["z", "z", "z", "x", "x", "y"]


def test_of_many_values_the_rarest_share_a_cell():
    names = [f"town {i}" for i in range(100)]
    tokens = torch.arange(100).repeat_interleave(torch.arange(100, 0, -1))
    cells, labels = cells_of(names, tokens)
    assert labels == [*names[: MOST - 1], "others"]
    assert torch.equal(cells, tokens.clamp(max=MOST - 1))


def test_neighbouring_numbers_share_cells_of_equal_shares_of_the_rows():
    numbers = torch.randperm(200, generator=seeded(0))
    tokens = torch.randint(200, (20_000,), generator=seeded(1))
    cells, labels = cells_of([str(float(number)) for number in numbers.tolist()], tokens)
    assert len(labels) == MOST
    assert labels[0].startswith("0.0 to ")
    assert labels[-1].endswith(" to 199.0")
    by_number = numbers[tokens].argsort()
    assert bool((cells[by_number].diff() >= 0).all())
    shares = torch.bincount(cells, minlength=MOST).double() / len(tokens)
    assert float((shares - 1 / MOST).abs().max()) < 1 / 150


def test_bins_of_numbers_are_called_by_their_ends_behind_a_missing_value():
    codec = Columns(["a", "b"], [Number([1, 4, 9], [3, 8, 9], 0, missing=""), ["x", "y"]])
    cells = Cells(codec, torch.tensor([[2, 1], [2, 0], [0, 1]]))
    assert cells.labels == [["missing", "1 to 3", "4 to 8", "9"], ["y", "x"]]
    assert cells(torch.tensor([[3, 1], [0, 0]])).tolist() == [[3, 0], [0, 1]]


# ---- the page ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tags of a page, its texts, and what it asks a browser to fetch."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.said, self.sources = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.said.append(text)


def test_the_page_is_whole_and_fetches_nothing_and_what_comes_from_the_table_is_text(reports, tmp_path):
    write_report(reports["same"], f"Samples of {NASTY}", tmp_path / "new" / "page.html")
    text = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert set(page.tags) == TAGS
    assert page.said.count(NASTY) == 1  # the column; the title has more to it
    assert f"Samples of {NASTY}" in page.said
    assert len(page.sources) == 4
    for source in page.sources:
        text = text.replace(source, "")
    assert "//" not in text
    for source in page.sources:
        kind, data = source.split(",")
        assert kind == "data:image/png;base64"
        assert Image.open(BytesIO(b64decode(data))).size[0] == 1_100
    for figure in reports["same"].figures:
        assert f"{figure.value:.4f} ± {figure.standard_error:.4f}" in page.said
        assert f"{figure.of_data:.4f} ± {figure.of_data_standard_error:.4f}" in page.said


def test_the_picture_holds_the_table_and_all_pictures(reports, tmp_path):
    write_report(reports["same"], "Samples", tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as file:
        picture = np.asarray(file)
    assert picture.shape[1] == 1_100
    assert picture.shape[0] > 1_000
    for part in np.array_split(picture, 5):
        assert (part < 128).any()  # something is drawn in every fifth of it


def test_names_are_drawn_as_they_are():
    assert plain("a\nb") == "a b"
    assert plain("$x$") == r"\$x\$"
    assert plain("abcdefgh", 5) == "abcd…"


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [",".join(row) for row in CODEC.decode(rows(400, 0))]
    (tmp_path / "table.csv").write_text("\n".join(["colour,kind,size", *lines]))
    sizes = ["--width", "8", "--layers", "1", "--heads", "2", "--mlp", "8", "--steps", "2", "--batch-size", "8"]
    main(["train", "--data", "table.csv", "--out", "run", "--held-out", "0.2", *sizes])
    return tmp_path


def test_the_command_prints_the_figures_and_saves_them_and_writes_the_page(run, capsys):
    common = ["evaluate", "run", "--rows", "4", "--num-times", "8", "--samples", "50"]
    main([*common, "--report", "page.html", "--out", "figures.json", "--target", "colour"])
    shown = capsys.readouterr().out
    saved = json.loads((run / "figures.json").read_text())
    assert saved["report"]["rows"] == 50
    assert list(saved["report"]["columns"]) == ["colour", "kind", "size"]
    assert f"accuracy in predicting colour after training on these  {saved['report']['utility']:.6g} +- " in shown
    assert f", of data {saved['report']['auc_of_data']:.6g} +- " in shown
    assert (run / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_other_rows_may_stand_for_the_held_out_ones(run, capsys):
    (run / "other.csv").write_text((run / "table.csv").read_text())
    common = ["evaluate", "run", "--rows", "4", "--num-times", "8", "--samples", "50"]
    main([*common, "--data", "other.csv", "--report", "page.png"])
    assert "share of exact copies of training rows" in capsys.readouterr().out
    assert (run / "page.png").stat().st_size > 10_000
