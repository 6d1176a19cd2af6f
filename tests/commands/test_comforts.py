"""What spares a user work at the command line and in Python: minutes, announced times, progress, completion."""

import json
import re
import shutil
import signal
import subprocess
import sys
import types

import pytest
import torch

import sddm
from sddm.cli import COMMANDS, SHELLS, main
from sddm.commands import lines
from sddm.commands.lines import Lines
from sddm.recipe import ModelConfig
from sddm.samplers import Progress
from sddm.training import TrainingConfig, pace
from sddm.training import diffusion as training_diffusion
from sddm.training.config import RunConfig
from sddm.training.devices import accelerator, on_device
from sddm.training.diffusion import DiffusionLearner
from sddm.training.pace import Cost, seconds_of_a_step, spoken, steps_in

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
TOKENS = torch.randint(5, (40, 6), generator=torch.Generator().manual_seed(0))
QUICK = {"width": 8, "layers": 1, "heads": 2, "mlp": 8, "batch_size": 4, "progress": False}
TINY = "--batch-size 4 --width 8 --layers 1 --heads 2 --mlp 8"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(["abba", "cab", "bac", "abc"] * 5))
    return tmp_path


@pytest.fixture
def ten_seconds_a_step(monkeypatch):
    """A machine on which each step takes ten seconds."""
    monkeypatch.setattr(training_diffusion, "seconds_of_a_step", lambda *arguments, **options: 10.0)
    monkeypatch.setattr(DiffusionLearner, "seconds_of_an_evaluation", lambda learner: 0.0)


# ---- minutes


class Counted:
    """A learner that only counts its updates, and a clock that its updates move."""

    def __init__(self, times):
        self.times, self.now, self.updates = iter(times), 0.0, 0
        self.module = torch.nn.Linear(1, 1)

    def update(self, batch, generator):
        self.now += next(self.times)
        self.updates += 1


