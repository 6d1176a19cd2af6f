"""The experiment on music, with a few made-up tunes in place of the corpus."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from enumerated import seeded
from sddm.codecs import Notes
from sddm.conditions import Condition
from sddm.data import Dataset
from sddm.experiments import music, music_report, timed
from sddm.experiments.corpora import Corpus
from sddm.experiments.runner import reproduce
from sddm.experiments.timed import TimedD3PM
from sddm.metrics import hellinger, paired_difference

STEPS, KNOWN = 16, 4


def tunes(num, first):
    pitches = torch.randint(60, 68, (num, STEPS), generator=seeded(first))
    return Dataset(pitches, Notes(), groups=[first + (i + 1) // 2 for i in range(num)])


def made(name):
    return Corpus(name, tunes(16, 0), tunes(6, 100), tunes(6, 200))


@pytest.fixture
def small(monkeypatch, without_annotation_checks):
    monkeypatch.setattr(music, "corpus", made)
    for name, value in (("GIVEN", KNOWN), ("RUNS", 2), ("TUNES", 4), ("TIMES", 8), ("SHOWN", 2)):
        monkeypatch.setattr(music, name, value)
    monkeypatch.setattr(music.Music, "runs", 2)
    monkeypatch.setattr(music.Music, "scored", 4)
    monkeypatch.setattr(music, "SCALES", {"small": music.Sized(1e-4, 16, 1, 4)})
    monkeypatch.setattr(music.Music, "runs", 2)
    monkeypatch.setattr(music.Music, "scored", 4)
    monkeypatch.setattr(music.MusicSteps, "steps", (2, 4))
    monkeypatch.setattr(timed, "POINTS", 1)
    return music.Music


def test_every_row_completes_the_same_beginnings_and_is_compared_by_tune(small, tmp_path):
    results = reproduce(small("small"), tmp_path / "out", tmp_path / "work")
    assert [r["row"] for r in results] == list(small("small").rows)
    folder = tmp_path / "out" / "music"
    for result in results:
        figures = result["figures"]
        assert len(figures["hellinger"]) == len(figures["outliers"]) == len(figures["groups"]) == 4
        assert all(0 <= value <= 1 for value in (*figures["hellinger"], *figures["outliers"]))
        assert figures["bits"] > 0
        assert "None of the 6 test rows" in figures["leaks"]
    table = (folder / "tables.md").read_text()
    assert "0.3736 ± 0.0024" in table  # the paper's
    ours, other = results[0]["figures"], results[-1]["figures"]
    groups = torch.tensor(ours["groups"])
    difference = paired_difference(*(torch.tensor(f["hellinger"]).double() for f in (other, ours)), groups)
    assert f"{difference.mean:.4f} ± {difference.standard_error:.4f}" in table
    assert (folder / "sddm" / "completions.png").stat().st_size > 1_000
    assert (folder / "sddm" / "tune-1-completion.mid").exists()


def test_completions_keep_what_is_given_and_are_scored_against_their_own_tune(small, tmp_path):
    experiment = small("small")
    reproduce(experiment, tmp_path / "out", tmp_path / "work", ["SDDM"])
    (kept,) = (tmp_path / "work").rglob("completions.safetensors")
    from safetensors.torch import load_file

    tensors = load_file(kept)
    truth = made("melodies").test.tokens[:4].repeat_interleave(2, dim=0)
    assert torch.equal(tensors["truth"], truth)
    assert torch.equal(tensors["tokens"][:, :KNOWN], truth[:, :KNOWN])
    (result,) = reproduce(experiment, tmp_path / "out", tmp_path / "work", ["SDDM"])
    distance = hellinger(tensors["tokens"], truth, 129).view(-1, 2).mean(1)
    assert result["figures"]["hellinger"] == pytest.approx(distance.tolist())


def test_tauldr_with_and_without_corrector_share_a_training(small):
    rows = small("small").rows
    assert rows["tauLDR-0 uniform"].system.training == rows["tauLDR-2 uniform"].system.training
    names = [name for name in rows if name != "tauLDR-2 uniform"]
    assert len({rows[name].system.training for name in names}) == len(names)


def test_all_systems_are_trained_by_the_same_optimizer_for_the_same_minutes_with_the_same_beginning_given():
    systems = music.SCALES["small"].systems()
    configs = [system.config for system in systems.values()]
    assert len({system.minutes for system in systems.values()}) == 1
    assert len({(c.optimizer, c.learning_rate, c.batch_size, c.decay) for c in configs}) == 1
    assert {name for name, system in systems.items() if system.config.known != "prefix:32"} == {"left to right"}


def test_the_curve_counts_the_evaluations_of_correctors(small, tmp_path):
    experiment = music.MusicSteps("small")
    for name, row in experiment.rows.items():
        evaluations = int(name.split(", ")[-1].split()[0])
        if not isinstance(row.system, TimedD3PM):
            sampling = row.system.recipe.sampling
            assert sampling.steps * (1 + sampling.corrector) == evaluations
    cells = ["SDDM, euler, 2 evaluations", "SDDM, analytical, 4 evaluations"]
    reproduce(experiment, tmp_path / "out", tmp_path / "work", cells)
    assert len(list((tmp_path / "work").rglob(timed.PACE_FILE))) == 1
    folder = tmp_path / "out" / "music" / "steps"
    assert (folder / "tables.md").read_text().count("±") == 2
    assert (folder / "curve.png").stat().st_size > 1_000


def test_the_left_to_right_model_is_given_beginnings_alone(small):
    system, source = small("small").rows["left to right"].system, made("melodies")
    model = system.learner(source, replace(system.config, steps=1)).model
    rows = source.test.tokens[:3]
    assert torch.equal(system.sample(model, 3, 0, music.given(rows))[:, :KNOWN], rows[:, :KNOWN])
    end = Condition(torch.from_numpy(np.arange(STEPS) > 8).expand(3, -1), rows)
    with pytest.raises(ValueError, match="can be given the first positions of a row alone"):
        system.sample(model, 3, 0, end)


def test_the_table_says_when_a_loss_is_reached_between_two_evaluations():
    curve = [(60.0, 64, 2.0, 0.1), (120.0, 128, 1.0, 0.1), (180.0, 192, 0.5, 0.1)]
    lines = {"SDDM": curve, "D3PM uniform": [(60.0, 64, 3.0, 0.1), (180.0, 192, 1.25, 0.1)]}
    sddm, d3pm = (line.split(" | ") for line in music_report.times_to_loss(lines).splitlines()[2:])
    assert sddm[1:] == ["0.500 ± 0.100", "180", "105", "180 |"]
    assert d3pm[1:] == ["1.250 ± 0.100", "180", "180", "not in 180 |"]
    assert (
        music_report.times_to_loss({"SDDM": curve[1:], "D3PM uniform": lines["D3PM uniform"]}).count("before 120") == 1
    )


def test_losses_are_compared_in_bits_of_a_note_that_is_not_given():
    bits = 3.0
    steps = music_report.WINDOW
    scaled, exact = (math.log(2) * bits * notes for notes in (steps, steps - 32))
    found = {"SDDM": {"curve": [[9.0, 64, scaled, 0.0]]}, "SDDM, ordered": {"curve": [[8.0, 64, exact, 0.0]]}}
    found |= {"left to right": {"curve": [[7.0, 64, scaled, 0.0]]}}
    curves = music_report.bits_curves(found, music.Music("small").setting)
    assert list(curves) == ["SDDM", "SDDM, ordered"]  # the left-to-right model's loss counts the beginning as well
    assert all(curve[0][2] == pytest.approx(bits) for curve in curves.values())
