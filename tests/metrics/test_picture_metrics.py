"""KID and FID in `sddm evaluate`: of codecs that decode to pictures, if the network is on the machine."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripted import tiny_inception
from sddm import Diffusion
from sddm.cli import main
from sddm.codecs import CODECS, Codec, Encoded, Integers
from sddm.marginals import Hollow
from sddm.metrics import METRICS, compare, feature_folder, features, fid, inception, kid, left_out, load_inception
from sddm.processes import Uniform
from sddm.schedules import Constant

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
SIDE = 3


class Dots(Codec):
    """Black and white pictures of 3 x 3 pixels, in .dots files."""

    num_states = 2
    pictures = True

    def encode(self, values):
        return torch.tensor(values.reshape(len(values), -1) // 255).long()

    def decode(self, tokens):
        return (255 * self.check(tokens).numpy()).astype(np.uint8).reshape(-1, SIDE, SIDE, 1)

    @classmethod
    def files(cls):
        return {".dots": lambda path: cls.read(path)}

    @classmethod
    def read(cls, path):
        values = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, SIDE, SIDE, 1)
        return Encoded(cls().encode(values), cls())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(CODECS, "dots", Dots)
    monkeypatch.setitem(METRICS, "fid", replace(METRICS["fid"], rows=24))


@pytest.fixture
def named(tmp_path, monkeypatch):
    path = tiny_inception(tmp_path)
    monkeypatch.setenv(inception.VARIABLE, str(path))
    return load_inception()


def tokens(num, seed):
    return torch.randint(2, (num, SIDE * SIDE), generator=torch.Generator().manual_seed(seed))


def figures(samples, data, codec):
    return {figure.name: figure for figure in compare(samples, data, codec)}


def test_pictures_are_compared_by_the_features_of_the_network(named):
    samples, data = tokens(24, 0), tokens(30, 1)
    found = figures(samples, data, Dots())
    of_samples, of_data = (features(Dots().decode(rows), named, keep=False) for rows in (samples, data))
    for name, expected in (("kid", kid(of_samples, of_data[:24])), ("fid", fid(of_samples, of_data))):
        assert found[name].value == pytest.approx(expected.value, rel=1e-4, abs=1e-9)  # other batches: float32 rounding
        assert found[name].standard_error == pytest.approx(expected.standard_error, rel=1e-4, abs=1e-9)
    assert left_out(samples, data, Dots()) == []


def test_the_features_of_the_data_are_kept_and_those_of_samples_computed_once(named, monkeypatch):
    calls = []
    compute = inception.Inception.features
    monkeypatch.setattr(
        inception.Inception, "features", lambda self, batch: calls.append(len(batch)) or compute(self, batch)
    )
    samples, data = tokens(24, 2), tokens(24, 3)
    compare(samples, data, Dots())
    assert sum(calls) == 48
    assert len(list(feature_folder().iterdir())) == 1
    compare(tokens(24, 4), data, Dots())
    assert sum(calls) == 48 + 24


def test_fid_needs_more_pictures_than_kid(named):
    assert set(figures(tokens(23, 0), tokens(30, 1), Dots())) == {"mmd", "kid"}


def test_without_the_network_they_are_left_out_and_a_note_says_how_to_get_it():
    samples, data = tokens(24, 0), tokens(30, 1)
    assert set(figures(samples, data, Dots())) == {"mmd"}
    (note,) = left_out(samples, data, Dots())
    assert note.startswith(
        "Left out: KID of samples and data, FID of samples and data. The Inception network is not on"
    )


def test_tokens_that_are_no_pictures_have_neither_figure_nor_note(named, monkeypatch):
    samples, data = tokens(24, 0), tokens(30, 1)
    assert set(figures(samples, data, Integers(2))) == {"mmd"}
    monkeypatch.delenv(inception.VARIABLE)
    assert left_out(samples, data, Integers(2)) == []


def test_the_command_prints_the_note_or_the_figures(tmp_path, monkeypatch, capsys):
    process = Uniform(2, Constant(1.0)).leaving(0.02)
    model = Hollow.for_process(process, SIDE * SIDE, width=8, layers=1, heads=2, mlp=8)
    Diffusion(process, model, codec=Dots()).save_pretrained(tmp_path / "model")
    (tmp_path / "data.dots").write_bytes(Dots().decode(tokens(30, 0)).tobytes())
    out = tmp_path / "figures.json"
    command = ["evaluate", str(tmp_path / "model"), "--data", str(tmp_path / "data.dots"), "--num-times", "8"]
    command += ["--samples", "24", "--steps", "2", "--out", str(out)]
    main(command)
    assert "Left out: KID" in capsys.readouterr().err
    assert "kid" not in json.loads(out.read_text())
    monkeypatch.setenv(inception.VARIABLE, str(tiny_inception(tmp_path)))
    main(command)
    shown = capsys.readouterr()
    assert "Left out" not in shown.err
    assert "KID of samples and data  " in shown.out
    assert {"kid", "kid_standard_error", "fid", "fid_standard_error"} <= json.loads(out.read_text()).keys()
