"""Labels: a vector beside the time in every transformer, dropped for a share of the rows in training."""

import json

import numpy as np
import pytest
import torch

import sddm
from enumerated import absorbing, seeded, uniform
from sddm import Diffusion, sample
from sddm.cli import main
from sddm.codecs import Integers
from sddm.data import Dataset, load
from sddm.marginals import Energy, Hollow, LeaveOneOut, Masked
from sddm.networks import Sizes
from sddm.noising import Batch
from sddm.query import NO_LABEL, Query
from sddm.recipe import ModelConfig, suited
from sddm.training import DiffusionLearner, TrainingConfig, train

LENGTH, LABELS = 4, 3
SMALL = {"width": 8, "layers": 1, "heads": 2, "mlp": 8, "num_labels": LABELS}
FAMILIES = {
    "hollow": (Hollow, {}),
    "hollow, plain readout": (Hollow, {"film_blocks": 0}),
    "hollow, joint attention": (Hollow, {"joint_attention": True}),
    "masked": (Masked, {}),
    "masked, plain readout": (Masked, {"film_blocks": 0}),
    "leave-one-out": (LeaveOneOut, {}),
    "energy": (Energy, {}),
}


def told(make=Hollow, process=None, names=None, ordered=False, **options):
    torch.manual_seed(0)
    process = process or uniform()
    model = make.for_process(process, LENGTH, **{**SMALL, **options})
    model = Hollow(model.network, ordered=True) if ordered else model
    for name, weights in model.named_parameters():
        if weights.ndim > 1 and "vectors" not in name:  # as they are initialised, the logits hardly depend on anything
            torch.nn.init.normal_(weights, std=0.4)
    return Diffusion(process, model, label_names=names).eval()


def rows(num, symbols=3):
    return torch.randint(symbols, (num, LENGTH), generator=seeded(1))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_label_moves_every_prediction_and_no_label_is_one_of_its_own(family):
    make, options = FAMILIES[family]
    diffusion, x, t = told(make, **options), rows(4), torch.full((4,), 0.5, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, NO_LABEL])
    with torch.no_grad():
        p = diffusion(Query(x, t, label=labels)).log_x0
        nothing = diffusion.marginals(x, t).log_x0
        for row, label in enumerate(labels.tolist()):
            others = [diffusion(Query(x, t, label=torch.full_like(labels, other))).log_x0 for other in (0, 1, 2, -1)]
            torch.testing.assert_close(p[row], others[label][row], rtol=0, atol=1e-6)
            moved = [(p[row] - other[row]).abs().amax(-1) for n, other in enumerate(others) if n != label % 4]
            assert bool((torch.stack(moved) > 2e-5).all())  # twenty times the rounding of the logits
    torch.testing.assert_close(p[3], nothing[3], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "leave-one-out"])
def test_with_labels_the_prediction_at_a_position_does_not_look_at_its_token(family):
    make, options = FAMILIES[family]
    diffusion, x, t = told(make, **options), rows(4), torch.full((4,), 0.5, dtype=torch.float64)
    labels, moved = torch.tensor([0, 1, 2, 0]), x.clone()
    moved[:, 2] = (moved[:, 2] + 1) % 3
    with torch.no_grad():
        one, other = (diffusion.marginals(some, t, label=labels).log_x0 for some in (x, moved))
    torch.testing.assert_close(one[:, 2], other[:, 2], rtol=0, atol=1e-6)
    assert not torch.allclose(one[:, 1], other[:, 1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("joint", [False, True])
def test_rows_of_several_labels_are_sampled_in_order_as_each_by_itself(joint):
    """From left to right, the right stream runs once over rows that are alike: alike in their label, too."""
    diffusion = told(process=absorbing(), ordered=True, joint_attention=joint)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 1, 0] * 4)
    together, alone = (sample(diffusion, 32, labels=labels, generator=seeded(0), batch_size=n) for n in (32, 1))
    assert torch.equal(together, alone)
    assert not torch.equal(together, sample(diffusion, 32, generator=seeded(0)))


def test_a_network_without_labels_has_the_weights_and_the_description_that_it_had_before():
    diffusion = told(num_labels=0)
    assert not any("label" in name for name in diffusion.state_dict())
    assert "num_labels" not in json.dumps(diffusion.config())
    assert "label_names" not in diffusion.config()
    assert diffusion.config()["model"]["network"]["sizes"].keys() == {
        "type",
        *(Sizes.__dataclass_fields__.keys() - {"num_labels"}),
    }
    assert Diffusion.from_config(diffusion.config()).model.num_labels == 0


