"""Saved models: those of earlier versions load, damaged ones and configs of no model are refused in a sentence."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sddm import Diffusion
from sddm.marginals import Hollow
from sddm.processes import Uniform
from sddm.schedules import Constant

SAVED = Path(__file__).with_name("saved")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    process = Uniform(3, Constant(1.0)).leaving(0.02)
    Diffusion(process, Hollow.for_process(process, 4, width=8, layers=1, heads=2, mlp=8)).save_pretrained(folder)
    return folder


@pytest.fixture
def saved(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "model"))


@pytest.mark.parametrize("name", sorted(path.name for path in SAVED.iterdir()))
def test_a_model_that_the_first_version_saved_loads_to_the_same_conditionals(name):
    """Their configs have the sizes of a transformer among its other arguments, their weights have no digest."""
    expected = load_file(SAVED / name / "expected.safetensors")
    with torch.no_grad():
        found = Diffusion.from_pretrained(SAVED / name).marginals(expected["tokens"], torch.tensor([0.1, 0.5, 0.9]))
    # Logs of order 10 in float32, after sums whose order may differ from one processor to the next.
    torch.testing.assert_close(found.log_xt.float(), expected["log_xt"], rtol=1e-4, atol=1e-5)


def test_weights_with_any_bit_flipped_are_refused(saved):
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["digest"]
    start = 8 + int.from_bytes(whole[:8], "little")
    places = torch.randint(start, len(whole), (40,), generator=torch.Generator().manual_seed(0)).tolist()
    places += [whole.index(b'"digest":"') + n for n in (1, 11)]  # its name, and its value
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"model\.safetensors (is damaged|cannot be read): "):
            Diffusion.from_pretrained(saved)
    path.write_bytes(whole)
    Diffusion.from_pretrained(saved)


def test_weights_that_another_program_wrote_are_taken_without_a_digest(saved):
    weights = load_file(saved / "model.safetensors")
    save_file({name: value.half() for name, value in weights.items()}, saved / "model.safetensors", {"format": "pt"})
    loaded = Diffusion.from_pretrained(saved)
    assert all(value.dtype == torch.float32 for value in loaded.parameters())


def test_whole_numbers_are_no_weights(saved):
    weights = load_file(saved / "model.safetensors")
    save_file({name: value.to(torch.int8) for name, value in weights.items()}, saved / "model.safetensors")
    with pytest.raises(ValueError, match=r"does not hold the weights of the model: \S+ is int8 .*, but float32 "):
        Diffusion.from_pretrained(saved)


def changed(saved, value, *path):
    """Put a value at a place in config.json, or take the place away."""
    config = json.loads((saved / "config.json").read_text())
    at = config
    for part in path[:-1]:
        at = at[part]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    (saved / "config.json").write_text(json.dumps(config))


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("value", "place", "sentence"),
    [
        (10**9, "sizes layers", "layers must be at most 1024"),
        (-8, "sizes width", "width must be at least 1"),
        (10**30, "num_classes", "describes no model that can be built"),
        ("many", "num_tokens", "describes no model that can be built"),
        (None, "num_tokens", "missing"),
        (3, "sizes", "describes no model that can be built"),
        ({"type": "constant", "rate": 1.0}, "", "describes no model that can be built"),
        (3, "", "describes no model that can be built"),
    ],
)
def test_a_config_of_no_model_is_refused_in_a_sentence(saved, value, place, sentence):
    changed(saved, value, "model", "network", *place.split())
    with pytest.raises(ValueError, match=sentence) as caught:
        Diffusion.from_pretrained(saved)
    assert str(saved / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_is_nested_too_deeply_is_refused_in_a_sentence(saved):
    (saved / "config.json").write_text('{"format": 2, "model": ' + "[" * 100_000)
    with pytest.raises(ValueError, match="is not valid JSON"):
        Diffusion.from_pretrained(saved)
    for depth in (500, 5_000):  # json may read what cannot be built
        nested = "[" * depth + "]" * depth
        (saved / "config.json").write_text('{"format": 2, "process": {}, "model": ' + nested + "}")
        with pytest.raises(ValueError, match=r"is not valid JSON|describes no model"):
            Diffusion.from_pretrained(saved)
