"""Runs that are interrupted, damaged, starved of space or fed bad numbers: nothing good is lost, and all is said."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny_pictures
from console import ends
from sddm import Diffusion, _files, recipe
from sddm.cli import main
from sddm.commands import runs
from sddm.training import Epochs, checkpoints

TINY = ["--width", "8", "--layers", "1", "--heads", "2", "--mlp", "8", "--batch-size", "8"]
SHORT = [*TINY, "--steps", "12", "--save-every", "3", "--log-every", "2", "--evaluate-every", "6", "--keep", "2"]


@pytest.fixture(scope="session")
def straight(text, tmp_path_factory):
    """A short run that nothing happened to; copy it before you harm it."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    main(["train", "--data", str(text), "--out", str(folder), *SHORT])
    return folder


@pytest.fixture
def run(straight, tmp_path):
    return Path(shutil.copytree(straight, tmp_path / "run"))


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def metrics(folder):
    """The lines of metrics.jsonl, but for the wall time."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def samples(folder):
    return {path.name: path.read_bytes() for path in (folder / "samples").iterdir()}


def unfinished(folder, last):
    """Make a run as if it had been killed after its step `last`, whose checkpoint it keeps."""
    shutil.rmtree(folder / "model")
    for path in checkpoints.paths(folder / "checkpoints"):
        if int(path.stem.removeprefix("step-")) > last:
            path.unlink()


def flip_a_bit(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


# ---- interruption --------------------------------------------------------------------------------------------------


KILLED = [*TINY, "--steps", "150", "--save-every", "3", "--log-every", "2", "--evaluate-every", "25", "--keep", "2"]
KILLED += ["--dropout", "0.1"]


def whole_and_killed(forks, command, options, kills, tmp_path):
    """The folders of a training that nothing happened to, and of one that was killed so many times on its way."""
    moments, log = random.Random(1), tmp_path / "log.txt"
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    began = time.monotonic()
    assert forks.wait(forks.start([command, "--out", straight, *options], log)) == 0, log.read_text()
    whole = time.monotonic() - began
    ends = []
    for _ in range(kills):
        process = forks.start([command, "--out", killed, *options, "--resume"], log)
        time.sleep(moments.uniform(0, whole / kills))  # all together are shorter than the run, which seldom ends before
        os.kill(process, signal.SIGKILL)
        ends.append(forks.wait(process))
    assert set(ends) <= {0, -signal.SIGKILL}, log.read_text()
    assert ends.count(-signal.SIGKILL) >= kills // 4
    assert forks.wait(forks.start([command, "--out", killed, "--resume"], log)) == 0, log.read_text()
    return straight, killed


def test_a_run_killed_at_twenty_random_moments_ends_as_if_it_had_not_been(forks, text, tmp_path):
    straight, killed = whole_and_killed(forks, "train", ["--data", text, *KILLED], 20, tmp_path)
    assert same(weights(straight), weights(killed))
    assert metrics(straight) == metrics(killed)
    assert samples(straight) == samples(killed)
    assert len(metrics(straight)) == 150 // 2 + 150 // 25
    assert [p.name for p in checkpoints.paths(straight / "checkpoints")] == [
        p.name for p in checkpoints.paths(killed / "checkpoints")
    ]


def test_a_tokenizer_killed_at_random_moments_ends_as_if_it_had_not_been(forks, tmp_path):
    np.save(tmp_path / "squares.npy", tiny_pictures.pictures(48))
    options = ["--data", tmp_path / "squares.npy", "--steps", "60", *tiny_pictures.TINY]
    straight, killed = whole_and_killed(forks, "train-tokenizer", options, 6, tmp_path)
    assert same(weights(straight), weights(killed))
    assert metrics(straight) == metrics(killed)
    assert samples(straight) == samples(killed)
    assert len(metrics(straight)) == 60 // 2 + 60 // 6


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_after_a_checkpoint_and_the_run_goes_on(
    text, straight, tmp_path, monkeypatch, capsys, number, code
):
    ordinary = Epochs.__call__

    def interrupting(self, step):
        if step == 7 and not (tmp_path / "run" / "checkpoints" / "step-000000008.safetensors").exists():
            signal.raise_signal(number)
        return ordinary(self, step)

    monkeypatch.setattr(Epochs, "__call__", interrupting)
    arguments = ["train", "--data", text, "--out", tmp_path / "run", *SHORT]
    ended, said = ends(arguments, capsys)
    assert ended == code
    assert "Stopped after step 8 of 12." in said
    assert "Go on with --resume" in said
    assert checkpoints.newest(tmp_path / "run" / "checkpoints").step == 8
    assert ends([*arguments, "--resume"], capsys)[0] == 0
    assert same(weights(straight), weights(tmp_path / "run"))
    assert metrics(straight) == metrics(tmp_path / "run")


def test_a_finished_run_that_is_resumed_stays_as_it_is(run, straight, capsys):
    code, _ = ends(["train", "--out", run, "--resume"], capsys)
    assert code == 0
    assert same(weights(straight), weights(run))
    assert metrics(straight) == metrics(run)


def test_a_finished_run_can_be_made_longer_whatever_the_name_of_its_folder(run, capsys):
    named = run.rename(run.with_name("rate=0.001"))
    for steps, out in ((13, ["--out", named]), (14, [f"--out={named}"])):
        assert ends(["train", *out, "--resume", "--steps", steps], capsys)[0] == 0
        assert metrics(named)[-1]["step"] == steps


# ---- checkpoints that are not whole --------------------------------------------------------------------------------


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip_in_tensors(path):
    flip_a_bit(path, -50)


def flip_in_header(path):
    content = path.read_bytes()
    flip_a_bit(path, content.index(b'\\"count\\": ') + len(b'\\"count\\": '))


def foreign(path):
    save_file({"weight": torch.zeros(3)}, path)


DAMAGES = [cut_short, empty, flip_in_tensors, flip_in_header, foreign]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_whole_checkpoint_is_used_when_the_newest_is_broken(run, straight, capsys, damage):
    unfinished(run, last=12)
    damage(run / "checkpoints" / "step-000000012.safetensors")
    code, said = ends(["train", "--out", run, "--resume"], capsys)
    assert code == 0
    assert "sddm: warning:" in said
    assert "step-000000012.safetensors" in said
    assert "Going on from the one before, step 9." in said
    assert same(weights(straight), weights(run))
    assert metrics(straight) == metrics(run)


@pytest.mark.parametrize("damage", DAMAGES)
def test_when_no_checkpoint_is_whole_a_run_says_so_and_leaves_them_alone(run, capsys, damage):
    unfinished(run, last=12)
    kept = checkpoints.paths(run / "checkpoints")
    for path in kept:
        damage(path)
    code, said = ends(["train", "--out", run, "--resume"], capsys)
    assert code == 3
    assert "holds no checkpoint that is whole" in said
    assert len(said.splitlines()) == 3  # two about the data and the model, one about the failure
    assert checkpoints.paths(run / "checkpoints") == kept


def test_a_checkpoint_of_another_model_is_refused(run, straight, tmp_path, text, capsys):
    wide = [*SHORT]
    wide[wide.index("--width") + 1] = "16"
    main(["train", "--data", str(text), "--out", str(tmp_path / "wide"), *wide])
    unfinished(run, last=12)
    for path in checkpoints.paths(run / "checkpoints"):
        path.unlink()
    shutil.copy(tmp_path / "wide" / "checkpoints" / "step-000000012.safetensors", run / "checkpoints")
    code, said = ends(["train", "--out", run, "--resume"], capsys)
    assert code == 3
    assert "belongs to another model" in said


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}', '{"format": 1, "options": {}}'])
def test_a_damaged_record_of_the_run_is_named(run, capsys, content):
    (run / "run.json").write_text(content)
    code, said = ends(["train", "--out", run, "--resume"], capsys)
    assert code == 3
    assert "run.json is damaged" in said


def test_a_record_with_any_value_changed_is_named(run, capsys):
    value = json.loads((run / "run.json").read_text())
    value["options"]["architecture"]["layers"] = 10**9
    (run / "run.json").write_text(json.dumps(value))
    shutil.rmtree(run / "model")
    for command in (["train", "--resume", "--out"], ["sample"], ["evaluate"]):
        code, said = ends([*command, run], capsys)
        assert code == 3
        assert "run.json is damaged: it does not hold what was written" in said


def test_samples_are_not_drawn_from_a_checkpoint_of_another_model(run, capsys):
    shutil.rmtree(run / "model")
    checkpoints.save(run / "checkpoints", checkpoints.Checkpoint(99, {}, {"average.x": torch.zeros(2)}), keep=1)
    code, said = ends(["sample", run], capsys)
    assert code == 2
    assert "does not hold the weights of the model" in said


def test_a_checkpoint_that_is_read_is_the_one_that_was_written(tmp_path):
    tensors = {"a.b": torch.randn(3, 2), "a.step": torch.tensor(4.0), "c.d": torch.arange(5), "e": torch.zeros(0)}
    path = checkpoints.save(tmp_path, checkpoints.Checkpoint(7, {"total": 0.1, "count": 3}, tensors), keep=1)
    again = checkpoints.read(path)
    assert (again.step, again.state) == (7, {"total": 0.1, "count": 3})
    assert same(again.tensors, tensors)
    assert same(again.part("a"), {"b": tensors["a.b"], "step": tensors["a.step"]})


def test_only_the_newest_checkpoints_are_kept_and_leftovers_are_removed(tmp_path):
    (tmp_path / ".sddm-left.tmp").mkdir()
    (tmp_path / ".sddm-left.tmp" / "step-000000002.safetensors").write_bytes(b"half")
    for step in range(1, 6):
        checkpoints.save(tmp_path, checkpoints.Checkpoint(step, {}, {"x": torch.zeros(2)}), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000000004.safetensors",
        "step-000000005.safetensors",
    ]


def test_checkpoints_of_later_steps_never_take_the_place_of_the_one_that_was_written(tmp_path):
    """They are of an earlier run in the same folder, or broken."""
    for step in (7, 8, 3, 4):
        checkpoints.save(tmp_path, checkpoints.Checkpoint(step, {}, {"x": torch.zeros(2)}), keep=2)
    assert [checkpoints.read(path).step for path in checkpoints.paths(tmp_path)] == [4, 3]


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoints.newest(tmp_path / "nothing") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.newest(tmp_path) is None


# ---- disks ---------------------------------------------------------------------------------------------------------


@contextmanager
def mounted(folder, options):
    """A file system of its own on a folder; False where only an administrator may make one."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_a_run_and_keeps_what_was_good(text, tmp_path, monkeypatch, capsys):
    with mounted(tmp_path / "disk", "size=400k") as real:
        if not real:
            calls, sync = [], _files.sync

            def full_after_a_while(path):
                calls.append(path)
                if len(calls) > 8 and path.suffix == ".safetensors":
                    raise OSError(errno.ENOSPC, "No space left on device", str(path))
                sync(path)

            monkeypatch.setattr(_files, "sync", full_after_a_while)
        many = ["--save-every", "1", "--keep", "99", "--steps", "99"]
        code, said = ends(["train", "--data", text, "--out", tmp_path / "disk" / "run", *TINY, *many], capsys)
        assert code == 4
        assert "no space left on device" in said.lower()
        assert "What was good is kept" in said
        folder = tmp_path / "disk" / "run" / "checkpoints"
        assert checkpoints.paths(folder)
        assert all(checkpoints.read(path) for path in checkpoints.paths(folder))
        assert not list(folder.glob(".*tmp*"))


