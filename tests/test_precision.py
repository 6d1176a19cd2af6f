"""Autocast is for networks: the mathematics around them keeps its precision."""

import pytest
import torch

from enumerated import TableModel, one_way, process_named, seeded
from sddm import Diffusion
from sddm.losses import conditional_ratio_matching, ct_elbo, denoising_cross_entropy, ratio_matching, x0_cross_entropy
from sddm.marginals import Energy, MarginalModel, Marginals
from sddm.networks import Places, TransformerEnergy
from sddm.processes import PROCESSES
from sddm.samplers import SAMPLERS

LOSSES = [ratio_matching, conditional_ratio_matching, x0_cross_entropy, denoising_cross_entropy, ct_elbo]
DIM, BATCH = 3, 12
X0 = torch.randint(3, (BATCH, DIM), generator=seeded(0))


def single_precision_table(name):
    """Its own work is additions of float32 numbers, which autocast leaves alone."""
    process = process_named(name)
    return Diffusion(process, TableModel(process, DIM).float())


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_under_autocast_a_loss_is_that_of_the_same_marginals_without(name, loss):
    diffusion = single_precision_table(name)
    with torch.autocast("cpu", torch.bfloat16):
        under = loss(diffusion, X0, generator=seeded(1))
    assert under.dtype == torch.float32
    torch.testing.assert_close(under, loss(diffusion, X0, generator=seeded(1)), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["uniform", "birth-death"])
def test_under_autocast_the_targets_of_a_pool_are_those_without(name):
    diffusion = single_precision_table(name)
    with torch.autocast("cpu", torch.bfloat16):
        under = conditional_ratio_matching(diffusion, X0, pool=X0, generator=seeded(1))
    assert torch.equal(under, conditional_ratio_matching(diffusion, X0, pool=X0, generator=seeded(1)))


@pytest.mark.parametrize("sampler", ["euler", "analytical", "tau-leaping"])
def test_under_autocast_samples_of_the_same_marginals_are_those_without(sampler):
    diffusion = single_precision_table("birth-death")
    options = {"steps": 5, "sampler": SAMPLERS[sampler]()}
    with torch.autocast("cpu", torch.bfloat16):
        under = diffusion.sample(50, seed=0, **options)
    assert torch.equal(under, diffusion.sample(50, seed=0, **options))


class HalfModel(MarginalModel):
    """Says what it says in bfloat16."""

    length, implicit = DIM, True

    def forward(self, process, query):
        log_p = torch.linspace(-1, 1, 3).log_softmax(-1).bfloat16()
        return Marginals.from_x0(log_p.expand(*query.xt.shape, 3), process, query.t)


def test_marginals_in_half_precision_are_widened_before_they_are_worked_with():
    diffusion = Diffusion(process_named("birth-death"), HalfModel())
    marginals = diffusion.marginals(X0, torch.full((BATCH,), 0.5))
    assert marginals.log_x0.dtype == marginals.log_xt.dtype == torch.float32
    assert ct_elbo(diffusion, X0, generator=seeded(0)).dtype == torch.float32


def test_under_autocast_an_energy_that_fades_is_the_prior_where_no_data_are_left():
    process = one_way(share=1e-6)
    diffusion = Diffusion(process, Energy(TransformerEnergy(3, Places(DIM)), implicit=False, fading=True))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        log_p = diffusion.marginals(X0, torch.ones(BATCH)).log_xt
    torch.testing.assert_close(log_p, process.prior_law().log().float().expand_as(log_p), rtol=0, atol=1e-5)
