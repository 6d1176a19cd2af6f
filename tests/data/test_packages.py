"""Archives of registries: fetched once by the client, checked, read without being unpacked. No registry is asked."""

import hashlib
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from archives import checksum, tgz, wheel
from sddm.data import packages
from sddm.data.packages import Package

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
FILES = {"tiny/a.txt": b"first", "tiny/b.txt": b"second", "tiny/c.bin": b"\0"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("SDDM_CACHE", str(folder))
    return folder


@pytest.fixture
def pypi(tmp_path, monkeypatch, cache):
    """A folder in which pip finds packages, instead of a registry."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


@pytest.fixture
def npm(tmp_path, monkeypatch, cache):
    """A client called npm that copies tiny.tgz to where it was told to, and notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(
        f"#!{sys.executable}\nimport shutil, sys\nfrom pathlib import Path\nhere = Path(__file__).parent\n"
        "(here / 'calls').open('a').write(' '.join(sys.argv[1:3]) + '\\n')\n"
        "if not (here / 'tiny.tgz').exists():\n    sys.exit('npm error 404 Not Found\\nnpm error a log is kept')\n"
        "shutil.copy(here / 'tiny.tgz', sys.argv[sys.argv.index('--pack-destination') + 1])\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_wheel_is_fetched_once_and_its_files_are_read_without_being_unpacked(pypi, cache):
    source = wheel(pypi, FILES)
    package = Package("pypi", "tiny", "1.0", checksum(source))
    assert package.read("tiny/a.txt") == b"first"
    source.unlink()  # from now on a download would fail
    assert package.read_all("tiny/*.txt") == {"tiny/a.txt": b"first", "tiny/b.txt": b"second"}
    assert [path for path in cache.rglob("*") if path.is_file()] == [cache / "pypi" / "tiny-1.0.whl"]
    assert package.archive() == cache / "pypi" / "tiny-1.0.whl"


@pytest.mark.skipif(os.name == "nt", reason="the client of the test is a script with a #! line")
def test_a_package_of_npm_is_fetched_once_by_its_client(npm, cache):
    source = tgz(npm / "tiny.tgz", {"package/b.json": b"2", "package/a.json": b"1"})
    package = Package("npm", "@some/tiny", "1.0", checksum(source))
    assert list(package.read_all("package/*.json").items()) == [("package/a.json", b"1"), ("package/b.json", b"2")]
    assert package.read("package/b.json") == b"2"
    assert (npm / "calls").read_text() == "pack @some/tiny@1.0\n"
    assert package.archive() == cache / "npm" / "some-tiny-1.0.tgz"


def test_the_cache_is_in_the_home_folder_if_no_other_is_named(monkeypatch):
    monkeypatch.delenv("SDDM_CACHE", raising=False)
    assert packages.cache_folder() == Path.home() / ".cache" / "sddm"


def test_an_archive_with_another_checksum_is_refused_and_not_kept(pypi, cache):
    package = Package("pypi", "tiny", "1.0", "0" * 64)
    digest = checksum(wheel(pypi, FILES))
    with pytest.raises(ValueError, match=rf"tiny 1\.0 has the SHA-256 {digest}, but 0{{64}} was expected.*not kept"):
        package.archive()
    assert not any(path.is_file() for path in cache.rglob("*"))


def test_a_file_of_the_cache_that_was_damaged_is_fetched_again(pypi):
    package = Package("pypi", "tiny", "1.0", checksum(wheel(pypi, FILES)))
    path = package.archive()
    path.write_bytes(path.read_bytes()[:-1])
    assert package.read("tiny/b.txt") == b"second"


def test_an_archive_that_was_put_into_the_cache_by_hand_needs_no_client(tmp_path, cache, monkeypatch):
    source = wheel(tmp_path, FILES)
    package = Package("pypi", "tiny", "1.0", checksum(source))
    package.path.parent.mkdir(parents=True)
    source.rename(package.path)
    monkeypatch.setattr(subprocess, "run", None)
    assert package.read("tiny/a.txt") == b"first"


@pytest.mark.parametrize("registry", ["pypi", "npm"])
@pytest.mark.parametrize("damage", ["no archive", "cut"])
def test_a_damaged_archive_is_answered_by_a_sentence(registry, damage, tmp_path, cache):
    package = Package(registry, "tiny", "1.0", "")
    source = wheel(tmp_path, FILES) if registry == "pypi" else tgz(tmp_path / "tiny.tgz", FILES)
    content = source.read_bytes()
    content = content[: len(content) // 2] if damage == "cut" else b"<html>not found</html>"
    package.path.parent.mkdir(parents=True)
    package.path.write_bytes(content)
    package = replace(package, sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(ValueError, match=r"is damaged or not an archive \(.*\)\. Delete it"):
        package.read("tiny/a.txt")


def test_a_missing_member_is_named(pypi):
    package = Package("pypi", "tiny", "1.0", checksum(wheel(pypi, FILES)))
    with pytest.raises(ValueError, match=r"tiny 1\.0 has no file 'tiny/z\.txt'\. Check the name"):
        package.read("tiny/z.txt")
    with pytest.raises(ValueError, match=r"tiny 1\.0 has no file 'tiny/\*\.csv'"):
        package.read_all("tiny/*.txt", "tiny/*.csv")


def test_a_download_that_fails_is_answered_with_the_reason_and_the_way_by_hand(pypi):
    package = Package("pypi", "tiny", "2.0", "0" * 64)
    match = r"tiny 2\.0 could not be downloaded \(ERROR: .*\)\. .* put the archive there yourself: '.*tiny-2\.0\.whl'"
    with pytest.raises(ValueError, match=match):
        package.archive()


@pytest.mark.skipif(os.name == "nt", reason="the client of the test is a script with a #! line")
def test_a_download_by_npm_that_fails_is_answered_with_the_reason(npm):
    package = Package("npm", "tiny", "1.0", "0" * 64)
    with pytest.raises(ValueError, match=r"tiny 1\.0 could not be downloaded \(npm error 404 Not Found\)"):
        package.archive()


def test_a_missing_client_is_named(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"npm is not installed, which downloads tiny 1\.0\. Install Node\.js, or put"):
        Package("npm", "tiny", "1.0", "0" * 64).archive()
    monkeypatch.setattr(packages, "_installed", lambda name: False)
    with pytest.raises(ValueError, match=r"pip is not installed, which downloads tiny 1\.0\. .* -m ensurepip, or put"):
        Package("pypi", "tiny", "1.0", "0" * 64).archive()


def test_an_unknown_registry_is_refused():
    with pytest.raises(ValueError, match="registry must be one of pypi, npm, but it is 'cran'"):
        Package("cran", "tiny", "1.0", "0" * 64)
