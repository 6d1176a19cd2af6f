"""From data to a model in one call; saved, shared and installed."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import hatchling.build
import numpy as np
import pytest
import torch

import sddm
from enumerated import seeded
from sddm import Diffusion
from sddm import diffusion as diffusion_module
from sddm.codecs import Characters, Columns, Points
from sddm.data import Dataset
from sddm.fit import FEW_POSITIONS, few_positions
from sddm.marginals import Energy, Hollow, LeaveOneOut, Masked, Restricted
from sddm.processes import Absorbing, Uniform
from sddm.recipe import ModelConfig
from sddm.training import Epochs, TrainingConfig

ROOT = Path(__file__).parents[1]
TINY = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
TOKENS = torch.randint(5, (40, 6), generator=seeded(0))
QUICK = {**TINY, "steps": 3, "batch_size": 4, "progress": False}


@pytest.mark.parametrize("convert", [lambda x: x, np.asarray, lambda x: x.to(torch.uint8), Dataset.from_tokens])
def test_every_kind_of_tokens_is_fitted_alike(convert):
    first, second = (sddm.fit(data, **QUICK).sample(3, steps=2, seed=0) for data in (TOKENS, convert(TOKENS)))
    assert torch.equal(first, second)
    assert first.shape == (3, 6)


def test_a_file_and_a_toy_are_fitted(tmp_path):
    np.save(tmp_path / "tokens.npy", TOKENS.numpy())
    assert sddm.fit(tmp_path / "tokens.npy", **QUICK).sample(2, steps=2).shape == (2, 6)
    toy = sddm.fit("moons", **QUICK)
    assert isinstance(toy.codec, Points)
    assert toy.decode(toy.sample(2, steps=2)).shape == (2, 2)


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(TypeError, match=r"fit has no option 'step'\. It has: accumulate, batch_size"):
        sddm.fit(TOKENS, step=3)


def test_values_that_the_data_do_not_show_can_be_announced():
    assert sddm.fit(TOKENS, num_states=9, **QUICK).process.num_states == 9


def test_fitting_leaves_torchs_own_generator_alone():
    before = torch.get_rng_state()
    sddm.fit(TOKENS, **QUICK, dropout=0.1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides_everything():
    one, again, other = (sddm.fit(TOKENS, **QUICK, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("name", "kind"), [("hollow", Hollow), ("masked", Masked), ("leave-one-out", LeaveOneOut), ("energy", Energy)]
)
@pytest.mark.parametrize(("process", "family"), [("uniform", Uniform), ("absorbing", Absorbing)])
def test_every_model_and_process_can_be_chosen(name, kind, process, family):
    model = sddm.fit(TOKENS, model=name, process=process, **QUICK)
    assert (type(model.model), type(model.process)) == (kind, family)
    left = model.process.remaining(torch.tensor([1.0], dtype=torch.float64))
    assert float(left) == pytest.approx(0.02)
    assert int(model.sample(3, steps=2, seed=0).max()) < 5


def test_masked_and_energy_models_look_at_few_positions_and_others_at_all():
    data = Dataset.from_tokens(TOKENS)
    for name, expected in (("hollow", None), ("leave-one-out", None), ("masked", FEW_POSITIONS[Masked])):
        config = few_positions(ModelConfig(model=name, **TINY).build(data), TrainingConfig())
        assert config.num_positions == expected
    assert few_positions(ModelConfig(model="masked", **TINY).build(data), TrainingConfig(num_positions=5)) == (
        TrainingConfig(num_positions=5)
    )


def test_more_data_get_a_larger_model_and_given_sizes_are_kept():
    small, middle, large = (ModelConfig().sizes(num) for num in (10_000, 1_000_000, 100_000_000))
    assert small["width"] < middle["width"] < large["width"]
    assert ModelConfig(width=48).sizes(10_000)["width"] == 48
    assert ModelConfig(heads=3).sizes(10_000)["heads"] == 3


def test_a_table_restricts_each_column_to_its_values():
    data = Dataset(TOKENS[:, :2] % torch.tensor([2, 5]), Columns(["a", "b"], [["x", "y"], list("vwxyz")]), name="table")
    model = sddm.fit(data, **QUICK)
    assert isinstance(model.model, Restricted)
    assert model.model.arguments["sizes"] == [2, 5]


# ---- the rows of a step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 7, 10, 23, 64])
def test_each_row_comes_once_an_epoch_in_an_order_of_its_own(batch):
    rows = torch.arange(10)[:, None]
    epochs = Epochs(rows, batch, seed=3)
    seen = torch.cat([epochs(step).x0 for step in range(-(-30 // batch))])[:30, 0].reshape(3, 10)
    assert bool((seen.sort(dim=1).values == torch.arange(10)).all())
    assert not torch.equal(seen[0], seen[1])
    late = max(0, 29 // batch)
    assert torch.equal(Epochs(rows, batch, seed=3)(late).x0, epochs(late).x0)


# ---- saved and shared ----------------------------------------------------------------------------------------------


def test_a_saved_model_carries_the_table_that_turns_tokens_back(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(["abba", "cab", "bac", "abc"] * 5))
    model = sddm.fit(path, **QUICK)
    model.save_pretrained(tmp_path / "saved")
    again = Diffusion.from_pretrained(tmp_path / "saved")
    assert isinstance(again.codec, Characters)
    tokens = again.sample(4, steps=2, seed=0)
    assert again.decode(tokens) == model.decode(tokens)
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "library_name: sddm" in card
    assert "4 positions of 4 states" in card


def test_a_codec_has_to_fit_the_process_and_may_be_missing():
    process = Uniform(3, sddm.schedules.Constant(1.0))
    model = Hollow.for_process(process, 4, **TINY)
    with pytest.raises(ValueError, match="codec knows 2 values, but the process has 3 states"):
        Diffusion(process, model, Points("moons"))
    with pytest.raises(ValueError, match="built without a codec"):
        Diffusion(process, model).decode(TOKENS)


def test_a_seed_and_a_generator_are_not_both_taken():
    model = sddm.fit(TOKENS, **QUICK)
    with pytest.raises(ValueError, match="a seed or a generator, not both"):
        model.sample(2, seed=0, generator=seeded(0))
    assert torch.equal(model.sample(2, seed=4, steps=2), model.sample(2, generator=seeded(4), steps=2))


def test_seeds_of_a_part_of_a_job_give_that_part():
    model = sddm.fit(TOKENS, **QUICK)
    seeds = sddm.randomness.draw_seeds(6, seeded(4))
    whole = model.sample(6, seed=4, steps=2)
    assert torch.equal(model.sample(2, seeds=seeds[3:5], steps=2), whole[3:5])
    with pytest.raises(ValueError, match="seeds has 6 entries, but 2 samples were asked for"):
        model.sample(2, seeds=seeds, steps=2)


class Hub:
    """Stands in for the Hugging Face hub: keeps what was uploaded."""

    uploaded: dict = {}  # noqa: RUF012

    def __init__(self, token=None):
        self.token = token

    def create_repo(self, repository, private, exist_ok):
        assert exist_ok
        return f"https://hub/{repository}"

    def upload_folder(self, repo_id, folder_path, commit_message):
        self.uploaded[repo_id] = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}


def test_a_model_pushed_to_the_hub_can_be_loaded_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(diffusion_module, "HfApi", Hub)
    model = sddm.fit(TOKENS, **QUICK)
    assert model.push_to_hub("me/tokens") == "https://hub/me/tokens"
    assert set(Hub.uploaded["me/tokens"]) == {"config.json", "model.safetensors", "README.md"}

    def download(repository, revision, allow_patterns):
        for name in allow_patterns:
            (tmp_path / name).write_bytes(Hub.uploaded[repository][name])
        return str(tmp_path)

    monkeypatch.setattr("sddm._pretrained.snapshot_download", download)
    again = Diffusion.from_pretrained("me/tokens")
    assert torch.equal(again.sample(2, seed=0, steps=2), model.sample(2, seed=0, steps=2))


# ---- options that change speed, not results ------------------------------------------------------------------------


def test_accumulation_gives_the_same_weights_to_rounding():
    """In float64, where rounding is far below what Adam adds to the root of its second moment."""
    weights = []
    for pieces in (1, 4):
        diffusion = ModelConfig(**TINY).build(Dataset.from_tokens(TOKENS)).double()
        config = TrainingConfig(3, 4, accumulate=pieces)
        weights.append(sddm.training.train(diffusion, TOKENS, config, progress=False).state_dict())
    for name, one in weights[0].items():
        torch.testing.assert_close(one, weights[1][name], rtol=1e-6, atol=1e-8)


def test_bf16_trains_to_a_loss_that_rounding_explains():
    losses = []
    for bf16 in (False, True):
        heard = []
        data = Dataset.from_tokens(TOKENS)
        diffusion = ModelConfig(**TINY).build(data)
        config = TrainingConfig(steps=3, batch_size=8, bf16=bf16)
        sddm.training.train(diffusion, TOKENS, config, progress=False, report=lambda step, v: heard.append(v))  # noqa: B023
        losses.append(heard)
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=2**-7)


def test_a_batch_that_cannot_be_shared_out_is_refused():
    with pytest.raises(ValueError, match="batch_size must be a multiple of accumulate, but 4 is not of 3"):
        sddm.fit(TOKENS, **QUICK, accumulate=3)


# ---- installed -----------------------------------------------------------------------------------------------------


def test_an_installed_wheel_works_outside_of_the_source_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    wheel = tmp_path / hatchling.build.build_wheel(str(tmp_path))
    assert wheel.name.startswith(f"sddm-{sddm.__version__}-")
    with zipfile.ZipFile(wheel) as packed:  # as pip installs a wheel without compiled parts
        packed.extractall(tmp_path / "site")
    (tmp_path / "lines.txt").write_text("\n".join(["abba", "cab", "bac", "abc"] * 5))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
    sizes = [str(part) for name, value in TINY.items() for part in (f"--{name}", value)]
    train = ["train", "--data", "lines.txt", "--out", "run", "--steps", "2", "--batch-size", "4", *sizes]
    script = f"""
import json, runpy, sys, sddm, sddm.cli, torch
model = sddm.fit(torch.randint(3, (20, 4)), steps=2, batch_size=4, progress=False, **{TINY})
print(json.dumps([sddm.__file__, list(model.sample(2, steps=2).shape)]))
sddm.cli.main({train})
sys.argv = ["sddm", "sample", "run", "--num", "3", "--steps", "2"]
runpy.run_module("sddm", run_name="__main__")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    first, *samples = done.stdout.splitlines()
    where, shape = json.loads(first)
    assert Path(where).is_relative_to(tmp_path / "site")
    assert shape == [2, 4]
    assert len(samples) == 3
