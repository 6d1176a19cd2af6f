"""A table with columns of 2, 5 and 300 categories is learnt, and how association is measured."""

import math

import pytest
import torch
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association

import sddm
from enumerated import seeded
from sddm.codecs import Columns
from sddm.data import Dataset
from sddm.metrics import cramers_v
from sddm.samplers import Sweep


def table(num):
    """Towns of very different sizes in five regions; the region mostly follows from the town, the answer from it."""
    generator = seeded(0)
    town = torch.multinomial(1 / torch.arange(1, 301).double(), num, replacement=True, generator=generator)
    moved = torch.rand(num, generator=generator) < 0.2
    region = torch.where(moved, torch.randint(5, (num,), generator=generator), town % 5)
    answer = torch.rand(num, generator=generator) < 0.1 + 0.2 * region
    names = [["no", "yes"], [f"region {i}" for i in range(5)], [f"town {i}" for i in range(300)]]
    tokens = torch.stack([answer.long(), region, town], dim=1)
    return Dataset(tokens, Columns(["answer", "region", "town"], names), name="survey")


@pytest.mark.usefixtures("at_full_speed")
def test_a_table_of_categories_is_learnt_with_its_associations_and_no_impossible_value():
    """Measured on as many rows of data as there are samples: V itself is lower for fewer rows of 300 towns."""
    data = table(20_000)
    sizes = {"width": 32, "layers": 1, "heads": 2, "mlp": 64, "film_blocks": 1}
    training = {"steps": 300, "batch_size": 256, "learning_rate": 1e-2, "pool": 512, "evaluate_every": 10**9}
    model = sddm.fit(data, held_out=0.02, **sizes, **training, progress=False)
    made = model.sample(5_000, steps=12, sampler=Sweep(), seed=0, progress=False)
    truth = cramers_v(data.tokens[: len(made)])
    assert truth[0, 1] > 0.5
    assert truth[1, 2] > 0.7
    assert float((cramers_v(made) - truth).abs().max()) < 0.05
    assert bool((made.max(dim=0).values <= torch.tensor([1, 4, 299])).all())
    rows = model.decode(made)
    assert {row[0] for row in rows} == {"no", "yes"}
    assert {row[1] for row in rows} == {f"region {i}" for i in range(5)}


# ---- Cramer's V ----------------------------------------------------------------------------------------------------


def test_without_its_correction_association_is_that_of_scipy():
    """The correction subtracts a known amount from phi^2 and from the numbers of rows and columns."""
    tokens = table(3_000).tokens[:][:, :2]
    counts = torch.bincount(tokens[:, 0] * 5 + tokens[:, 1], minlength=10).reshape(2, 5)
    num = len(tokens)
    phi2 = chi2_contingency(counts.numpy(), correction=False).statistic / num
    assert association(counts.numpy(), method="cramer") == pytest.approx(math.sqrt(phi2))
    corrected = max(0.0, phi2 - 4 / (num - 1)) / (2 - 1 / (num - 1) - 1)
    assert float(cramers_v(tokens)[0, 1]) == pytest.approx(math.sqrt(corrected), rel=1e-9)


def test_association_is_0_for_independent_columns_and_1_for_columns_that_tell_each_other():
    generator = seeded(1)
    x = torch.randint(50, (20_000, 1), generator=generator)
    independent = torch.randint(40, (20_000, 1), generator=generator)
    v = cramers_v(torch.cat([x, independent, (x * 7) % 50, torch.zeros_like(x)], dim=1))
    assert torch.equal(v, v.T)
    assert float(v[0, 1]) < 0.03  # without the correction it would be sqrt(49 * 39 / 20000 / 39) = 0.05
    assert float(v[0, 2]) == pytest.approx(1)
    assert v[3, :3].tolist() == [0, 0, 0]