def test_the_pace_is_the_median_of_steps_after_the_warm_up():
    learner = Counted([50.0] * pace.WARM + [1.0, 2.0, 3.0] * (pace.PACED // 3))
    found = seconds_of_a_step(
        learner, lambda step: torch.zeros(1), torch.device("cpu"), clock=lambda: learner.now, most_seconds=1e9
    )
    assert found == 2.0
    assert learner.updates == pace.WARM + pace.PACED


def test_where_steps_are_slow_few_have_to_do():
    learner = Counted([50.0, 3.0, 4.0])
    assert (
        seconds_of_a_step(
            learner, lambda step: torch.zeros(1), torch.device("cpu"), clock=lambda: learner.now, most_seconds=0
        )
        == 3.0
    )
    assert learner.updates == 2


@pytest.mark.parametrize(
    ("minutes", "cost", "steps"),
    [
        (5, Cost(0.5), 600),
        (1, Cost(7), 9),
        (0.001, Cost(10), 1),
        (60, Cost(0.0), 999_999_999),
        (1, Cost(1.0, 10.0), 33),  # one evaluation at the end, and half a second of others beside each step
        (1, Cost(1.0, 500.0), 30),
    ],
)
def test_as_many_steps_are_made_as_fit_into_the_minutes(minutes, cost, steps):
    assert steps_in(minutes, cost, every=20).steps == steps


def test_a_training_is_said_to_take_its_steps_and_its_evaluations():
    assert Cost(0.5, 3.0).seconds(100, every=30) == 50 + 4 * 3
    assert Cost(0.5, 3.0).seconds(90, every=30) == 45 + 3 * 3


def test_an_evaluation_is_measured_by_a_part_of_it(monkeypatch):
    """On a clock that only moves with the share of rows that are scored and the steps that are sampled."""
    data = sddm.data.Dataset.from_tokens(TOKENS.repeat(16, 1))
    model = ModelConfig(width=8, layers=1, heads=2, mlp=8).build(data)
    learner = DiffusionLearner(model, TrainingConfig(batch_size=4), held_out=data)
    now, scores, samples, scored = [0.0], learner._scores, learner._early_samples, []

    def score(held_out, part=1):
        now[0] += 64.0 / part
        scored.append(part)
        return scores(held_out, part)

    def sample(steps):
        now[0] += float(steps)
        return samples(steps)

    monkeypatch.setattr(learner, "_scores", score)
    monkeypatch.setattr(learner, "_early_samples", sample)
    monkeypatch.setattr(training_diffusion, "wall", lambda: now[0])
    assert learner.seconds_of_an_evaluation() == 64.0 + 48.0  # 48 is as near to 50 steps as whole steps allow
    assert scored == [16]


@pytest.mark.usefixtures("ten_seconds_a_step")
def test_minutes_decide_the_steps_and_the_learning_rate_of_the_command(place):
    main(f"train --data lines.txt --minutes 1 {TINY} --log-every 1".split())
    recorded = json.loads((place / "runs" / "lines" / "run.json").read_text())["options"]
    assert (recorded["minutes"], recorded["training"]["steps"]) == (1, 6)
    written = [json.loads(line) for line in (place / "runs/lines/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in written if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert written[-2]["learning_rate"] < written[0]["learning_rate"]


def test_a_run_of_some_minutes_that_goes_on_keeps_its_schedule(place, capsys, ten_seconds_a_step, monkeypatch):
    main(f"train --data lines.txt --minutes 1 --out run {TINY} --save-every 2".split())
    shutil.rmtree(place / "run" / "model")
    for last in (place / "run" / "checkpoints").glob("*6.safetensors"):
        last.unlink()
    monkeypatch.setattr(training_diffusion, "seconds_of_a_step", lambda *arguments, **options: 1.0)
    capsys.readouterr()
    main(f"train --data lines.txt --minutes 1 --out run {TINY} --save-every 2 --resume".split())
    assert "6 steps of 4 rows" in capsys.readouterr().err
    assert json.loads((place / "run" / "run.json").read_text())["options"]["training"]["steps"] == 6
    with pytest.raises(SystemExit):
        main(["train", "--out", "run", "--minutes", "2", "--resume"])
    assert "minutes is 2.0, but the run in 'run' was started with 1.0, and keeps its 6" in capsys.readouterr().err


@pytest.mark.usefixtures("ten_seconds_a_step")
def test_before_training_a_line_says_how_long_it_will_take_and_how_to_limit_it(place, capsys):
    main(f"train --data lines.txt --steps 12 {TINY}".split())
    announced = [line for line in capsys.readouterr().err.splitlines() if "on this machine" in line]
    assert announced == ["About 2 minutes on this machine, by 1e+04 ms a step (--minutes limits it)."]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 second"),
        (59, "59 seconds"),
        (91, "2 minutes"),
        (3_600, "60 minutes"),
        (7_200, "2 hours"),
        (200_000, "2 days"),
    ],
)
def test_a_time_is_said_as_people_say_it(seconds, text):
    assert spoken(seconds) == text


@pytest.mark.usefixtures("ten_seconds_a_step")
def test_fit_takes_minutes_and_keeps_the_schedule_of_a_run_that_goes_on(tmp_path, monkeypatch):
    steps = []
    options = {
        **QUICK,
        "minutes": 0.5,
        "log_every": 1,
        "out": tmp_path,
        "callbacks": lambda step, _: steps.append(step),
    }
    sddm.fit(TOKENS, **options)
    assert max(steps) == 3
    monkeypatch.setattr(training_diffusion, "seconds_of_a_step", lambda *arguments, **options: 1.0)
    sddm.fit(TOKENS, **options, resume=True)
    assert max(steps) == 3
    sddm.fit(TOKENS, **{**options, "out": None})
    assert max(steps) == 30


def test_fit_takes_steps_or_minutes():
    with pytest.raises(ValueError, match=r"Give steps or minutes, not both\."):
        sddm.fit(TOKENS, **QUICK, steps=3, minutes=1)
    with pytest.raises(ValueError, match="minutes must be above 0"):
        sddm.fit(TOKENS, **QUICK, minutes=-1)


def test_measuring_the_pace_changes_nothing_of_the_training(monkeypatch):
    plain = sddm.fit(TOKENS, **QUICK, steps=3, dropout=0.1).state_dict()
    monkeypatch.setattr(training_diffusion, "from_main", lambda processes, value: (20.0, 0.0))
    timed = sddm.fit(TOKENS, **QUICK, minutes=1, dropout=0.1).state_dict()
    assert all(torch.equal(plain[name], timed[name]) for name in plain)


# ---- callbacks, Ctrl-C, device


def test_callbacks_are_told_what_metrics_hold(tmp_path):
    told, also = [], []
    options = {**QUICK, "steps": 4, "log_every": 2, "evaluate_every": 3}
    both = [lambda step, figures: told.append({"step": step, **figures}), lambda step, figures: also.append(step)]
    sddm.fit(TOKENS, **options, out=tmp_path, callbacks=both)
    assert told == [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert also == [2, 3, 4, 4]
    again = []
    sddm.fit(TOKENS, **options, callbacks=lambda step, figures: again.append({"step": step, **figures}))
    assert [{**line, "seconds": 0} for line in again] == [{**line, "seconds": 0} for line in told]
    assert [line["step"] for line in again] == also
    with pytest.raises(TypeError, match="callbacks holds a int, which cannot be called"):
        sddm.fit(TOKENS, **options, callbacks=[3])


def interrupt(step, figures):
    if step == 2:
        raise KeyboardInterrupt


def stop_by_signal(step, figures):
    if step == 2:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("stop", [interrupt, stop_by_signal])
def test_ctrl_c_returns_the_model_so_far_with_averaged_weights(stop, capsys):
    options = {**QUICK, "log_every": 1, "decay": "constant", "warmup": 0.0}
    stopped = sddm.fit(TOKENS, **options, steps=9, callbacks=stop).state_dict()
    said = capsys.readouterr().err
    assert said == "sddm: Stopped after step 2 of 9. fit returns the model so far.\n"
    whole = sddm.fit(TOKENS, **options, steps=2).state_dict()
    assert all(torch.equal(stopped[name], whole[name]) for name in whole)


def test_ctrl_c_keeps_the_checkpoint_from_which_a_run_goes_on(tmp_path, capsys):
    options = {**QUICK, "log_every": 1, "steps": 5}
    sddm.fit(TOKENS, **options, out=tmp_path / "run", callbacks=interrupt)
    assert "Stopped after step 2 of 5. The checkpoint in" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors")] == [
        "step-000000002.safetensors"
    ]
    resumed = sddm.fit(TOKENS, **options, out=tmp_path / "run", resume=True).state_dict()
    straight = sddm.fit(TOKENS, **options).state_dict()
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


def test_a_device_is_one_that_is_there_and_the_choice_ends_with_the_training(monkeypatch):
    model = sddm.fit(TOKENS, **QUICK, steps=1, device="cpu")
    assert model.device.type == "cpu"
    with pytest.raises(ValueError, match="device='warp' is not a device"):
        sddm.fit(TOKENS, **QUICK, steps=1, device="warp")
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        "sddm.training.devices.Accelerator",
        lambda cpu, **_: asked.append(cpu) or types.SimpleNamespace(wait_for_everyone=lambda: None),
    )
    with on_device("cpu"):
        accelerator()
    accelerator()
    assert asked == [True, False]


# ---- metrics and trackers


def test_metrics_go_to_weights_and_biases_if_it_is_named(tmp_path, monkeypatch):
    heard = []
    run = types.SimpleNamespace(
        log=lambda values, step: heard.append((step, sorted(values))), finish=lambda: heard.append("end")
    )
    module = types.ModuleType("wandb")
    module.init = lambda **options: heard.append(options) or run
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr("sddm.training.trackers.installed", lambda name: name == "wandb")
    sddm.fit(TOKENS, **QUICK, steps=2, log_every=2, out=tmp_path, tracker="wandb")
    assert heard[0] == {"project": "sddm", "name": tmp_path.name, "dir": str(tmp_path)}
    assert heard[1] == (2, ["gradient_norm", "learning_rate", "loss", "seconds"])
    assert heard[-1] == "end"
    with pytest.raises(ValueError, match="writes into the folder of the run, but there is none"):
        sddm.fit(TOKENS, **QUICK, steps=1, tracker="wandb")


@pytest.mark.usefixtures("without_annotation_checks")
def test_a_tracker_that_is_unknown_or_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("sddm.training.trackers.installed", lambda name: False)
    with pytest.raises(ValueError, match=r'needs the package tensorboard, .* pip install "sddm\[tensorboard\]"'):
        TrainingConfig(tracker="tensorboard")
    with pytest.raises(ValueError, match="tracker must be one of tensorboard, wandb, but it is 'paper'"):
        RunConfig(tracker="paper")


# ---- progress of sampling


def test_without_a_terminal_sampling_says_how_far_it_is_every_ten_seconds(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(lines.time, "monotonic", lambda: now[0])
    told = Lines(20, hidden=False)
    told.add(4, found=True)
    for step in range(5):
        now[0] += 4
        told(Progress(step, 4, 0.5, slice(0, 8), torch.zeros(8, 2, dtype=torch.int64)))
    told.add(8)
    now[0] += 10
    told(Progress(2, 4, 0.5, slice(0, 8), torch.zeros(8, 2, dtype=torch.int64)))
    assert capsys.readouterr().err.splitlines() == [
        "sampling: 40% of 20 samples, 36 seconds left",
        "sampling: 80% of 20 samples, 10 seconds left",
    ]


def test_rows_of_different_lengths_are_counted_though_they_are_drawn_in_another_order(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    told = Lines(8, hidden=False)
    for rows in (torch.tensor([5, 0, 3, 6]), torch.tensor([1, 2, 4, 7])):
        for step in range(3):
            now[0] += 5
            told(Progress(step, 2, 0.5, rows, torch.zeros(4, 2, dtype=torch.int64)))
    assert capsys.readouterr().err.splitlines() == [
        "sampling: 25% of 8 samples, 30 seconds left",
        "sampling: 50% of 8 samples, 20 seconds left",
        "sampling: 100% of 8 samples, 1 second left",
    ]


def test_the_command_says_how_far_it_is_and_a_short_job_says_nothing(place, capsys, monkeypatch):
    main(f"train --data lines.txt --steps 1 --out run {TINY}".split())
    capsys.readouterr()
    main(["sample", "run", "--num", "4", "--steps", "3", "--batch-size", "2"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(lines, "SECONDS_BETWEEN_LINES", 0.0)
    main(["sample", "run", "--num", "4", "--steps", "3", "--batch-size", "2"])
    said = capsys.readouterr().err.splitlines()
    shares = [int(re.match(r"sampling: (\d+)% of 4 samples", line)[1]) for line in said]
    assert shares == sorted(shares)
    assert shares[-1] == 100


# ---- completion


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_complete_commands_and_options(shell, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--tyro-print-completion", shell])
    assert stop.value.code in (0, None)
    script = capsys.readouterr().out
    for word in (*COMMANDS, "sampler", "minutes"):
        assert word in script


def test_bash_completes_by_the_script(place, capsys):
    with pytest.raises(SystemExit):
        main(["--tyro-print-completion", "bash"])
    script = (
        capsys.readouterr().out
        + """
comp() { COMP_WORDS=("$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); COMPREPLY=(); _tyro_sddm; echo "${COMPREPLY[@]}"; }
comp sddm samp; comp sddm train --minu; comp sddm sample run --sampler eul
"""
    )
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sample", "--minutes", "euler"]
