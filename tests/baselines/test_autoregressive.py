"""The left-to-right model is a law with an exact likelihood, draws from it, and learns by the common loop."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from scipy import stats

from enumerated import random_law, seeded
from sddm.baselines import Autoregressive, AutoregressiveLearner
from sddm.codecs import Columns
from sddm.data import Dataset
from sddm.networks import Sizes
from sddm.noising import Batch
from sddm.training import Epochs, TrainingConfig, learn

STATES, DIM = 3, 4
TINY = Sizes(width=16, layers=2, heads=2, mlp=16, input_gain=20.0)
"""With large initial vectors, so that an untrained model is far from uniform."""
SPACE = torch.tensor(list(product(range(STATES), repeat=DIM)))
FLOAT32 = 1e-5
"""Sums of a few float32 numbers of order 1."""


def model(seed=0, **options):
    torch.manual_seed(seed)
    return Autoregressive(STATES, DIM, TINY, **options)


def test_the_probabilities_of_all_rows_sum_to_one():
    law = model().log_prob(SPACE).exp()
    assert float(law.sum()) == pytest.approx(1, abs=FLOAT32)
    assert float(law.max() / law.min()) > 2


def test_no_factor_sees_its_own_position_or_a_later_one():
    made, x = model(), SPACE[[5, 40, 71]]
    before = made(x)
    for d, other in product(range(DIM), range(STATES)):
        changed = x.clone()
        changed[:, d] = other
        assert torch.equal(made(changed)[:, : d + 1], before[:, : d + 1])
    assert not torch.equal(made(x.flip(0)), before)


def test_samples_have_the_law_of_the_model():
    made, num = model(), 20_000
    samples = made.sample(num, seeded(1))
    cells = (samples * STATES ** torch.arange(DIM - 1, -1, -1)).sum(1)
    counts = torch.bincount(cells, minlength=STATES**DIM).double()
    expected = num * made.log_prob(SPACE).exp()
    assert stats.chisquare(counts.numpy(), (expected * counts.sum() / expected.sum()).numpy()).pvalue > 1e-4


def test_a_prefix_is_kept_and_the_rest_has_the_conditional_law():
    made, num = model(), 10_000
    samples = made.sample(num, seeded(2), prefix=torch.tensor([[2, 0]]).expand(num, -1))
    assert bool((samples[:, :2] == torch.tensor([2, 0])).all())
    rest = SPACE[(SPACE[:, 0] == 2) & (SPACE[:, 1] == 0)]
    law = made.log_prob(rest).softmax(0)
    counts = torch.stack([(samples == row).all(1).sum() for row in rest]).double()
    assert stats.chisquare(counts.numpy(), (num * law).numpy()).pvalue > 1e-4


def test_samples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    one = model().sample(7, seeded(0))
    monkeypatch.setattr("sddm.baselines.autoregressive.ROWS", 2)
    assert torch.equal(model().sample(7, seeded(0)), one)


def test_a_low_temperature_gives_the_likeliest_continuation():
    made = model()
    sample = made.sample(3, seeded(0), temperature=1e-4)
    assert torch.equal(made(sample).argmax(-1), sample)


def test_padding_at_the_end_counts_nothing():
    made, x = model(), SPACE[[5, 40]]
    padding = torch.arange(DIM) >= torch.tensor([[2], [4]])
    nats = made.log_prob(x, padding)
    assert float(nats[0]) == pytest.approx(-made.surprise(x)[0, :2].sum().item(), abs=FLOAT32)
    assert float(nats[1]) == pytest.approx(float(made.log_prob(x)[1]), abs=FLOAT32)
    short = torch.cat([x[:1, :2], torch.tensor([[2, 2]])], dim=1)
    assert float(made.log_prob(short, padding[:1])) == pytest.approx(float(nats[0]), abs=FLOAT32)


def test_positions_of_a_table_have_their_own_numbers_of_values():
    made = model(values=[3, 1, 2, 3])
    assert int(made.sample(200, seeded(0)).amax(0)[1]) == 0
    possible = (torch.tensor([3, 1, 2, 3]) > SPACE).all(1)
    law = made.log_prob(SPACE).exp()
    assert float(law[possible].sum()) == pytest.approx(1, abs=FLOAT32)
    assert float(law[~possible].sum()) == 0
    columns = Columns(["a", "b"], [["x", "y", "z"], ["x", "y"]])
    assert Autoregressive.for_data(Dataset(torch.zeros(2, 2).long(), columns), TINY).possible.sum(1).tolist() == [3, 2]


def rows(num, seed):
    law = random_law(STATES, DIM, 0, impossible=40)
    return law, SPACE[torch.multinomial(law, num, replacement=True, generator=seeded(seed))]


def test_it_learns_a_law_nearly_to_its_entropy(at_full_speed):
    law, data = rows(20_000, 0)
    data = Dataset.from_tokens(data, STATES)
    config = TrainingConfig(steps=400, batch_size=128, learning_rate=1e-2)
    learner = AutoregressiveLearner(Autoregressive.for_data(data, TINY), config)
    made = learn(learner, Epochs(data, config.batch_size), config, progress=False)
    support = law > 0
    entropy = float(-(law[support] * law[support].log()).sum())
    divergence = float((law[support] * (law[support].log() - made.log_prob(SPACE[support]))).sum())
    assert divergence < 0.05 * (math.log(len(SPACE)) - entropy)  # that of a model that learnt nothing


def test_a_training_goes_on_as_if_it_had_not_stopped_and_its_held_out_figure_is_the_exact_one(tmp_path):
    _, data = rows(60, 0)
    data = Dataset.from_tokens(data, STATES)

    def trained(steps, out=None):
        config = TrainingConfig(steps=8, batch_size=10, decay="constant", warmup=0.0, evaluate_every=8)
        learner = AutoregressiveLearner(Autoregressive.for_data(data, TINY), config, held_out=data)
        config = replace(config, steps=steps)
        made = learn(learner, Epochs(data, 10), config, out=out, resume=out is not None, progress=False)
        return made, learner

    whole, learner = trained(8)
    trained(5, tmp_path)
    again, _ = trained(8, tmp_path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())
    with learner.averaged():
        figures = learner.evaluate()
    assert figures["held_out_nats"] == pytest.approx(float(-whole.log_prob(data.tokens[:]).mean()), rel=1e-6)


def test_bad_arguments_are_answered_by_one_sentence(without_annotation_checks):
    made = model()
    for make, match in (
        (lambda: made.log_prob(torch.full((1, DIM), STATES)), "x must hold tokens from 0 to 2"),
        (lambda: made.sample(2, prefix=torch.zeros(1, 2).long()), "prefix must give at most 4 tokens for each of 2"),
        (lambda: made.sample(0), "num must be at least 1"),
        (lambda: Autoregressive(STATES, DIM, TINY, values=[3]), "values must have one entry for each of the 4"),
        (lambda: AutoregressiveLearner(made, TrainingConfig()).draw(Batch(torch.zeros(1, 2).long()), None), "rows"),
    ):
        with pytest.raises(ValueError, match=match):
            make()
