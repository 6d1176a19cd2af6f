"""From pictures to a tokenizer, to codes, to a model of them, to a sheet of new pictures; and what may go wrong."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from console import ends
from sddm.cli import main
from sddm.codecs import Codes
from sddm.commands import encode, runs
from sddm.data import load
from sddm.data.published import PUBLISHED
from sddm.tokenizers import VQGAN
from tiny_pictures import SIDE, SIZES, TINY, encoded, pictures

SHORT = ["--width", "8", "--layers", "1", "--heads", "1", "--mlp", "8", "--batch-size", "8", "--steps", "4"]


@pytest.fixture(autouse=True)
def squares(monkeypatch):
    """Tiny pictures as a published set."""
    monkeypatch.setitem(PUBLISHED, "squares", encoded)
    monkeypatch.setitem(PUBLISHED, "other-squares", lambda: encoded(seed=1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tokenizer"
    PUBLISHED["squares"] = encoded
    try:
        main(["train-tokenizer", "--data", "squares", "--out", str(folder), "--steps", "12", *TINY])
    finally:
        del PUBLISHED["squares"]
    return folder


@pytest.fixture
def tokenizer(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "tokenizer")


# ---- the walk of four commands


def test_four_commands_lead_from_pictures_to_a_sheet_of_new_ones(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["train-tokenizer", "--data", "squares", "--steps", "12", *TINY])
    said = capsys.readouterr().err
    assert "No --perceptual file: the loss by VGG16 is off." in said
    assert "43 pictures to train on and 5 held out, of 8 x 8 pixels; 2 x 2 codes each, one of 16." in said
    assert "Done. Codes: sddm encode runs/tokenizer --data squares --out codes" in said
    left = {path.name for path in (tmp_path / "runs" / "tokenizer").iterdir()}
    assert {"model", "checkpoints", "samples", "run.json", "metrics.jsonl"} <= left
    main(["encode", "runs/tokenizer", "--data", "squares"])
    assert "48 pictures as 2 x 2 codes in codes. Model: sddm train --data codes" in capsys.readouterr().err
    main(["train", "--data", "codes", "--model", "masked", *SHORT])
    for folder in ("codes", "runs/tokenizer"):
        shutil.rmtree(tmp_path / folder)  # the folder of the model is all that is needed
    main(["sample", "runs/codes", "--num", "6", "--steps", "4", "--out", "sheet.png"])
    main(["sample", "runs/codes", "--num", "6", "--steps", "4", "--out", "made.npy"])
    made = np.load("made.npy")
    assert (made.shape, made.dtype) == ((6, SIDE, SIDE, 3), np.uint8)
    with Image.open("sheet.png") as sheet:
        assert np.asarray(sheet)[0, 0].tolist() == made[0, 0, 0].tolist()
    assert len(list((tmp_path / "runs" / "codes" / "samples").glob("*.png"))) == 1


def test_a_picture_with_a_hole_is_completed(tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["encode", "tokenizer", "--data", "squares"])
    main(["train", "--data", "codes", "--known", "scattered", *SHORT])
    picture = np.full((SIDE, SIDE, 4), 255, np.uint8)
    picture[..., :3], picture[:4, :4, 3] = pictures(1)[0], 0
    Image.fromarray(picture).save("hole.png")
    main(["sample", "runs/codes", "--num", "3", "--steps", "4", "--condition", "hole.png", "--out", "made.npy"])
    codec = load("codes").codec
    known = codec.read_condition(tmp_path / "hole.png", 4)
    assert (known < 0).tolist() == [[True, False, False, False]]
    made = np.load("made.npy")
    rows = known.expand(16, -1).clone()
    rows[:, 0] = torch.arange(16)  # what the hole may have become
    possible = codec.decode(rows)
    assert all((picture == possible).all(axis=(1, 2, 3)).any() for picture in made)


# ---- runs


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def test_a_tokenizer_goes_on_with_the_options_it_was_started_with(tokenizer, trained, capsys):
    shutil.rmtree(tokenizer / "model")
    for path in (tokenizer / "checkpoints").glob("*"):
        if path.name > "step-000000006.safetensors":
            path.unlink()
    assert ends(["train-tokenizer", "--out", tokenizer, "--resume"], capsys)[0] == 0
    assert all(torch.equal(weights(tokenizer)[name], value) for name, value in weights(trained).items())


def test_the_tokenizer_of_a_run_that_is_not_finished_has_the_averaged_weights(tokenizer, trained):
    shutil.rmtree(tokenizer / "model")
    found = runs.trained_tokenizer(str(tokenizer)).state_dict()
    assert found.keys() == weights(trained).keys()
    assert all(torch.equal(found[name], value) for name, value in weights(trained).items())


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("train-tokenizer --data squares --out {run}", 2, "already holds a run. Go on with it by --resume"),
        ("train-tokenizer --out {run} --resume --data other-squares", 2, "The data are not those that the run"),
        ("train-tokenizer --out {run} --resume --filters 8", 2, "The model is not the one that the run in"),
        ("train-tokenizer --out {run} --resume --commitment 1", 2, "commitment is 1.0, but the run in"),
        ("train-tokenizer --data moons --out new", 2, "moons holds points, but a tokenizer is for pictures"),
        ("train-tokenizer --data squares --out new --multipliers 1 1 1 1 1", 2, "Pictures of 8 x 8 pixels cannot be"),
        ("train-tokenizer --data squares --out new --perceptual nowhere.pth", 2, "Name a file with the weights of VGG"),
        ("train-tokenizer --data squares --filters 0", 2, "filters must be at least 1"),
        ("train-tokenizer --out {run}/run.json --data squares", 2, "is a file. Name a folder"),
        ("train --out {run} --resume", 2, "holds a run of `sddm train-tokenizer`"),
        ("encode nowhere --data squares --out codes", 2, "There is no run 'nowhere'"),
        ("encode {run} --data moons --out codes", 2, "moons holds points, but a tokenizer is for pictures"),
        ("encode {run} --data squares --out {run}", 2, "exists. Name another folder, or pass --overwrite"),
        ("encode {run} --data squares --out {run} --overwrite", 2, "holds what `sddm encode` did not write"),
        ("encode {run} --data squares --out {run}/run.json/codes", 2, "is a file. Name another place with --out"),
        ("encode {run} --data grey --out codes", 2, "grey has pictures of 1 channels, but the tokenizer was trained"),
        ("sample {run}", 2, "is not the config of a diffusion"),
    ],
)
def test_bad_commands_are_answered_by_a_sentence(
    tokenizer, tmp_path, capsys, monkeypatch, arguments, code, sentence, without_annotation_checks
):
    from sddm.codecs import Encoded, Pixels

    grey = Pixels(SIDE, SIDE, 1)
    monkeypatch.setitem(PUBLISHED, "grey", lambda: Encoded(grey.compact(pictures(4, channels=1)), grey))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ended, said = ends(arguments.format(run=tokenizer).split(), capsys)
    assert (ended, said.count("\n")) == (code, 1), said
    assert sentence in said
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != ".lock"] == [
        path for path in before if path.name != ".lock"
    ]


# ---- encoding


def test_the_codes_are_those_of_the_tokenizer_and_labels_are_kept(tokenizer, tmp_path):
    main(["encode", str(tokenizer), "--data", "squares", "--out", str(tmp_path / "codes"), "--batch-size", "7"])
    folder = tmp_path / "codes"
    assert sorted(path.name for path in folder.iterdir()) == ["codes.json", "codes.npy", "labels.npy", "tokenizer"]
    network = VQGAN.from_pretrained(folder / "tokenizer")
    assert all(torch.equal(network.state_dict()[name], value) for name, value in weights(tokenizer).items())
    expected = Codes.of(network, SIDE, SIDE).encode(pictures(48))
    assert np.array_equal(np.load(folder / "codes.npy"), expected.numpy())
    assert np.load(folder / "codes.npy").dtype == np.uint8
    assert np.load(folder / "labels.npy").tolist() == [row % 3 for row in range(48)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes", "tokenizer"]
    assert network.sizes == SIZES


def test_encoding_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(tokenizer, tmp_path, monkeypatch):
    arguments = ["encode", str(tokenizer), "--data", "squares", "--batch-size", "10", "--out"]
    main([*arguments, str(tmp_path / "straight")])
    made, ordinary = [], encode._encoded

    def killed(data, rows, codec):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(rows)
        return ordinary(data, rows, codec)

    monkeypatch.setattr(encode, "_encoded", killed)
    with pytest.raises(SystemExit):
        main([*arguments, str(tmp_path / "killed")])
    assert not (tmp_path / "killed").exists()
    parts = sorted((tmp_path / "killed.parts").glob("rows-*"))
    assert len(parts) == 3
    parts[0].write_bytes(parts[0].read_bytes()[:-1])  # a part that is damaged is made again
    again = []
    monkeypatch.setattr(encode, "_encoded", lambda *about: again.append(about[1]) or ordinary(*about))
    main([*arguments, str(tmp_path / "killed")])
    assert [rows.start for rows in again] == [0, 30, 40]
    for name in ("codes.npy", "labels.npy", "codes.json", "tokenizer/model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    assert not (tmp_path / "killed.parts").exists()


@pytest.mark.parametrize("change", ["data", "tokenizer"])
def test_parts_of_other_pictures_or_of_another_tokenizer_are_not_used(tokenizer, tmp_path, monkeypatch, change):
    """A job is killed, and begun again in the same place with something else."""
    ordinary, out = encode._encoded, str(tmp_path / "codes")

    def killed(data, rows, codec):
        if rows.start:
            raise KeyboardInterrupt
        return ordinary(data, rows, codec)

    with monkeypatch.context() as patched:
        patched.setattr(encode, "_encoded", killed)
        with pytest.raises(SystemExit):
            main(["encode", str(tokenizer), "--data", "squares", "--batch-size", "30", "--out", out])
    if change == "tokenizer":
        network = VQGAN.from_pretrained(tokenizer / "model")
        with torch.no_grad():
            network.quantizer.codebook.copy_(network.quantizer.codebook.flip(0))
        network.save_pretrained(tokenizer / "model")
    name = "other-squares" if change == "data" else "squares"
    main(["encode", str(tokenizer), "--data", name, "--batch-size", "30", "--out", out])
    codec = Codes.of(VQGAN.from_pretrained(tokenizer / "model"), SIDE, SIDE)
    expected = codec.encode(pictures(48, seed=1 if change == "data" else 0))
    assert np.array_equal(np.load(tmp_path / "codes" / "codes.npy"), expected.numpy())


def test_codes_are_replaced_if_that_is_asked_for(tokenizer, tmp_path, capsys):
    arguments = ["encode", tokenizer, "--out", tmp_path / "codes", "--data"]
    assert ends([*arguments, "squares"], capsys)[0] == 0
    before = np.load(tmp_path / "codes" / "codes.npy")
    assert ends([*arguments, "other-squares"], capsys)[0] == 2
    assert np.array_equal(np.load(tmp_path / "codes" / "codes.npy"), before)
    assert ends([*arguments, "other-squares", "--overwrite"], capsys)[0] == 0
    assert not np.array_equal(np.load(tmp_path / "codes" / "codes.npy"), before)


def test_two_jobs_do_not_write_to_one_folder(tokenizer, tmp_path, capsys):
    import fcntl

    place = tmp_path / "codes.parts"
    place.mkdir()
    with open(place / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, said = ends(["encode", tokenizer, "--data", "squares", "--out", tmp_path / "codes"], capsys)
    assert code == 7
    assert "codes' is in use" in said


def test_a_killed_process_leaves_parts_that_serve(tokenizer, tmp_path, forks):
    """The same with kill -9, in a process of its own."""
    program = f"""
import os, signal
from sddm.commands import encode
from sddm.data.published import PUBLISHED
import sys; sys.path.insert(0, {os.fspath(os.path.dirname(os.path.dirname(__file__)))!r})
from tiny_pictures import encoded
PUBLISHED["squares"] = encoded
ordinary = encode._encoded
def killed(data, rows, codec):
    if rows.start == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return ordinary(data, rows, codec)
encode._encoded = killed
from console import ends
from sddm.cli import main
main(["encode", {str(tokenizer)!r}, "--data", "squares", "--batch-size", "10", "--out", {str(tmp_path / "codes")!r}])
"""
    log = tmp_path / "log.txt"
    assert forks.wait(forks.start(["-c", program], log)) == -9, log.read_text()
    assert len(list((tmp_path / "codes.parts").glob("rows-*"))) == 3
    main(["encode", str(tokenizer), "--data", "squares", "--batch-size", "10", "--out", str(tmp_path / "codes")])
    codec = load(tmp_path / "codes").codec
    assert np.array_equal(np.load(tmp_path / "codes" / "codes.npy"), codec.encode(pictures(48)).numpy())
    assert json.loads((tmp_path / "codes" / "codes.json").read_text()) == {"format": 1, "height": 8, "width": 8}
