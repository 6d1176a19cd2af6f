"""The experiment on pictures, with made-up ones in place of CIFAR-10 and a tiny network in place of Inception."""

import numpy as np
import pytest
from PIL import Image

from scripted import tiny_inception
from sddm.codecs import Pixels
from sddm.data import Dataset
from sddm.experiments import image_report, images, timed, tokenized
from sddm.experiments.runner import reproduce
from sddm.metrics import inception
from sddm.tokenizers.config import TokenizerConfig

SIDE, NUM = 8, 24


def made(name, size=None):
    pixels = Pixels(size or SIDE, size or SIDE, levels=256)
    seed = 1 if name == tokenized.TEST else 0
    pictures = np.random.default_rng(seed).integers(256, size=(NUM, pixels.height, pixels.width, 3), dtype=np.uint8)
    return Dataset(pixels.compact(pictures), pixels, name=name)


@pytest.fixture
def small(monkeypatch, tmp_path, without_annotation_checks):
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(inception.VARIABLE, str(tiny_inception(tmp_path)))
    config = TokenizerConfig(
        steps=4, batch_size=4, filters=4, multipliers=(1, 2), blocks=1, codes=512, code_width=4, evaluate_every=2
    )
    load = tokenized.load
    monkeypatch.setattr(
        tokenized, "load", lambda name, **how: made(name, **how) if isinstance(name, str) else load(name)
    )
    monkeypatch.setattr(tokenized, "APART", 4)
    monkeypatch.setattr(tokenized, "TOKENIZERS", {"small": tokenized.Tokenized(config)})
    monkeypatch.setattr(images, "TOKENIZERS", tokenized.TOKENIZERS)
    monkeypatch.setattr(images, "SIDES", {images.SMALL_PIXELS: 2, images.PICTURES: SIDE})
    monkeypatch.setattr(images, "GRID", (4, 4))
    for name, value in (("MANY", 20), ("FEWER", 20), ("REFERENCE", 20), ("BOUND_ROWS", 4), ("BOUND_TIMES", 8)):
        monkeypatch.setattr(images, name, value)
    monkeypatch.setattr(images, "STEPS", (2, 3))
    monkeypatch.setattr(images, "SCALES", {"small": images.Sized(1e-4, 8, 1, 3, 4)})
    monkeypatch.setattr(image_report, "COMPLETED", 2)
    monkeypatch.setattr(timed, "POINTS", 1)
    tokenized.pixels.cache_clear()
    yield images.Images
    tokenized.pixels.cache_clear()


def test_models_of_codes_and_of_pixels_are_measured_beside_the_test_set(small, tmp_path):
    results = reproduce(small("small"), tmp_path / "out", tmp_path / "work")
    assert [(r["row"], r["column"]) for r in results] == [tuple(cell) for cell in small("small").cells()]
    for result in results:
        figures = result["figures"]
        assert figures["fid"] >= 0
        assert figures["fid_standard_error"] > 0
        assert ("bits" in figures) == (result["row"] != images.TEST_SET)
    folder = tmp_path / "out" / "images"
    table = (folder / "tables.md").read_text()
    assert all(f"## {column}" in table for column in small("small").columns)
    assert "| 16.47 |" in table  # the paper's
    assert "share of the codes in use" in (folder / "tokenizer.md").read_text()
    with Image.open(folder / "sddm-vq-hollow-analytical-reverse.png") as sheet:
        across, down = image_report.SHOWN_TIMES, image_report.COMPLETED
        assert sheet.width / sheet.height == pytest.approx(across / down, rel=0.05)
    with Image.open(folder / "sddm-vq-hollow-analytical-completed.png") as sheet:  # each picture, then its completions
        assert sheet.width / sheet.height == pytest.approx((1 + image_report.WAYS) / image_report.COMPLETED, rel=0.05)


def test_the_tokenizer_is_trained_once_and_its_codes_are_those_of_the_pictures(small):
    corpus = tokenized.TOKENIZERS["small"].corpus()
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [NUM - 4, 4, NUM]
    weights = tokenized.TOKENIZERS["small"].folder / "model" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = tokenized.TOKENIZERS["small"].corpus()
    assert weights.stat().st_mtime_ns == before
    test = made(tokenized.TEST)
    assert (again.test.tokens[:] == again.test.codec.encode(test.codec.decode(test.tokens[:]))).all()


def test_the_steps_table_has_each_system_at_each_number_of_evaluations(small, tmp_path):
    experiment = images.ImagesSteps("small")
    results = reproduce(experiment, tmp_path / "out", tmp_path / "work", cells=["D3PM*", "*hollow, Euler*"])
    assert len(results) == 4
    table = (tmp_path / "out" / "images" / "steps" / "tables.md").read_text()
    assert "| KID x 1000 | 2 | 3 |" in table
    assert (tmp_path / "out" / "images" / "steps" / "curve.png").stat().st_size > 1_000