def test_a_model_of_labels_is_saved_with_their_number_and_their_names(tmp_path):
    diffusion = told(names=["cat", "dog", "cow"])
    diffusion.save_pretrained(tmp_path)
    again = Diffusion.from_pretrained(tmp_path)
    assert (again.label_names, again.model.num_labels) == (["cat", "dog", "cow"], 3)
    x, t, labels = rows(3), torch.full((3,), 0.5), torch.tensor([2, 0, 1])
    with torch.no_grad():
        one, other = (made.marginals(x, t, label=labels).log_xt for made in (diffusion, again))
    assert torch.equal(one, other)
    assert "Labels: 3: cat, dog, cow" in (tmp_path / "README.md").read_text()


def test_a_share_of_the_rows_is_learnt_without_its_label_by_draws_for_the_whole_batch():
    num, share = 4000, 0.25
    learner = DiffusionLearner(told(), TrainingConfig(1, num, label_dropout=share))
    labels = torch.arange(num) % LABELS
    batch = Batch(rows(num), labels=labels)
    drawn, again = (learner.draw(batch, seeded(0)) for _ in range(2))
    assert torch.equal(drawn.query.label, again.query.label)
    dropped = drawn.query.label == NO_LABEL
    assert torch.equal(drawn.query.label[~dropped], labels[~dropped])
    assert abs(float(dropped.double().mean()) - share) < 4 * (share * (1 - share) / num) ** 0.5
    plain = DiffusionLearner(told(), TrainingConfig(1, num, label_dropout=0.0)).draw(batch, seeded(0))
    assert torch.equal(plain.query.xt, drawn.query.xt)  # the draws of the noise come first
    assert torch.equal(plain.query.label, labels)


def labelled(num=600):
    labels = torch.arange(num) % LABELS
    return Dataset(labels[:, None].expand(-1, LENGTH).clone(), Integers(3), labels=labels)


@pytest.mark.usefixtures("at_full_speed")
def test_a_model_learns_what_its_labels_mean_and_without_one_the_law_of_all_data():
    """Rows whose tokens are all their label. Without looking at the label, a third of the tokens would be right."""
    options = {"width": 16, "layers": 1, "heads": 2, "mlp": 32, "learning_rate": 1e-2, "batch_size": 64}
    model = sddm.fit(labelled(), steps=120, progress=False, film_blocks=0, **options)
    assert model.model.num_labels == LABELS
    labels = torch.arange(150) % LABELS
    right = (model.sample(150, labels=labels, steps=20, seed=0) == labels[:, None]).all(1)
    assert float(right.double().mean()) > 1 / 3 + 4 * (2 / 9 / 150) ** 0.5
    assert (model.sample(150, steps=20, seed=0)[:, 0].bincount(minlength=3) > 0).all()
    x0 = labels[:60, None].expand(-1, LENGTH).clone()
    given, free = model.bound(x0, 8, labels=labels[:60]).mean, model.bound(x0, 8).mean
    assert given[0] + 4 * (given[1] + free[1]) < free[0]


def test_transformers_are_told_the_labels_of_the_data_unless_they_are_left_out():
    data, training = labelled(), TrainingConfig()
    sizes = {"width": 8, "layers": 1}

    def labels_of(data=data, training=training, **options):
        model, _ = suited(ModelConfig(**sizes, **options), training, data)
        return model.build(data).model.num_labels

    assert [labels_of(model=name) for name in ("hollow", "masked", "leave-one-out", "energy")] == [LABELS] * 4
    assert labels_of(labels=False) == labels_of(model="mlp-energy") == 0
    assert labels_of(training=TrainingConfig(pool=128)) == 0
    assert labels_of(Dataset(data.tokens, Integers(3))) == 0
    with pytest.raises(ValueError, match="labels were asked for, but tokens has none"):
        labels_of(Dataset(data.tokens, Integers(3)), labels=True)
    with pytest.raises(ValueError, match="labels are for transformers"):
        ModelConfig(model="mlp-energy", labels=True)


def test_a_part_of_the_data_knows_all_labels():
    data = Dataset(torch.zeros(5, 2, dtype=torch.int64), Integers(2), labels=[0, 0, 0, 0, 7])
    assert [part.num_labels for part in data.split(0.4, seed=0)] == [8, 8]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, -1], None, "labels of tokens must lie between 0 and 999999, but they span -1 to 0"),
        ([0, 2], ["a", "b"], "labels of tokens go up to 2, but label_names has only 2 names"),
    ],
)
def test_labels_of_data_that_cannot_be_are_refused(labels, names, message):
    with pytest.raises(ValueError, match=message):
        Dataset(torch.zeros(2, 2, dtype=torch.int64), Integers(2), labels=labels, label_names=names)


