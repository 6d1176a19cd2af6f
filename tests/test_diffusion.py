"""A process and a model together: what is asked of them, and what is saved and loaded."""

import json

import pytest
import torch
from huggingface_hub.errors import HFValidationError

from enumerated import (
    TableModel,
    absorbing,
    oracle,
    process_named,
    random_law,
    seeded,
    states_of,
    table,
    times,
    uniform,
)
from sddm import Diffusion
from sddm.marginals import MarginalModel, Marginals, Oracle
from sddm.processes import PROCESSES, CustomRate, Uniform
from sddm.schedules import SCHEDULES, Constant, Exponential, LogSquare

DIM = 3
LAW = random_law(3, DIM, seed=2)


@pytest.fixture
def saved(tmp_path):
    oracle(uniform(), LAW, DIM).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def schedule_named(name):
    return SCHEDULES[name](0.5, 1.5) if SCHEDULES[name] is Exponential else SCHEDULES[name](1.3)


def some_input(process, num=40):
    x = states_of(process, DIM)[torch.randperm(process.num_symbols**DIM, generator=seeded(0))]
    x = x.repeat(3, 1)[:num]
    return x, torch.rand(len(x), generator=seeded(1), dtype=torch.float64)


# ---- marginals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("kind", ["oracle", "implicit", "explicit"])
def test_marginals_at_some_positions_are_those_of_the_whole(name, kind):
    process = process_named(name)
    diffusion = oracle(process, LAW, DIM) if kind == "oracle" else table(process, DIM, implicit=kind == "implicit")
    x, t = some_input(process)
    positions = torch.rand(len(x), DIM, generator=seeded(3)).argsort(1)[:, :2]
    whole, some = diffusion.marginals(x, t), diffusion.marginals(x, t, positions)
    rows = torch.arange(len(x))[:, None]
    assert torch.equal(some.log_xt, whole.log_xt[rows, positions])
    if kind == "explicit":
        assert some.log_x0 is None
    else:
        assert torch.equal(some.log_x0, whole.log_x0[rows, positions])


@pytest.mark.parametrize("name", PROCESSES)
def test_marginals_are_probabilities(name):
    process = process_named(name)
    x, t = some_input(process)
    for diffusion in (oracle(process, LAW, DIM), table(process, DIM), table(process, DIM, implicit=False)):
        marginals = diffusion.marginals(x, t)
        for log_p in (marginals.log_xt, marginals.log_x0):
            if log_p is not None:
                assert log_p.shape == (len(x), DIM, process.num_symbols)
                torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(len(x), DIM).double(), rtol=0, atol=1e-12)


def test_marginals_never_look_at_the_token_they_predict():
    for diffusion in (oracle(uniform(), LAW, DIM), table(uniform(), DIM), table(uniform(), DIM, implicit=False)):
        x, t = some_input(uniform())
        for d in range(DIM):
            other = x.clone()
            other[:, d] = (x[:, d] + 1) % 3
            one, two = (diffusion.marginals(y, t).log_xt for y in (x, other))
            assert torch.equal(one[:, d], two[:, d])
            assert not torch.equal(one, two)


def test_times_in_float32_are_taken_for_what_they_are():
    diffusion = oracle(uniform(), LAW, DIM)
    x, t = some_input(uniform())
    single = t.float()
    assert torch.equal(diffusion.marginals(x, single).log_xt, diffusion.marginals(x, single.double()).log_xt)


def test_a_condition_counts_as_seen_without_noise():
    """At the end of time, everything else is forgotten: what is left is the conditional law of the data."""
    diffusion = oracle(uniform(1e-12), LAW, DIM)
    x = torch.tensor([[0, 2, 1]])
    given = torch.tensor([[False, True, True]])
    p = diffusion.marginals(x, times(1, 1), given=given).log_x0.exp()[0, 0]
    joint = LAW.reshape(3, 3, 3)
    torch.testing.assert_close(p, joint[:, 2, 1] / joint[:, 2, 1].sum(), rtol=1e-9, atol=0)
    blind = diffusion.marginals(x, times(1, 1)).log_x0.exp()[0, 0]
    torch.testing.assert_close(blind, joint.sum((1, 2)), rtol=1e-9, atol=0)


