"""Features of many pictures: parts that are kept, and calls that were stopped."""

import importlib

import numpy as np
import pytest
import torch

from scripted import tiny_inception
from sddm.metrics import feature_folder, features, load_inception

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
module = importlib.import_module("sddm.metrics.features")  # the package has a function of this name
EPS = torch.finfo(torch.float32).eps
NUM, PART = 10, 4
PICTURES = np.random.default_rng(0).integers(0, 256, (NUM, 32, 32, 3), dtype=np.uint8)


class Counting:
    """A network that counts the pictures that it was given, and stops after so many."""

    def __init__(self, network, most=1000):
        self.network, self.digest, self.most, self.num = network, network.digest, most, 0

    def features(self, pictures):
        self.num += len(pictures)
        if self.num > self.most:
            raise KeyboardInterrupt
        return self.network.features(pictures)


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PART", PART)
    return load_inception(tiny_inception(tmp_path))


def files():
    return sorted(feature_folder().glob("*.safetensors"))


def test_a_call_that_was_stopped_goes_on_and_gives_what_it_gives_straight_through(network):
    straight = features(PICTURES, network, keep=False)
    assert not feature_folder().exists()
    stopped = Counting(network, most=2 * PART)
    with pytest.raises(KeyboardInterrupt):
        features(PICTURES, stopped, batch=2)
    assert len(files()) == 2
    rest = Counting(network)
    assert torch.equal(features(PICTURES, rest, batch=2), features(PICTURES, network, keep=False, batch=2))
    assert rest.num == NUM - 2 * PART
    again = Counting(network)
    features(PICTURES, again)
    assert again.num == 0
    torch.testing.assert_close(features(PICTURES, network), straight, rtol=0, atol=3 * 23**2 * EPS)  # other batches


def test_the_first_of_many_pictures_are_not_computed_again(network):
    features(PICTURES[: 2 * PART], network)
    counting = Counting(network)
    features(PICTURES, counting)
    assert counting.num == NUM - 2 * PART


def test_features_of_other_pictures_or_of_another_network_are_never_taken(network, tmp_path):
    features(PICTURES, network)
    changed = PICTURES.copy()
    changed[0, 0, 0, 0] ^= 1
    turned = PICTURES.reshape(NUM, 16, 64, 3)  # the same bytes
    for pictures, other, num in (
        (changed, network, PART),
        (turned, network, NUM),
        (PICTURES, load_inception(tiny_inception(tmp_path, seed=1)), NUM),
    ):
        counting = Counting(other)
        assert torch.equal(features(pictures, counting), features(pictures, other, keep=False))
        assert counting.num == num


def test_a_damaged_part_is_computed_again(network):
    expected = features(PICTURES, network)
    content = bytearray(files()[0].read_bytes())
    content[-1] ^= 1
    files()[0].write_bytes(content)
    files()[1].write_bytes(b"")
    counting = Counting(network)
    assert torch.equal(features(PICTURES, counting), expected)
    assert counting.num in (2 * PART, PART + NUM % PART)  # the last part is smaller
    features(PICTURES, counting)
    assert counting.num <= 2 * PART


def test_arrays_tensors_and_files_on_disk_give_the_same(network, tmp_path):
    expected = features(PICTURES, network, keep=False)
    np.save(tmp_path / "pictures.npy", PICTURES)
    mapped = np.load(tmp_path / "pictures.npy", mmap_mode="r")
    for pictures in (torch.from_numpy(PICTURES), mapped):
        assert torch.equal(features(pictures, network, keep=False), expected)


def test_parts_are_kept_where_one_says(network, tmp_path):
    features(PICTURES, network, folder=tmp_path / "mine")
    assert len(list((tmp_path / "mine").iterdir())) == 3
    assert not feature_folder().exists()


def test_progress_is_shown_if_it_is_asked_for(network, capsys):
    features(PICTURES, network, progress=True)
    assert f"/{NUM} [" in capsys.readouterr().err
    features(PICTURES, network)
    assert capsys.readouterr().err == ""


def test_a_wrong_batch_is_refused(network):
    with pytest.raises(ValueError, match="batch must be at least 1, but it is 0"):
        features(PICTURES, network, batch=0)
