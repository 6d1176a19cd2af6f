"""Lines that are molecules: how many, how many different ones, how many new ones, and what they look like."""

import math
import sys

import numpy as np
import pytest
from PIL import Image
from rdkit import Chem

from sddm.metrics import MoleculeQuality, draw_molecules
from sddm.metrics.molecules import SIDE, canonical

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
NONE = ["", " ", "C C", "C1CC", "c1ccc", "C(C", "F(C)C", "hello", "C\nC", "\x00", "é"]


@pytest.mark.parametrize("line", NONE)
def test_what_is_not_one_whole_molecule_is_not_valid(line):
    assert canonical([line]) == [None]
    assert MoleculeQuality([]).measure([line]).valid == 0


def test_one_molecule_written_in_several_ways_has_one_canonical_form():
    assert len(set(canonical(["CCO", "OCC", "C(O)C", "[CH3][CH2][OH]"]))) == 1
    assert len(set(canonical(["CCO", "CCN"]))) == 2


def test_shares_are_those_that_one_counts_by_hand():
    """Seven of ten are molecules: ethanol twice, benzene in two ways, propane three times. Benzene is known."""
    samples = ["CCO", "OCC", "c1ccccc1", "C1=CC=CC=C1", "CCC", "CCC", "CCC", "", "C1CC", "x"]
    valid, error, unique, novel = MoleculeQuality(["C1=CC=CC=C1", "CN", "not a molecule"]).measure(samples)
    assert valid == 0.7
    assert error == pytest.approx(math.sqrt(0.7 * 0.3 / 10), rel=1e-12)
    assert unique == pytest.approx(3 / 7)
    assert novel == pytest.approx(2 / 3)


def test_shares_of_no_valid_sample_are_not_numbers():
    valid, error, unique, novel = MoleculeQuality(["C"]).measure(["(", ""])
    assert (valid, error) == (0, 0)
    assert math.isnan(unique)
    assert math.isnan(novel)


def test_nothing_is_printed_and_afterwards_rdkit_speaks_again(capfd, tmp_path):
    MoleculeQuality(["C1CC"]).measure(NONE)
    draw_molecules(["C1CC", "C"], tmp_path / "a.png")
    assert capfd.readouterr() == ("", "")
    assert Chem.MolFromSmiles("C1CC") is None
    assert "SMILES Parse Error" in capfd.readouterr().err


@pytest.mark.parametrize(("valid", "drawn", "size"), [(1, 1, (1, 1)), (3, 3, (2, 2)), (9, 4, (2, 2))])
def test_the_first_molecules_are_drawn_in_a_grid(valid, drawn, size, tmp_path):
    path = tmp_path / "new" / "a.png"
    samples = [line for i in range(valid) for line in ("C1CC", "C" * (i + 2))]
    assert draw_molecules(samples, path, rows=2, columns=2) == drawn
    with Image.open(path) as picture:
        assert picture.size == (size[0] * SIDE, size[1] * SIDE)
        ink = np.asarray(picture.convert("L")) < 200
    cells = ink.reshape(size[1], SIDE, size[0], SIDE).any(axis=(1, 3)).flatten()
    assert cells.tolist() == [place < drawn for place in range(size[0] * size[1])]


def test_bad_arguments_are_answered_by_sentences(tmp_path):
    with pytest.raises(ValueError, match="samples must hold at least one line"):
        MoleculeQuality(["C"]).measure([])
    with pytest.raises(ValueError, match="None of the samples is a molecule"):
        draw_molecules(["", "("], tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a\.svg' ends in '\.svg'\. Name a file ending in \.png"):
        draw_molecules(["C"], tmp_path / "a.svg")
    with pytest.raises(ValueError, match="rows must be at least 1"):
        draw_molecules(["C"], tmp_path / "a.png", rows=0)


def test_the_extra_is_named_if_rdkit_is_missing(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "rdkit"] + ["rdkit"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r'Install it with pip install "sddm\[molecules\]"'):
        canonical(["C"])
