"""Samples of a wish from the command line: a label by a classifier, and a reward that steers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from sddm import Diffusion, NoisedClassifier, recipe, steer
from sddm.cli import main
from sddm.commands import runs
from sddm.data import load
from sddm.marginals import Classified
from sddm.samplers import Euler

SHORT = "--width 8 --layers 1 --heads 2 --mlp 8 --steps 4 --batch-size 8"
MANY = "--num 6 --steps 3"

pytestmark = pytest.mark.usefixtures("at_full_speed")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Labelled rows, a model of them that knows no labels, one that does, one of another noise, and a classifier."""
    folder = tmp_path_factory.mktemp("wishes")
    rows = np.arange(60)[:, None] % 3 + np.zeros((1, 4), int)
    np.savez(folder / "data.npz", rows=rows, labels=np.arange(60) % 3)
    np.savez(folder / "longer.npz", rows=np.repeat(rows, 2, 1), labels=np.arange(60) % 3)
    np.save(folder / "plain.npy", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, data, options in (
            ("run", "data.npz", "--labels False"),
            ("told", "data.npz", ""),
            ("noisier", "data.npz", "--labels False --left 0.3"),
            ("longer", "longer.npz", "--labels False"),
            ("unlabelled", "plain.npy", ""),
        ):
            main(f"train --data {data} --out {name} {SHORT} {options}".split())
        main(f"train-classifier --of run --out judge {SHORT}".split())
    return folder


@pytest.fixture
def place(originals, tmp_path, monkeypatch):
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capsys):
    """A function that runs a command, which ends with this code, and returns what it printed and said."""

    def ran(line, code=0):
        capsys.readouterr()
        if code:
            with pytest.raises(SystemExit) as stop:
                main(line.split())
            assert stop.value.code == code
        else:
            main(line.split())
        return capsys.readouterr()

    return ran


# ---- a classifier


def test_a_classifier_is_trained_for_the_noise_of_a_run_and_guides_it_as_from_python(place, command):
    said = command(f"train-classifier --of run --out again {SHORT}").err
    assert "54 rows to train on and 6 held out, 4 positions, 3 labels." in said
    assert "sddm sample run --classifier again --label 0 --guidance 1" in said
    classifier = NoisedClassifier.from_pretrained("judge/model")
    assert torch.equal(
        NoisedClassifier.from_pretrained("again/model").network.readout[2].weight, classifier.network.readout[2].weight
    )
    assert "accuracy" in (place / "judge" / "metrics.jsonl").read_text()
    model = Diffusion.from_pretrained("run/model")
    classifier.check(model.process)
    for first_order in (False, True):
        flag = " --first-order" if first_order else ""
        line = f"sample run --classifier judge --label 1 --guidance 2{flag} {MANY}"
        made = command(f"{line} --seed 5").out
        guided = Diffusion(model.process, Classified(model.model, classifier, 2.0, first_order))
        rows = guided.sample(6, steps=3, seed=5, labels=torch.full((6,), 1), sampler=Euler())
        assert made == written(rows, model)
        assert command(f"{line} --seed 5 --batch-size 4").out == made
        assert command(f"{line} --seed 5").out != command(f"{line.replace('label 1', 'label 2')} --seed 5").out


def written(rows, model):
    """What the command prints of rows."""
    path = Path("printed.txt")
    model.codec.write(rows, path.with_suffix(model.codec.text_ending))
    return path.with_suffix(model.codec.text_ending).read_text()


def test_the_rows_of_a_run_that_its_model_has_not_seen_are_not_seen_by_its_classifier(place):
    recorded = runs.recorded(Path("run"))["options"]
    rows, apart = load("data.npz").split(recorded["held_out"], recorded["training"]["seed"])
    assert runs.recorded(Path("judge"), NoisedClassifier)["data"]["fingerprint"] == rows.fingerprint()
    assert rows.fingerprint() != apart.fingerprint()