def test_without_noise_a_condition_makes_no_difference():
    diffusion = oracle(uniform(), LAW, DIM)
    x, _ = some_input(uniform())
    given = torch.rand(len(x), DIM, generator=seeded(4)) < 0.5
    with_it, without = (
        diffusion.marginals(x, times(0, len(x)), given=given),
        diffusion.marginals(x, times(0, len(x))),
    )
    torch.testing.assert_close(with_it.log_x0, without.log_x0, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_law_of_x_t_is_that_of_x_0_pushed_and_is_made_when_asked_for(name):
    process = process_named(name)
    diffusion = table(process, DIM)
    x, t = some_input(process)
    with torch.no_grad():
        marginals = diffusion.marginals(x, t)
    pushed = process.push(marginals.log_x0.exp(), torch.zeros_like(t), t).log()
    torch.testing.assert_close(marginals.log_xt, pushed, rtol=1e-10, atol=1e-10)
    assert marginals.log_xt is marginals.log_xt


def test_the_push_happens_once_and_only_if_needed():
    pushes = []

    def push(log_p):
        pushes.append(log_p)
        return log_p

    marginals = Marginals(None, torch.zeros(1, 2, 3), push=push)
    assert marginals.require_x0("a test").shape == (1, 2, 3)
    assert not pushes
    assert marginals.log_xt is marginals.log_xt
    assert len(pushes) == 1


def test_marginals_without_x_0_say_who_needed_it():
    marginals = Marginals(torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match="Somebody needs a model that predicts x0, but this one predicts x_t directly"):
        marginals.require_x0("Somebody")
    with pytest.raises(ValueError, match="Marginals need log_xt, or log_x0 and the push"):
        Marginals(None)


# ---- construction and checks ---------------------------------------------------------------------------------------


def test_a_diffusion_has_its_model_s_length_and_device():
    diffusion = oracle(uniform(), LAW, DIM)
    assert diffusion.length == DIM
    assert diffusion.device == torch.device("cpu")
    assert table(uniform(), DIM).to("meta").device == torch.device("meta")

    class Nothing(MarginalModel):
        length, implicit = None, False

        def forward(self, process, query):
            return Marginals(torch.zeros(*query.xt.shape, process.num_symbols))

    empty = Diffusion(uniform(), Nothing())
    assert empty.device == torch.device("cpu")
    assert empty.length is None
    assert empty.marginals(torch.zeros(2, 7, dtype=torch.int64), times(0.5, 2)).log_xt.shape == (2, 7, 3)


@pytest.mark.usefixtures("without_annotation_checks")
def test_only_a_process_and_a_model_make_a_diffusion():
    with pytest.raises(TypeError, match=r"process must be an sddm Process, but it is a str"):
        Diffusion("uniform", Oracle([[0]], [1.0]))
    with pytest.raises(TypeError, match=r"model must be an sddm MarginalModel, but it is a Linear"):
        Diffusion(uniform(), torch.nn.Linear(2, 2))


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (
            {"xt": torch.full((2, DIM), 3)},
            ValueError,
            "xt must hold tokens from 0 to 2, but it holds values from 3 to 3",
        ),
        ({"xt": torch.zeros(2, DIM)}, TypeError, "xt must be of dtype torch.int64"),
        ({"xt": torch.zeros(2, 5, dtype=torch.int64)}, ValueError, "xt has 5 positions, but the model was built for 3"),
        ({"t": torch.zeros(3)}, ValueError, "t must hold one time for each of the 2 rows"),
        ({"t": torch.tensor([0.5, 1.5])}, ValueError, r"t must lie in \[0, 1\]"),
        ({"t": torch.tensor([0.5, float("nan")])}, ValueError, "t holds NaN"),
        ({"positions": torch.tensor([[0, 0], [1, 2]])}, ValueError, "positions repeats a position"),
        ({"positions": torch.tensor([[0], [3]])}, ValueError, r"positions must lie in 0 .. 2"),
        ({"given": torch.ones(2, DIM)}, TypeError, "given must be of dtype torch.bool"),
        ({"given": torch.ones(2, 2, dtype=torch.bool)}, ValueError, "given must have shape"),
    ],
)
def test_what_marginals_cannot_be_asked(change, error, sentence):
    question = {"xt": torch.zeros(2, DIM, dtype=torch.int64), "t": torch.full((2,), 0.5), **change}
    with pytest.raises(error, match=sentence):
        oracle(uniform(), LAW, DIM).marginals(**question)


def test_a_mask_is_a_symbol_of_x_t():
    diffusion = oracle(absorbing(), LAW, DIM)
    assert diffusion.marginals(torch.full((1, DIM), 3), times(1, 1)).log_xt.shape[-1] == 4


