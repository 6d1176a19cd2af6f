"""Two processes on the CPU do what one does."""

import json
import os
import shutil
import signal
import socket
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tiny_pictures
from sddm.cli import main
from sddm.errors import LostProcessError
from sddm.training import checkpoints, heartbeat

TINY = ["--width", "8", "--layers", "1", "--heads", "2", "--mlp", "8", "--batch-size", "8", "--seed", "1"]
SHORT = [*TINY, "--steps", "12", "--save-every", "4", "--log-every", "2", "--evaluate-every", "6"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "lines.txt"
    path.write_text("\n".join(["the cat sat", "the dog ran", "a cat ran", "the dog sat"] * 8))
    return path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def launch(forks, tmp_path):
    """Start the processes of a run as torchrun does: their ids and the files of what they say."""

    def start(arguments, processes, silence=30):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
        place["SDDM_SILENCE"] = str(silence)
        said = [tmp_path / f"said-{rank}.txt" for rank in range(processes)]
        for path in said:
            path.unlink(missing_ok=True)
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
        return [forks.start(arguments, said[n], **place, **rank) for n, rank in enumerate(ranks)], said

    return start


@pytest.fixture
def run(forks, launch):
    def to_the_end(arguments, processes):
        started, said = launch(arguments, processes)
        assert [forks.wait(process) for process in started] == [0] * processes, [path.read_text() for path in said]

    return to_the_end


def wait_until(happened):
    deadline = time.monotonic() + 100
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line.get("loss", line.get("held_out_loss"))) for line in lines]


