"""What a command does when nobody reads what it prints, or when it is stopped."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

import sddm
from sddm import Diffusion
from sddm.cli import main
from sddm.errors import StoppedError
from sddm.experiments import runner
from sddm.marginals import Hollow
from sddm.processes import Uniform
from sddm.schedules import Constant


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    process = Uniform(3, Constant(1.0)).leaving(0.02)
    Diffusion(process, Hollow.for_process(process, 4, width=8, layers=1, heads=2, mlp=8)).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def closed_pipe():
    """Something to print to that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with suppress(BrokenPipeError), open(writer, "w") as stream:
        yield stream


@pytest.mark.parametrize("arguments", [["sample", "--num", "3", "--steps", "2"], ["sample", "--help"], []])
def test_a_pipe_that_is_closed_ends_a_command_without_a_word(model, arguments, closed_pipe, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    with pytest.raises(SystemExit) as stop:
        main([*arguments, *([model] if "--num" in arguments else [])])
    assert stop.value.code == 128 + signal.SIGPIPE
    closed_pipe.flush()  # as Python does once more at its end
    assert capsys.readouterr().err == ""


def test_an_error_that_nobody_reads_still_has_its_exit_code(closed_pipe, monkeypatch):
    monkeypatch.setattr(sys, "stderr", closed_pipe)
    with pytest.raises(SystemExit) as stop:
        main(["sample", "nowhere"])
    assert stop.value.code == 2


def test_a_command_without_standard_output_and_error_does_its_work(model, tmp_path):
    command = [sys.executable, "-m", "sddm", "sample", model, "--num", "300", "--steps", "2", "--batch-size", "100"]
    closed = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *command, "--out", str(tmp_path / "made.npy")])
    assert closed.returncode == 0
    assert (tmp_path / "made.npy").exists()


def test_reproduce_that_is_stopped_says_that_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        raise StoppedError("Stopped after step 3 of 9.", signal.SIGTERM)

    monkeypatch.setattr(runner, "_finished", stopped)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "synthetic", "--out", str(tmp_path), "--work", str(tmp_path)])
    assert stop.value.code == 128 + signal.SIGTERM
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "sddm: Stopped after step 3 of 9. The same command goes on from there."


def test_the_version_is_that_of_the_package(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"sddm {sddm.__version__}\n"
