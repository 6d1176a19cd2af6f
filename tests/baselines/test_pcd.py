"""Persistent contrastive divergence against the likelihood of small models, enumerated."""

import copy

import pytest
import torch

from enumerated import UNLIKELY, all_states, counts_of, draw_states, p_value, total_variation
from sddm.baselines.gibbs import random_scan
from sddm.baselines.pcd import PCD
from sddm.training import RunConfig, learn
from sddm.training.batches import generator_of

DIM = 4
STATES = all_states(2, DIM)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def small(dim=DIM, seed=0, **options):
    torch.manual_seed(seed)
    return PCD(dim, **{"width": 16, "layers": 2, "chains": 64, "moves": 4, "sampling_moves": 8, **options})


def law_of(energy, states=STATES):
    with torch.no_grad():
        return torch.softmax(-energy(states).double(), dim=0)


def bits(num, dim=DIM, seed=0):
    return torch.randint(2, (num, dim), generator=seeded(seed))


def gradient(value, energy):
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(energy.parameters()))])


def last_gradient(system):
    return torch.cat([weight.grad.flatten() for weight in system.energy.parameters()])


def with_law(system, num, seed=0):
    """Put draws from the model's own law into the chains of a system that has made a step."""
    system.update(bits(8, system.length), seeded(seed))
    law = law_of(system.energy)
    system.chains.copy_(draw_states(law, num, 2, system.length, seed))
    return law


# ---- the gradient --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_a_step_follows_the_energies_of_the_data_and_of_the_moved_chains(penalty):
    system = small(chains=16, penalty=penalty).double()
    system.update(bits(16), seeded(0))
    before = copy.deepcopy(system.energy)
    rows = bits(16, seed=1)
    system.update(rows, seeded(1))
    data, model = before(rows), before(system.chains)  # as many chains as rows: all of them were moved and used
    loss = data.mean() - model.mean() + penalty * ((data**2).mean() + (model**2).mean())
    # Sums of 16 terms of order 1, in another order.
    torch.testing.assert_close(last_gradient(system), gradient(loss, before), atol=1e-12, rtol=1e-12)


def test_chains_that_have_the_law_of_the_model_give_the_gradient_of_the_likelihood():
    """In mean, whatever the number of moves: compared over all states, five standard errors allowed."""
    num = 20_000
    system = small(chains=num, width=8, moves=3).double()
    law = with_law(system, num)
    rows = bits(num, seed=3)
    energy = copy.deepcopy(system.energy)
    exact = gradient(energy(rows).mean() + torch.logsumexp(-energy(STATES), dim=0), energy)
    system.update(rows, seeded(4))
    each = torch.stack([gradient(energy(state[None]).sum(), energy) for state in STATES])
    variance = law @ each**2 - (law @ each) ** 2
    # A constant added to f changes no law, so its weight has gradient 0 on both sides, and variance 0.
    error = (last_gradient(system) - exact).abs()
    assert (error <= 5 * (variance.clamp(min=0) / num).sqrt() + 1e-9).all()
    # The claim would fail without the draws: the data's half of the gradient is far from the whole.
    assert (gradient(energy(rows).mean(), energy) - exact).abs().max() > 20 * (variance.max() / num).sqrt()


# ---- the chains ----------------------------------------------------------------------------------------------------


def test_chains_start_from_the_noise_of_the_generator():
    one, same, other = small(), small(), small()
    for system, seed in ((one, 0), (same, 0), (other, 1)):
        system.update(bits(8), seeded(seed))
    assert torch.equal(one.chains, same.chains)
    assert not torch.equal(one.chains, other.chains)
    # 64 rows of 4 bits, hardly moved yet by a fresh, almost flat energy: half of 256 are ones, to 5 deviations.
    assert abs(float(one.chains.double().mean()) - 0.5) < 5 * 0.5 / 256**0.5


def test_a_step_moves_as_many_chains_as_it_has_rows_and_leaves_the_others_where_they_are():
    system = small(dim=20, chains=64, moves=3)
    system.update(bits(8, 20), seeded(0))
    before = system.chains.clone()
    system.update(bits(8, 20), seeded(1))
    turned = (system.chains != before).sum(1)
    assert 1 <= int((turned > 0).sum()) <= 8
    assert int(turned.max()) <= 3


def test_fewer_chains_than_rows_all_move():
    system = small(dim=20, chains=5, moves=40)
    system.update(bits(8, 20), seeded(0))
    before = system.chains.clone()
    system.update(bits(8, 20), seeded(1))
    assert bool((system.chains != before).any(1).all())


def test_moved_chains_keep_the_law_of_the_model():
    system = small(chains=20_000, moves=5)
    law = with_law(system, 20_000)
    system.update(bits(20_000, seed=2), seeded(2))
    assert p_value(counts_of(system.chains, 2), law) > UNLIKELY


# ---- learning rate and average -------------------------------------------------------------------------------------


def test_the_learning_rate_falls_linearly_to_nothing():
    system = small(learning_rate=0.1, decay_steps=4)
    rates = []
    for step in range(6):
        before = copy.deepcopy(system.energy.state_dict())
        system.update(bits(8), seeded(step))
        rates.append(system.optimizers()["energy"].param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025, 0.0, 0.0])
    assert all(torch.equal(before[name], value) for name, value in system.energy.state_dict().items())


