"""Handwritten digits, from an archive with the layout of the package."""

from dataclasses import replace

import numpy as np
import pytest

from archives import checksum, tgz
from sddm.codecs import Pixels
from sddm.data import digits, load
from sddm.formats.idx import read_idx

PICTURES = {"train": 12, "t10k": 5}


def pictures(part):
    return np.random.RandomState(len(part)).randint(0, 256, (PICTURES[part], 28, 28)).astype(np.uint8)


def labels(part):
    return (np.arange(PICTURES[part]) % 10).astype(np.uint8)


def idx(array):
    """As the files were published: two zeros, the code of unsigned bytes, the axes, their sizes, the values."""
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that puts a package into the cache; files may be exchanged."""
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def made(**changed):
        files = {}
        for part in PICTURES:
            files[f"package/data/{part}-images-idx3-ubyte"] = idx(pictures(part))
            files[f"package/data/{part}-labels-idx1-ubyte"] = idx(labels(part))
        files |= {f"package/data/{name.replace('_', '-')}-ubyte": content for name, content in changed.items()}
        small = digits.MNIST
        small.path.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(digits, "MNIST", replace(small, sha256=checksum(tgz(small.path, files))))

    return made


@pytest.mark.parametrize(("name", "part"), [("digits", "train"), ("digits-test", "t10k")])
def test_by_name_they_are_grey_pictures_with_their_digits_as_labels(package, name, part):
    package()
    data = load(name)
    assert data.codec == Pixels(28, 28, 1)
    assert np.array_equal(data.codec.decode(data.tokens[:])[..., 0], pictures(part))
    assert data.labels.tolist() == labels(part).tolist()
    assert (data.num_labels, data.label_names) == (10, list("0123456789"))
    assert data.report.startswith(f"{PICTURES[part]} handwritten digits")


def test_they_can_be_smaller_and_of_fewer_levels(package):
    package()
    data = load("digits", size=7, levels=4)
    assert (data.length, data.num_states) == (49, 4)
    assert data.codec == Pixels(7, 7, 1, 4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images_idx3": b"no such file"}, "is not an IDX file of unsigned bytes"),
        ({"train_images_idx3": idx(pictures("train"))[:-1]}, r"has 9423 bytes, but its beginning says 9424"),
        ({"train_labels_idx1": idx(labels("t10k"))}, "does not hold pictures of the digits 0 to 9 with a label each"),
        ({"train_labels_idx1": idx(labels("train") + 5)}, "does not hold pictures of the digits 0 to 9"),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(package, changed, message):
    package(**changed)
    with pytest.raises(ValueError, match=message):
        load("digits")


def test_an_array_is_read_from_its_bytes_whatever_its_axes():
    for shape in ((3,), (2, 5), (4, 3, 2)):
        array = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
        assert np.array_equal(read_idx(idx(array), "it"), array)
