"""CIFAR-10 from small files of its layout: in a folder, in an archive, and by name from a package in the cache."""

import gzip
import io
import json
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from archives import checksum, tgz
from sddm.codecs import Pixels
from sddm.data import cifar, load
from sddm.data.packages import Package
from sddm.formats import arrays
from sddm.formats import cifar as layout

RECORDS = 3
BATCHES = (*layout.TRAIN, *layout.TEST)
PICTURES = np.random.RandomState(0).randint(0, 256, (6, RECORDS, 32, 32, 3)).astype(np.uint8)
LABELS = np.random.RandomState(1).randint(0, 10, (6, RECORDS)).astype(np.uint8)


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "RECORDS", RECORDS)
    monkeypatch.setattr(cifar, "RECORDS", RECORDS)
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def batch(number):
    """A file as the layout says: for each picture its label, then all of red, all of green, all of blue."""
    return b"".join(
        struct.pack("B", label) + b"".join(picture[:, :, channel].tobytes() for channel in range(3))
        for label, picture in zip(LABELS[number], PICTURES[number], strict=True)
    )


def files(**changed):
    """The files of the layout by name; those that are None are missing."""
    found = {f"{name}.bin": batch(number) for number, name in enumerate(BATCHES)} | {"batches.meta.txt": b"airplane\n"}
    found |= {f"{name}.bin": content for name, content in changed.items()}
    return {name: content for name, content in found.items() if content is not None}


def folder(path, **changed):
    path.mkdir(parents=True)
    for name, content in files(**changed).items():
        (path / name).write_bytes(content)
    return path


def archive(path, **changed):
    return tgz(path, {f"cifar-10-batches-bin/{name}": content for name, content in files(**changed).items()})


def is_train(data):
    pictures = data.codec.decode(data.tokens[:])
    return (
        np.array_equal(pictures, PICTURES[:5].reshape(-1, 32, 32, 3))
        and data.labels.tolist() == LABELS[:5].flatten().tolist()
    )


