"""Commands that run at the same time, and what others put into the folders that they use."""

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from console import told
from sddm import _files, recipe
from sddm.cli import main
from sddm.errors import BusyError
from sddm.training import checkpoints

TINY = ["--width", "8", "--layers", "1", "--heads", "2", "--mlp", "8", "--batch-size", "8"]
SHORT = [*TINY, "--steps", "6", "--save-every", "3"]


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    main(["train", "--data", str(text), "--out", str(folder), *SHORT])
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


HOLDER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(f"process {os.getpid()} on this host", file=file, flush=True)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def in_use():
    """Have another process hold the lock of a folder until the test ends."""
    holders = []

    def hold(folder):
        folder.mkdir(parents=True, exist_ok=True)
        holders.append(
            subprocess.Popen([sys.executable, "-c", HOLDER, str(folder / ".lock")], stdout=subprocess.PIPE, text=True)
        )
        assert holders[-1].stdout.readline() == "held\n"
        return holders[-1]

    yield hold
    for holder in holders:
        holder.kill()
        holder.communicate()


# ---- samples -------------------------------------------------------------------------------------------------------


def test_equal_commands_without_a_file_do_not_meet(run, tmp_path, forks):
    logs = [tmp_path / f"{n}.txt" for n in range(4)]
    jobs = [forks.start(["sample", run, "--num", "3", "--steps", "2"], log, TMPDIR=str(tmp_path)) for log in logs]
    assert [forks.wait(job) for job in jobs] == [0] * 4, logs[0].read_text()
    assert len({log.read_text() for log in logs}) == 1
    assert len(logs[0].read_text().splitlines()) == 3


def test_samples_that_are_printed_leave_nothing_in_the_temporary_folder_and_take_nothing_from_it(
    run, tmp_path, monkeypatch, capsys
):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    seen, ordinary = [], recipe.sample

    def watched(*arguments, **options):
        seen.append(list((tmp_path / "tmp").iterdir()))
        return ordinary(*arguments, **options)

    monkeypatch.setattr(recipe, "sample", watched)
    assert told(["sample", run, "--num", "4", "--steps", "2", "--batch-size", "2"], capsys)[0] == 0
    assert seen == [[], []]
    assert not list((tmp_path / "tmp").iterdir())


def interrupted_after_one_batch(arguments, monkeypatch, capsys):
    made, ordinary = [], recipe.sample

    def interrupted(*positional, **options):
        if made:
            raise KeyboardInterrupt
        made.append(1)
        return ordinary(*positional, **options)

    with monkeypatch.context() as patch:
        patch.setattr(recipe, "sample", interrupted)
        assert told(arguments, capsys)[0] == 130


def test_batches_that_this_very_job_did_not_make_are_made_again(run, tmp_path, monkeypatch, capsys):
    options = ["sample", run, "--num", "4", "--steps", "2", "--batch-size", "2", "--out"]
    told([*options, tmp_path / "right.npy"], capsys)
    arguments = [*options, tmp_path / "made.npy"]
    for seed, harm in (
        (1, lambda part: None),  # of another seed
        (0, lambda part: save_file({"tokens": torch.zeros(2, 11, dtype=torch.int64)}, part)),
        (0, lambda part: part.write_bytes(part.read_bytes()[:-1] + b"\x01")),
    ):
        interrupted_after_one_batch([*arguments, "--seed", str(seed)], monkeypatch, capsys)
        (part,) = (tmp_path / "made.npy.parts").glob("rows-*")
        harm(part)
        assert told(arguments, capsys)[0] == 0
        assert (tmp_path / "made.npy").read_bytes() == (tmp_path / "right.npy").read_bytes()
        assert not (tmp_path / "made.npy.parts").exists()
        (tmp_path / "made.npy").unlink()


def test_a_second_command_with_the_same_file_says_that_it_is_in_use(run, tmp_path, in_use, capsys):
    holder = in_use(tmp_path / "made.txt.parts")
    arguments = ["sample", run, "--num", "2", "--steps", "2", "--out", tmp_path / "made.txt"]
    code, _, said = told(arguments, capsys)
    assert code == 7
    assert re.fullmatch(r"sddm: '.*made\.txt' is in use: process \d+ on .* is using it\. Wait .*\n", said)
    assert not (tmp_path / "made.txt").exists()
    holder.kill()
    holder.wait()
    assert told(arguments, capsys)[0] == 0
    assert told(arguments, capsys)[0] == 2  # it exists now
    assert len((tmp_path / "made.txt").read_text().splitlines()) == 2
    assert not list(tmp_path.glob("made.txt.*"))


# ---- a run's folder ------------------------------------------------------------------------------------------------


