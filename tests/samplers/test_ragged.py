"""Samples of different lengths: their lengths, which of them are drawn together, and that this changes nothing."""

import pytest
import torch

import sddm
from enumerated import UNLIKELY, p_value, seeded
from sddm import Condition
from sddm.lengths import Lengths
from sddm.samplers import (
    Analytical,
    Confident,
    Corrector,
    Euler,
    Exact,
    FirstHitting,
    InOrder,
    Lazy,
    TauLeaping,
    Trajectory,
)
from sddm.samplers.rewards import OfLaw, OfNoised, OfPrediction
from sddm.samplers.steer import steer
from test_lengths import LAW, ordered

LONG = Lengths([1] * 40)


@pytest.fixture(scope="module")
def long():
    return ordered(LONG)


def ends(x, diffusion):
    """The lengths of rows; PAD stands behind their ends only."""
    lengths = (x != diffusion.pad).sum(1)
    assert torch.equal(x == diffusion.pad, torch.arange(x.shape[1]) >= lengths[:, None])
    return lengths


@pytest.mark.parametrize(
    "sampler",
    [Analytical(), Euler(), TauLeaping(), Lazy(Analytical()), Exact(), Confident(), FirstHitting(), InOrder()],
    ids=lambda step: type(step).__name__,
)
def test_the_same_seed_gives_the_same_samples_at_any_batch_size(sampler, long):
    options = {"steps": 4, "sampler": sampler, "corrector": Corrector() if sampler == Euler() else None}
    together = long.sample(12, seed=3, **options)
    lengths = ends(together, long)
    assert len(lengths.unique()) > 4
    for size in (1, 5):
        assert torch.equal(long.sample(12, seed=3, batch_size=size, **options), together)
    seeds = sddm.randomness.draw_seeds(12, seeded(3))
    assert torch.equal(long.sample(4, seeds=seeds[8:], **options), together[8:])