def assert_the_same_to_float_tolerance(first, second):
    (steps, values), (other_steps, other_values) = (zip(*losses(folder), strict=True) for folder in (first, second))
    assert steps == other_steps
    assert values == pytest.approx(other_values, rel=1e-4)
    one, two = weights(first), weights(second)
    assert one.keys() == two.keys()
    for name in one:
        if name.endswith("query_key_value.bias"):
            # Softmax does not feel a shift of all keys: the gradient of their bias is rounding alone, and Adam makes
            # whole steps of it.
            one[name], two[name] = (v.unflatten(0, (3, -1))[[0, 2]] for v in (one[name], two[name]))
        # Sums over rows in another order, a dozen steps long.
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def alone(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "alone"
    main(["train", "--data", str(text), "--out", str(folder), *SHORT])
    return folder


def test_a_tokenizer_of_two_processes_is_that_of_one(run, tmp_path):
    np.save(tmp_path / "squares.npy", tiny_pictures.pictures(48))
    options = ["--data", str(tmp_path / "squares.npy"), "--steps", "12", *tiny_pictures.TINY, "--save-every", "4"]
    main(["train-tokenizer", *options, "--out", str(tmp_path / "one")])
    run(["train-tokenizer", *options, "--out", tmp_path / "two"], 2)
    one, two = (weights(tmp_path / name) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-5)
    lines = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert [line.keys() for line in lines[0]] == [line.keys() for line in lines[1]]
    for first, second in zip(*lines, strict=True):
        del first["seconds" if "seconds" in first else "step"], second["seconds" if "seconds" in second else "step"]
        assert second == pytest.approx(first, rel=1e-3, abs=1e-6)
    assert any(line.get("adversarial_factor", 0) > 0 for line in lines[1])
    assert any(line.get("codes_replaced", 0) > 0 for line in lines[1])


def test_two_processes_in_two_pieces_each_give_the_losses_and_weights_of_one(run, text, alone, tmp_path):
    run(["train", "--data", text, "--out", tmp_path / "two", *SHORT, "--accumulate", "2"], 2)
    assert_the_same_to_float_tolerance(alone, tmp_path / "two")


def test_when_one_process_is_killed_the_other_ends_with_a_sentence_and_the_run_goes_on(
    forks, launch, run, text, tmp_path
):
    folder = tmp_path / "two"
    long = [*TINY, "--steps", "4000", "--save-every", "5"]
    started, said = launch(["train", "--data", text, "--out", folder, *long], 2)
    wait_until(lambda: checkpoints.paths(folder / "checkpoints"))
    os.kill(started[1], signal.SIGKILL)
    assert [forks.wait(process) for process in started] == [6, -signal.SIGKILL]
    last = said[0].read_text()
    assert "sddm: Another process of this run ended" in last
    assert "--resume" in last
    assert "Traceback" not in last
    reached = checkpoints.newest(folder / "checkpoints").step
    more = ["--resume", "--steps", str(reached + 7), "--save-every", "1000"]
    run(["train", "--out", folder, *more], 2)
    assert checkpoints.newest(folder / "checkpoints").step == reached + 7


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_stops_answering_ends_the_other_with_a_sentence(forks, launch, text, tmp_path, stopped):
    folder, silence = tmp_path / "two", 2
    started, said = launch(["train", "--data", text, "--out", folder, *TINY, "--save-every", "5"], 2, silence)
    wait_until(lambda: checkpoints.paths(folder / "checkpoints"))
    os.kill(started[stopped], signal.SIGSTOP)
    since = time.monotonic()
    try:
        assert forks.wait(started[1 - stopped], 60) == 6
    finally:
        os.kill(started[stopped], signal.SIGKILL)
        forks.wait(started[stopped])
    # Fifteen beats of silence / 15, each as late as a busy machine makes it.
    assert time.monotonic() - since < 4 * silence
    last = said[1 - stopped].read_text()
    assert "sddm: Another process of this run has not answered for 2 seconds" in last
    assert "--resume" in last


def test_a_step_that_is_slow_or_a_run_that_pauses_is_not_taken_for_a_lost_process(forks, launch):
    silence = 2
    program = f"""
import time
from sddm.training.devices import accelerator
from sddm.training.heartbeat import noticing_lost_processes
processes = accelerator()
for seconds in (0, {2 * silence}):
    with noticing_lost_processes():
        if processes.is_main_process:
            print("a step of", seconds, "seconds", flush=True)
            time.sleep(seconds)
        processes.wait_for_everyone()
"""
    started, said = launch(["-c", program], 2, silence)
    wait_until(lambda: said[0].exists() and "a step of 4 seconds" in said[0].read_text())
    for number in (signal.SIGSTOP, signal.SIGCONT):  # as Ctrl-Z and fg do
        for process in started:
            os.kill(process, number)
        time.sleep(1.5 * silence)
    assert [forks.wait(process) for process in started] == [0, 0], [path.read_text() for path in said]


def test_processes_that_meet_and_cannot_connect_say_what_to_set(forks, launch):
    program = """
import os, time
from sddm.training import devices, heartbeat
if os.environ["RANK"] == "0":
    devices.accelerator()
store = heartbeat._meet(60)
time.sleep(60)
"""
    started, said = launch(["-c", program], 2, 1)
    try:
        assert forks.wait(started[0], 30) == 6
    finally:
        os.kill(started[1], signal.SIGKILL)
        forks.wait(started[1])
    last = said[0].read_text()
    assert "cannot connect to each other" in last
    assert "GLOO_SOCKET_IFNAME" in last
    assert "NCCL_SOCKET_IFNAME" in last


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_whose_others_do_not_come_says_where_it_waited(monkeypatch, rank):
    port = free_port()
    for name, value in {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(LostProcessError, match=f"waited 1 seconds at MASTER_ADDR=127.0.0.1, MASTER_PORT={port}"):
        heartbeat._meet(1.0)


def test_a_silence_that_is_no_number_of_seconds_is_a_sentence(monkeypatch):
    monkeypatch.setenv("SDDM_SILENCE", "soon")
    with pytest.raises(ValueError, match="SDDM_SILENCE must be a number of seconds, at least 1, but it is 'soon'"):
        heartbeat._patience()


def test_weights_split_between_processes_train_as_whole_ones_and_one_process_can_go_on(run, text, tmp_path):
    folder, alone = tmp_path / "split", tmp_path / "alone"
    main(["train", "--data", str(text), "--out", str(alone), *SHORT, "--optimizer", "adamw"])  # as muon is not split
    run(["train", "--data", text, "--out", folder, *SHORT, "--shard"], 2)
    assert_the_same_to_float_tolerance(alone, folder)
    newest, other = (checkpoints.newest(path / "checkpoints") for path in (folder, alone))
    assert {name: value.shape for name, value in newest.tensors.items()} == {
        name: value.shape for name, value in other.tensors.items()
    }
    whole = shutil.copytree(alone, tmp_path / "whole")
    for path in (folder, whole):
        main(["train", "--out", str(path), "--resume", "--steps", "16"])
    assert_the_same_to_float_tolerance(whole, folder)


def test_two_processes_draw_the_samples_of_one(run, alone, tmp_path):
    options = ["--num", "9", "--steps", "5", "--batch-size", "2", "--out"]
    main(["sample", str(alone), *options, str(tmp_path / "1.npy")])
    run(["sample", alone, *options, tmp_path / "2.npy"], 2)
    assert (tmp_path / "1.npy").read_bytes() == (tmp_path / "2.npy").read_bytes()
