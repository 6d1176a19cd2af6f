"""Text as tokens, one a character."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Integer, UInt32

from sddm import _checks
from sddm._checks import shown
from sddm.codecs.base import Codec, ConditionReaders, Encoded, Readers, Tokens, Writers, beginning
from sddm.codecs.excerpt import BLANK
from sddm.formats import smiles
from sddm.formats.records import as_lines, read_jsonl, write_texts
from sddm.formats.sequences import fasta_rows, read_fasta, read_smiles, write_fasta
from sddm.formats.text import read_lines, read_sequences, readable

INSIDE, SEPARATE = "inside", "separate"
LENGTHS = (INSIDE, SEPARATE)
"""How the lengths of rows are learned: by a state that stands behind the ends of shorter ones, or as a law of their
own."""


class Characters(Codec):
    """Text: token i is alphabet[i]; behind the end of shorter lines stands PAD, the number after the last.

    padded: PAD is one more state, which the model learns as it learns characters.
    ragged: PAD is no state. The model is told where each line ends, and learns the law of the lengths apart.

    >>> Characters("abc", padded=True).decode(torch.tensor([[0, 1, 3], [2, 2, 2]]))
    ['ab', 'ccc']
    """

    ordered = True

    def __init__(self, alphabet: str, padded: bool, ragged: bool = False) -> None:
        if not isinstance(alphabet, str) or len(set(alphabet)) != len(alphabet):
            raise ValueError(f"alphabet must be a text of characters that all differ, but it is {shown(alphabet)}.")
        if len(alphabet) + bool(padded) < 2 or alphabet == "":
            raise ValueError(f"alphabet must hold at least two characters to choose from, but it is {alphabet!r}.")
        _checks.require(not (padded and ragged), "Lines are padded or ragged, not both. Leave out one of the two.")
        self.alphabet, self.padded, self.ragged, self.pad = alphabet, padded, ragged, len(alphabet)
        self.num_states = len(alphabet) + padded
        self.blank = next((mark for mark in "_▁" if mark not in alphabet), None)
        """The character that stands for an unknown one in a condition: '_', or '▁' if the alphabet holds '_'."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Without `ragged` where it is not used, as older versions described the same codec."""
        return {name: value for name, value in super().arguments.items() if name != "ragged" or value}

    @property
    def end(self) -> int | None:
        return self.pad if self.padded or self.ragged else None

    @classmethod
    def files(cls) -> Readers:
        def read(path: Path, window: int | None = None, lengths: str = INSIDE) -> Encoded:
            return cls.of_rows(read_sequences(path, window, 2), repr(str(path)), lengths=lengths)

        def molecules(path: Path, lengths: str = INSIDE) -> Encoded:
            return cls.of_rows(read_smiles(path), repr(str(path)), lengths=lengths)

        def fasta(path: Path, window: int | None = None, lengths: str = INSIDE) -> Encoded:
            rows, groups = fasta_rows(path, window)
            return cls.of_rows(rows, repr(str(path)), groups, lengths)

        return {".txt": read, ".smi": molecules, ".fasta": fasta}

    @classmethod
    def folders(cls) -> Readers:
        """The lines or the windows of each file are a group."""

        def read(paths: Sequence[Path], window: int | None = None, lengths: str = INSIDE) -> Encoded:
            for path in paths:
                readable(path)
            texts = [read_sequences(path, window, 1) for path in paths]
            groups = [group for group, rows in enumerate(texts) for _ in rows]
            rows = [row for rows in texts for row in rows]
            return cls.of_rows(rows, f"{str(paths[0].parent)!r}", groups, lengths)

        return {".txt": read}

    @classmethod
    def of_rows(
        cls, rows: Sequence[str], source: str, groups: Sequence[int] | None = None, lengths: str = INSIDE
    ) -> Encoded:
        """Rows of text as tokens, one for each character that occurs; `source` names the text in error messages.

        lengths: how the lengths of rows are learned, if they differ: one of `LENGTHS`.
        """
        alphabet = "".join(sorted(set().union(*rows)))
        _checks.require(
            len(alphabet) > 1,
            f"{source} holds one character only, {alphabet!r}: there is nothing to learn. Give another text.",
        )
        return cls.of_alphabet(alphabet, rows, groups, lengths)

    @classmethod
    def of_alphabet(
        cls,
        alphabet: str,
        rows: Sequence[str],
        groups: Sequence[int] | None = None,
        lengths: str = INSIDE,
        longest: int = 0,
    ) -> Encoded:
        """The same with these characters, in rows of `longest` positions if there are no longer ones."""
        _checks.one_of(lengths, "lengths", LENGTHS)
        sizes = [len(row) for row in rows]
        differ, separate = len({*sizes, longest or sizes[0]}) > 1, lengths == SEPARATE
        codec = cls(alphabet, padded=differ and not separate, ragged=differ and separate)
        return Encoded(codec.compact(rows, longest), codec, groups, lengths=sizes if codec.ragged else None)

    def encode(self, values: Sequence[str]) -> Tokens:
        return torch.from_numpy(self.compact(values).astype(np.int64))

    def compact(self, values: Sequence[str], length: int = 0) -> Integer[np.ndarray, "num dim"]:
        """What `encode` returns, in the smallest type that holds it; a padded codec fills rows up to this length."""
        lengths = np.array([len(row) for row in values], dtype=np.int64)
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        _checks.require(longest > 0, "values must hold at least one line of text.")
        _checks.require(
            self.end is not None or shortest == longest,
            f"values has lines of {shortest} to {longest} characters, which only a padded codec can hold.",
        )
        longest = longest if self.end is None else max(longest, length)
        unknown = self.pad + 1
        token_of = np.full(sys.maxunicode + 1, unknown, np.min_scalar_type(unknown))
        token_of[_codes(self.alphabet)] = np.arange(len(self.alphabet))
        codes = _codes("".join(values))
        known = token_of[codes]
        if known.max() == unknown:
            raise ValueError(f"values holds {chr(codes[known.argmax()])!r}, which is not in the alphabet.")
        tokens = np.full((len(lengths), longest), self.pad, dtype=known.dtype)
        tokens[np.arange(longest) < lengths[:, None]] = known
        return tokens

    def decode(self, tokens: Tokens) -> list[str]:
        return ["".join(self.alphabet[token] for token in row) for row in self.rows(tokens)]

    def writers(self) -> Writers:
        """What may be molecules can be drawn."""
        drawn: Writers = {".png": self._draw} if smiles.may_be_smiles(self.alphabet) else {}
        return {
            ".txt": self._write_text,
            **super().writers(),
            ".smi": self._write_text,
            ".fasta": lambda tokens, path: write_fasta(self.decode(tokens), path),
            ".jsonl": lambda tokens, path: write_texts(self.decode(tokens), path),
            **drawn,
        }

    @property
    def preview_ending(self) -> str:
        return ".txt"

    def _draw(self, tokens: Tokens, path: Path) -> None:
        smiles.draw_molecules(self.decode(tokens), path)

    def read_scaffold(self, scaffold: str, num: int, length: int, seed: int) -> Tokens:
        """Each sample has the scaffold in one of the ways to write it. In every other one it comes first, and what
        follows is joined to it; in the others it stands behind up to half of what is left of the row."""
        if not smiles.may_be_smiles(self.alphabet):
            return super().read_scaffold(scaffold, num, length, seed)
        known = [way for way in smiles.written_scaffolds(scaffold, seed % 2**31) if set(way) <= set(self.alphabet)]
        _checks.require(
            len(known) > 0, f"scaffold {scaffold!r} holds what is not in the alphabet {shown(self.alphabet)}."
        )
        ways = [way for way in known if len(way) < length]
        _checks.require(
            len(ways) > 0,
            f"scaffold {scaffold!r} has {min(map(len, known))} characters, but samples have {length}. Shorten it.",
        )
        chance = random.Random(seed)
        rows = torch.full((num, length), BLANK)
        for number in range(num):
            way = chance.choice(ways)
            place = chance.randint(0, (length - len(way)) // 2) if number % 2 else 0
            rows[number, place : place + len(way)] = torch.tensor(self._known(way, "scaffold", None))
        return rows

    def held_scaffold(self, tokens: Tokens, scaffold: str) -> str:
        lines = self.decode(tokens)
        valid = sum(molecule is not None for molecule in smiles.molecules(lines))
        held = sum(smiles.holding(lines, scaffold))
        return f"Of {len(lines)} samples, {valid} are molecules, and {held} of these hold the scaffold."

    def _write_text(self, tokens: Tokens, path: Path) -> None:
        samples = self.decode(tokens)
        between = "\n%%\n" if any("\n" in sample for sample in samples) else "\n"
        path.write_bytes((between.join(samples) + "\n").encode())

    def condition_readers(self) -> ConditionReaders:
        def reader(read: Callable[[Path], list[str]]) -> Callable[[Path], list[list[int]]]:
            return lambda path: [self.known(line, str(path)) for line in read(path)]

        return {
            ".txt": reader(read_lines),
            **super().condition_readers(),
            ".smi": reader(read_smiles),
            ".fasta": reader(read_fasta),
            ".jsonl": reader(lambda path: as_lines(read_jsonl(path)[1], path)),
        }

    def read_prefix(self, text: str, length: int) -> Tokens:
        return beginning(self._known(text, "prefix", None), length)

    def known(self, line: str, source: str) -> list[int]:
        """The tokens of a line in which some characters may be unknown."""
        return self._known(line, source, self.blank)

    def _known(self, line: str, source: str, blank: str | None) -> list[int]:
        tokens = {character: token for token, character in enumerate(self.alphabet)} | ({blank: BLANK} if blank else {})
        hint = f" An unknown character is written {blank!r}." if blank else ""
        for character in line:
            _checks.require(
                character in tokens,
                f"{source!r} holds {character!r}, which is not in the alphabet {shown(self.alphabet)}.{hint}",
            )
        return [tokens[character] for character in line]


def _codes(text: str) -> UInt32[np.ndarray, "num"]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
