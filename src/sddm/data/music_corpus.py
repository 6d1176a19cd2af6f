"""The music that music21 carries: folk tunes of one voice and Bach's chorales of four, parsed once and kept.

music21 reads a tune in some 20 ms. So all are parsed by as many processes as there are cores, and the notes are kept in
one file of arrays in the cache folder. A file of another version of music21, or a damaged one, is made again.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import multiprocessing
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

from sddm import _files
from sddm.data.music_pieces import Piece, read_chorale, read_tune
from sddm.data.packages import cache_folder

FORMAT = 1
"""To be raised with any change of what is kept."""
COLLECTIONS = ("airdsAirs", "essenFolksong", "oneills1850", "ryansMammoth")
"""The folders of music21's corpus that hold tunes of one voice."""
MANY = 64
"""Fewer pieces are read by one process, without a progress bar."""
DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged file of arrays may raise."""

Job = tuple[str, str]
"""The name of a piece, and its text or the path of its file."""


def tunes() -> list[Piece]:
    """All tunes of `COLLECTIONS`, in the order of their files. Repeats are played."""
    return _kept("melodies", read_tune, _tunes)


def chorales() -> list[Piece]:
    """All chorales of Bach, in the order of their numbers. Each bar comes once, as it is written."""
    return _kept("chorales", read_chorale, _chorales)


def corpus_folder() -> Path:
    """Where music21 keeps its corpus."""
    found = importlib.util.find_spec("music21")
    if found is None or found.origin is None:
        raise ValueError('Tunes and chorales come with music21. Install it with pip install "sddm[music]".')
    return Path(found.origin).parent / "corpus"


def parsed(jobs: Sequence[Job], read: Callable[[Job], Piece], name: str, processes: int | None = None) -> list[Piece]:
    """The pieces in the order of the jobs, read by this many processes (None: one for each core)."""
    processes = 1 if len(jobs) < MANY else processes or os.cpu_count() or 1
    bar = tqdm(total=len(jobs), desc=f"parsing {name}", unit="piece", file=sys.stderr, disable=len(jobs) < MANY)
    with bar:
        pieces = []
        for piece in map(read, jobs) if processes == 1 else _by_processes(jobs, read, name, processes):
            pieces.append(piece)
            bar.update()
        return pieces


def _by_processes(jobs: Sequence[Job], read: Callable[[Job], Piece], name: str, processes: int) -> Iterator[Piece]:
    try:
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            yield from pool.map(read, jobs, chunksize=16)
    except BrokenProcessPool:
        raise ValueError(
            f"The {name} are parsed by several processes, which could not be started. In a script of your own, put "
            'the call below `if __name__ == "__main__":`.'
        ) from None


def _tunes(folder: Path) -> Iterator[Job]:
    for collection in COLLECTIONS:
        for path in sorted((folder / collection).glob("*.abc")):
            text = path.read_text(encoding="utf-8", errors="replace")
            for tune in re.split(r"^(?=X:)", text, flags=re.MULTILINE)[1:]:
                number = tune.partition("\n")[0].removeprefix("X:").strip()
                yield f"{collection}/{path.name} {number}", tune


def _chorales(folder: Path) -> Iterator[Job]:
    def number(path: Path) -> list[tuple[int, str]]:
        return [(int(digits or 0), others) for digits, others in re.findall(r"(\d+)|(\D+)", path.name)]

    for path in sorted((folder / "bach").glob("bwv*"), key=number):
        yield f"bach/{path.name}", str(path)


def _kept(name: str, read: Callable[[Job], Piece], jobs: Callable[[Path], Iterable[Job]]) -> list[Piece]:
    """The pieces in the file of this name, which is made if it does not exist or is damaged."""
    folder = corpus_folder()
    path = cache_folder() / "music" / f"{name}-music21-{importlib.metadata.version('music21')}-{FORMAT}.npz"
    try:
        return _loaded(path, path.stat().st_mtime)
    except DAMAGE:
        pieces = parsed(list(jobs(folder)), read, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _files.replacing(path) as aside:
        np.savez_compressed(
            aside,
            names=np.array([piece.name for piece in pieces]),
            reasons=np.array([piece.reason for piece in pieces]),
            lengths=np.array([piece.length for piece in pieces], np.int64),
            counts=np.array([len(piece.notes) for piece in pieces], np.int64),
            notes=np.concatenate([piece.notes for piece in pieces]),
        )
    return pieces


@lru_cache(2)
def _loaded(path: Path, changed: float) -> list[Piece]:
    """The pieces in a file that was last changed at this time."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        names, reasons, lengths, counts, notes = (
            arrays[name] for name in ("names", "reasons", "lengths", "counts", "notes")
        )
    columns = names.tolist(), np.split(notes, np.cumsum(counts)[:-1]), lengths.tolist(), reasons.tolist()
    return [Piece(*row) for row in zip(*columns, strict=True)]
