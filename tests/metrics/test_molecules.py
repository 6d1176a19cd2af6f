"""Lines that are molecules: how many, how many different ones, how many new ones, and what they look like."""

import math
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from rdkit import Chem

from sddm.codecs import Characters
from sddm.data.published import SMILES
from sddm.metrics import METRICS, MoleculeQuality, compare, draw_molecules, left_out
from sddm.metrics.molecules import PROPERTIES, SIDE, canonical, property_of, wasserstein

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


# ---- properties, and what `sddm evaluate` shows

CODEC = Characters(SMILES, padded=True)


def encoded(lines):
    return CODEC.padded_to(CODEC.encode(lines), 12)


def test_properties_are_those_of_known_molecules():
    lines = ["CCO", "c1ccccc1", "C1CC"]
    assert property_of("weight", lines)[:2].tolist() == pytest.approx([46.07, 78.11], abs=0.01)
    assert property_of("rings", lines)[:2].tolist() == [0, 1]
    # Crippen's contributions: C1 0.1441, C3 -0.2035, O2 -0.2893, 5 H1 of 0.1230 and one of H2 -0.2677.
    ethanol = 0.1441 - 0.2035 - 0.2893 + 5 * 0.1230 - 0.2677
    assert float(property_of("log_p", lines)[0]) == pytest.approx(ethanol, abs=1e-6)
    assert 0 < float(property_of("qed", lines)[0]) < 1
    assert 1 <= float(property_of("accessibility", lines)[1]) <= 10
    for name in PROPERTIES:
        assert math.isnan(property_of(name, lines)[2])
    with pytest.raises(ValueError, match="name must be one of weight, log_p, qed, accessibility, rings"):
        property_of("colour", lines)


def test_the_distance_of_two_laws_is_how_far_values_are_moved():
    def law(*values):
        return torch.tensor(values, dtype=torch.float64)

    assert wasserstein(law(0, 1, 3), law(5, 6, 8)) == pytest.approx(5)
    assert wasserstein(law(0, 1), law(0, 0, 1, 1)) == 0
    assert wasserstein(law(0, 0, 0, 1), law(0, 1)) == pytest.approx(0.25)
    one, other = (torch.randn(200, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1))
    paired = float((one.sort().values - (other + 2).sort().values).abs().mean())  # for as many values of either law
    assert wasserstein(one, other + 2) == pytest.approx(paired)


def test_samples_are_measured_as_molecules_against_data_and_against_training_rows():
    data = encoded(["CCO", "CCN", "c1ccccc1", "CCC", "CCS", "CNC"] * 4)
    samples = encoded(["CCO", "OCC", "c1ccccc1O", "C1CC"] * 6)
    figures = {figure.name: figure for figure in compare(samples, data, CODEC, encoded(["OCC", "CN"]))}
    assert figures["valid"].value == 0.75
    assert figures["unique"].value == pytest.approx(2 / 18)
    assert figures["novel"].value == 0.5
    rings = torch.tensor([0.0, 0, 1]), torch.tensor([0.0, 0, 1, 0, 0, 0])
    assert figures["rings_distance"].value == pytest.approx(float(rings[0].mean() - rings[1].mean()))
    assert figures["rings_distance"].of_data == pytest.approx(1 / 3)  # every other row: with benzene, or without
    assert "novel" not in {figure.name for figure in compare(samples, data, CODEC)}


def test_text_that_is_no_molecules_is_not_measured_as_such():
    plain, looks = Characters("abcC", padded=False), Characters("C()", padded=False)
    data = torch.randint(3, (20, 6), generator=torch.Generator().manual_seed(0))
    for codec in (plain, looks):  # the second has lines such as "((C)C)"
        assert [figure.name for figure in compare(data, data.flip(0), codec)] == ["mmd"]


def test_what_is_left_out_without_rdkit_is_named(monkeypatch):
    data = encoded(["CCO", "CCN"] * 4)
    for name in [name for name in sys.modules if name.split(".")[0] == "rdkit"] + ["rdkit"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert [figure.name for figure in compare(data, data, CODEC)] == ["mmd"]
    (note,) = left_out(data, data, CODEC)
    assert METRICS["valid"].title in note
    assert 'pip install "sddm[molecules]"' in note