def test_a_folder_that_cannot_be_written_to_is_named(text, tmp_path, capsys):
    with mounted(tmp_path / "disk", "ro") as real:
        if not real:
            (tmp_path / "disk").chmod(0o555)
        code, said = ends(["train", "--data", text, "--out", tmp_path / "disk" / "run", *SHORT], capsys)
        assert code == 4
        assert "cannot read or write" in said
        assert str(tmp_path / "disk") in said
        assert not list((tmp_path / "disk").iterdir())


def test_samples_that_cannot_be_written_leave_no_half_of_them(run, tmp_path, monkeypatch, capsys):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(_files, "sync", full)
    code, said = ends(["sample", run, "--out", tmp_path / "made.txt", "--steps", "2"], capsys)
    assert code == 4
    assert "no space left" in said.lower()
    assert not (tmp_path / "made.txt").exists()


# ---- bad numbers ---------------------------------------------------------------------------------------------------


def test_a_run_that_diverges_gives_a_diagnosis_and_keeps_the_last_good_checkpoint(text, tmp_path, capsys):
    # The first steps of the warm-up are harmless, the later ones are not.
    wild = ["--learning-rate", "1e30", "--warmup", "0.9", "--ema", "0", "--save-every", "1"]
    code, said = ends(["train", "--data", text, "--out", tmp_path / "run", *TINY, "--steps", "60", *wild], capsys)
    assert code == 5
    assert "Training diverged at step" in said
    for word in ("gradient norm", "batch seed", "last good checkpoint", "smaller --learning-rate"):
        assert word in said
    newest = checkpoints.newest(tmp_path / "run" / "checkpoints")
    assert all(bool(torch.isfinite(value).all()) for value in newest.tensors.values())
    assert f"diverged at step {newest.step}:" in said