def test_the_average_forgets_the_start_quickly_and_then_decays_as_told():
    system = small(average=0.5).double()
    expected = copy.deepcopy(system.energy.state_dict())
    for step, decay in enumerate([0.1, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15, 7 / 16, 8 / 17, 0.5, 0.5]):
        system.update(bits(8), seeded(step))
        for name, value in system.energy.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value
    for name, value in system.averaged_energy.state_dict().items():
        torch.testing.assert_close(value, expected[name], atol=1e-12, rtol=1e-12)


def test_an_average_of_nothing_is_the_last_weights():
    system = small(average=0.0)
    for step in range(3):
        system.update(bits(8), seeded(step))
    x = bits(10, seed=5)
    assert torch.equal(system.energy(x), system.averaged_energy(x))


# ---- samples -------------------------------------------------------------------------------------------------------


def test_samples_go_on_from_the_chains_under_the_averaged_energy():
    """Without moves they are the chains; with many, the law is that of the averaged energy."""
    system = small(chains=32, sampling_moves=0, learning_rate=0.05)
    for step in range(30):
        system.update(STATES[12:], seeded(step))
    samples, chain = system.sample(5_000, seeded(0)), system.groups(5_000)
    assert torch.equal(samples, system.chains[chain])
    assert chain.bincount().tolist() == [157] * 8 + [156] * 24  # dealt out evenly
    system.sampling_moves = 200
    law, last = law_of(system.averaged_energy), law_of(system.energy)
    assert total_variation(law, last) > 0.05
    drawn = counts_of(system.sample(5_000, seeded(1)), 2)
    assert p_value(drawn, law) > UNLIKELY
    assert p_value(drawn, last) < UNLIKELY


def test_an_untrained_model_samples_from_noise():
    system = small(sampling_moves=0)
    flat = torch.full((len(STATES),), 1 / len(STATES), dtype=torch.float64)
    assert p_value(counts_of(system.sample(5_000, seeded(0)), 2), flat) > UNLIKELY


def test_sampling_changes_nothing_and_follows_the_generator():
    system = small()
    system.update(bits(8), seeded(0))
    before = copy.deepcopy(system.state_dict())
    first, again, other = (system.sample(50, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert all(torch.equal(before[name], value) for name, value in system.state_dict().items())


def test_more_samples_than_a_piece_are_made_in_pieces(monkeypatch):
    sizes = []
    monkeypatch.setattr(PCD, "piece", 20)
    monkeypatch.setattr(
        "sddm.baselines.pcd.random_scan", lambda e, x, m, g: (sizes.append(len(x)), random_scan(e, x, m, g))[1]
    )
    assert small().sample(50, seeded(0)).shape == (50, DIM)
    assert sizes == [20, 20, 10]


# ---- learning ------------------------------------------------------------------------------------------------------


def near(centre, states, turned=0.15):
    """The law of a centre with every bit turned with this probability."""
    distance = (states != torch.tensor(centre)).sum(1).double()
    return turned**distance * (1 - turned) ** (len(centre) - distance)


@pytest.mark.usefixtures("at_full_speed")
def test_training_brings_the_law_of_the_model_near_that_of_two_modes():
    dim, chains, steps = 6, 256, 300
    states = all_states(2, dim)
    data = 0.7 * near([0, 0, 0, 1, 1, 1], states) + 0.3 * near([1, 1, 1, 0, 0, 1], states)
    system = small(dim, layers=3, width=32, chains=chains, moves=6, learning_rate=1e-2, decay_steps=steps)

    def batches(step):
        return states[torch.multinomial(data, chains, replacement=True, generator=generator_of(0, "data", step))]

    # The chains know the weights of the modes to a deviation of sqrt(0.7 * 0.3 / chains) = 0.03; three are allowed.
    enough = 3 * (0.7 * 0.3 / chains) ** 0.5
    ones = states.double().T @ data
    independent = (states * ones + (1 - states) * (1 - ones)).prod(1)
    assert total_variation(law_of(system.energy, states), data) > 4 * enough
    assert total_variation(independent, data) > 4 * enough
    learn(system, batches, RunConfig(steps), progress=False)
    assert total_variation(law_of(system.averaged_energy, states), data) < enough


# ---- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("chains", 0, "chains must be at least 1"),
        ("moves", 0, "moves must be at least 1"),
        ("learning_rate", 0.0, "learning_rate must be above 0"),
        ("decay_steps", 0, "decay_steps must be at least 1"),
        ("average", 1.0, r"average must lie in \[0, 1\), but it is 1.0"),
        ("penalty", -1.0, "penalty must not be negative, but it is -1"),
        ("sampling_moves", -1, "sampling_moves must be at least 0"),
    ],
)
def test_bad_options_are_named_in_a_sentence(option, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        small(**{option: value})


def test_rows_of_another_length_and_no_samples_are_refused():
    with pytest.raises(ValueError, match="rows has 5 positions, but the model was built for 4"):
        small().update(bits(8, 5), seeded(0))
    with pytest.raises(ValueError, match="num must be at least 1"):
        small().sample(0, seeded(0))
