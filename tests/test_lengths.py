"""Rows of different lengths: the law of their lengths, and a diffusion that has one."""

import itertools
import json

import pytest
import torch

import sddm
from enumerated import UNLIKELY, p_value, seeded, uniform
from sddm.codecs import Characters
from sddm.data import Dataset
from sddm.lengths import Lengths
from sddm.likelihood import in_order
from sddm.marginals import Energy, Hollow, LeaveOneOut, Masked, Tempered, Within
from sddm.processes import Absorbing
from sddm.schedules import SqrtCosine
from sddm.training import TrainingConfig, train

MOST = 4
SIZES = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
LAW = Lengths([3, 0, 4, 2])


def absorbing(states=2):
    return Absorbing(states, SqrtCosine(1.0)).leaving(0.1)


def ordered(law=LAW):
    """A model with random weights, which is asked from left to right."""
    process = absorbing()
    torch.manual_seed(0)
    model = Hollow(Hollow.for_process(process, law.most, film_blocks=0, **SIZES).network, ordered=True)
    for weights in model.parameters():  # as they are initialised, the logits hardly depend on the tokens
        torch.nn.init.normal_(weights, std=0.25)
    return sddm.Diffusion(process, model, lengths=law).double().eval()


def all_rows(most=MOST, states=2, pad=2):
    """Every row of every length, with PAD behind its end."""
    rows = [row for n in range(1, most + 1) for row in itertools.product(range(states), repeat=n)]
    return torch.tensor([[*row, *[pad] * (most - len(row))] for row in rows])


# ---- the law


def test_a_law_of_lengths_is_a_law_and_leaves_no_length_out():
    for counts in ([1], [0, 0, 5], [100, 0, 0, 1], [0] * 300 + [1] + [0] * 99):
        law = Lengths(counts)
        assert float(law.law.sum()) == pytest.approx(1, abs=1e-12)
        assert bool((law.law > 0).all())
        assert torch.equal(law.log_prob(torch.arange(1, law.most + 1)), law.law.log())


def test_many_rows_keep_their_histogram_and_few_rows_get_a_smooth_law():
    jagged = torch.tensor([500, 0, 1500, 0, 2000, 100, 0, 900])
    many = Lengths((10 * jagged).tolist()).law
    assert float((many - jagged / jagged.sum()).abs().max()) < 1e-4
    bell = torch.exp(-((torch.arange(60) - 30.0) ** 2) / 50)
    bell = bell / bell.sum()
    drawn = torch.multinomial(bell, 40, replacement=True, generator=seeded(0))
    histogram = torch.bincount(drawn, minlength=60) / 40
    smooth = Lengths.of(drawn + 1, 60).law
    assert float((smooth - bell).abs().sum()) < 0.5 * float((histogram - bell).abs().sum())


