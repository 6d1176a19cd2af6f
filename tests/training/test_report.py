"""What a run says: metrics.jsonl, lines or a bar, TensorBoard; and training outside of the main thread."""

import importlib.util
import json
import re
import sys
import threading
import types
from pathlib import Path

import pytest
import torch

import sddm
from sddm.training.report import Report

TOKENS = torch.randint(5, (40, 6), generator=torch.Generator().manual_seed(0))
QUICK = {
    "width": 8,
    "layers": 1,
    "heads": 2,
    "mlp": 8,
    "steps": 6,
    "batch_size": 4,
    "log_every": 2,
    "evaluate_every": 3,
}


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_metrics_have_a_line_every_so_many_steps_and_one_for_each_evaluation(tmp_path):
    sddm.fit(TOKENS, **QUICK, out=tmp_path, progress=False)
    assert [(line["step"], "loss" in line) for line in lines(tmp_path)] == [
        (2, True),
        (3, False),
        (4, True),
        (6, True),
        (6, False),
    ]
    trained, held_out = lines(tmp_path)[0], lines(tmp_path)[1]
    assert trained.keys() == {"step", "loss", "learning_rate", "gradient_norm", "seconds"}
    assert held_out.keys() == {"step", "held_out_loss", "bits_per_dim", "bits_standard_error"}


def test_the_fields_of_the_metrics_are_those_of_the_document(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    table = text.split("## Metrics")[1].split("## When")[0]
    documented = {(name, kind) for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE)}
    written = set()
    for ordered in (False, True):
        sddm.fit(TOKENS, **QUICK, ordered=ordered, out=tmp_path / str(ordered), progress=False)
        for line in lines(tmp_path / str(ordered)):
            kind = "training" if "loss" in line else "evaluation"
            written |= {(name, "both" if name == "step" else kind) for name in line}
    assert written == documented


def test_without_a_terminal_progress_is_told_in_lines(tmp_path, capsys):
    sddm.fit(TOKENS, **QUICK, out=tmp_path)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("step 2/6: loss ")
    assert "steps/s" in said[0]
    assert "s left" in said[0]
    assert said[-1].startswith("step 6/6: held out loss ")


def test_on_a_terminal_there_is_a_bar_and_evaluations_stand_above_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sddm.fit(TOKENS, **QUICK, out=tmp_path)
    said = capsys.readouterr().err
    assert "training: 100%" in said
    assert "step 3/6: held out loss" in said
    assert "steps/s" not in said


@pytest.mark.parametrize("progress", [None, False])
def test_without_a_folder_nothing_is_said_unless_asked(capsys, progress):
    sddm.fit(TOKENS, **QUICK, progress=progress)
    assert capsys.readouterr() == ("", "")


def test_lines_of_steps_that_are_made_again_and_lines_cut_short_are_dropped(tmp_path):
    whole = ['{"step": 2, "loss": 1.0}\n', '{"step": 4, "loss": 0.5}\n']
    (tmp_path / "metrics.jsonl").write_text(
        "".join([*whole, '{"step": 6, "loss": 0.25}\n', "[1]\n", '{"step": 4, "lo'])
    )
    Report(10, 4, tmp_path, False, main=True).close()
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(whole)


class Board:
    """Stands in for TensorBoard's writer."""

    written: list = []  # noqa: RUF012

    def __init__(self, folder, purge_step):
        self.written.append(("opened", folder, purge_step))

    def add_scalar(self, name, value, global_step):
        self.written.append((name, global_step))

    def flush(self):
        pass

    def close(self):
        self.written.append("closed")


def test_metrics_go_to_tensorboard_where_it_is_installed(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True if name == "tensorboard" else find(name))
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    sddm.fit(TOKENS, **QUICK, out=tmp_path, progress=False)
    assert Board.written[0] == ("opened", str(tmp_path / "tensorboard"), 0)
    assert ("loss", 2) in Board.written
    assert ("bits_per_dim", 3) in Board.written
    assert Board.written[-1] == "closed"


def test_a_model_can_be_trained_outside_of_the_main_thread():
    """Where signals cannot be handled."""
    made = []
    thread = threading.Thread(target=lambda: made.append(sddm.fit(TOKENS, **QUICK, progress=False)))
    thread.start()
    thread.join()
    assert made[0].sample(2, steps=2).shape == (2, 6)