def is_test(data):
    return np.array_equal(data.codec.decode(data.tokens[:]), PICTURES[5]) and data.labels.tolist() == LABELS[5].tolist()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package of the registry, in the cache."""
    pages = {}
    for name, pictures in zip(BATCHES, PICTURES, strict=True):
        page = io.BytesIO()
        Image.fromarray(pictures.reshape(RECORDS, 1024, 3)).save(page, format="PNG")
        pages[f"package/{name}.png"] = page.getvalue()
    pages["package/train_lables.json"] = json.dumps(LABELS[:5].flatten().tolist()).encode()
    pages["package/test_lables.json"] = json.dumps(LABELS[5].tolist()).encode()
    source = tgz(tmp_path / "cifar.tgz", pages)
    small = Package("npm", "cifar", "1.0", checksum(source))
    small.path.parent.mkdir(parents=True)
    source.rename(small.path)
    monkeypatch.setattr(cifar, "CIFAR", small)
    return small


# ---- three ways


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "data/cifar-10-batches-bin", "elsewhere"])
def test_a_folder_of_the_layout_gives_pictures_and_labels(place, tmp_path):
    folder(tmp_path / place)
    named = tmp_path / place.split("/", maxsplit=1)[0]
    data = load(named)
    assert data.codec == Pixels(32, 32)
    assert is_train(data)
    assert is_test(load(named, test=True))
    assert "Labels from 0: airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck." in data.report


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "mine.TGZ"])
def test_an_archive_of_the_layout_is_read_and_nothing_is_unpacked_to_the_disk(name, tmp_path):
    archive(tmp_path / name)
    assert is_train(load(tmp_path / name))
    assert is_test(load(tmp_path / name, test=True))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_by_name_it_is_decoded_once_and_then_mapped_from_the_cache(package, monkeypatch):
    assert is_train(load("cifar10"))
    monkeypatch.setattr(cifar, "_decoded", None)  # from now on decoding would fail
    monkeypatch.setattr(arrays, "MAPPED_FROM", 0)
    data = load("cifar10")
    assert is_train(data)
    assert data.tokens.in_file


def test_the_pictures_to_test_on_have_a_name_of_their_own(package):
    assert is_test(load("cifar10-test"))


@pytest.mark.parametrize("what", ["pictures", "labels"])
@pytest.mark.parametrize("damage", ["missing", "cut", "of another shape"])
def test_a_damaged_cache_is_made_again(what, damage, package, tmp_path):
    load("cifar10")
    path = tmp_path / "cache" / "cifar10" / f"train-{what}-1.0.npy"
    before = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(before[:-1])
    elif damage == "of another shape":
        np.save(path, np.zeros((2, 2), np.uint8))
    assert is_train(load("cifar10"))
    assert path.read_bytes() == before


def test_all_three_take_the_options_of_pictures(package, tmp_path):
    made = [
        load(source, size=8, levels=16, grey=True)
        for source in ("cifar10", folder(tmp_path / "folder"), archive(tmp_path / "a.tgz"))
    ]
    for data in made:
        assert data.codec == Pixels(8, 8, 1, 16)
        assert data.fingerprint() == made[0].fingerprint()
        assert np.array_equal(data.tokens[:], made[0].tokens[:])


# ---- bad files


def wrong_label(number=0):
    content = bytearray(batch(number))
    content[3073] = 10
    return bytes(content)


BAD = [
    ({"data_batch_3": None}, r"has no file 'data_batch_3\.bin', which CIFAR-10 has\. Fetch it again\."),
    (
        {"data_batch_5": batch(0)[:-1]},
        r"'data_batch_5\.bin' of '.*' has 9218 bytes, but a file of CIFAR-10 has 3 records of 3073\.",
    ),
    ({"data_batch_2": batch(0) + b"\0"}, "has 9220 bytes"),
    ({"data_batch_1": b""}, "has 0 bytes"),
    ({"data_batch_4": wrong_label()}, r"has labels from \d to 10, but those of CIFAR-10 are 0 to 9\."),
]


@pytest.mark.parametrize(("changed", "match"), BAD)
@pytest.mark.parametrize("make", [folder, archive])
def test_a_bad_file_of_the_layout_is_answered_by_a_sentence(make, changed, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        load(make(tmp_path / "a.tgz" if make is archive else tmp_path / "a", **changed))


@pytest.mark.parametrize("damage", ["cut", "checksum", "no archive", "zeros", "empty"])
def test_a_damaged_archive_is_answered_by_a_sentence(damage, tmp_path):
    whole = archive(tmp_path / "a.tar.gz").read_bytes()
    content = {
        "cut": whole[: len(whole) // 2],
        "checksum": whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        "no archive": b"<html>not found</html>",
        "zeros": gzip.compress(b"x" * 2_000),
        "empty": gzip.compress(b""),
    }[damage]
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"is damaged or not a \.tar\.gz archive \(.*\)\. Fetch it again\.$"):
        load(tmp_path / "a.tar.gz")


def hostile(path, change, number=0):
    """An archive in which a file of the layout is something else."""
    with tarfile.open(path, "w:gz") as made:
        for name, content in files().items():
            info = tarfile.TarInfo(f"../../{name}")
            info.size = len(content)
            if name == f"{BATCHES[number]}.bin":
                info = change(info)
            made.addfile(info, io.BytesIO(content) if info.size else None)
    return path


def link(info):
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
    return info


def pipe(info):
    info.type, info.size = tarfile.FIFOTYPE, 0
    return info


@pytest.mark.parametrize("change", [link, pipe])
def test_links_and_pipes_of_an_archive_are_not_followed(change, tmp_path):
    with pytest.raises(ValueError, match=r"has no file 'data_batch_1\.bin'"):
        load(hostile(tmp_path / "a.tgz", change))


def test_a_path_that_leads_out_of_an_archive_leads_nowhere(tmp_path):
    (tmp_path / "in" / "side").mkdir(parents=True)
    assert is_train(load(hostile(tmp_path / "in" / "side" / "a.tgz", lambda info: info)))
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.tgz")
    monkeypatch.setattr(layout, "LARGEST", 10_000)
    with pytest.raises(ValueError, match=r"unpacks to more than 10000 bytes, .* Name another archive\."):
        load(path)
    monkeypatch.setattr(layout, "LARGEST", 1 << 20)
    monkeypatch.setattr(layout, "MOST_MEMBERS", 6)
    with pytest.raises(ValueError, match="has more than 6 files, but CIFAR-10 has 8"):
        load(path)


def test_only_a_folder_or_an_archive_has_pictures_to_test_on(tmp_path):
    (tmp_path / "a.txt").write_text("ab\nba\n")
    with pytest.raises(ValueError, match="test=True was given, but only the official files of CIFAR-10 take"):
        load(tmp_path / "a.txt", test=True)
