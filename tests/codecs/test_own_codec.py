"""A codec that is added with one line of a table is read, trained on, written, scored and saved, with its weights."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sddm.cli import main
from sddm.codecs import CODECS, Characters, Codec, Columns, Encoded, Integers, Points
from sddm.commands import evaluate, runs, sample
from sddm.data import Dataset, load
from sddm.diffusion import Diffusion
from sddm.metrics import METRICS, Metric, compare
from sddm.recipe import ModelConfig

SIZES = ["--width", "8", "--layers", "1", "--heads", "1", "--mlp", "8"]
TINY = [*SIZES, "--batch-size", "8", "--steps", "4", "--evaluate-every", "2", "--save-every", "2"]


class Quantizer(nn.Module):
    """Numbers to the nearest of four others."""

    def __init__(self):
        super().__init__()
        self.levels = nn.Parameter(torch.zeros(4))
        self.dropout = nn.Dropout(0.5)


class Levels(Codec):
    """Rows of real numbers in .real files; a folder of them is one data set."""

    num_states = 4

    def __init__(self):
        self.network = Quantizer()

    def encode(self, values):
        distances = (torch.as_tensor(values)[..., None] - self.network.levels.detach().cpu()).abs()
        return distances.argmin(-1)

    def decode(self, tokens):
        return self.network.levels.detach().cpu()[self.check(tokens)].numpy()

    def writers(self):
        return {".real": lambda tokens, path: path.write_bytes(self.decode(tokens).tobytes())}

    @classmethod
    def files(cls):
        return {".real": lambda path: cls.read([path])}

    @classmethod
    def folders(cls):
        return {".real": cls.read}

    @classmethod
    def read(cls, paths):
        codec = cls()
        parts = [np.frombuffer(path.read_bytes(), np.float32).reshape(-1, 5) for path in paths]
        codec.network.levels.data = torch.from_numpy(np.unique(np.concatenate(parts)))
        groups = [i for i, part in enumerate(parts) for _ in part]
        return Encoded(codec.encode(np.concatenate(parts)), codec, groups, labels=[g % 2 for g in groups])


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    monkeypatch.setitem(CODECS, "levels", Levels)
    monkeypatch.setitem(METRICS, "mean_gap", Metric("gap of means", mean_gap, codec=Levels))


def mean_gap(samples, data, codec):
    return float(abs(codec.decode(samples).mean() - codec.decode(data).mean()))


def rows(seed, num=12):
    levels = np.array([-1.5, 0.25, 2, 8], dtype=np.float32)
    return levels[np.random.default_rng(seed).integers(4, size=(num, 5))]


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "numbers"
    (folder / "more").mkdir(parents=True)
    for seed, name in enumerate(("a.real", "b.real", "more/c.REAL", "more/d.real")):
        (folder / name).write_bytes(rows(seed).tobytes())
    return folder


def test_one_line_of_a_table_is_all_that_a_codec_needs(files, tmp_path, capsys):
    run = tmp_path / "run"
    main(["train", "--data", str(files), "--out", str(run), "--held-out", "0.25", *TINY])
    assert len(list((run / "samples").glob("*.real"))) == 2
    main(["sample", str(run), "--num", "3", "--steps", "4", "--out", str(tmp_path / "made.real")])
    made = np.frombuffer((tmp_path / "made.real").read_bytes(), np.float32)
    assert set(made) <= {-1.5, 0.25, 2, 8}
    figures = tmp_path / "figures.json"
    main(["evaluate", str(run), "--samples", "8", "--steps", "4", "--num-times", "8", "--out", str(figures)])
    gap = json.loads(figures.read_text())["mean_gap"]
    assert 0 <= gap <= 9.5
    assert f"gap of means  {gap:.6g}" in capsys.readouterr().out


def test_a_metric_is_measured_for_the_codecs_that_it_suits_and_where_there_are_enough_rows(files):
    data = load(files)
    names = [figure.name for figure in compare(data.tokens[:6], data.tokens[6:], data.codec)]
    assert names == ["mmd", "mean_gap"]
    assert [figure.name for figure in compare(data.tokens[:6], data.tokens[6:9], data.codec)] == ["mean_gap"]
    assert [figure.name for figure in compare(data.tokens[:6], data.tokens[6:], Integers(4))] == ["mmd"]


def test_the_weights_of_a_codec_are_saved_with_the_model_and_not_trained(files, tmp_path):
    run = tmp_path / "run"
    main(["train", "--data", str(files), "--out", str(run), *TINY])
    levels = load(files).codec.network.levels
    saved = load_file(run / "model" / "model.safetensors")
    assert [name for name in saved if name.startswith("codec.")] == ["codec.levels"]
    assert torch.equal(saved["codec.levels"], levels)
    diffusion = runs.trained(str(run))
    assert diffusion.codec == load(files).codec
    assert not any(parameter is diffusion.codec.network.levels for parameter in diffusion.parameters())
    assert not diffusion.codec.network.levels.requires_grad
    assert not diffusion.train().codec.network.training
    assert diffusion.decode(torch.tensor([[3, 0, 1, 2, 2]])).tolist() == [[8, -1.5, 0.25, 2, 2]]


def test_a_model_that_is_still_trained_has_the_weights_of_its_codec(files, tmp_path):
    run = tmp_path / "run"
    main(["train", "--data", str(files), "--out", str(run), *TINY])
    whole = load_file(run / "model" / "model.safetensors")
    shutil.rmtree(run / "model")
    assert runs.trained(str(run)).codec == load(files).codec
    main(["train", "--out", str(run), "--resume"])
    again = load_file(run / "model" / "model.safetensors")
    assert again.keys() == whole.keys()
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def test_a_codec_moves_with_its_diffusion(files):
    diffusion = Diffusion.from_pretrained(untrained(files, files.parent / "saved"))
    assert diffusion.to("meta").codec.network.levels.device.type == "meta"


def untrained(files, folder):
    ModelConfig(width=8, layers=1, heads=1, mlp=8).build(load(files)).save_pretrained(folder)
    return folder


def test_codecs_with_other_weights_are_not_equal(files):
    codec, other = load(files).codec, load(files).codec
    assert codec == other
    other.network.levels.data[0] = 7
    assert codec != other


def test_samples_that_are_no_text_are_not_printed(files, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["sample", str(untrained(files, tmp_path / "saved"))])
    assert "Samples of this model are not text. Name a file for them with --out, such as samples.real" in (
        capsys.readouterr().err
    )


def test_a_model_saved_with_the_earlier_name_of_its_codec_is_loaded(files, tmp_path):
    folder = untrained(files, tmp_path / "saved")
    config = json.loads((folder / "config.json").read_text())
    config["decoder"] = config.pop("codec")
    (folder / "config.json").write_text(json.dumps(config))
    assert Diffusion.from_pretrained(folder).codec == load(files).codec


def test_no_command_asks_for_the_type_of_a_codec():
    for command in (evaluate, sample):
        assert not {kind.__name__ for kind in (Characters, Columns, Points)} & vars(command).keys()


# ---- folders, groups, labels


def test_a_split_keeps_all_rows_of_a_group_on_one_side(files):
    data = load(files)
    assert data.groups.tolist() == [g for g in range(4) for _ in range(12)]
    seen = []
    for seed in range(20):
        kept, apart = data.split(0.25, seed)
        assert len(kept) == len(kept.groups) == len(kept.labels) == 36
        assert not set(kept.groups.tolist()) & set(apart.groups.tolist())
        assert apart.labels.tolist() == [int(apart.groups[0]) % 2] * 12
        expected = load(files).codec.encode(rows(int(apart.groups[0])))
        assert torch.equal(apart.tokens[:], expected)
        seen.append(int(apart.groups[0]))
    assert len(set(seen)) == 4  # a group is left out of 20 splits with probability 4 * 0.75**20 = 1%: seeds are fixed


def test_as_many_groups_are_held_out_as_make_the_share():
    data = Dataset(np.arange(1_000)[:, None] % 7, Integers(7), groups=[i // 3 for i in range(1_000)])
    for share in (0.01, 0.3, 0.9):
        assert abs(len(data.split(share, 0)[1]) - 1_000 * share) <= 3


def test_windows_of_one_file_of_a_folder_are_a_group(tmp_path):
    (tmp_path / "a.txt").write_text("abcdef")
    (tmp_path / "b.txt").write_text("bad")
    data = load(tmp_path, window=3)
    assert data.codec.decode(data.tokens[:]) == ["abc", "def", "bad"]
    assert data.groups.tolist() == [0, 0, 1]
    assert load(tmp_path).codec.decode(load(tmp_path).tokens[:]) == ["abcdef", "bad"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Dataset(torch.tensor([[0], [1]]), Integers(2), groups=[1]), "groups must hold one whole number for"),
        (lambda: Dataset(torch.tensor([[0], [1]]), Integers(2), labels=[0.5, 1]), "labels must hold one whole number"),
        (
            lambda: Dataset(torch.tensor([[0], [1]]), Integers(2), groups=[1, 1]).split(0.5, 0),
            "are in one group",
        ),
    ],
)
def test_bad_groups_are_answered_by_one_sentence(without_annotation_checks, make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_a_folder_is_read_if_most_of_its_files_are_of_one_kind(files):
    (files / "README.txt").write_text("ab\nba\n")
    assert len(load(files)) == 48
    with pytest.raises(ValueError, match=r"window=3 was given, but only \.txt, .* files and moby-dick.* take this"):
        load(files, window=3)
    for name in ("more/a.txt", "more/b.txt", "c.txt"):
        (files / name).write_text("ab\nba\n")
    with pytest.raises(
        IsADirectoryError,
        match=r"or a folder most files of which end in one of \.txt, \.mid, \.midi, \.png, .*, \.real\.",
    ):
        load(files)
