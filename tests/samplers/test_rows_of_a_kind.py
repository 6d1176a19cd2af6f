"""What is known of a sample before it is drawn: its class, and which of its positions exist."""

import pytest
import torch

from enumerated import (
    UNLIKELY,
    TableModel,
    Watched,
    analytical_laws,
    counts_of,
    law_after,
    p_value,
    seeded,
    start_law,
    table,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.marginals import Hollow, Restricted
from sddm.samplers import Corrector, Euler, Exact, Lazy, Sweep, TauLeaping, Trajectory, uniform_in_share

PADDING = torch.tensor([[False, False, False], [False, False, True], [True, True, False], [False, True, True]])
LABELS = torch.tensor([3, 0, 1, 2])


@pytest.mark.parametrize(
    "sampler", [None, Euler(), TauLeaping(), Lazy(), Sweep(), Exact()], ids=lambda step: type(step).__name__
)
def test_padded_positions_hold_0_at_all_times_and_the_model_is_told_rows_and_classes(sampler):
    watched, path = Watched(TableModel(uniform(), 3)), Trajectory()
    options = {"corrector": Corrector(), "callback": path, "batch_size": 2, "padding": PADDING, "labels": LABELS}
    x = sample(Diffusion(uniform(), watched), 4, 3, sampler, generator=seeded(0), **options)
    assert not path.tokens[:, PADDING].any()
    assert torch.equal(x, path.tokens[-1])
    assert path.tokens[:, ~PADDING].any()
    for call in watched.asked:  # some steps ask about some of the rows only
        rows = [LABELS.tolist().index(label) for label in call["label"].tolist()]
        assert torch.equal(call["padding"], PADDING[rows])


@pytest.mark.usefixtures("without_annotation_checks")
def test_a_padded_sample_has_the_law_of_the_shorter_one():
    torch.manual_seed(0)
    process = uniform()
    model = Hollow.for_process(process, width=8, layers=1, heads=2, mlp=8)
    diffusion = Diffusion(process, model).double().eval()
    for weights in model.parameters():  # as they are initialised, the logits hardly depend on the tokens
        torch.nn.init.normal_(weights, std=0.25)
    padding = torch.tensor([False, False, True]).expand(4000, -1)
    x = sample(diffusion, 4000, 3, generator=seeded(1), length=3, padding=padding)
    law = law_after(analytical_laws, diffusion, start_law(diffusion, 2), uniform_in_share(process, 3), 2)
    assert float(law.max()) < 0.5
    assert p_value(counts_of(x[:, :2], 3), law) > UNLIKELY


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"labels": LABELS.double()}, TypeError, "labels must be of dtype torch.int64"),
        ({"labels": LABELS[:3]}, ValueError, r"labels must have shape \(4,\), but they have \(3,\)"),
        ({"labels": LABELS - 1}, ValueError, "labels must not be negative, but they hold -1"),
        ({"padding": PADDING[:, :2]}, ValueError, r"padding must have shape \(4, 3\)"),
        ({"padding": PADDING | PADDING[1:2] | PADDING[2:3]}, ValueError, "padding leaves nothing of some samples"),
        (
            {"padding": PADDING, "condition": Condition.from_blanks(torch.tensor([-1, 1, -1]))},
            ValueError,
            "positions that padding says do not exist",
        ),
    ],
)
def test_what_cannot_be_known_of_a_sample_is_refused(options, error, sentence):
    with pytest.raises(error, match=sentence):
        sample(table(uniform(), 3), 4, 2, **options)


def test_the_end_of_sampling_leaves_a_given_value_that_its_position_should_not_have():
    diffusion = Diffusion(uniform(), Restricted(TableModel(uniform(), 3), [2, 3, 1]))
    known = Condition.from_blanks(torch.tensor([2, -1, -1]))
    x = sample(diffusion, 20, 3, Euler(), condition=known, generator=seeded(0))
    assert bool((x[:, 0] == 2).all())
    assert not x[:, 2].any()
