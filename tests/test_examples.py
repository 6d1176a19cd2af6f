"""The scripts in examples/ run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(script, folder, *arguments):
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_text(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(["the cat sat", "the dog ran", "a cat ran"] * 20))
    shown = run("own_text.py", tmp_path, "lines.txt", "30")
    samples, given = shown.split("Samples with a given beginning:")
    assert len(samples.split("Samples:")[1].strip("\n").splitlines()) == 8
    assert len({line[:2] for line in given.strip("\n").splitlines()}) == 1


def test_own_table(tmp_path):
    rows = [f"{'yes' if i % 3 else 'no'},{'abc'[i % 3]}" for i in range(90)]
    (tmp_path / "table.csv").write_text("\n".join(["answer,letter", *rows]))
    shown = run("own_table.py", tmp_path, "table.csv", "10")
    assert "1000 rows in made.csv" in shown
    made = (tmp_path / "made.csv").read_text().splitlines()
    assert made[0] == "answer,letter"
    assert len(made) == 1001
    assert {line.split(",")[0] for line in made[1:]} <= {"yes", "no"}
