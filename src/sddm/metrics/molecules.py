"""Which of some lines are molecules, and which of these are new: the qualities of a model of SMILES, and a picture.

A line is a molecule if RDKit reads it: brackets and rings are closed, and no atom has more bonds than it can have. The
empty line and a line with spaces are none. The same molecule can be written in many ways. So molecules are compared by
their canonical SMILES, which is the same for all of them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sddm import _checks

SIDE = 220
"""The width and the height of the drawing of one molecule, in pixels."""


class MoleculeFigures(NamedTuple):
    """Shares of samples. Those of the valid ones are NaN if no sample is valid."""

    valid: float
    """The share of samples that are molecules."""
    valid_error: float
    """Its standard error, sqrt(p (1 - p) / n)."""
    unique: float
    """How many different molecules there are, as a share of the valid samples."""
    novel: float
    """The share of these different molecules that the training lines do not hold."""


class MoleculeQuality:
    """Measures samples against training lines, which are read once.

    >>> quality = MoleculeQuality(["CCO", "c1ccccc1"])
    >>> quality.measure(["OCC", "CCN", "NCC", "C1CC"])      # ethanol is known, the ring is open
    MoleculeFigures(valid=0.75, valid_error=0.2165..., unique=0.666..., novel=0.5)
    """

    def __init__(self, training: Iterable[str]) -> None:
        self.known = set(canonical(training)) - {None}

    def measure(self, samples: Sequence[str]) -> MoleculeFigures:
        _checks.require(len(samples) > 0, "samples must hold at least one line.")
        valid = [smiles for smiles in canonical(samples) if smiles is not None]
        different = set(valid)
        share = len(valid) / len(samples)
        return MoleculeFigures(
            share,
            math.sqrt(share * (1 - share) / len(samples)),
            len(different) / len(valid) if valid else math.nan,
            len(different - self.known) / len(different) if valid else math.nan,
        )


def canonical(lines: Iterable[str]) -> list[str | None]:
    """The canonical SMILES of each line; None if it is not a molecule."""
    with _quiet_chemistry() as chemistry:
        molecules = (_molecule(line, chemistry) for line in lines)
        return [None if molecule is None else chemistry.MolToSmiles(molecule) for molecule in molecules]


def draw_molecules(samples: Iterable[str], path: Path, rows: int = 4, columns: int = 6) -> int:
    """Draw the first samples that are molecules as a grid into a .png file, and return how many they are."""
    path = Path(path)
    _checks.whole(rows, "rows", 1)
    _checks.whole(columns, "columns", 1)
    _checks.require(
        path.suffix.lower() == ".png", f"{str(path)!r} ends in {path.suffix!r}. Name a file ending in .png."
    )
    with _quiet_chemistry() as chemistry:
        found = (_molecule(line, chemistry) for line in samples)
        drawn = list(islice((molecule for molecule in found if molecule is not None), rows * columns))
        _checks.require(len(drawn) > 0, "None of the samples is a molecule, so there is nothing to draw.")
        size = min(columns, len(drawn)) * SIDE, math.ceil(len(drawn) / columns) * SIDE
        canvas = importlib.import_module("rdkit.Chem.Draw.rdMolDraw2D").MolDraw2DCairo(*size, SIDE, SIDE)
        canvas.DrawMolecules(drawn)
        canvas.FinishDrawing()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(canvas.GetDrawingText())
    return len(drawn)


def _molecule(line: str, chemistry: Any) -> Any:
    """What RDKit reads from a line; None if that is not a molecule."""
    if line == "" or any(map(str.isspace, line)):  # RDKit takes what follows a space for a name
        return None
    molecule = chemistry.MolFromSmiles(line)
    return molecule if molecule is not None and molecule.GetNumAtoms() > 0 else None


@contextmanager
def _quiet_chemistry() -> Iterator[Any]:
    """RDKit, which prints a report of every line that it cannot read, without these reports."""
    try:
        chemistry = importlib.import_module("rdkit.Chem")
    except ImportError:
        raise ValueError('Molecules are read by RDKit. Install it with pip install "sddm[molecules]".') from None
    with importlib.import_module("rdkit.rdBase").BlockLogs():
        yield chemistry