def test_a_classifier_that_was_stopped_goes_on_and_ends_as_if_it_had_not(place, command):
    command(f"train-classifier --of run --out halves {SHORT.replace('steps 4', 'steps 2')} --decay constant")
    command("train-classifier --out halves --resume --steps 4")
    command(f"train-classifier --of run --out whole {SHORT} --decay constant")
    one, other = (NoisedClassifier.from_pretrained(f"{name}/model").state_dict() for name in ("halves", "whole"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    shutil.rmtree("whole/model")  # then the newest checkpoint is what was trained so far
    so_far = runs.trained_classifier("whole").state_dict()
    assert all(torch.equal(value, so_far[name]) for name, value in one.items())


def test_labels_of_a_classifier_have_the_names_of_its_data(place, command):
    from PIL import Image

    for number in range(8):
        folder = place / "photos" / ("night" if number % 2 else "day")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2), 30 * number, np.uint8)).save(folder / f"{number}.png")
    command(f"train --data photos --size 2 --levels 2 --labels False --out dim {SHORT}")
    assert "--label day" in command(f"train-classifier --of dim --out tell {SHORT}").err
    for name, label in (("named", "night"), ("numbered", "1")):
        command(f"sample dim --classifier tell --label {label} {MANY} --out {name}.npy")
    assert np.array_equal(np.load("named.npy"), np.load("numbered.npy"))
    said = command("sample dim --classifier tell --label dusk", code=2).err
    assert "label is 'dusk', but the classifier knows 0 to 1, called 'day', 'night'." in said


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sample run --classifier judge", "there is no label that it should lead to. Name one with --label."),
        ("sample run --classifier judge --label 3", "label is '3', but the classifier knows 0 to 2."),
        ("sample run --classifier judge --label cat", "label is 'cat', but the classifier knows 0 to 2."),
        ("sample run --classifier judge --label 1 --guidance nan", "guidance must be finite"),
        ("sample run --classifier nowhere --label 1", "There is no run 'nowhere'."),
        ("sample run --classifier told --label 1", "is not the config of a classifier saved by this version"),
        ("sample judge", "is not the config of a diffusion saved by this version"),
        ("sample run --first-order", "first_order is for guidance by a classifier. Name its folder with --classifier."),
        ("sample noisier --classifier judge --label 1", "The classifier has learnt rows noised by Uniform("),
        ("sample longer --classifier judge --label 1", "is for rows of 4 positions, but those of the model have 8."),
        ("sample run --label 1", "guide the model by a classifier: `sddm train-classifier`."),
        ("sample run --classifier judge --label 1 --reward r.py:f", "There is no file 'r.py'."),
        ("train-classifier --data data.npz", "Missing from sddm train-classifier: --of."),
        ("train-classifier --of nowhere", "There is no run 'nowhere'."),
        ("train-classifier --of run/model", "data must be given with --data: this model does not know"),
        ("train-classifier --of unlabelled", "plain.npy has no labels, but a classifier learns them."),
        ("train-classifier --of run --data plain.npy", "plain.npy has no labels, but a classifier learns them."),
        ("train-classifier --of run --data longer.npz", "has 8 positions a row, but the model was built for 4."),
        ("train-classifier --of run --key rows", "Options such as key say how a file is read."),
        ("train-classifier --of run --loss mdlm", "loss is an option of the training of a diffusion"),
        ("train-classifier --of run --label-dropout 0.5", "label_dropout is an option of the training of a diffusion"),
        ("train-classifier --of run --width 7", "width must be a multiple of twice heads"),
        ("train-classifier --of run --dropout 1", "dropout must lie in [0, 1)"),
        ("train-classifier --of run --data data.npz --held-out 0", "held_out must lie between 0 and 1"),
        ("train-classifier --of run --out judge", "already holds a run. Go on with it by --resume"),
        ("train-classifier --out judge --resume --of noisier", "The model is not the one that the run in"),
        ("train-classifier --out judge --resume --mlp 16", "The model is not the one that the run in"),
        ("train-classifier --out run --resume", "holds a run of `sddm train`. Name another."),
        ("train --out judge --resume", "holds a run of `sddm train-classifier`. Name another."),
    ],
)
def test_a_bad_classifier_is_answered_in_a_sentence(line, sentence, place, command):
    before = sorted(place.rglob("*"))
    assert sentence in command(line, code=2).err
    assert sorted(place.rglob("*")) == before


# ---- a reward

REWARDS = """
import numpy as np
import torch

def low(tokens):
    return -2.0 * tokens.sum(1)

def of_values(values):
    return [-2.0 * float(sum(row)) for row in np.asarray(values)]

def undefined(tokens):
    return torch.full((len(tokens),), float("nan"))

def endless(tokens):
    return torch.full((len(tokens),), float("inf"))

def hopeless(tokens):
    return torch.full((len(tokens),), -float("inf"))

def single(tokens):
    return torch.tensor(1.0)

def wide(tokens):
    return tokens.double()

def words(tokens):
    return ["good"] * len(tokens)

def nothing(tokens):
    pass

def failing(tokens):
    return 1 / 0

NUMBER = 3
"""


@pytest.fixture
def rewards(place):
    (place / "rewards.py").write_text(REWARDS)
    (place / "slip.py").write_text("def f(x) return x")
    (place / "careless.py").write_text("open('no such file')")
    (place / "empty.py").write_text("")
    (place / "latin.py").write_bytes("# café".encode("latin1"))
    (place / "notes.txt").write_text("def low(tokens): pass")
    return place


def test_a_reward_steers_samples_as_from_python_at_any_batch_size(rewards, command):
    line = f"sample run --reward rewards.py:low --particles 8 {MANY} --seed 3"
    heard = command(line)
    model = Diffusion.from_pretrained("run/model")
    options = {"particles": 8, "steps": 3, "generator": torch.Generator().manual_seed(3)}
    steered = steer(model, 6, lambda x: -2.0 * x.sum(1), **options)
    assert heard.out == written(steered.tokens, model)
    mean, least = float(steered.effective.mean()), float(steered.effective.min())
    said = f"Effective sample size, of 8 particles: {mean:.1f} on average over steps and samples, {least:.1f} at the"
    assert said in heard.err
    assert command(f"{line} --batch-size 4") == heard
    assert command(line.replace("seed 3", "seed 4")).out != heard.out
    assert steered.tokens.sum() < model.sample(6, steps=3, seed=3).sum()


