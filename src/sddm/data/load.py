"""Data by name: one of the toys, a published set, or a file or a folder whose ending says how it is read."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from sddm import _checks
from sddm.codecs import Codec, Encoded, Points, file_readers, folder_readers
from sddm.codecs.kinds import chosen
from sddm.data.cifar import official_cifar10
from sddm.data.codes import is_codes, read_codes
from sddm.data.dataset import Dataset
from sddm.data.label_column import is_measured, labelled_by
from sddm.data.leaks import with_variants
from sddm.data.music import is_paper_array, paper_array
from sddm.data.published import PUBLISHED
from sddm.data.toys import DENSITIES, Toy
from sddm.formats.cifar import is_cifar
from sddm.formats.text import readable

LABEL_COLUMN = "label_column"
"""An option that a reader need not know: of any table, a column is taken out when it has been read."""
TOY_POINTS = 100_000
"""How many points are drawn from a toy."""


@dataclass(frozen=True)
class Reading:
    """How data are read, where there is a choice."""

    window: int | None = None
    """Cut a text into windows of this many characters, instead of taking each line as a sample; music into windows of
    this many steps (256 unless given, and 64 for several voices)."""
    key: str | None = None
    """Which array of an .npz file."""
    label_column: str | None = None
    """Tables: the values of this column are the labels of the rows, and the column is not one of their positions. .npz
    files: the array with a label for each row, if it is not called labels."""
    track: str | None = None
    """Music: the track that holds the melody, by its name or number; unless given, the most melodic one."""
    voices: int | None = None
    """Music: how many voices a row has, such as 4; 1 unless given."""
    steps_per_beat: int | None = None
    """Music: steps of the grid in a quarter note; 4 unless given."""
    beats_per_bar: int | None = None
    """Music: quarter notes in a bar; 4 unless given. Bars are counted so by `--fill`, in pictures and in figures."""
    held: bool = False
    """Music: tell notes that are struck again from notes that go on. Unless given, each step of a note repeats its
    pitch, as in the paper."""
    scramble: bool = False
    """Music: number the pitches in a fixed random order, as in the paper, so that a model cannot use their order."""
    size: int | None = None
    """Pictures: cut the largest square from the middle and scale it to this many pixels a side. Unless given, pictures
    of a folder get 32, or fewer if half of them are smaller; others stay as they are."""
    levels: int | None = None
    """Pictures: how many values a channel of a pixel has; 256 unless given."""
    grey: bool = False
    """Pictures: read them in grey."""
    kinds: str | None = None
    """Tables: what columns are, where their values do not tell: age=number,zip=category,born=date:%d/%m/%Y,id=drop,
    with * for all other columns, or a .json file with such an object."""
    lengths: Literal["separate", "inside"] | None = None
    """Text: how the lengths of lines are learned, if they differ. inside: one more token stands behind the end of
    shorter lines, and the model learns it as it learns characters (the default). separate: the model is told where each
    line ends, computes nothing behind the longest of a batch, and keeps the law of the lengths apart."""
    test: bool = False
    """CIFAR-10 from a folder or an archive: the pictures to test on, instead of those to train on."""

    def __post_init__(self) -> None:
        if self.kinds is not None:  # as it is now, whatever becomes of the file
            object.__setattr__(self, "kinds", json.dumps(chosen(self.kinds)))

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not left to the reader."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: value for name, value in values.items() if value is not None and value is not False}


def load(
    source: str | Path, *, rows: int | None = None, seed: int = 0, like: Codec | None = None, **options: Any
) -> Dataset:
    """Read a file or the files of a folder, draw points from the toy of that name, or fetch the published set of that
    name (unless there is a file or a folder of that name).

    rows: how many rows of a published set are taken.
    seed: draws the points of a toy and the rows of a Bayesian network such as "alarm".
    like: the codec of other data, by which the columns of a table are read instead of by what is found in them.
    options: those of `Reading`, such as `window`; `kinds` may be a dictionary.

    The rows of each file of a folder form a group; files that hold variants of one tune form one together.

    >>> load("checkerboard")
    >>> load("shakespeare.txt", window=256)
    >>> load("molecules", rows=200_000)
    >>> load("people.csv", kinds={"zip": "category", "id": "drop"})
    """
    if not isinstance(source, (str, Path)):
        raise TypeError(f"source must be a path or the name of a toy, but it is a {type(source).__name__}.")
    read = _reader(Path(source), seed)
    options = read_options(**options) | ({} if rows is None else {"rows": rows})
    column = None if takes(read, LABEL_COLUMN) else options.pop(LABEL_COLUMN, None)
    if like is not None and column is None and takes(read, "like"):  # a codec knows of no column of labels
        options["like"] = like
    readers = {**file_readers(), **folder_readers()}
    for name, value in options.items():
        endings = ", ".join(ending for ending, reader in readers.items() if takes(reader, name))
        others = {**PUBLISHED, "the official files of CIFAR-10": official_cifar10}
        sets = [known for known, reader in others.items() if takes(reader, name)]
        able = " and ".join([f"{endings} files"] * bool(endings) + [", ".join(sets)] * bool(sets))
        _checks.require(takes(read, name), f"{name}={value!r} was given, but only {able} take this option.")
    try:
        encoded, name = read(**options), Path(source).name
        if column is not None and takes(read, "kinds") and is_measured(encoded, column):
            kinds = json.loads(options.get("kinds", "{}"))
            encoded = read(**{**options, "kinds": json.dumps({**kinds, column: "category"})})
        return with_variants(Dataset(*(encoded if column is None else labelled_by(encoded, column, name)), name=name))
    except MemoryError:
        raise ValueError(
            f"{str(source)!r} needs more memory than there is. Give fewer rows, or save tokens as an .npy file, which "
            "is read from the disk as rows are needed."
        ) from None


def read_options(**options: Any) -> dict[str, Any]:
    """Those options of `Reading` that are given; `kinds` may be a dictionary."""
    if isinstance(options.get("kinds"), Mapping):
        options["kinds"] = json.dumps(dict(options["kinds"]))
    return Reading(**options).given


def _reader(path: Path, seed: int) -> Callable[..., Encoded]:
    """The function that reads this source; its options are still to be given."""
    if str(path) in DENSITIES:
        return partial(_toy, str(path), _checks.whole(seed, "seed", 0))
    if str(path) in PUBLISHED and not path.exists():
        published = PUBLISHED[str(path)]
        return partial(published, seed=_checks.whole(seed, "seed", 0)) if takes(published, "seed") else published
    if is_paper_array(path):
        return partial(paper_array, path)
    if is_cifar(path):
        return partial(official_cifar10, path)
    if is_codes(path):
        return partial(read_codes, path)
    if os.path.isdir(path):  # also False if the name is too long
        return _reader_of_folder(path)
    readable(path, f"The toys are {', '.join(DENSITIES)}; published sets are {', '.join(PUBLISHED)}.")
    ending, readers = path.suffix.lower(), file_readers()
    _checks.require(
        ending in readers or ending not in folder_readers(),
        f"{str(path)!r} is one sample, but a data set has many. Name a folder of {ending} files.",
    )
    _checks.require(
        ending in readers,
        f"{str(path)!r} ends in {ending!r}, but data are read from files that end in {', '.join(readers)}.",
    )
    return partial(readers[ending], path)


def _reader_of_folder(path: Path) -> Callable[..., Encoded]:
    """The reader for the kind of file that makes up more than half of the folder, hidden files apart."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    readers = folder_readers()
    for read in dict.fromkeys(readers.values()):
        found = [file for file in files if readers.get(file.suffix.lower()) is read]
        if 2 * len(found) > len(files):
            return partial(read, found)
    raise IsADirectoryError(
        f"{str(path)!r} is a directory. Give the path of a file in it, or a folder most files of which end in one of "
        f"{', '.join(readers)}."
    )


def _toy(name: str, seed: int) -> Encoded:
    return Encoded(Toy(name).tokens(TOY_POINTS, torch.Generator().manual_seed(seed)), Points(name))


def takes(read: Callable[..., Encoded], name: str) -> bool:
    """Whether a reader has an option of this name."""
    return name in inspect.signature(read).parameters
