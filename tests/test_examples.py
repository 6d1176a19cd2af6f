"""The scripts in examples/ run as they stand."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, at_full_speed):
    """Run a script with these arguments in a folder of its own; what it printed."""

    def in_folder(script, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out

    return in_folder


def test_own_text(run, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(["the cat sat", "the dog ran", "a cat ran"] * 20))
    shown = run("own_text.py", "lines.txt", "30")
    samples, given = shown.split("Samples with a given beginning:")
    assert len(samples.split("Samples:")[1].strip("\n").splitlines()) == 8
    assert len({line[:2] for line in given.strip("\n").splitlines()}) == 1


def test_own_table(run, tmp_path):
    rows = [f"{'yes' if i % 3 else 'no'},{'abc'[i % 3]}" for i in range(90)]
    (tmp_path / "table.csv").write_text("\n".join(["answer,letter", *rows]))
    shown = run("own_table.py", "table.csv", "10")
    assert "1000 rows in made.csv" in shown
    made = (tmp_path / "made.csv").read_text().splitlines()
    assert made[0] == "answer,letter"
    assert len(made) == 1001
    assert {line.split(",")[0] for line in made[1:]} <= {"yes", "no"}
