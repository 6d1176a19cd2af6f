"""Scaffolds: the ways to write them, and which molecules hold them."""

import json

import pytest
import torch
from PIL import Image
from rdkit import Chem

import sddm
from sddm.cli import main
from sddm.codecs import Characters, Integers
from sddm.data import Dataset
from sddm.data.published import SMILES
from sddm.formats.smiles import holding, may_be_smiles, written_scaffolds
from sddm.metrics.molecules import property_of

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
LINES = ["CCO", "CCN", "c1ccccc1C", "CC(=O)O", "Cc1ccncc1", "CCCC", "COc1ccccc1"] * 8


@pytest.mark.parametrize(
    "scaffold", ["c1ccncc1", "*c1ccc(*)cc1", "C1CCNCC1", "CC(*)C", "c1cc[nH]c1", "c1ccn(*)c1", "O=C(N*)C"]
)
def test_what_follows_a_written_scaffold_is_joined_to_it(scaffold):
    ways = written_scaffolds(scaffold)
    for rest in ("C", "C(=O)N", "CCF"):
        lines = [way + rest for way in ways]
        assert all(Chem.MolFromSmiles(line) for line in lines)
        assert all(holding(lines, scaffold))
    bare = sum(atom.GetAtomicNum() > 0 for atom in Chem.MolFromSmiles(scaffold).GetAtoms())
    for way in ways:
        assert Chem.MolFromSmiles(way + "C").GetNumAtoms() == bare + 1


def test_a_scaffold_is_joined_only_where_it_is_marked():
    joined = {Chem.CanonSmiles(way + "F") for way in written_scaffolds("*c1ccncc1")}
    assert joined == {Chem.CanonSmiles("Fc1ccncc1")}
    anywhere = {Chem.CanonSmiles(way + "F") for way in written_scaffolds("c1ccncc1")}
    assert anywhere == {Chem.CanonSmiles(smiles) for smiles in ("Fc1ccncc1", "Fc1cccnc1", "Fc1ccccn1")}


def test_the_ways_follow_from_the_seed():
    assert written_scaffolds("C1CCNCC1", 3) == written_scaffolds("C1CCNCC1", 3)


def test_molecules_hold_a_scaffold_however_they_are_written():
    lines = ["Cc1ccncc1", "n1ccc(CC)cc1", "CCO", "c1ccncc1(", "c1ccccc1"]
    assert holding(lines, "*c1ccncc1") == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("scaffold", "sentence"),
    [
        ("c1cc", "scaffold 'c1cc' is not a molecule as SMILES"),
        ("", "scaffold '' is not a molecule as SMILES"),
        ("*", r"has no atoms but marks"),
        ("FC(F)(F)F", r"has no atom by which more can be joined\. Leave a hydrogen on one, or mark one"),
    ],
)
def test_a_scaffold_that_cannot_be_is_refused(scaffold, sentence):
    with pytest.raises(ValueError, match=sentence):
        written_scaffolds(scaffold)


def test_text_may_be_molecules_by_its_characters():
    assert may_be_smiles(SMILES)
    assert not may_be_smiles("ACGT")
    assert not may_be_smiles("abc")


def test_conditions_hold_the_scaffold_first_or_somewhere():
    codec = Characters(SMILES, padded=True)
    rows = codec.read_scaffold("*c1ccncc1", 40, 57, seed=0)
    for number, row in enumerate(rows):
        known = (row != -1).nonzero()[:, 0]
        text = "".join(codec.alphabet[token] for token in row[known].tolist())
        assert text in written_scaffolds("*c1ccncc1")
        assert int(known[-1] - known[0]) + 1 == len(known) == 8
        assert int(known[0]) == 0 if number % 2 == 0 else int(known[0]) <= 24
    assert len({int((row != -1).nonzero()[0]) for row in rows}) > 5
    assert torch.equal(rows, codec.read_scaffold("*c1ccncc1", 40, 57, seed=0))
    for known, sentence in (("[Na]CC", "not in the alphabet"), ("C" * 60, "has 60 characters, but samples have 57")):
        with pytest.raises(ValueError, match=sentence):
            codec.read_scaffold(known, 2, 57, seed=0)
    for other in (Integers(4), Characters("xyz", padded=False)):
        with pytest.raises(ValueError, match="scaffold is for molecules, but the data are"):
            other.read_scaffold("CC", 2, 8, seed=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("molecules") / "model"
    data = Dataset(*Characters.of_rows(LINES, "x"))
    sddm.fit(data, steps=150, width=16, layers=1, batch_size=32, progress=False).save_pretrained(folder)
    return folder


def test_samples_around_a_scaffold_are_counted_and_drawn(model, tmp_path, capsys):
    out = tmp_path / "molecules.txt"
    main(["sample", str(model), "--scaffold", "*C", "--num", "12", "--seed", "1", "--out", str(out)])
    lines = out.read_text().splitlines()
    said = capsys.readouterr().err
    held = sum(holding(lines, "*C"))
    valid = sum(Chem.MolFromSmiles(line) is not None and line != "" for line in lines)
    assert f"Of 12 samples, {valid} are molecules, and {held} of these hold the scaffold." in said
    assert all("C" in line for line in lines)
    assert all(line.startswith("C") for line in lines[::2])
    picture = tmp_path / "molecules.png"
    main(["sample", str(model), "--num", "40", "--out", str(picture)])
    with Image.open(picture) as drawn:
        assert drawn.size[0] % 220 == 0


def test_a_run_on_molecules_is_scored_as_such(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    run, out = tmp_path / "run", tmp_path / "figures.json"
    tiny = ["--width", "16", "--layers", "1", "--batch-size", "16", "--steps", "100"]
    main(["train", "--data", str(tmp_path / "lines.txt"), "--out", str(run), *tiny])
    main(["evaluate", str(run), "--num-times", "8", "--samples", "40", "--out", str(out)])
    figures = json.loads(out.read_text())
    assert 0 < figures["valid"] <= 1
    assert {"unique", "novel", "weight_distance", "weight_distance_of_data", "accessibility_distance"} <= set(figures)
    main(["evaluate", str(run / "model"), "--data", str(tmp_path / "lines.txt"), "--samples", "8", "--out", str(out)])
    assert "novel" not in json.loads(out.read_text())  # a saved model does not know its training rows


def test_a_scaffold_and_another_condition_are_not_both_given(model, capsys):
    with pytest.raises(SystemExit):
        main(["sample", str(model), "--scaffold", "C", "--prefix", "C"])
    assert "Give --scaffold or another condition, not both." in capsys.readouterr().err


def test_previews_of_molecules_are_text_and_their_samples_can_be_drawn():
    codec = Characters(SMILES, padded=True)
    assert codec.preview_ending == ".txt"
    assert ".png" in codec.endings
    assert ".png" not in Characters("abc", padded=True).endings


def test_samples_are_steered_to_a_property():
    """Of rows that are CCO or CCN with the same probability, a reward for oxygen leaves few of the second."""
    data = Dataset(*Characters.of_rows(["CCO", "CCN"] * 40, "x"))
    diffusion = sddm.fit(data, steps=100, width=16, layers=1, batch_size=32, progress=False)

    def reward(tokens):
        return 8 * property_of("weight", diffusion.decode(tokens)).nan_to_num(0)

    weight = property_of("weight", diffusion.decode(sddm.steer(diffusion, 8, reward, particles=8).tokens)).nanmean()
    plain = property_of("weight", diffusion.decode(diffusion.sample(64, seed=0))).nanmean()
    assert float(weight) > float(plain) + 0.3