# ---- data that change ----------------------------------------------------------------------------------------------


def test_data_that_changed_are_noticed_and_the_run_is_left_alone(text, straight, run, tmp_path, capsys):
    unfinished(run, last=9)
    changed = tmp_path / "changed.txt"
    changed.write_text(text.read_text() + "\nthe cat ran")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, said = ends(["train", "--data", changed, "--out", run, "--resume"], capsys)
    assert code == 2
    assert "The data are not those that the run" in said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert ends(["train", "--out", run, "--resume"], capsys)[0] == 0
    assert same(weights(straight), weights(run))


def test_a_run_does_not_go_on_with_another_model(run, capsys):
    code, said = ends(["train", "--out", run, "--resume", "--width", "16"], capsys)
    assert code == 2
    assert "The model is not the one" in said


def test_a_run_is_not_written_over(run, text, capsys):
    code, said = ends(["train", "--data", text, "--out", run, *SHORT], capsys)
    assert code == 2
    assert "already holds a run" in said


# ---- samples -------------------------------------------------------------------------------------------------------


def sampled(run, tmp_path, capsys, *options, name="made.npy", num=7):
    assert ends(["sample", run, "--num", num, "--steps", "5", "--out", tmp_path / name, *options], capsys)[0] == 0
    return (tmp_path / name).read_bytes()


