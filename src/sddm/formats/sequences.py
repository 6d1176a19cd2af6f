"""Sequences of chemistry and biology as lines of text: SMILES (.smi) and FASTA (.fasta), both ways."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sddm import _checks
from sddm.formats.text import check_lines, read_lines, windows

FASTA_WIDTH = 60
"""How many letters of a sequence stand in a line."""


def read_smiles(path: Path) -> list[str]:
    """A molecule a line. What follows it after a space or a tab, such as its name, is dropped, and so is a header."""
    found = [fields[0] for line in read_lines(path) if (fields := line.split())]
    if found and found[0].lower() == "smiles":
        found = found[1:]
    _checks.require(len(found) > 0, f"{str(path)!r} holds no molecules. Give one a line.")
    return _usable(found, path, "Molecule")


def read_fasta(path: Path) -> list[str]:
    """The sequences; their headers are dropped."""
    found: list[list[str]] = []
    for line in read_lines(path):
        if line.startswith(">"):
            found.append([])
            continue
        _checks.require(
            len(found) > 0, f"{str(path)!r} begins with {_checks.shown(line)}, but a sequence needs a header, '>name'."
        )
        found[-1].append("".join(line.split()))
    joined = ["".join(lines) for lines in found]
    for number, sequence in enumerate(joined, start=1):
        _checks.require(sequence != "", f"Sequence {number} of {str(path)!r} is empty. Leave it out.")
    return joined


def fasta_rows(path: Path, window: int | None) -> tuple[list[str], list[int] | None]:
    """Sequences, or windows of them with the number of the sequence that each is of."""
    sequences = read_fasta(path)
    if window is None:
        return _usable(sequences, path, "Sequence"), None
    _checks.whole(window, "window", 1)
    longest = max(map(len, sequences))
    _checks.require(
        window <= longest, f"window is {window}, but the longest sequence of {str(path)!r} has {longest} letters."
    )
    cut = [
        (row, group)
        for group, sequence in enumerate(sequences)
        if len(sequence) >= window
        for row in windows(sequence, window, 1, repr(str(path)))
    ]
    return [row for row, _ in cut], [group for _, group in cut]


def write_fasta(sequences: Sequence[str], path: Path) -> None:
    """The sequences, called sample_1, sample_2, ..."""
    lines = []
    for number, sequence in enumerate(sequences, start=1):
        lines.append(f">sample_{number}")
        lines += [sequence[i : i + FASTA_WIDTH] for i in range(0, len(sequence), FASTA_WIDTH)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _usable(rows: list[str], path: Path, name: str) -> list[str]:
    source = repr(str(path))
    check_lines(
        rows, source, lambda row: f"{name} {row + 1} of {source}", "Pass --window N, which .fasta and .txt take,"
    )
    return rows
