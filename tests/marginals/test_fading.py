"""Energies that fade with the data: prior(c) exp(-a(t) f), against the formula and at its two ends."""

import pytest
import torch

from enumerated import absorbing, all_states, oracle, random_law, seeded, states_of, times, uniform
from sddm import Diffusion
from sddm.marginals import Energy
from sddm.networks import MLPEnergy
from sddm.processes import CustomRate
from sddm.query import Query
from sddm.schedules import Constant
from sddm.training import TrainingConfig, train

DIM = 3


def lopsided():
    """Two states, of which the stationary law prefers the first."""
    return CustomRate([[-0.2, 0.2], [1.0, -1.0]], Constant(1.0)).leaving(0.05)


@pytest.fixture(params=[lambda: uniform(0.05, num_states=2), lambda: uniform(0.05), lopsided])
def process(request):
    return request.param()


def fading(process, seed=0, **sizes):
    torch.manual_seed(seed)
    network = MLPEnergy(DIM, process.num_symbols, width=8, **sizes)
    return Diffusion(process, Energy(network, implicit=False, fading=True)).double().eval()


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_the_law_is_the_prior_times_the_faded_energy(process, t):
    diffusion, x = fading(process), states_of(process, DIM)
    share = float(process.remaining(times(t, 1)))
    with torch.no_grad():
        law = diffusion(Query(x, times(t, len(x)))).log_xt.exp()
        for d in range(DIM):
            weights = []
            for c in range(process.num_symbols):
                replaced = x.clone()
                replaced[:, d] = c
                energy = diffusion.model.network(Query(replaced, times(t, len(x))))
                weights.append(process.prior_law()[c] * torch.exp(-share * energy))
            expected = torch.stack(weights, dim=-1)
            torch.testing.assert_close(law[:, d], expected / expected.sum(-1, keepdim=True))


def test_where_nothing_of_the_data_is_left_the_law_is_the_prior_whatever_the_weights(process):
    """To first order: with a share a left, log p differs from log prior by a times a difference of energies."""
    x = states_of(process, DIM)
    gaps = []
    for share in (1e-2, 1e-4):
        with torch.no_grad():
            law = fading(process.leaving(share))(Query(x, times(1.0, len(x)))).log_xt.exp()
        gaps.append(float((law - process.prior_law()).abs().max()))
    assert gaps[0] > 0
    assert gaps[1] == pytest.approx(gaps[0] / 100, rel=0.1)


def test_the_prediction_does_not_move_with_the_token_it_is_of(process):
    diffusion, x = fading(process), states_of(process, DIM)
    moved = (x + 1) % process.num_symbols
    with torch.no_grad():
        law = diffusion(Query(x, times(0.4, len(x)))).log_xt
        for d in range(DIM):
            other = x.clone()
            other[:, d] = moved[:, d]
            torch.testing.assert_close(diffusion(Query(other, times(0.4, len(x)))).log_xt[:, d], law[:, d])


@pytest.mark.usefixtures("at_full_speed")
def test_it_can_learn_the_truth_at_all_levels_of_noise():
    """Two thirds of the way and more from ignorance to the oracle, at every level, in the units of that level."""
    process, law = uniform(0.05), random_law(3, DIM, seed=1)
    truth = oracle(process, law, DIM)
    states = all_states(3, DIM)
    rows = states[torch.multinomial(law, 200_000, replacement=True, generator=seeded(0))]
    torch.manual_seed(0)
    network = MLPEnergy(DIM, 3, width=32, time_scale=10.0)
    config = TrainingConfig(400, 256, learning_rate=4e-3, optimizer="muon", pool=1024, noise_weight=2.0)
    diffusion = train(Diffusion(process, Energy(network, implicit=False, fading=True)), rows, config, progress=False)
    x = states_of(process, DIM)
    for t in (0.3, 0.6, 1.0):
        share = float(process.remaining(times(t, 1)))
        with torch.no_grad():
            known = (truth(Query(x, times(t, len(x)))).log_xt.exp() - 1 / 3) / share
            learnt = (diffusion(Query(x, times(t, len(x)))).log_xt.exp() - 1 / 3) / share
        assert (learnt - known).square().mean() < known.square().mean() / 9


def test_what_cannot_fade_is_refused():
    with pytest.raises(ValueError, match="fading is for a model of x_t"):
        Energy(MLPEnergy(DIM), implicit=True, fading=True)
    masks = absorbing(num_states=2)
    diffusion = Diffusion(masks, Energy(MLPEnergy(DIM, 3, width=4), implicit=False, fading=True))
    with pytest.raises(ValueError, match="fading starts from the prior, but that of Absorbing has states of"):
        diffusion(Query(torch.zeros(1, DIM, dtype=torch.int64), times(0.5, 1)))


def test_it_is_saved_and_loaded(tmp_path):
    diffusion = fading(uniform(num_states=2))
    diffusion.save_pretrained(tmp_path)
    loaded = Diffusion.from_pretrained(tmp_path)
    assert loaded.model.fading
    x = states_of(diffusion.process, DIM)
    with torch.no_grad():
        query = Query(x, times(0.7, len(x)))
        torch.testing.assert_close(loaded.double()(query).log_xt, diffusion(query).log_xt)
