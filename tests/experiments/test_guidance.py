"""The experiment on guidance, with made-up pictures in place of digits."""

import numpy as np
import pytest
import torch
from PIL import Image

from sddm.codecs import Pixels
from sddm.data import Dataset
from sddm.experiments import digits, guidance, guidance_report, timed
from sddm.experiments.digits import of_each_label, wanted
from sddm.experiments.experiment import slug
from sddm.experiments.guidance import TEST_SET, Guidance, spread
from sddm.experiments.runner import reproduce
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of

SIDE, LEVELS, LABELS, NUM, MANY = 4, 3, 3, 240, 30


def made(name, size=SIDE, levels=LEVELS):
    """Pictures whose label says which row of pixels is white, with noise."""
    generator = generator_of(int(name.endswith("-test")), "digits", 0)
    labels = torch.randint(LABELS, (NUM,), generator=generator)
    pictures = torch.randint(2, (NUM, size, size), generator=generator)
    pictures[torch.arange(NUM), labels] = levels - 1
    names = [str(label) for label in range(LABELS)]
    return Dataset(pictures.flatten(1), Pixels(size, size, 1, levels), labels=labels, label_names=names, name=name)


@pytest.fixture
def small(monkeypatch, without_annotation_checks):
    judge = TrainingConfig(steps=60, batch_size=32, learning_rate=1e-2, save_every=30)
    sized = guidance.Sized(SIDE, LEVELS, 1e-4, 1e-4, 16, 1, 3, 8, MANY, judge)
    for name, value in (("load", made), ("APART", 60), ("VALIDATION", 20)):
        monkeypatch.setattr(digits, name, value)
    for name, value in (("REFERENCE", 90), ("SCALES", {"small": sized})):
        monkeypatch.setattr(guidance, name, value)
    monkeypatch.setattr(timed, "POINTS", 1)
    digits.parts.cache_clear()
    yield Guidance
    digits.parts.cache_clear()


def test_every_strength_of_guidance_is_measured_beside_test_digits_after_one_training(small, tmp_path):
    results = reproduce(small("small"), tmp_path / "out", tmp_path / "work")
    assert [r["row"] for r in results] == list(small("small").rows)
    assert len(results) == 1 + len(guidance.GUIDANCE) + len(guidance.STRENGTHS)
    for result in results:
        figures = result["figures"]
        assert 0 <= figures["recognised"] <= 1
        assert all(figures[f"{name}_standard_error"] >= 0 for name in ("recognised", "spread", "frechet"))
        assert ("training_seconds" in figures) == (result["row"] != TEST_SET)
    of_data = results[0]["figures"]
    assert of_data["recognised"] > 0.9
    assert abs(of_data["spread"] - 1) < 4 * of_data["spread_standard_error"]
    found = [path.parent for path in (tmp_path / "work").rglob("checkpoints")]
    assert len(found) == 3  # the recogniser, the model, and the classifier in its folder
    folder = tmp_path / "out" / "guidance"
    table = (folder / "tables.md").read_text()
    assert all(f"| {row} |" in table for row in small("small").rows)
    assert f"recognises {of_data['recogniser_accuracy']:.2%} of all test digits" in table
    for name in ("curve.png", "digits.png"):
        with Image.open(folder / name) as picture:
            assert picture.width > 200


def test_cells_are_kept_in_files_of_their_own():
    """A minus would be lost in the name of a file."""
    names = [slug(cell.name) for cell in Guidance("small").cells()]
    assert len(set(names)) == len(names)
    assert guidance_report.guided(-1.0) == "guidance minus 1"


def test_the_recogniser_the_model_and_the_figures_have_rows_of_their_own(small):
    corpus, apart = digits.parts(SIDE, LEVELS)
    everything = made("digits").tokens[:]
    rows = torch.cat([part.tokens[:] for part in (corpus.train, corpus.validation, apart)])
    assert torch.equal(everything.unique(dim=0, return_counts=True)[1], rows.unique(dim=0, return_counts=True)[1])
    assert [len(part) for part in (corpus.train, corpus.validation, apart)] == [160, 20, 60]
    first, others = of_each_label(corpus.test, MANY), of_each_label(corpus.test, 90, skipped=MANY)
    for label in range(LABELS):
        of_label = corpus.test.tokens[:][corpus.test.labels == label]
        assert torch.equal(torch.cat([first[label::LABELS], others[label::LABELS]]), of_label[:40])


def test_labels_are_asked_for_in_turn():
    assert wanted(7, 3).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_the_spread_is_the_mean_distance_of_pairs_of_a_label():
    tokens = torch.tensor([[0, 0], [0, 1], [1, 1], [1, 1], [5, 5], [5, 5], [5, 6], [6, 6]])
    # Of the first label: 1/2, 1, 1, 1/2, 1/2 and 0; of the second: 0, 1/2, 1, 1/2, 1 and 1/2.
    assert spread(tokens, torch.arange(8) // 4).value == pytest.approx((3.5 / 6 + 3.5 / 6) / 2)


def test_the_error_of_the_spread_is_that_of_repeated_draws():
    made = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        share = torch.rand(60, 1, generator=generator) / 2  # the more ones, the further from the others
        made.append(spread((torch.rand(60, 16, generator=generator) < share).long(), torch.arange(60) % 2))
    deviation = np.std([one.value for one in made], ddof=1)
    said = np.mean([one.standard_error for one in made])
    assert said == pytest.approx(deviation, rel=4 / np.sqrt(2 * 199))
