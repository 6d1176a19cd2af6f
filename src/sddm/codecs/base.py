"""What a codec is, and what all codecs share: the choice of a format by a path's ending, and checks.

A codec knows the meaning of every token. `encode` and `decode` are inverses. Tables by file ending say how files and
folders of data are read (`files`, `folders`), how samples are written (`writers`), and how conditions are read
(`condition_readers`; -1 where a token is unknown).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.codecs.excerpt import BLANK, Excerpt
from sddm.config import Configurable
from sddm.formats.arrays import integers, read_array, write_array
from sddm.formats.text import readable
from sddm.token_array import TokenArray

Tokens = Int[Tensor, "num dim"]
Readers = Mapping[str, Callable[..., "Encoded"]]
Writers = Mapping[str, Callable[[Tokens, Path], Any]]
ConditionReaders = Mapping[str, Callable[..., list[list[int]]]]
Value = TypeVar("Value")
MAX_LENGTH = 65_536
"""The most positions a sample may have."""
MAX_STATES = 1_000_000
"""The most values a position may have."""
MAX_LABELS = 1_000_000
"""The most labels that rows may have."""


class Encoded(NamedTuple):
    """What a reader returns: rows of tokens, their codec and, if there are any, the group and the label of each row."""

    tokens: TokenArray | np.ndarray | Tensor
    codec: Codec
    groups: Sequence[int] | None = None
    """A split keeps all rows of one group, such as the windows of one tune, on one side."""
    labels: Sequence[int] | None = None
    """The class of each row."""
    lengths: Sequence[int] | None = None
    """How many positions of each row exist, if the rest of the row is padding that is not to be learned."""
    report: str = ""
    """What was kept of the source and what was not, and why."""
    label_names: Sequence[str] | None = None
    """What the labels 0, 1, ... stand for, if they have names."""


class Codec(Configurable, ABC):
    """What tokens mean. In tables by file ending, the usual ending comes first."""

    num_states: int
    """How many tokens there are."""
    sizes: list[int] | None = None
    """How many values each position has; None if each has `num_states`."""
    ragged: bool = False
    """Whether rows have different lengths, which the model is told. What stands behind their ends is `end`."""
    ordered: bool = False
    """Whether a hollow model of such data learns from left to right as well unless the user says otherwise. In the
    measurements of docs/learning.md that is better for text, tables and music."""
    pictures: bool = False
    """Whether `decode` gives pictures, in uint8 of shape (num, height, width, channels), with 1 or 3 channels."""
    preview: int = 16
    """How many samples a preview shows."""
    single: frozenset[str] = frozenset()
    """Endings of files that hold one sample. If there are any, several samples are files of a folder."""
    network: nn.Module | None = None
    """The network that encodes or decodes values, if there is one: saved and moved with the diffusion, not trained."""

    @abstractmethod
    def encode(self, values: Any) -> Tokens:
        """The tokens of values such as `decode` returns."""

    @abstractmethod
    def decode(self, tokens: Tokens) -> np.ndarray | list[np.ndarray] | list[str] | list[list[str]]:
        """What the tokens stand for, one sample a row."""

    @classmethod
    def files(cls) -> Readers:
        """Readers of a file: functions of its path, and of `window` or `key` if they have such an argument."""
        return {}

    @classmethod
    def folders(cls) -> Readers:
        """Readers of a folder, by the ending of its files: functions of the list of their paths."""
        return {}

    def writers(self) -> Writers:
        """How samples are written."""
        return {".npy": lambda tokens, path: write_array(tokens.numpy(), path)}

    def condition_readers(self) -> ConditionReaders:
        """How rows of tokens and blanks are read: functions of a path, and of `track` if they have such an argument."""
        return {".npy": lambda path: integers(read_array(path), str(path)).tolist()}

    def translated(self, tokens: Tokens, source: Codec, name: str) -> Tokens:
        """The same values as tokens of this codec; `name` names the data in error messages."""
        if source == self:
            return tokens
        kind, other = (type(codec).__name__.lower() for codec in (self, source))
        _checks.require(
            kind == other,
            f"{name} holds {other}, but the model was trained on {kind}. Name data of that kind with --data.",
        )
        try:
            return self.encode(source.decode(tokens))
        except ValueError as error:
            raise ValueError(f"{name} holds what the model was not trained on: {error} Name other data.") from error

    def usual_known(self, length: int) -> str | None:
        """What is known of rows of this length in training unless the user says it, as `--known` takes it."""
        return None

    def usual_grid(self, length: int) -> tuple[int, int] | None:
        """The rows and columns of an image that rows of this length are, if they are one, as `--grid` takes them."""
        return None

    def transposed(self, tokens: Tokens, semitones: Int[Tensor, "num"]) -> Tokens:
        """Rows of music, each moved by so many semitones as far as pitches allow."""
        raise ValueError(f"transpose is for music, but the data are {type(self).__name__.lower()}. Leave it out.")

    @property
    def end(self) -> int | None:
        """What stands behind the end of a row, if rows can be shorter than others. If `ragged`, it is no state."""
        return self.num_states if self.ragged else None

    def padded_to(self, tokens: Tokens, length: int) -> Int[Tensor, "num longer"]:
        """Rows padded to a length, if something stands behind the ends of rows."""
        return tokens if self.end is None else F.pad(tokens, (0, max(0, length - tokens.shape[1])), value=self.end)

    def rows(self, tokens: Tokens) -> list[list[int]]:
        """The tokens of each row up to its end."""
        found: list[list[int]] = self.check(tokens).tolist()
        return [row[: row.index(self.end)] if self.end in row else row for row in found]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Codec) or other.arguments != self.arguments:
            return False
        mine, others = ({} if codec.network is None else codec.network.state_dict() for codec in (self, other))
        return mine.keys() == others.keys() and all(torch.equal(mine[k].cpu(), others[k].cpu()) for k in mine)

    __hash__ = None  # type: ignore[assignment]

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files that `write` can make."""
        return tuple(self.writers())

    @property
    def default_ending(self) -> str:
        """The ending if the user names none."""
        return self.endings[0]

    @property
    def text_ending(self) -> str | None:
        """The ending of a format that people can read; None if there is none."""
        return next((ending for ending in (".txt", ".csv") if ending in self.endings), None)

    @property
    def preview_ending(self) -> str:
        """The ending of the format of previews."""
        return ".png" if ".png" in self.endings else self.text_ending or self.default_ending

    def check_ending(self, path: Path, num: int = 1) -> None:
        """Raise an error if this many samples cannot be written to a file with this ending."""
        if self.is_folder(path):
            return
        _by_ending(self.writers(), path, "Samples can be written to")
        _checks.require(
            num == 1 or path.suffix.lower() not in self.single,
            f"{str(path)!r} can hold one sample, but there are {num}. Name a folder: a path without an ending.",
        )

    def is_folder(self, path: Path) -> bool:
        """Whether samples are written to this path as the files of a folder: if it has no ending, and files of the
        usual ending hold one sample."""
        return path.suffix == "" and self.default_ending in self.single

    def files_of(self, path: Path, num: int) -> list[Path]:
        """The files to which this many samples are written: the path itself, or numbered ones in the folder."""
        if not self.is_folder(path):
            return [path]
        digits = len(str(num))
        return [path / f"{number:0{digits}d}{self.default_ending}" for number in range(1, num + 1)]

    def wrote(self, path: Path) -> bool:
        """Whether a file in a folder looks like one that `write` and `write_beside` wrote there: its name is a number,
        and there are two or more of the files that belong together."""
        sample = path.with_suffix(self.default_ending)
        there = [file for file in (sample, *self.beside(sample)) if file.is_file()]
        return path.stem.isdecimal() and path in there and len(there) > 1

    def check(self, tokens: Tokens) -> Tokens:
        """Check that every token has a meaning, and move the tokens to the CPU."""
        length = len(self.sizes) if self.sizes else None
        tokens = _checks.tokens(tokens, self.num_states + self.ragged, "tokens", length=length)
        if self.sizes:
            self.check_sizes(tokens.amax(dim=0).tolist())
        return tokens.cpu()

    def check_sizes(self, highest: list[int]) -> None:
        """Check that the largest token at each position has a meaning there."""
        sizes = self.sizes or []
        _checks.require(len(highest) == len(sizes), f"tokens has {len(highest)} positions, but data have {len(sizes)}.")
        for d, (token, size) in enumerate(zip(highest, sizes, strict=True)):
            if token >= size:
                raise ValueError(f"tokens holds {token} at position {d}, which has values 0 to {size - 1} only.")

    def write(self, tokens: Tokens, path: Path) -> None:
        """Decode samples into a file whose format is chosen by the ending of its path, or into a folder."""
        self.check_ending(path, len(tokens))
        tokens = self.check(tokens)
        files = self.files_of(path, len(tokens))
        files[0].parent.mkdir(parents=True, exist_ok=True)
        if not self.is_folder(path):
            self.writers()[path.suffix.lower()](tokens, path)
            return
        for file, rows in zip(files, tokens.split(1), strict=True):
            self.write_single(rows, file)

    def write_single(self, tokens: Tokens, path: Path) -> None:
        """Write one sample to a file of a folder."""
        self.writers()[path.suffix.lower()](tokens, path)

    def beside(self, path: Path) -> list[Path]:
        """What `write_beside` writes beside this file."""
        return []

    def write_beside(self, tokens: Tokens, path: Path, given: Bool[Tensor, "num dim"] | None = None) -> None:
        """Write what belongs beside the files that `write` wrote, such as a picture, and mark what was given in it."""

    def kept(
        self, known: Tokens, give: int | None = None, fill: str | None = None, keep_voice: str | None = None
    ) -> Int[Tensor, "num written"]:
        """What is kept of conditions, by rules that the codec knows; the rest is blank. If rows become shorter, what is
        generated after their end is not to be written."""
        given = {"give": give, "fill": fill, "keep_voice": keep_voice}
        for name, value in given.items():
            if value is not None:
                kind = type(self).__name__.lower()
                raise ValueError(f"{name}={value!r} was given, which is for music, but the data are {kind}.")
        return known

    def excerpt(
        self,
        path: Path,
        length: int,
        give: int | None = None,
        fill: str | None = None,
        keep_voice: str | None = None,
        **options: Any,
    ) -> Excerpt:
        """Read conditions, keep of them what the rules say, and choose what samples of this length complete."""
        rows = self.kept(self.read_condition(path, length, **options), give, fill, keep_voice)
        return Excerpt(rows, rows)

    def where(self, *tests: str, condition: str | Path | None = None) -> Excerpt:
        """Samples whose columns pass tests, and of which the rows of a file are known."""
        raise ValueError(f"where is for tables, but the data are {type(self).__name__.lower()}. Leave it out.")

    def shortened(self, row: list[int], length: int, name: str) -> list[int]:
        """The beginning of a condition that is longer than a sample, if it may be cut; `name` is that of its file."""
        return row

    def read_condition(self, path: Path, length: int, **options: Any) -> Tokens:
        """Read conditions, one sample a row; -1 is a blank, and short rows are filled up with blanks.

        options: those of the file's reader.
        """
        reader = _by_ending(self.condition_readers(), path, "A condition can be read from")
        sizes = self.sizes or [self.num_states] * length
        _checks.require(len(sizes) == length, f"length={length} was given, but the data have {len(sizes)} positions.")
        readable(path)
        for name, value in options.items():
            _checks.require(
                name in inspect.signature(reader).parameters,
                f"{name}={value!r} was given, but a condition that ends in {path.suffix!r} has none. Leave it out.",
            )
        rows = [self.shortened(row, length, str(path)) for row in reader(path, **options)]
        for number, row in enumerate(rows, start=1):
            _checks.require(
                len(row) <= length,
                f"Sample {number} of {str(path)!r} has {len(row)} positions, but samples have {length}. Shorten it.",
            )
            for position, token in enumerate(row):
                _checks.require(
                    BLANK <= token < sizes[position],
                    f"Sample {number} of {str(path)!r} holds token {token} at position {position}, "
                    f"but tokens there are 0 to {sizes[position] - 1}, and {BLANK} is a blank.",
                )
        return _blank_filled(rows, length)

    def read_scaffold(self, scaffold: str, num: int, length: int, seed: int) -> Tokens:
        """Conditions that give a part of a molecule, one for each sample, at random places."""
        raise ValueError(f"scaffold is for molecules, but the data are {type(self).__name__.lower()}. Leave it out.")

    def held_scaffold(self, tokens: Tokens, scaffold: str) -> str:
        """What became of it: a sentence."""
        return ""

    def read_prefix(self, text: str, length: int) -> Tokens:
        """A condition that gives the first tokens of one sample."""
        raise ValueError(
            f"A prefix cannot be given for {type(self).__name__.lower()}, whose positions are not a sequence. "
            f"Give a condition file ({', '.join(self.condition_readers())})."
        )


def beginning(row: list[int], length: int) -> Tokens:
    _checks.require(
        0 < len(row) < length,
        f"The prefix has {len(row)} tokens, but samples have {length}. Give at least one, and leave one to generate.",
    )
    return _blank_filled([row], length)


def _by_ending(table: Mapping[str, Value], path: Path, can: str) -> Value:
    if path.suffix.lower() not in table:
        raise ValueError(f"{str(path)!r} ends in {path.suffix!r}. {can} files that end in {', '.join(table)}.")
    return table[path.suffix.lower()]


def _blank_filled(rows: list[list[int]], length: int) -> Tokens:
    return torch.tensor([row + [BLANK] * (length - len(row)) for row in rows])
