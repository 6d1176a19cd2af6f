"""Text as tokens, one a character."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Integer, UInt32

from sddm import _checks
from sddm._checks import shown
from sddm.codecs.base import Codec, ConditionReaders, Encoded, Readers, Tokens, Writers, beginning
from sddm.codecs.excerpt import BLANK
from sddm.formats.records import as_lines, read_jsonl, write_texts
from sddm.formats.sequences import fasta_rows, read_fasta, read_smiles, write_fasta
from sddm.formats.text import read_lines, read_sequences, readable


class Characters(Codec):
    """Text: token i is alphabet[i]; with `padded` one more token, PAD, follows the end of shorter lines.

    >>> Characters("abc", padded=True).decode(torch.tensor([[0, 1, 3], [2, 2, 2]]))
    ['ab', 'ccc']
    """

    ordered = True

    def __init__(self, alphabet: str, padded: bool) -> None:
        if not isinstance(alphabet, str) or len(set(alphabet)) != len(alphabet):
            raise ValueError(f"alphabet must be a text of characters that all differ, but it is {shown(alphabet)}.")
        if len(alphabet) + bool(padded) < 2 or alphabet == "":
            raise ValueError(f"alphabet must hold at least two characters to choose from, but it is {alphabet!r}.")
        self.alphabet, self.padded, self.pad = alphabet, padded, len(alphabet)
        self.num_states = len(alphabet) + padded
        self.blank = next((mark for mark in "_▁" if mark not in alphabet), None)
        """The character that stands for an unknown one in a condition: '_', or '▁' if the alphabet holds '_'."""

    @classmethod
    def files(cls) -> Readers:
        def read(path: Path, window: int | None = None) -> Encoded:
            return cls.of_rows(read_sequences(path, window, 2), repr(str(path)))

        def smiles(path: Path) -> Encoded:
            return cls.of_rows(read_smiles(path), repr(str(path)))

        def fasta(path: Path, window: int | None = None) -> Encoded:
            rows, groups = fasta_rows(path, window)
            return cls.of_rows(rows, repr(str(path)), groups)

        return {".txt": read, ".smi": smiles, ".fasta": fasta}

    @classmethod
    def folders(cls) -> Readers:
        """The lines or the windows of each file are a group."""

        def read(paths: Sequence[Path], window: int | None = None) -> Encoded:
            for path in paths:
                readable(path)
            texts = [read_sequences(path, window, 1) for path in paths]
            groups = [group for group, rows in enumerate(texts) for _ in rows]
            return cls.of_rows([row for rows in texts for row in rows], f"{str(paths[0].parent)!r}", groups)

        return {".txt": read}

    @classmethod
    def of_rows(cls, rows: Sequence[str], source: str, groups: Sequence[int] | None = None) -> Encoded:
        """Rows of text as tokens, one for each character that occurs; `source` names the text in error messages."""
        alphabet = "".join(sorted(set().union(*rows)))
        _checks.require(
            len(alphabet) > 1,
            f"{source} holds one character only, {alphabet!r}: there is nothing to learn. Give another text.",
        )
        codec = cls(alphabet, padded=len({len(row) for row in rows}) > 1)
        return Encoded(codec.compact(rows), codec, groups)

    def encode(self, values: Sequence[str]) -> Tokens:
        return torch.from_numpy(self.compact(values).astype(np.int64))

    def compact(self, values: Sequence[str], length: int = 0) -> Integer[np.ndarray, "num dim"]:
        """What `encode` returns, in the smallest type that holds it; a padded codec fills rows up to this length."""
        lengths = np.array([len(row) for row in values], dtype=np.int64)
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        _checks.require(longest > 0, "values must hold at least one line of text.")
        _checks.require(
            self.padded or shortest == longest,
            f"values has lines of {shortest} to {longest} characters, which only a padded codec can hold.",
        )
        longest = max(longest, length) if self.padded else longest
        token_of = np.full(sys.maxunicode + 1, self.num_states, np.min_scalar_type(self.num_states))
        token_of[_codes(self.alphabet)] = np.arange(len(self.alphabet))
        codes = _codes("".join(values))
        known = token_of[codes]
        if known.max() == self.num_states:
            raise ValueError(f"values holds {chr(codes[known.argmax()])!r}, which is not in the alphabet.")
        tokens = np.full((len(lengths), longest), self.pad, dtype=known.dtype)
        tokens[np.arange(longest) < lengths[:, None]] = known
        return tokens

    def padded_to(self, tokens: Tokens, length: int) -> Tokens:
        return F.pad(tokens, (0, max(0, length - tokens.shape[1])), value=self.pad) if self.padded else tokens

    def decode(self, tokens: Tokens) -> list[str]:
        rows = (row[: row.index(self.pad)] if self.pad in row else row for row in self.check(tokens).tolist())
        return ["".join(self.alphabet[token] for token in row) for row in rows]

    def writers(self) -> Writers:
        return {
            ".txt": self._write_text,
            **super().writers(),
            ".smi": self._write_text,
            ".fasta": lambda tokens, path: write_fasta(self.decode(tokens), path),
            ".jsonl": lambda tokens, path: write_texts(self.decode(tokens), path),
        }

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