def test_rows_of_similar_length_are_drawn_together_and_no_wider_than_they_need(long):
    asked = []
    hook = long.register_forward_hook(lambda module, args, answer: asked.append(args[0]))
    lengths = ends(long.sample(64, seed=0, steps=2, sampler=Analytical()), long)
    hook.remove()
    for query in asked:
        own = (~query.padding).sum(1)
        assert query.xt.shape[1] - int(own.min()) < 10  # one of four widths of up to 40 positions
    assert sum(len(query.xt) for query in asked if query.t[0] == 1) >= 64
    assert len({query.xt.shape[1] for query in asked}) == len({-(-n // 10) for n in lengths.tolist()})


def test_what_is_kept_between_questions_does_not_change_rows_of_different_lengths(long):
    def forget(network, args):
        return (args[0]._replace(memory=None),)

    kept = long.sample(10, seed=0)
    hook = long.model.network.register_forward_pre_hook(forget)
    assert torch.equal(long.sample(10, seed=0), kept)
    hook.remove()


@pytest.mark.parametrize("sampler", [InOrder(), Confident()], ids=lambda step: type(step).__name__)
def test_a_row_takes_an_evaluation_for_each_of_its_positions_and_none_behind_its_end(sampler, long):
    asked = []
    hook = long.register_forward_hook(lambda module, args, answer: asked.append(args[0].xt.shape[1]))
    long.sample(1, seed=0, sampler=sampler, length=7)
    assert len(asked) == 7
    long.sample(3, seed=0, sampler=sampler, length=[15, 1, 12])  # in widths 15, 4 and 12
    assert [asked[7:].count(width) for width in (4, 12, 15)] == [1, 12, 15]
    hook.remove()


def test_a_length_that_is_asked_for_is_that_of_the_sample(long):
    x = long.sample(3, seed=0, length=7)
    assert x.shape == (3, 7)
    assert ends(x, long).tolist() == [7, 7, 7]
    for asked in ([2, 9, 1], torch.tensor([2, 9, 1])):
        x = long.sample(3, seed=0, length=asked)
        assert x.shape == (3, 9)
        assert ends(x, long).tolist() == [2, 9, 1]


def test_a_drawn_length_holds_what_is_given():
    diffusion = ordered()
    known = torch.full((4000, LAW.most), -1)
    known[:2000, 2], known[2000:, 0] = 1, 0
    x = diffusion.sample(4000, seed=0, condition=Condition.from_blanks(known))
    lengths = ends(x, diffusion)
    assert bool((x[:2000, 2] == 1).all())
    assert bool((x[2000:, 0] == 0).all())
    given_three = LAW.law[2:] / LAW.law[2:].sum()
    assert p_value(torch.bincount(lengths[:2000] - 3, minlength=2), given_three) > UNLIKELY
    assert p_value(torch.bincount(lengths[2000:] - 1, minlength=LAW.most), LAW.law) > UNLIKELY


def test_a_callback_sees_every_sample_with_its_end(long):
    path = Trajectory()
    x = long.sample(9, seed=0, steps=3, sampler=Analytical(), callback=path, batch_size=2)
    assert path.tokens.shape == (4, 9, 40)
    assert torch.equal(path.tokens[-1], x)
    for tokens in path.tokens:
        assert torch.equal(tokens[ends(x, long) < 40, -1], torch.full((int((ends(x, long) < 40).sum()),), long.pad))


@pytest.mark.parametrize("kind", [OfPrediction, OfNoised, OfLaw], ids=lambda kind: kind.__name__)
def test_steering_reaches_the_lengths_as_well(kind):
    """r(x) = log 3 if the row has the length 1: p(n) becomes p(n) 3^[n = 1] / Z."""
    diffusion = ordered()

    def reward(asked):
        if asked.ndim == 3:  # a law says nothing of the end: every row gets the same
            return asked.new_zeros(len(asked))
        return torch.where(asked[:, 1] == diffusion.pad, torch.tensor(3.0).log(), 0.0)

    made = steer(diffusion, 1500, kind(reward), particles=16, steps=4, sampler=Analytical(), generator=seeded(0))
    factor = torch.tensor([1.0 if kind is OfLaw else 3.0, 1, 1, 1], dtype=torch.float64)
    if kind is OfNoised:  # MASK and PAD are one number, so that the reward is right at the end only
        made = steer(diffusion, 1500, kind(reward), particles=16, steps=1, sampler=Analytical(), generator=seeded(0))
    law = LAW.law * factor
    assert float(made.log_z.exp().mean()) == pytest.approx(float(law.sum()), rel=0.05)
    counts = torch.bincount(ends(made.tokens, diffusion) - 1, minlength=LAW.most)
    # Sixteen particles leave a bias of the order of 1 / 16 of the change.
    assert float((counts / 1500 - law / law.sum()).abs().max()) < 0.05


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("length", "error", "sentence"),
    [
        (0, ValueError, "length must be at least 1, but it is 0"),
        (5, ValueError, r"length is 5, but the model was built for at most 4 positions"),
        ([1, 5, 1], ValueError, r"length is 5, but the model was built for at most 4 positions"),
        ([1, 2], ValueError, r"one for each of the 3 samples, but it is of torch.int64 and shape \(2,\)"),
        ([1, 0, 2], ValueError, "length must be at least 1, but it is 0"),
        (torch.tensor([1, 0, 2]), ValueError, "length must be a whole number of at least 1"),
        (torch.tensor([1.0, 2, 2]), ValueError, "but it is of torch.float32"),
        (2.5, TypeError, "length must be a whole number, or one for each sample, but it is 2.5"),
    ],
)
def test_a_length_that_cannot_be_is_refused(length, error, sentence):
    with pytest.raises(error, match=sentence):
        ordered().sample(3, length=length)


def test_one_length_for_each_sample_needs_a_model_of_different_lengths():
    plain = ordered()
    plain.lengths = None
    with pytest.raises(ValueError, match="the model was trained on rows of one length"):
        plain.sample(2, length=[2, 4])


def test_a_condition_that_lies_behind_the_length_is_refused():
    known = Condition.from_blanks(torch.tensor([-1, -1, 1]))
    with pytest.raises(ValueError, match="positions that padding says do not exist"):
        ordered().sample(2, length=[2, 3], condition=known)
