"""What holds for every baseline: it repeats itself. Stopping and going on is in tests/training/test_learners.py."""

import pytest
import torch

from sddm.baselines import ALOE, BASELINES, EBGFN, PCD
from sddm.training import RunConfig, learn
from sddm.training.batches import generator_of

TINY = {
    "PCD": lambda: PCD(6, width=16, layers=2, chains=32, moves=2, decay_steps=8, sampling_moves=12),
    "ALOE+": lambda: ALOE(6, energy_width=16, dual_width=16, max_edits=2),
    "EB-GFN": lambda: EBGFN(6, energy_width=16, energy_layers=2, policy_width=16, policy_layers=2, decay_steps=8),
}


def built(name):
    torch.manual_seed(0)
    return TINY[name]()


def rows(step):
    """Rows whose first half equals their second."""
    half = torch.randint(2, (16, 3), generator=generator_of(0, "rows", step))
    return torch.cat([half, half], dim=1)


def state(system):
    return {name: value.clone() for name, value in system.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_all_of_them_are_tested():
    assert TINY.keys() == BASELINES.keys()


@pytest.mark.parametrize("name", TINY)
def test_a_seed_decides_the_training_and_another_seed_gives_another(name):
    one, same, other = (built(name) for _ in range(3))
    for system, seed in ((one, 0), (same, 0), (other, 1)):
        learn(system, rows, RunConfig(3, seed=seed), progress=False)
    assert equal(state(one), state(same))
    assert not equal(state(one), state(other))


@pytest.mark.parametrize("name", TINY)
def test_samples_are_bits_and_follow_from_the_generator(name):
    system = built(name)
    learn(system, rows, RunConfig(3), progress=False)
    one, same, other = (system.sample(50, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert one.shape == (50, 6)
    assert one.dtype == torch.int64
    assert set(one.unique().tolist()) <= {0, 1}
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", TINY)
def test_rows_of_another_length_or_with_other_tokens_are_refused(name):
    for bad in (torch.zeros(4, 5, dtype=torch.int64), torch.full((4, 6), 2)):
        with pytest.raises(ValueError, match="rows"):
            built(name).update(bad, torch.Generator().manual_seed(0))
