"""Music by name: windows of folk tunes, windows of Bach's chorales in four voices, and the arrays of the paper.

The grid is a sixteenth note. What does not fall on it is moved to the nearest step, if that is at most 5% of the notes
of a piece; a piece with more of it is left out, as it would be another tune. Pickups stay as they are: the first step
of a piece is its first note.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from jaxtyping import Int16

from sddm import _checks
from sddm.codecs import Encoded, Notes
from sddm.codecs.notes import scrambling
from sddm.data import music_corpus
from sddm.data.dataset import Dataset
from sddm.data.music_pieces import VOICES
from sddm.data.music_windows import Windows, cut, silent, trivial
from sddm.formats.arrays import read_array
from sddm.formats.score import PITCHES, REST
from sddm.formats.text import readable

KEY_FILE, PAPER_FILES = "descramble_key.txt", ("train.npy", "test.npy")
WINDOW, CHORALE_WINDOW = 256, 64
"""Steps of a row, as in the paper; and of a row of four voices, which has as many positions."""


def melodies(window: int = WINDOW, hop: int | None = None, held: bool = False, scramble: bool = False) -> Encoded:
    """Windows of folk tunes, each once. A window begins every `hop` steps of a tune (None: half a window).

    Repeats are played, as folk musicians do, and what is left at the end of a tune is dropped. Without repeats too few
    tunes have 256 steps, while repeating a whole tune until it fills a window would make copying the way to continue
    it. Left out are windows that say little: with fewer than 5 pitches, with a note or a rest of more than 64 steps,
    with more rests than notes, or of a half that is played twice. Where this leaves out the halves A A and B B of a
    tune, the window between them, A B, remains.
    """
    return _encoded(_melodies(window, hop), 1, held, scramble)


def chorales(
    window: int = CHORALE_WINDOW, hop: int | None = None, held: bool = False, scramble: bool = False
) -> Encoded:
    """Windows of Bach's chorales; a position is a step of a voice: soprano, alto, tenor, bass, then the next step.

    A window begins every `hop` steps (None: where the last one ends). Each bar comes once, as it is written, and no
    note is longer for its fermata.
    """
    return _encoded(_chorales(window, hop), VOICES, held, scramble)


def corpus_report(name: str, window: int | None = None) -> str:
    """What was kept of the corpus behind "melodies" or "chorales", and what was left out for which reason."""
    _checks.one_of(name, "name", ("melodies", "chorales"))
    windows = _melodies(window or WINDOW) if name == "melodies" else _chorales(window or CHORALE_WINDOW)
    return windows.report


def paper_array(path: Path) -> Encoded:
    """An array of the paper that has its key beside it, such as test.npy; of a folder, train.npy."""
    train, test = paper_arrays(path if path.is_dir() else path.parent)
    data = test if path.name == "test.npy" else train
    return Encoded(data.tokens, data.codec)


def is_paper_array(path: Path) -> bool:
    """Whether a path is the folder of the paper's arrays, or one of them."""
    folder = path.parent if path.name in PAPER_FILES else path
    return os.path.isfile(folder / KEY_FILE)  # also False if the name is too long


def paper_arrays(folder: str | Path) -> tuple[Dataset, Dataset]:
    """The data of the paper to train on and to test on: train.npy, test.npy and descramble_key.txt in a folder.

    The arrays hold rows of 256 tokens. The key has one line for each token: its pitch, or 128 for a rest.
    """
    folder = Path(folder)
    key_path = folder / KEY_FILE
    readable(key_path, "Name the folder that holds train.npy, test.npy and descramble_key.txt.")
    try:
        values = np.loadtxt(key_path, ndmin=1)
    except ValueError as error:
        raise ValueError(f"{str(key_path)!r} cannot be read: {error}. It must hold one number a line.") from None
    _checks.require(
        np.array_equal(np.sort(values, axis=None), np.arange(REST + 1)) and values.ndim == 1,
        f"{str(key_path)!r} must hold each number from 0 to {REST} once, but it has {values.size} numbers from "
        f"{values.min(initial=0):g} to {values.max(initial=0):g}, {len(np.unique(values))} of them different.",
    )
    codec = Notes(key=np.argsort(values).tolist())
    train, test = (_paper_rows(folder / name) for name in PAPER_FILES)
    return Dataset(train, codec, name="train.npy"), Dataset(test, codec, name="test.npy")


def _paper_rows(path: Path, window: int = 256) -> Int16[np.ndarray, "rows steps"]:
    readable(path, "Name the folder that holds train.npy, test.npy and descramble_key.txt.")
    rows = np.asarray(read_array(path))
    _checks.require(
        rows.ndim == 2 and rows.shape[1] == window and rows.dtype.kind in "iuf" and len(rows) > 0,
        f"{str(path)!r} must hold rows of {window} tokens, but it holds {rows.dtype} of shape {rows.shape}.",
    )
    _checks.require(
        bool(np.isin(rows, np.arange(REST + 1)).all()),
        f"{str(path)!r} must hold tokens from 0 to {REST}, but it holds values from {rows.min():g} to {rows.max():g}.",
    )
    return rows.astype(np.int16)


def _encoded(windows: Windows, voices: int, held: bool, scramble: bool) -> Encoded:
    codec = Notes(voices, held=held, key=scrambling(PITCHES + 1 + held) if scramble else None)
    return Encoded(
        codec.encode(windows.scores).numpy().astype(np.uint8), codec, windows.groups.tolist(), report=windows.report
    )


def _melodies(window: int, hop: int | None = None) -> Windows:
    _checks.whole(window, "window", 1)
    hop = max(1, window // 2) if hop is None else _checks.whole(hop, "hop", 1)
    return cut(music_corpus.tunes(), 1, window, hop, trivial, "tune")


def _chorales(window: int, hop: int | None = None) -> Windows:
    _checks.whole(window, "window", 1)
    hop = window if hop is None else _checks.whole(hop, "hop", 1)
    return cut(music_corpus.chorales(), VOICES, window, hop, silent, "chorale")