def test_a_reward_of_decoded_values_is_that_of_the_tokens_they_stand_for(rewards, command):
    line = f"sample run --reward rewards.py:low {MANY}"
    assert command(line.replace(":low", ":of_values") + " --decoded").out == command(line).out


def test_a_steered_job_that_was_interrupted_goes_on_and_reports_all_of_it(rewards, command, monkeypatch):
    line = f"sample run --reward rewards.py:low --batch-size 2 {MANY} --out"
    whole = command(f"{line} whole.npy").err.splitlines()[-1]
    made, ordinary = [], recipe.steer

    def interrupted(*arguments, **options):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return ordinary(*arguments, **options)

    monkeypatch.setattr("sddm.recipe.steer", interrupted)
    command(f"{line} made.npy", code=130)
    monkeypatch.setattr("sddm.recipe.steer", lambda *a, **o: made.append(1) or ordinary(*a, **o))
    assert command(f"{line} made.npy").err.splitlines()[-1] == whole
    assert len(made) == 3
    assert np.array_equal(np.load("made.npy"), np.load("whole.npy"))


def test_a_reward_goes_with_labels_and_guidance(rewards, command):
    line = f"sample told --reward rewards.py:low --particles 4 {MANY} --label 1"
    assert command(f"{line} --guidance 2").out != command(f"{line} --guidance -2").out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--reward rewards.py", "reward is 'rewards.py', which does not name a function. Name it as FILE.py:FUNCTION."),
        ("--reward :low", "which does not name a function"),
        ("--reward nowhere.py:low", "There is no file 'nowhere.py'."),
        ("--reward notes.txt:low", "'notes.txt' is not a file of Python, which ends in .py."),
        ("--reward empty.py:low", "'empty.py' is empty"),
        ("--reward latin.py:low", "'latin.py' cannot be run: UnicodeDecodeError"),
        ("--reward slip.py:f", "'slip.py' cannot be run: SyntaxError: "),
        ("--reward careless.py:f", "'careless.py' cannot be run: FileNotFoundError: "),
        ("--reward rewards.py:high", "'rewards.py' has no function 'high'."),
        ("--reward rewards.py:NUMBER", "'rewards.py' has no function 'NUMBER'."),
        ("--reward rewards.py:undefined", "reward returned NaN. Rewards are numbers, or -inf to forbid a row."),
        ("--reward rewards.py:endless", "reward returned inf. Rewards are finite, or -inf."),
        ("--reward rewards.py:hopeless", "reward is -inf for every particle of a sample."),
        ("--reward rewards.py:single", "must return a tensor of shape (256,), but it returned one of shape ()."),
        ("--reward rewards.py:wide", "but it returned one of shape (256, 4)."),
        ("--reward rewards.py:words", "rewards.py:words must return a number for each row, but it returned a list"),
        ("--reward rewards.py:nothing", "rewards.py:nothing must return a number for each row, but it returned a Non"),
        ("--reward rewards.py:failing", "The reward rewards.py:failing failed: ZeroDivisionError: division by zero."),
        ("--reward rewards.py:low --particles 0", "particles must be at least 1, but it is 0."),
        ("--particles 8", "particles is for samples that a reward steers. Name its function with --reward"),
        ("--decoded", "decoded is for samples that a reward steers."),
        ("--reward rewards.py:low --classifier judge --label 1", "this model does not predict under a classifier."),
    ],
)
def test_a_bad_reward_is_answered_in_a_sentence(options, sentence, rewards, command):
    before = sorted(rewards.rglob("*"))
    said = command(f"sample run {options}", code=2).err
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert sorted(rewards.rglob("*")) == before


def test_the_help_says_that_the_file_is_run(command, capsys):
    with pytest.raises(SystemExit):
        main(["sample", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "The file is run as Python" in said


def test_parts_that_another_text_of_the_reward_made_are_not_taken(rewards, command, monkeypatch):
    line = f"sample run --reward rewards.py:low {MANY} --batch-size 2 --out made.npy"
    made, ordinary = [], recipe.steer

    def interrupted(*arguments, **options):
        if made:
            raise KeyboardInterrupt
        made.append(1)
        return ordinary(*arguments, **options)

    monkeypatch.setattr("sddm.recipe.steer", interrupted)
    command(line, code=130)
    monkeypatch.setattr("sddm.recipe.steer", ordinary)
    (rewards / "rewards.py").write_text(REWARDS.replace("-2.0 * tokens", "2.0 * tokens"))
    command(line)
    command(line.replace("made", "fresh"))
    assert np.array_equal(np.load("made.npy"), np.load("fresh.npy"))
