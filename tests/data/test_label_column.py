"""A column of a table, or an array of an .npz file, as the labels of its rows."""

import numpy as np
import pytest
import torch

from sddm.cli import main
from sddm.codecs import Columns
from sddm.data import load

FLOWERS = "petal,species,colour\n" + "long,iris,blue\nshort,rose,red\nlong,rose,white\n" * 6
TINY = "--width 8 --layers 1 --heads 2 --mlp 8 --steps 2 --batch-size 4"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flowers.csv").write_text(FLOWERS)
    (tmp_path / "roses.csv").write_text("petal,species,colour\nlong,rose,blue\nshort,rose,red\nlong,rose,white\n" * 2)
    (tmp_path / "single.csv").write_text("species\niris\nrose\n")
    (tmp_path / "lines.txt").write_text("ab\nba\n")
    return tmp_path


def test_a_column_becomes_the_label_and_is_no_position(place):
    whole, data = load("flowers.csv"), load("flowers.csv", label_column="species")
    assert data.codec.names == ["petal", "colour"]
    assert data.label_names == ["iris", "rose"]
    assert (data.length, data.num_labels) == (2, 2)
    rows = [
        [petal, data.label_names[label], colour]
        for (petal, colour), label in zip(data.codec.decode(data.tokens[:]), data.labels.tolist(), strict=True)
    ]
    assert rows == whole.codec.decode(whole.tokens[:])
    assert isinstance(data.codec, Columns)
    assert data.num_states == 3


def test_a_column_of_numbers_is_a_label_as_its_values_are_written(place):
    (place / "numbers.csv").write_text("size,kind,same\n" + "".join(f"{row % 7}.5,{row % 3},x\n" for row in range(60)))
    data = load("numbers.csv", label_column="kind")
    assert data.label_names == ["0", "1", "2"]
    assert data.labels.tolist() == [row % 3 for row in range(60)]
    assert data.codec.written_names == ["size", "same"]


def test_a_parquet_file_and_a_csv_file_of_one_table_have_the_same_labels(place):
    whole = load("flowers.csv")
    whole.codec.write(whole.tokens[:], place / "flowers.parquet")
    one, other = (load(f"flowers.{ending}", label_column="colour") for ending in ("csv", "parquet"))
    assert torch.equal(one.tokens[:], other.tokens[:])
    assert torch.equal(one.labels, other.labels)
    assert one.label_names == other.label_names == ["blue", "red", "white"]


def test_an_array_of_another_name_is_the_labels_of_an_archive(place):
    rows, kinds = np.arange(12).reshape(6, 2) % 3, np.arange(6) % 2
    np.savez("data.npz", rows=rows, kinds=kinds)
    data = load("data.npz", label_column="kinds")
    assert torch.equal(data.tokens[:], torch.from_numpy(rows))
    assert data.labels.tolist() == kinds.tolist()


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("flowers.csv", "sort", "label_column is 'sort', but flowers.csv has no such column. It has 'petal', 'spec"),
        ("single.csv", "species", "label_column is 'species', but single.csv has no other column to learn. Give one."),
        ("lines.txt", "species", "label_column='species' was given, but only tables and .npz files take this option."),
        ("data.npz", "sort", "has no array 'sort'. It holds 'rows', 'few'"),
        ("data.npz", "few", "'few' of 'data.npz' has shape (3,), but it must hold one number for each of the 6 rows."),
    ],
)
def test_a_column_that_cannot_be_is_refused_in_a_sentence(source, column, message, place):
    np.savez("data.npz", rows=np.arange(12).reshape(6, 2) % 3, few=np.arange(3))
    with pytest.raises(ValueError) as error:
        load(source, label_column=column, **({"key": "rows"} if source == "data.npz" else {}))
    assert message in str(error.value)


def test_a_model_of_a_table_is_told_the_column_and_is_asked_for_its_values(place, capsys, at_full_speed):
    main(f"train --data flowers.csv --label-column species --out run {TINY}".split())
    assert "2 positions, 3 states, 2 labels." in capsys.readouterr().err
    main(["sample", "run", "--label", "rose", "--guidance", "2", "--num", "3", "--steps", "2"])
    assert capsys.readouterr().out.splitlines()[0] == "petal,colour"
    with pytest.raises(SystemExit):
        main(["sample", "run", "--label", "tulip"])
    assert "label is 'tulip', but the model knows 0 to 1, called 'iris', 'rose'." in capsys.readouterr().err
    main(["evaluate", "run", "--rows", "4", "--num-times", "8", "--samples", "0"])
    assert "given their labels" in capsys.readouterr().out


def test_rows_of_other_data_are_scored_by_the_names_of_their_labels(place, capsys, monkeypatch, at_full_speed):
    """There the labels may have other numbers, as some may be missing."""
    from sddm.commands import evaluate

    main(f"train --data flowers.csv --label-column species --out run {TINY}".split())
    (place / "rest.csv").write_text("petal,species,colour\nlong,rose,blue\nshort,rose,red\nlong,tulip,white\n")
    (place / "turned.csv").write_text("petal,species,colour\nlong,rose,blue\nshort,rose,red\nlong,iris,white\n")
    told, ordinary = [], evaluate.bound

    def bound(diffusion, rows, *arguments, labels, **options):
        told.append(labels.tolist())
        return ordinary(diffusion, rows, *arguments, labels=labels, **options)

    monkeypatch.setattr(evaluate, "bound", bound)
    line = "evaluate run --label-column species --num-times 8 --samples 0 --data"
    main(f"{line} turned.csv".split())
    assert told == [[1, 1, 0]]
    with pytest.raises(SystemExit):
        main(f"{line} rest.csv".split())
    assert "rest.csv has the labels 'tulip', but the model knows 'iris', 'rose'." in capsys.readouterr().err