# ---- save and load -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule_name", SCHEDULES)
@pytest.mark.parametrize("process_name", PROCESSES)
def test_what_was_saved_loads_to_the_same_marginals(process_name, schedule_name, tmp_path):
    process = process_named(process_name).with_schedule(schedule_named(schedule_name)).leaving(0.07)
    before = oracle(process, LAW, DIM)
    before.save_pretrained(tmp_path / "a" / "model")
    after = Diffusion.from_pretrained(tmp_path / "a" / "model")
    x, t = some_input(process)
    given = torch.rand(len(x), DIM, generator=seeded(5)) < 0.3
    ours, theirs = (d.marginals(x, t, given=given) for d in (before, after))
    assert torch.equal(ours.log_x0, theirs.log_x0)
    assert torch.equal(ours.log_xt, theirs.log_xt)
    assert torch.equal(before.process.prior_law(), after.process.prior_law())
    assert type(after.process) is type(process)
    assert not after.training


def test_optional_arguments_are_saved_with_the_rest(tmp_path):
    prior = [0.5, 0.25, 0.25]
    process = CustomRate(torch.tensor([[-1.0, 1.0, 0], [0, -2.0, 2.0], [3.0, 0, -3.0]]), Constant(1.0), prior=prior)
    oracle(process, LAW, DIM).save_pretrained(tmp_path)
    assert Diffusion.from_pretrained(str(tmp_path)).process.prior_law().tolist() == prior


def test_a_config_names_its_parts(saved):
    config = json.loads((saved / "config.json").read_text())
    assert config["process"]["type"] == "uniform"
    assert config["process"]["schedule"]["type"] == "log-square"
    assert config["model"]["type"] == "oracle"


def test_saving_over_an_older_model_replaces_it(saved):
    oracle(Uniform(3, LogSquare(9.0)), LAW, DIM).save_pretrained(saved)
    assert Diffusion.from_pretrained(saved).process.schedule.scale == 9.0


def test_a_model_that_no_table_names_is_refused(tmp_path):
    with pytest.raises(TypeError, match="TableModel cannot be saved: no table has a name for it"):
        Diffusion(uniform(), TableModel(uniform(), DIM)).save_pretrained(tmp_path)


def test_a_repository_of_the_hub_is_fetched(saved, monkeypatch):
    asked = []

    def fetch(name, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return str(saved)

    monkeypatch.setattr("sddm._pretrained.snapshot_download", fetch)
    assert Diffusion.from_pretrained("somebody/something").length == DIM
    Diffusion.from_pretrained("somebody/something", revision="v2")
    assert asked == [("somebody/something", r, ["config.json", "model.safetensors"]) for r in (None, "v2")]


@pytest.mark.parametrize("failure", [HFValidationError("no such name"), OSError("no network")])
def test_what_is_neither_here_nor_on_the_hub_is_named(failure, monkeypatch):
    def fetch(name, **options):
        raise failure

    monkeypatch.setattr("sddm._pretrained.snapshot_download", fetch)
    with pytest.raises(FileNotFoundError, match="'no/where' is neither a directory nor a repository"):
        Diffusion.from_pretrained("no/where")


def test_a_directory_has_no_revisions(saved):
    with pytest.raises(ValueError, match=r"is a directory: it has no revisions\. Leave it out"):
        Diffusion.from_pretrained(saved, revision="main")


def test_a_directory_without_a_config_is_no_saved_diffusion(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no config.json: it is not a saved diffusion"):
        Diffusion.from_pretrained(tmp_path)


def test_missing_weights_are_named(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no model.safetensors"):
        Diffusion.from_pretrained(saved)


def test_a_damaged_config_is_named(saved):
    (saved / "config.json").write_text('{"format": 1, ')
    with pytest.raises(ValueError, match=r"config.json is not valid JSON"):
        Diffusion.from_pretrained(saved)


@pytest.mark.parametrize("content", [[], {}, {"format": 1}, {"format": 99, "process": {}, "model": {}}])
def test_a_config_of_something_else_is_refused(saved, content):
    (saved / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not the config of a diffusion saved by this version"):
        Diffusion.from_pretrained(saved)


def test_an_unknown_type_is_named_with_the_known_ones(saved):
    config = json.loads((saved / "config.json").read_text())
    config["model"]["type"] = "crystal-ball"
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"unknown type 'crystal-ball'. Known are: .*oracle"):
        Diffusion.from_pretrained(saved)


def test_a_device_that_does_not_exist_is_named(saved):
    with pytest.raises(ValueError, match="device='toaster' is not a device"):
        Diffusion.from_pretrained(saved, device="toaster")
