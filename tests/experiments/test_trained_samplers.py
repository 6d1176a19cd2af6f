"""Every way of sampling on trained models, with tiny corpora and networks in place of the real ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from enumerated import seeded
from scripted import tiny_inception
from sddm import sample
from sddm.codecs import Characters, Codes, Notes
from sddm.data import Dataset
from sddm.experiments import images, sample_quality, timed, trained_samplers
from sddm.experiments.corpora import Corpus
from sddm.experiments.enumerated import Bits
from sddm.experiments.experiment import Cell
from sddm.experiments.runner import reproduce
from sddm.experiments.sample_quality import OfCodes, OfMelodies, OfMolecules, Shown
from sddm.experiments.sampler_report import FLOOR, Point, tables, verdicts
from sddm.experiments.trained_samplers import BY_INCEPTION, TrainedSamplers
from sddm.experiments.ways import DEFAULT, WAYS, counted, threshold_within
from sddm.metrics import inception
from sddm.samplers import Entropic
from sddm.tokenizers.sizes import VQGANSizes

NUM, MANY = 24, 20
MOLECULES = ["CCO", "CC", "CCC", "CCN", "OCC", "CCCO", "C=O", "CN"]
CHARACTERS = Characters("CNO=", padded=True)
CODES = Codes(8, 8, VQGANSizes(filters=4, multipliers=(1, 2), blocks=1, codes=16, code_width=4))


def made(kind):
    if kind == "molecules":
        return [Dataset(CHARACTERS.encode(MOLECULES * 3), CHARACTERS)] * 3
    codec, states, length = (Notes(), (60, 66), 32) if kind == "melodies" else (CODES, (0, 16), 16)
    return [Dataset(torch.randint(*states, (NUM, length), generator=seeded(seed)), codec) for seed in range(3)]


def tiny(kind):
    return Corpus(kind, *made(kind))


class Tokenized:
    def corpus(self):
        return tiny("codes")


@pytest.fixture
def small(monkeypatch, tmp_path, without_annotation_checks):
    """The experiment with moments of training, small networks and few samples."""
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(inception.VARIABLE, str(tiny_inception(tmp_path)))
    monkeypatch.setattr(trained_samplers, "corpus", tiny)
    monkeypatch.setattr(trained_samplers, "TOKENIZERS", {"small": Tokenized()})
    monkeypatch.setattr(trained_samplers, "EVALUATIONS", (4, 8))
    monkeypatch.setattr(trained_samplers, "USUAL", 10)
    monkeypatch.setattr(trained_samplers, "MANY", {"small": dict.fromkeys(trained_samplers.MANY["small"], MANY)})
    monkeypatch.setattr(images, "GRID", (4, 4))
    monkeypatch.setattr(timed, "POINTS", 1)
    experiment = TrainedSamplers("small")
    sizes = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
    experiment.models = {
        column: replace(model, minutes=1e-4, recipe=model.recipe.but(model=sizes, training={"batch_size": 4}))
        for column, model in experiment.models.items()
    }
    return experiment


@pytest.mark.parametrize("column", TrainedSamplers("small").columns)
def test_every_way_is_measured_and_compared_on_one_training(column, small, tmp_path):
    results = reproduce(small, tmp_path / "out", tmp_path / "work", [f"*/{column}"])
    assert [Cell(r["row"], r["column"]) for r in results] == [cell for cell in small.cells() if cell.column == column]
    assert len(list((tmp_path / "work").rglob(timed.PACE_FILE))) == 1
    kind = column.rpartition(", ")[0]
    first = sample_quality.KINDS[kind].shown[0].name
    for result in results:
        figures, system = result["figures"], small.rows[result["row"]].system
        assert figures[f"{first}_standard_error"] >= 0
        if result["row"] == FLOOR:
            continue
        by_inception = column == "image codes, uniform" and system.way in BY_INCEPTION
        assert ("kid" in figures) == by_inception
        asked = system.evaluations or small.source(column).length
        if system.way != "Euler":  # which may leave a MASK, that is drawn in the end
            assert figures["evaluations"] <= asked
    table = (tmp_path / "out" / "samplers" / "trained" / "tables.md").read_text()
    assert f"## {column}" in table
    ways = {small.rows[r["row"]].system.way for r in results if r["row"] != FLOOR}
    assert all(f"\n| {way} | " in table for way in ways)
    assert table.count("**") >= 4
    assert (tmp_path / "out" / "samplers" / "trained" / "curves.png").stat().st_size > 1_000


def test_all_ways_but_the_one_for_ordered_models_are_tried_where_they_make_sense():
    experiment = TrainedSamplers("small")
    tried = {
        column: {
            experiment.rows[cell.row].system.way
            for cell in experiment.cells()
            if cell.column == column and cell.row != FLOOR
        }
        for column in experiment.columns
    }
    everywhere = {way for way in WAYS if not WAYS[way].masked}
    assert tried["molecules, absorbing"] == set(WAYS) - {"in order"}
    assert tried["melodies, absorbing"] == set(WAYS) - {"in order", "first hitting"}
    assert all(tried[column] == everywhere for column in tried if column.endswith("uniform"))


def test_the_default_of_the_library_is_the_way_that_is_called_so():
    diffusion = Bits("uniform, oracle").diffusion()
    chosen = WAYS[DEFAULT].options(diffusion, 8)
    usual = sample(diffusion, 50, steps=8, generator=seeded(0))
    assert torch.equal(usual, sample(diffusion, 50, generator=seeded(0), **chosen))


def test_entropic_steps_get_the_largest_threshold_that_the_evaluations_pay_for():
    diffusion = Bits("absorbing, flattened").diffusion()

    def asked(threshold):
        with counted(diffusion) as count:
            sample(diffusion, 400, 1, Entropic(threshold), generator=seeded(3))
        return count.rows / 400

    threshold = threshold_within(diffusion, 4, num=400)
    assert 3 < asked(threshold) <= 4.1
    assert threshold_within(diffusion, 5, num=400) <= threshold
    assert threshold_within(diffusion, 6, num=400) == 0  # one for each position


def test_counting_ends_with_its_block():
    diffusion = Bits("uniform, oracle").diffusion()
    with counted(diffusion) as count:
        sample(diffusion, 10, steps=3)
    sample(diffusion, 10, steps=3)
    assert count.rows == 30


@pytest.mark.parametrize("kind", ["melodies", "molecules", "image codes"])
def test_rows_of_another_law_are_farther_away_than_rows_of_the_data(kind):
    corpus = tiny(kind)
    quality = sample_quality.KINDS[kind](corpus)
    near = quality.measure(corpus.validation.tokens[:MANY])
    far = quality.measure((torch.arange(corpus.length) % 2).expand(MANY, -1))
    name = quality.shown[0].name
    assert far[name][0] > near[name][0] + 2 * near[name][1]


def test_molecules_that_are_known_or_come_twice_are_valid_and_not_fresh():
    quality = OfMolecules(tiny("molecules"))
    lines = ["CCO", "CCCN", "NCCC", "C=C", "O=", "N=O", "CCC", "CC"] * 3
    figures = quality.measure(CHARACTERS.encode(lines))
    assert figures["valid"][0] == pytest.approx(7 / 8)
    assert figures["fresh"][0] == pytest.approx(3 / 24)  # propylamine once, ethene, and HNO


def test_pairs_end_where_the_molecule_ends():
    quality = OfMolecules(tiny("molecules"))
    pairs = quality.pairs(CHARACTERS.encode(["CO", "C=O"])).reshape(5, 5)
    carbon, oxygen, double, end = (CHARACTERS.alphabet.index("C"), CHARACTERS.alphabet.index("O"),
                                   CHARACTERS.alphabet.index("="), CHARACTERS.pad)  # fmt: skip
    assert pairs[end].sum() == 0
    assert pairs[carbon, oxygen] == pairs[carbon, double] == pairs[double, oxygen]
    assert pairs.sum() == pytest.approx(1)


def test_the_distance_of_notes_is_the_mean_of_its_parts():
    corpus = tiny("melodies")
    figures = OfMelodies(corpus).measure(corpus.validation.tokens[:MANY])
    parts = [figures[name][0] for name in sample_quality.LAWS]
    assert figures["notes"][0] == pytest.approx(np.mean(parts))


def test_patches_know_colour_and_roughness():
    smooth = np.full((2, 8, 8, 3), 100, dtype=np.uint8)
    smooth[1] = 200
    rough = smooth.copy()
    rough[:, :, ::2] += 10
    rough[:, :, 1::2] -= 10
    of_smooth, of_rough = sample_quality.patches(smooth), sample_quality.patches(rough)
    colours, across, down = (part.tolist() for part in of_rough[0].split([12, 4, 4]))
    assert colours == pytest.approx(of_smooth[0, :12].tolist())
    assert float(of_smooth[:, 12:].abs().max()) == 0
    assert min(across) > 0
    assert down == [0, 0, 0, 0]


def test_image_codes_of_data_have_the_smaller_kid(monkeypatch, tmp_path, without_annotation_checks):
    monkeypatch.setenv("SDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(inception.VARIABLE, str(tiny_inception(tmp_path)))
    corpus = tiny("image codes")
    quality = OfCodes(corpus)
    same, error = quality.slowly(corpus.test.tokens[:])["kid"]
    other, _ = quality.slowly(torch.zeros_like(corpus.test.tokens[:]))["kid"]
    assert error > 0
    assert other > same


def points(*values, name="pairs"):
    """The default and others, at 8 evaluations."""
    ways = [DEFAULT, "Euler", "trapezoidal", "confident"]
    return [
        Point(
            "molecules, absorbing",
            way,
            8,
            {name: value, f"{name}_standard_error": 0.03, "evaluations": 7.0 if way == "trapezoidal" else 8.0},
        )
        for way, value in zip(ways, values, strict=False)
    ]


def test_the_best_is_bold_and_those_within_two_standard_errors_of_it_are_marked():
    floor = Point("molecules, absorbing", FLOOR, None, {"pairs": 0.1, "pairs_standard_error": 0.01})
    table = tables([*points(0.28, 0.4, 0.2, 0.3), floor], {"molecules": 20}, "small")
    assert "| trapezoidal | **0.200 ± 0.030** (7.0) |" in table
    assert "| analytical | 0.280 ± 0.030 = |" in table  # 0.08 is below 2 sqrt(2) 0.03
    assert "| Euler | 0.400 ± 0.030 |" in table
    assert "As many rows of the data: 0.100 ± 0.010." in table


@pytest.mark.parametrize(
    ("default", "higher", "verdict"),
    [
        (
            0.28,
            False,
            "trapezoidal. The default, analytical, is as good within errors (by 0.080 ± 0.042).",
        ),
        (0.3, False, "trapezoidal. The default, analytical, is worse (by 0.100 ± 0.042)."),
        (0.1, False, "analytical. The default, analytical, is as good within errors."),
        (0.3, True, "Euler. The default, analytical, is worse (by 0.100 ± 0.042)."),
    ],
)
def test_the_verdict_says_whether_the_default_is_as_good_as_the_best(default, higher, verdict):
    (line,) = verdicts(points(default, 0.4, 0.2), Shown("pairs", "", higher=higher))
    assert line == f"- At 8 evaluations the best is: {verdict}\n"
