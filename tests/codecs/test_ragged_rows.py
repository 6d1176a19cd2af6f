"""Rows of different lengths from files, from Python and back, and a run on them from the command line."""

import json

import numpy as np
import pytest
import torch

import sddm
from sddm.cli import main
from sddm.codecs import Characters, Integers, saved_names
from sddm.config import describe
from sddm.data import Dataset, load

LINES = ["the cat sat", "a dog", "a cat ran off", "the dog sat", "a cat sat", "the cat"] * 6
TINY = ["--width", "8", "--layers", "1", "--heads", "2", "--mlp", "8", "--batch-size", "8", "--steps", "6"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "lines.txt"
    path.write_text("\n".join(LINES))
    return path


def test_lines_are_read_with_their_lengths_if_that_is_asked_for(text):
    inside, separate = load(text), load(text, lengths="separate")
    assert inside.codec.padded
    assert inside.lengths is None
    assert separate.codec.ragged
    assert separate.num_states == inside.num_states - 1
    assert separate.lengths.tolist() == [len(line) for line in LINES]
    for data in (inside, separate):  # what stands behind the ends of rows is the same number
        assert torch.equal(data.tokens[:], inside.tokens[:])
        assert data.codec.decode(data.tokens[:]) == LINES
    assert load(text, lengths="separate", window=4).codec == load(text, window=4).codec
    assert separate.fingerprint() != inside.fingerprint()


def test_a_folder_of_texts_has_lengths_too(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("one\nthree\n")
    data = load(tmp_path, lengths="separate")
    assert data.lengths.tolist() == [3, 5, 3, 5]
    assert data.groups.tolist() == [0, 0, 1, 1]


def test_what_was_saved_before_is_described_as_it_was():
    names = saved_names()
    assert describe(Characters("ab", True), names) == {"type": "characters", "alphabet": "ab", "padded": True}
    assert describe(Integers(3), names) == {"type": "integers", "num_states": 3, "offset": 0}


def test_rows_of_numbers_are_taken_from_lists_and_arrays():
    rows = [[0, 2], np.array([1, 1, 4]), torch.tensor([3])]
    data = Dataset.from_rows(rows)
    assert data.codec == Integers(5, ragged=True)
    assert data.lengths.tolist() == [2, 3, 1]
    assert data.tokens[:].tolist() == [[0, 2, 5], [1, 1, 4], [3, 5, 5]]
    assert [row.tolist() for row in data.codec.decode(data.tokens[:])] == [[0, 2], [1, 1, 4], [3]]
    assert Dataset.from_rows(rows, num_states=9).num_states == 9
    plain = Dataset.from_rows([[0, 1], [1, 2]])
    assert plain.codec == Integers(3)
    assert plain.lengths is None


def test_an_npz_file_with_lengths_is_read_and_written(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, anything=np.array([[1, 2, 7], [0, 7, 7], [3, 3, 3]]), lengths=np.array([2, 1, 3]))
    data = load(path)
    assert data.lengths.tolist() == [2, 1, 3]
    assert data.num_states == 4  # what stands behind the ends is not read
    again = tmp_path / "again.npz"
    data.codec.write(data.tokens[:], again)
    assert load(again).fingerprint() == data.fingerprint()
    data.codec.write(data.tokens[:], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "1,2\n0\n3,3,3\n"
    assert data.codec.default_ending == ".npz"


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Characters("ab", padded=True, ragged=True), ValueError, "Lines are padded or ragged, not both"),
        (lambda: Dataset.from_rows([]), ValueError, "rows holds no rows. Give at least one"),
        (lambda: Dataset.from_rows([[1, 2], []]), TypeError, "A row of rows must hold whole numbers"),
        (lambda: Dataset.from_rows([[1, 2], [0.5]]), TypeError, "A row of rows must hold whole numbers"),
        (lambda: Dataset.from_rows([[1, -2], [0]]), ValueError, "rows must not hold negative numbers"),
        (lambda: Dataset.from_rows([[1, 1], [1]]), ValueError, "All tokens of rows equal 1: there is nothing to learn"),
        (lambda: Dataset.from_rows([[1, 5], [1]], num_states=3), ValueError, "rows holds 5, but num_states is 3"),
        (
            lambda: Dataset(torch.tensor([[0, 1, 2]]), Integers(2, ragged=True)),
            ValueError,
            "rows of different lengths, as its codec says. Give lengths",
        ),
        (
            lambda: Characters.of_rows(["a", "bc"], "x", lengths="apart"),
            ValueError,
            "lengths must be one of inside, sep",
        ),
    ],
)
def test_rows_that_cannot_be_are_refused(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


@pytest.mark.parametrize(("lengths", "sentence"), [([1, 4], "between 1 and the 3 positions"), ([1], "shape")])
def test_lengths_in_a_file_that_do_not_fit_are_refused(lengths, sentence, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([[0, 1, 1], [1, 0, 1]]), lengths=np.array(lengths))
    with pytest.raises(ValueError, match=sentence):
        load(tmp_path / "a.npz")


def test_a_run_on_rows_of_different_lengths_is_sampled_and_scored_from_the_command_line(text, tmp_path, capsys):
    run = tmp_path / "run"
    main(["train", "--data", str(text), "--lengths", "separate", "--out", str(run), *TINY])
    diffusion = sddm.Diffusion.from_pretrained(run / "model")
    assert sum(diffusion.lengths.counts) == 32  # of the 36 rows, those that are trained on
    capsys.readouterr()
    main(["sample", str(run), "--num", "20"])
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) > 2
    assert lines == diffusion.decode(diffusion.sample(20, seed=0))
    main(["sample", str(run), "--num", "3", "--length", "4"])
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [4, 4, 4]
    main(["sample", str(run), "--num", "5", "--prefix", "the do"])
    assert all(line.startswith("the do") for line in capsys.readouterr().out.splitlines())
    main(["sample", str(run), "--num", "20", "--batch-size", "3", "--out", str(tmp_path / "x.txt")])
    assert (tmp_path / "x.txt").read_text().splitlines() == lines
    figures = tmp_path / "figures.json"
    main(["evaluate", str(run), "--num-times", "8", "--samples", "4", "--out", str(figures)])
    written = json.loads(figures.read_text())
    assert 0 < written["bits_per_dim_in_order"] < 20
    assert np.isfinite(written["mmd"])


def test_a_model_of_separate_lengths_is_scored_on_lines_that_were_read_otherwise(text, tmp_path):
    data = load(text, lengths="separate")
    sddm.recipe.ModelConfig(width=8, layers=1).build(data).save_pretrained(tmp_path / "model")
    (tmp_path / "other.txt").write_text("the cat\na dog sat\n" * 3)
    main(["evaluate", str(tmp_path / "model"), "--data", str(tmp_path / "other.txt"), "--samples", "0"])