@pytest.mark.parametrize("call", ["sample", "marginals", "bound", "in_order", "train"])
def test_a_label_that_the_model_does_not_know_is_refused_in_a_sentence(call):
    diffusion, untold = told(process=absorbing()), told(process=absorbing(), num_labels=0)
    x, labels = rows(2), torch.tensor([0, LABELS])

    def run(model):
        match call:
            case "sample":
                model.sample(2, labels=labels, steps=2)
            case "marginals":
                model.marginals(x, torch.ones(2), label=labels)
            case "bound":
                model.bound(x, 8, labels=labels)
            case "in_order":
                sddm.likelihood.in_order(model, x, labels=labels)
            case "train":
                train(model, lambda step: Batch(x, labels=labels), TrainingConfig(1, 2), progress=False)

    with pytest.raises(ValueError, match="must lie between 0 and 2, the labels that the model knows, but they hold 3"):
        run(diffusion)
    if call == "train":  # a model without labels does not look at them
        run(untold)
    else:
        with pytest.raises(ValueError, match=r"were given, but the model was trained without labels\. Leave them out"):
            run(untold)


# ---- from the command line -----------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, at_full_speed):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", rows=np.arange(60)[:, None] % 3 + np.zeros((1, 4), int), labels=np.arange(60) % 3)
    main(["train", "--data", "data.npz", "--width", "8", "--layers", "1", "--steps", "2", "--batch-size", "8"])
    assert "3 states, 3 labels." in capsys.readouterr().err
    return "runs/data"


def test_samples_of_a_label_are_asked_for_by_its_number(run, capsys):
    def made(*options):
        main(["sample", run, "--num", "8", "--steps", "2", *options])
        return capsys.readouterr().out

    assert made("--label", "1") == made("--label", "1") != made("--label", "2")
    assert made("--label", "1", "--guidance", "3") != made("--label", "1")
    main(["evaluate", run, "--rows", "4", "--num-times", "8", "--samples", "4", "--steps", "2"])
    assert "(4 rows, given their labels)" in capsys.readouterr().out
    for options, message in (
        (["--label", "3"], "label is '3', but the model knows 0 to 2."),
        (["--label", "cat"], "label is 'cat', but the model knows 0 to 2."),
        (["--guidance", "2"], "guidance is 2, but there is no label to follow. Name one with --label."),
    ):
        with pytest.raises(SystemExit):
            made(*options)
        assert message in capsys.readouterr().err


def test_labels_may_be_left_out_and_then_none_can_be_asked_for(run, capsys):
    main(["train", "--data", "data.npz", "--out", "plain", "--labels", "False", "--width", "8", "--steps", "1"])
    for options, message in (
        (["--label", "1"], "label was given, but this model was trained without labels"),
        (["--label", "1", "--guidance", "2"], "guidance needs a model that was trained with labels"),
    ):
        with pytest.raises(SystemExit):
            main(["sample", "plain", *options])
        assert message in capsys.readouterr().err


def test_labels_have_the_names_of_the_folders(tmp_path, capsys, at_full_speed):
    from PIL import Image

    for number in range(8):
        folder = tmp_path / "photos" / ("night" if number % 2 else "day")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2), 30 * number, np.uint8)).save(folder / f"{number}.png")
    data, out = str(tmp_path / "photos"), str(tmp_path / "run")
    assert load(data, size=2).label_names == ["day", "night"]
    options = ["--size", "2", "--levels", "2", "--width", "8", "--layers", "1", "--steps", "1", "--batch-size", "4"]
    main(["train", "--data", data, "--out", out, *options])
    made = []
    for label in ("night", "1"):
        main(["sample", out, "--label", label, "--steps", "2", "--num", "4", "--out", str(tmp_path / f"{label}.npy")])
        made.append(np.load(tmp_path / f"{label}.npy"))
    assert np.array_equal(*made)
    with pytest.raises(SystemExit):
        main(["sample", out, "--label", "dusk"])
    assert "label is 'dusk', but the model knows 0 to 1, called 'day', 'night'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.arange(3), r"'labels' of .* has shape \(3,\), but it must hold one number for each of the 4 rows")],
)
def test_labels_of_an_array_must_fit_its_rows(tmp_path, labels, message):
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 2), int), labels=labels)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "data.npz")