def test_two_trainings_into_one_folder_are_refused(run, text, in_use, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    holder = in_use(run)
    for options in (["--resume"], ["--data", text, *SHORT]):
        code, _, said = told(["train", "--out", run, *options], capsys)
        assert code == 7
        assert f"process {holder.pid} on " in said
        assert len(said.splitlines()) == 1
    assert {path: path.read_bytes() for path in before} == before
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert told(["train", "--out", run, "--resume"], capsys)[0] == 0


def test_a_lock_can_be_taken_again_by_its_own_process_and_is_free_afterwards(tmp_path):
    with _files.locked(tmp_path, tmp_path), _files.locked(tmp_path, tmp_path):
        pass
    lock = os.open(tmp_path / ".lock", os.O_RDWR)
    assert os.read(lock, 10) == b""
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(BusyError), _files.locked(tmp_path, tmp_path):
        pass
    os.close(lock)


@pytest.mark.parametrize("without", ["locks in this file system", "locks in this system"])
def test_without_locks_everybody_may_write(tmp_path, monkeypatch, without):
    def unsupported(*arguments):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(_files, "flock", unsupported if "file" in without else None)
    with _files.locked(tmp_path, tmp_path):
        _files.write_text(tmp_path / "a.txt", "a")
    assert (tmp_path / "a.txt").read_text() == "a"


# ---- checkpoints of another run ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--learning-rate", "0.5"], "learning_rate is 0.5, here it is 0.005"),
        (["--seed", "5"], "seed is 5, here it is 0"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(run, text, tmp_path, capsys, options, named):
    told(["train", "--data", text, "--out", tmp_path / "other", *SHORT, *options], capsys)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", run / "checkpoints")
    code, _, said = told(["train", "--out", run, "--resume"], capsys)
    assert code == 3
    assert f"The checkpoint belongs to another run: there {named}" in said


def test_a_checkpoint_of_other_data_is_refused(run, text, tmp_path, capsys):
    other = tmp_path / "lines.txt"
    other.write_text(text.read_text().replace("a cat ran", "a dog ran"))
    told(["train", "--data", other, "--out", tmp_path / "other", *SHORT], capsys)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", run / "checkpoints")
    code, _, said = told(["train", "--out", run, "--resume"], capsys)
    assert code == 3
    assert "belongs to another run: there data is" in said


def test_options_that_decide_the_steps_cannot_change_when_a_run_goes_on(run, capsys):
    code, _, said = told(["train", "--out", run, "--resume", "--learning-rate", "0.5"], capsys)
    assert code == 2
    assert "learning_rate is 0.5, but the run" in said
    assert "was started with 0.005. Leave out --learning-rate" in said
    assert told(["train", "--out", run, "--resume", "--steps", "8", "--keep", "1", "--accumulate", "2"], capsys)[0] == 0
    assert checkpoints.newest(run / "checkpoints").step == 8


def test_a_checkpoint_of_an_older_version_which_does_not_say_whose_it_is_is_taken(run, capsys):
    path = checkpoints.paths(run / "checkpoints")[0]
    value = checkpoints.read(path)
    del value.state["identity"]
    checkpoints.save(run / "checkpoints", value, keep=1)
    assert told(["train", "--out", run, "--resume", "--steps", "8"], capsys)[0] == 0


def test_processes_with_different_data_all_stop_with_a_sentence(text, tmp_path, forks):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("a cat ran", "a dog ran"))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    arguments = ["train", "--out", tmp_path / "run", *SHORT, "--data"]
    jobs = [
        forks.start([*arguments, data], tmp_path / f"{rank}.txt", **place, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank, data in enumerate((text, other))
    ]
    assert [forks.wait(job) for job in jobs] == [2, 2]
    for rank in range(2):
        said = (tmp_path / f"{rank}.txt").read_text()
        assert said.startswith("sddm: The processes of this run differ in their data: process")
        assert len(said.splitlines()) == 1
    assert not (tmp_path / "run" / "run.json").exists()


# ---- processes that are killed while they write ---------------------------------------------------------------------

KILLED = """
import os, resource, signal, sys
from pathlib import Path
import torch
from sddm import _files
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for moment in ("writing", "syncing"):
    child = os.fork()
    if child == 0:
        if moment == "writing":  # the system itself kills it in the middle of the write
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        else:
            setattr(_files, "sync", lambda path: signal.raise_signal(signal.SIGKILL))
        _files.save_tensors(Path(sys.argv[1], moment, "weights.safetensors"), {"x": torch.ones(100_000)})
        os._exit(0)
    print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_what_processes_leave_that_are_killed_while_they_write_is_removed_by_the_next(tmp_path):
    for moment in ("writing", "syncing"):
        (tmp_path / moment).mkdir()
        _files.save_tensors(tmp_path / moment / "weights.safetensors", {"x": torch.zeros(3)})
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True)
    assert killed.stdout.split() == [str(int(signal.SIGXFSZ)), str(int(signal.SIGKILL))], killed.stderr
    for moment in ("writing", "syncing"):
        folder = tmp_path / moment
        assert [path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock"] != [
            "weights.safetensors"
        ]
        assert torch.equal(load_file(folder / "weights.safetensors")["x"], torch.zeros(3))
        _files.write_text(folder / "other.txt", "whole")
        assert sorted(path.name for path in folder.iterdir()) == ["other.txt", "weights.safetensors"]


def test_what_a_killed_run_left_is_removed_when_it_goes_on(run, capsys):
    left = [run / ".sddm-a.tmp", run / "checkpoints" / ".sddm-b.tmp"]
    for path in left:
        path.mkdir()
        (path / "half.safetensors").write_bytes(b"half")
    assert told(["train", "--out", run, "--resume"], capsys)[0] == 0
    assert not any(path.exists() for path in left)


def test_what_another_process_is_writing_is_left_alone(tmp_path):
    with _files.replacing(tmp_path / "a.txt") as aside:
        aside.write_text("a")
        _files.write_text(tmp_path / "b.txt", "b")
        _files.write_text(tmp_path / "a.txt", "another")
    assert (tmp_path / "a.txt").read_text() == "a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_all_files_of_a_run_may_be_read_by_those_whom_the_umask_lets(run):
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in run.rglob("*") if path.is_file()}
    assert len(modes) > 5
    umask = os.umask(0)
    os.umask(umask)
    assert set(modes.values()) == {oct(0o666 & ~umask)}, modes
