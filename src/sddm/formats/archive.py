"""The files in a zip archive, read into memory: nothing is unpacked to the disk, and no declared size is believed."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from sddm.formats.unusable import UnusableError

MAX_MEMBERS = 10_000
MAX_TOTAL = 500_000_000
"""The most bytes that are read of all members together."""
ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".7z", ".rar", ".bz2", ".xz")
READ = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Other compressions unpack to more than was asked for."""
ENTRY = b"PK\x01\x02"
"""How an entry of an archive's table of contents begins."""
SHOWN = 100
"""How many characters of a member's name are kept: it names the member in messages, and nothing else."""


def members(path: Path, endings: Collection[str], largest: int) -> Iterator[tuple[str, bytes | UnusableError]]:
    """The names and the contents of the files in an archive that have one of these endings and at most `largest` bytes,
    and why each other one is not read."""
    _check_size(path)
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a damaged archive makes zipfile raise errors of many kinds
        raise ValueError(f"{str(path)!r} is damaged or not a zip archive ({_said(error)}). Pack it again.") from None
    with archive:
        total = 0
        for number, member in enumerate(info for info in archive.infolist() if not info.is_dir()):
            name, ending = member.filename[-SHOWN:], PurePosixPath(member.filename).suffix.lower()
            content: bytes | UnusableError
            if number >= MAX_MEMBERS:
                content = UnusableError(f"after the first {MAX_MEMBERS}", f"{name!r} is one file too many.")
            elif ending in ARCHIVES:
                content = UnusableError("an archive in the archive", f"{name!r} is an archive itself. Unpack it first.")
            elif ending not in endings:
                content = UnusableError("not MIDI", f"{name!r} does not end in {' or '.join(endings)}.")
            elif total >= MAX_TOTAL:
                content = UnusableError(
                    f"after the first {MAX_TOTAL // 10**6} MB", f"{name!r} is beyond the {MAX_TOTAL} bytes."
                )
            else:
                content = _content(archive, member, name, min(largest, MAX_TOTAL - total))
                total += len(content) if isinstance(content, bytes) else min(largest + 1, member.file_size)
            yield name, content


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, largest: int) -> bytes | UnusableError:
    if member.flag_bits & 1:
        return UnusableError("encrypted", f"{name!r} is encrypted. Unpack it first.")
    if member.compress_type not in READ:
        return UnusableError("packed in another way", f"{name!r} is not packed by deflate. Pack it again.")
    try:
        with archive.open(member) as file:
            content = file.read(largest + 1)
    except Exception as error:
        return UnusableError("damaged", f"{name!r} is damaged ({_said(error)}). Pack it again.")
    if len(content) > largest:
        return UnusableError(f"over {largest // 10**6} MB", f"{name!r} has more than {largest} bytes.")
    return content


def _check_size(path: Path) -> None:
    """Refuse an archive whose table of contents would fill the memory; Python reads all of it at once."""
    entries, before = 0, b""
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            entries += (before + piece).count(ENTRY)
            before = piece[1 - len(ENTRY) :]
            if entries > 10 * MAX_MEMBERS or file.tell() > MAX_TOTAL:
                raise ValueError(
                    f"{str(path)!r} is too large: archives have at most {MAX_MEMBERS} files and {MAX_TOTAL} bytes. "
                    "Unpack it, and name the folder."
                )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