def test_lengths_are_drawn_from_the_law_also_given_the_least():
    uniforms = torch.rand(20_000, dtype=torch.float64, generator=seeded(0))
    assert p_value(torch.bincount(LAW.draw(uniforms) - 1, minlength=MOST), LAW.law) > UNLIKELY
    least = torch.full((20_000,), 3)
    drawn = LAW.draw(uniforms, least)
    assert int(drawn.min()) == 3
    rest = LAW.law[2:] / LAW.law[2:].sum()
    assert p_value(torch.bincount(drawn - 3, minlength=2), rest) > UNLIKELY
    ends = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert LAW.draw(ends).tolist() == [1, MOST]


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Lengths([0, 0]), ValueError, "counts must hold how many rows have each length, but it holds no row"),
        (lambda: Lengths([]), ValueError, "counts must hold how many rows have each length, but it holds no row"),
        (lambda: Lengths([1, -1]), ValueError, r"counts\[1\] must be at least 0, but it is -1"),
        (lambda: Lengths([1, 0.5]), TypeError, r"counts\[1\] must be a whole number, but it is 0\.5"),
        (lambda: Lengths.of(torch.tensor([0, 2]), 3), ValueError, "between 1 and 3, but they span 0 to 2"),
        (lambda: Lengths.of(torch.tensor([1, 4]), 3), ValueError, "between 1 and 3, but they span 1 to 4"),
        (
            lambda: sddm.Diffusion(uniform(), Hollow.for_process(uniform(), 3, **SIZES), lengths=LAW),
            ValueError,
            "lengths go up to 4, but the model was built for 3 positions",
        ),
        (
            lambda: sddm.Diffusion(uniform(), Energy.mlp(uniform(), MOST, width=8, layers=1), lengths=LAW),
            ValueError,
            "lengths were given, but Energy takes rows of one length. Use a transformer",
        ),
        (
            lambda: sddm.Diffusion(uniform(), Hollow.for_process(uniform(), 3, **SIZES), lengths=[1, 2]),
            TypeError,
            "lengths must be an sddm Lengths",
        ),
    ],
)
def test_a_law_of_lengths_that_cannot_be_is_refused(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


# ---- a diffusion that has one


def test_the_probabilities_of_all_rows_of_all_lengths_sum_to_one():
    diffusion = ordered()
    nats = in_order(diffusion, all_rows())
    assert float((-nats).exp().sum()) == pytest.approx(1, abs=1e-9)
    sizes = (all_rows() != 2).sum(1)
    for n in range(1, MOST + 1):
        assert float((-nats[sizes == n]).exp().sum()) == pytest.approx(float(LAW.law[n - 1]), abs=1e-9)


def test_samples_have_the_law_of_lengths_and_rows():
    diffusion = ordered()
    rows, x = all_rows(), sddm.sample(diffusion, 6000, generator=seeded(0))
    counts = (x[:, None] == rows).all(2).sum(0)
    assert int(counts.sum()) == 6000
    assert p_value(counts, (-in_order(diffusion, rows)).exp()) > UNLIKELY


def test_the_bound_includes_the_length_unless_something_is_given():
    diffusion = ordered()
    x0 = all_rows()[[0, 9, 20]]
    padding = x0 == diffusion.pad
    bare = sddm.Diffusion(diffusion.process, diffusion.model)
    filled = x0.masked_fill(padding, 0)
    with_length = diffusion.bound(x0, 16, generator=seeded(0)).nats
    assert torch.equal(with_length, diffusion.bound(filled, 16, padding=padding, generator=seeded(0)).nats)
    without = bare.bound(filled, 16, padding=padding, generator=seeded(0)).nats
    torch.testing.assert_close(with_length - without, -LAW.log_prob((~padding).sum(1)), rtol=0, atol=1e-12)
    given = torch.zeros_like(padding)
    given[1:, 0] = True
    told = diffusion.bound(filled, 16, padding=padding, given=given, generator=seeded(0)).nats
    assert torch.equal(told, bare.bound(filled, 16, padding=padding, given=given, generator=seeded(0)).nats)


@pytest.mark.parametrize("model", [Hollow, LeaveOneOut, Masked, Energy], ids=lambda kind: kind.__name__)
def test_what_a_model_says_of_a_row_does_not_depend_on_how_far_it_is_padded(model):
    process = uniform()
    torch.manual_seed(0)
    diffusion = sddm.Diffusion(process, model.for_process(process, MOST, **SIZES), lengths=LAW).double().eval()
    x, t = torch.tensor([[0, 1, 1]]), torch.tensor([0.4])
    whole = torch.tensor([[0, 1, 1, 0]])
    padding = torch.tensor([[False, False, False, True]])
    short = diffusion.marginals(x, t).log_xt
    torch.testing.assert_close(diffusion.marginals(whole, t, padding=padding).log_xt[:, :3], short, rtol=1e-9, atol=0)
    with pytest.raises(ValueError, match="xt has 5 positions, but the model was built for at most 4"):
        diffusion.marginals(torch.zeros(1, 5, dtype=torch.int64), t)


def test_the_law_is_saved_with_the_diffusion(tmp_path):
    diffusion = ordered()
    diffusion.save_pretrained(tmp_path)
    loaded = sddm.Diffusion.from_pretrained(tmp_path).double()
    assert loaded.lengths.counts == LAW.counts
    assert "lengths" in json.loads((tmp_path / "config.json").read_text())
    assert "1 to 4 positions" in (tmp_path / "README.md").read_text()
    x = diffusion.sample(8, seed=0)
    assert torch.equal(loaded.sample(8, seed=0), x)
    assert "lengths" not in sddm.Diffusion(diffusion.process, diffusion.model).config()


def test_a_changed_model_keeps_the_lengths():
    assert ordered().with_model(Tempered(ordered().model, 2.0)).lengths.counts == LAW.counts
    x = ordered().sample(400, seed=0, temperature=0.5)
    assert p_value(torch.bincount((x != 2).sum(1) - 1, minlength=MOST), LAW.law) > UNLIKELY


def test_a_support_holds_for_rows_of_every_length():
    """Only 0 at even positions, only 1 at odd ones."""
    support = torch.eye(2, dtype=torch.bool).repeat(2, 1)
    x = ordered().with_model(Within(ordered().model, support)).sample(40, seed=0)
    assert set((x != 2).sum(1).tolist()) == {1, 3, 4}
    assert torch.equal(x[x != 2], (torch.arange(MOST) % 2).expand(40, MOST)[x != 2])


def test_a_sample_reaches_as_far_as_a_range_that_is_asked_of_it():
    only_one = torch.tensor([0.0, 1.0], dtype=torch.float64)
    nothing = torch.zeros(MOST, dtype=torch.bool)
    asked = sddm.Condition(nothing, torch.zeros(MOST, dtype=torch.int64), {2: only_one})
    diffusion = ordered()
    made = [diffusion.sample(60, seed=0, condition=asked), diffusion.sample(3, length=[3, 4, 4], condition=asked)]
    steered = sddm.samplers.steer(diffusion, 20, lambda x: x[:, 0].double(), particles=2, condition=asked)
    for x in (*made, steered.tokens):
        assert bool((x[:, 2] == 1).all())
    assert set((made[0] != 2).sum(1).tolist()) == {3, 4}
    with pytest.raises(ValueError, match=r"a range at position 2, which some samples do not have"):
        diffusion.sample(2, length=[4, 2], condition=asked)


def test_training_on_rows_of_different_lengths_lowers_their_exact_nats():
    """Rows of 'a' alone, of 2 or 5 characters: with p(length) and certain characters each has log 2 nats."""
    data = Dataset(*Characters.of_alphabet("ab", ["aa", "aaaaa"] * 64, lengths="separate"))
    diffusion = sddm.fit(data, steps=60, batch_size=16, width=16, layers=1, held_out=0.2, progress=False)
    nats = in_order(diffusion, data.tokens[:2])
    assert float(nats.mean()) == pytest.approx(0.693, abs=0.1)
    assert {len(line) for line in diffusion.decode(diffusion.sample(20, seed=0))} == {2, 5}


@pytest.mark.usefixtures("without_annotation_checks")
def test_rows_are_cut_to_the_longest_of_their_batch():
    widths = []
    data = Dataset(*Characters.of_rows(["ab" * n for n in range(1, 9)] * 8, "x", lengths="separate"))
    diffusion = sddm.recipe.ModelConfig(**SIZES).build(data)
    diffusion.register_forward_hook(lambda module, asked, answer: widths.append(asked[0].xt.shape[1]))
    train(diffusion, data, TrainingConfig(8, 8, num_positions=5, known="spans:3+mask:15"), progress=False)
    assert sorted(widths) == list(range(2, 17, 2))