def test_the_same_seed_gives_the_same_samples_from_the_command_line_from_python_and_at_any_batch_size(
    run, tmp_path, capsys
):
    made = sampled(run, tmp_path, capsys, "--seed", "3")
    assert sampled(run, tmp_path, capsys, "--seed", "3", "--batch-size", "2", name="again.npy") == made
    assert sampled(run, tmp_path, capsys, "--seed", "4", name="other.npy") != made
    model = Diffusion.from_pretrained(run / "model")
    tokens = model.sample(7, steps=5, seed=3)
    model.codec.write(tokens, tmp_path / "python.npy")
    assert (tmp_path / "python.npy").read_bytes() == made
    assert torch.equal(model.sample(7, steps=5, seed=3, batch_size=3), tokens)


def test_a_sampling_job_that_was_interrupted_goes_on(run, tmp_path, monkeypatch, capsys):
    whole = sampled(run, tmp_path, capsys, "--batch-size", "2", name="whole.txt")
    made, ordinary = [], recipe.sample

    def interrupted(*arguments, **options):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return ordinary(*arguments, **options)

    arguments = ["sample", run, "--num", "7", "--steps", "5", "--batch-size", "2", "--out", tmp_path / "made.txt"]
    monkeypatch.setattr(recipe, "sample", interrupted)
    assert ends(arguments, capsys)[0] == 130
    assert not (tmp_path / "made.txt").exists()
    monkeypatch.setattr(recipe, "sample", lambda *a, **o: made.append(1) or ordinary(*a, **o))
    assert ends(arguments, capsys)[0] == 0
    assert len(made) == 4  # none of the four batches was made twice
    assert (tmp_path / "made.txt").read_bytes() == whole
    assert not list(tmp_path.glob("*.parts"))


