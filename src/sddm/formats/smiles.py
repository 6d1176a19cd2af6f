"""Molecules written as lines of text (SMILES), read by RDKit: which lines are molecules, their drawings, and scaffolds.

A line is a molecule if RDKit reads it: brackets and rings are closed, and no atom has more bonds than it can have. The
empty line and a line with spaces are none.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from sddm import _checks

SIDE = 220
"""The width and the height of the drawing of one molecule, in pixels."""
ROWS, COLUMNS = 4, 6
"""The rows and columns of a sheet of drawings, at most."""
SYMBOLS = frozenset("#%()*+-./0123456789:=@ABCFHIKLMNOPSTZ[\\]abcegilnoprstu$")
"""The characters of lines that may be molecules."""
WRITTEN = 64
"""How many random ways to write a scaffold are looked at, for each atom that it may be joined by."""
NEEDED = 'Molecules are read by RDKit. Install it with pip install "sddm[molecules]".'


def may_be_smiles(alphabet: str) -> bool:
    """Whether text of these characters may be molecules."""
    return "C" in alphabet and set(alphabet) <= SYMBOLS


def is_installed() -> bool:
    try:
        importlib.import_module("rdkit.Chem")
    except ImportError:
        return False
    return True


def molecules(lines: Iterable[str]) -> list[Any]:
    """What RDKit reads from each line; None where that is not a molecule."""
    with quiet_chemistry() as chemistry:
        return [_molecule(line, chemistry) for line in lines]


def canonical(lines: Iterable[str]) -> list[str | None]:
    """The canonical SMILES of each line, one for all ways to write a molecule; None if it is not a molecule."""
    with quiet_chemistry() as chemistry:
        found = (_molecule(line, chemistry) for line in lines)
        return [None if molecule is None else chemistry.MolToSmiles(molecule) for molecule in found]


def draw_molecules(samples: Iterable[str], path: Path, rows: int = ROWS, columns: int = COLUMNS) -> int:
    """Draw the first samples that are molecules as a grid into a .png file, and return how many they are."""
    path = Path(path)
    _checks.whole(rows, "rows", 1)
    _checks.whole(columns, "columns", 1)
    _checks.require(
        path.suffix.lower() == ".png", f"{str(path)!r} ends in {path.suffix!r}. Name a file ending in .png."
    )
    with quiet_chemistry() as chemistry:
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


def written_scaffolds(scaffold: str, seed: int = 0) -> list[str]:
    """Ways to write a scaffold such that what follows is joined to an atom that has room: "c1ccncc1" and others.

    A `*` in the scaffold marks the atoms by which it may be joined, as in "*c1ccncc1". Without one, all that hold a
    hydrogen. Of each atom's ways, those with the fewest brackets are kept: the text of molecules is mostly so.
    """
    with quiet_chemistry() as chemistry:
        core, joints = _core(scaffold, chemistry)
        found: set[str] = set()
        for joint in joints:
            joined = chemistry.RWMol(core)
            atom = joined.GetAtomWithIdx(joint)
            atom.SetNumExplicitHs(max(0, atom.GetNumExplicitHs() - 1))  # what is joined takes the place of a hydrogen
            joined.AddBond(joint, joined.AddAtom(chemistry.Atom(0)), chemistry.BondType.SINGLE)
            if chemistry.SanitizeMol(joined, catchErrors=True) != chemistry.SANITIZE_NONE:
                continue
            texts = chemistry.MolToRandomSmilesVect(joined, WRITTEN, randomSeed=seed + 1)
            ways = {text.removesuffix("*").removesuffix("-") for text in texts if text.endswith("*")}
            fewest = min((way.count("(") for way in ways), default=0)
            found |= {way for way in ways if way.count("(") == fewest}
    _checks.require(
        len(found) > 0,
        f"scaffold {scaffold!r} has no atom by which more can be joined. Leave a hydrogen on one, or mark one by *.",
    )
    return sorted(found)


def holding(lines: Sequence[str], scaffold: str) -> list[bool]:
    """Which lines are molecules of which the scaffold is a part."""
    with quiet_chemistry() as chemistry:
        core, _ = _core(scaffold, chemistry)
        found = (_molecule(line, chemistry) for line in lines)
        return [molecule is not None and bool(molecule.HasSubstructMatch(core)) for molecule in found]


def _core(scaffold: str, chemistry: Any) -> tuple[Any, list[int]]:
    """The scaffold without its marks, and the atoms by which it may be joined."""
    marked = _molecule(scaffold, chemistry)
    if marked is None:
        raise ValueError(f"scaffold {scaffold!r} is not a molecule as SMILES. Write one such as *c1ccncc1.")
    marks = [atom for atom in marked.GetAtoms() if atom.GetAtomicNum() == 0]
    joints = [neighbour.GetIdx() for mark in marks for neighbour in mark.GetNeighbors() if neighbour.GetAtomicNum()]
    kept = [atom.GetIdx() for atom in marked.GetAtoms() if atom.GetAtomicNum()]
    _checks.require(len(kept) > 0, f"scaffold {scaffold!r} has no atoms but marks. Name a molecule.")
    if not marks:
        return marked, [atom.GetIdx() for atom in marked.GetAtoms() if atom.GetTotalNumHs() > 0]
    core = chemistry.RWMol(marked)
    for joint in joints:
        atom = core.GetAtomWithIdx(joint)
        if atom.GetIsAromatic() and atom.GetAtomicNum() == 7:  # no other atom of a ring has a hydrogen that is written
            atom.SetNumExplicitHs(1)
    for mark in sorted((atom.GetIdx() for atom in marks), reverse=True):
        core.RemoveAtom(mark)
    if chemistry.SanitizeMol(core, catchErrors=True) != chemistry.SANITIZE_NONE:
        raise ValueError(f"scaffold {scaffold!r} is not a molecule without its marks. Mark other atoms.")
    return core, sorted({kept.index(joint) for joint in joints})


def _molecule(line: str, chemistry: Any) -> Any:
    """What RDKit reads from a line; None if that is not a molecule."""
    if line == "" or any(map(str.isspace, line)):  # RDKit takes what follows a space for a name
        return None
    molecule = chemistry.MolFromSmiles(line)
    return molecule if molecule is not None and molecule.GetNumAtoms() > 0 else None


@contextmanager
def quiet_chemistry() -> Iterator[Any]:
    """RDKit, which prints a report of every line that it cannot read, without these reports."""
    try:
        chemistry = importlib.import_module("rdkit.Chem")
    except ImportError:
        raise ValueError(NEEDED) from None
    with importlib.import_module("rdkit.rdBase").BlockLogs():
        yield chemistry
