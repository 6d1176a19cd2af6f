"""The demonstration and the command line, at a small size."""

import json

import matplotlib.image
import pytest
import torch

from sddm import Diffusion
from sddm.cli import main
from sddm.data import Toy
from sddm.experiments.demo import DemoConfig, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    main(["demo", "--out", str(out), "--steps", "20", "--samples", "400", "--sampling-steps", "4"])
    return out


def test_the_demo_leaves_figures_with_their_errors(finished):
    figures = json.loads((finished / "figures.json").read_text())
    assert figures["samples"] == 400
    assert figures["mmd_standard_error"] > 0
    # Data against data is zero up to its error.
    assert abs(figures["data_against_data"]) < 4 * figures["data_against_data_standard_error"]


@pytest.mark.parametrize(("picture", "least_width"), [("samples.png", 600), ("reverse.png", 1200)])
def test_the_demo_leaves_pictures_that_show_something(finished, picture, least_width):
    image = matplotlib.image.imread(finished / picture)
    assert image.shape[1] >= least_width
    assert image[..., :3].std() > 0.05


def test_the_demo_leaves_a_model_that_can_be_loaded_and_asked(finished):
    model = Diffusion.from_pretrained(finished / "model")
    bits = Toy("checkerboard").tokens(5, torch.Generator().manual_seed(0))
    assert model.marginals(bits, torch.full((5,), 0.5)).log_xt.shape == (5, 32, 2)


def test_the_demo_is_reproducible_by_its_seed(tmp_path):
    first, second, other = (
        run(DemoConfig(tmp_path / str(i), steps=5, samples=50, sampling_steps=3, seed=seed))
        for i, seed in enumerate((3, 3, 4))
    )
    assert first == second
    assert first != other


def test_help_names_every_option_of_the_demo(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--out", "--density", "--steps", "--samples", "--sampling-steps", "--seed"):
        assert option in shown


def test_an_unknown_command_is_refused_with_exit_code_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fly"])
    assert stop.value.code == 2