def test_samples_of_a_run_that_is_not_finished_are_those_of_its_averaged_weights(run, tmp_path, capsys):
    made = sampled(run, tmp_path, capsys, num=200)
    unfinished(run, last=12)
    assert sampled(run, tmp_path, capsys, name="again.npy", num=200) == made
    (run / "checkpoints" / "step-000000012.safetensors").unlink()
    assert sampled(run, tmp_path, capsys, name="earlier.npy", num=200) != made


def test_a_run_without_a_checkpoint_says_that_it_is_too_early(run, capsys):
    unfinished(run, last=0)
    code, said = ends(["sample", run], capsys)
    assert code == 3
    assert "has no checkpoint yet" in said


def test_a_prefix_a_file_with_blanks_and_a_temperature_do_what_they_say(run, tmp_path, capsys):
    main(["sample", str(run), "--num", "5", "--steps", "3", "--prefix", "the c"])
    assert all(line.startswith("the c") for line in capsys.readouterr().out.splitlines())
    (tmp_path / "known.txt").write_text("the ___ sat\n")
    sampled(run, tmp_path, capsys, "--condition", str(tmp_path / "known.txt"), name="filled.npy")
    alphabet = Diffusion.from_pretrained(run / "model").codec.arguments["alphabet"]
    for row in np.load(tmp_path / "filled.npy"):
        assert [alphabet[row[i]] for i in (0, 1, 2, 3, 7, 8, 9, 10)] == list("the  sat")
    cold = [sampled(run, tmp_path, capsys, "--temperature", t, name=f"{t}.npy") for t in ("0.01", "1", "100")]
    assert len(set(cold)) == 3


@pytest.mark.parametrize(
    "options",
    [
        ("--sampler", "euler"),
        ("--sampler", "tau-leaping"),
        ("--sampler", "exact"),
        ("--sampler", "sweep"),
        ("--grid", "time"),
        ("--corrector", "2", "--corrector-factor", "0.5"),
    ],
)
def test_every_way_of_sampling_can_be_chosen(run, tmp_path, capsys, options):
    assert sampled(run, tmp_path, capsys, *options) != sampled(run, tmp_path, capsys, name="plain.npy")


def test_a_pilot_grid_follows_from_the_model_and_the_seed_whatever_the_batch_size(run, tmp_path, capsys):
    plain = sampled(run, tmp_path, capsys, "--sampler", "analytical", name="plain.npy")
    pilot = "--sampler", "analytical", "--grid", "pilot"
    made = [sampled(run, tmp_path, capsys, *pilot, "--batch-size", size, name=f"{size}.npy") for size in "27"]
    assert made[0] == made[1] != plain


# ---- evaluation ----------------------------------------------------------------------------------------------------


def test_an_evaluation_gives_the_bound_with_its_error_and_compares_samples(run, text, tmp_path, capsys):
    arguments = ["evaluate", str(run), "--samples", "20", "--steps", "4", "--data", str(text)]
    main([*arguments, "--out", str(tmp_path / "figures.json")])
    shown = capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["rows"] == 32
    assert 0 < figures["bits_per_dim_standard_error"] < figures["bits_per_dim"] < 5
    assert f"{figures['bits_per_dim']:.6g}" in shown
    assert figures["mmd_standard_error"] > 0


def test_without_data_the_held_out_rows_are_scored(run, text, capsys):
    value = runs.recorded(run)
    main(["evaluate", str(run), "--samples", "0"])
    assert "(3 rows)" in capsys.readouterr().out  # a tenth of 32
    assert value["data"]["rows"] == 32
