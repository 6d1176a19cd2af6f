"""How large the time and the tokens enter a network, and what is worked on at once on which device."""

import pytest
import torch

from made import made
from sddm.networks import Denoiser, HollowTransformer, MLPEnergy, TransformerEnergy
from sddm.networks.chunks import CACHED, at_once
from sddm.networks.embeddings import TIME_SCALE
from sddm.query import Query

SIZES = {"length": 4, "width": 8, "layers": 2, "heads": 2, "mlp": 12}
NETWORKS = {
    "MLP energy": lambda **options: MLPEnergy(4, width=8, **options),
    "transformer energy": lambda **options: made(TransformerEnergy, 2, **SIZES, **options),
    "denoiser": lambda **options: made(Denoiser, 2, 2, **SIZES, **options),
    "denoiser without FiLM": lambda **options: made(Denoiser, 2, 2, **SIZES, film_blocks=0, **options),
    "hollow": lambda **options: made(HollowTransformer, 2, 2, **SIZES, **options),
    "hollow with joint attention": lambda **options: made(
        HollowTransformer, 2, 2, **SIZES, joint_attention=True, **options
    ),
}


def built(name, **options):
    torch.manual_seed(0)
    return NETWORKS[name](**options)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_sees_the_time_times_its_scale_and_nothing_else_of_it(name):
    x = torch.randint(2, (5, 4), generator=torch.Generator().manual_seed(1))
    t = torch.linspace(0, 0.01, 5, dtype=torch.float64)
    usual, slow = built(name), built(name, time_scale=TIME_SCALE / 64)  # a power of two: scale * t is exactly the same
    assert torch.equal(usual(Query(x, t)), slow(Query(x, 64 * t)))
    assert not torch.equal(usual(Query(x, t)), slow(Query(x, t)))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gain_is_on_the_initial_vectors_of_tokens_and_places_alone(name):
    usual, gained = (dict(built(name, **options).named_parameters()) for options in ({}, {"input_gain": 16.0}))
    scaled = {key for key in usual if not torch.equal(usual[key], gained[key])}
    assert scaled == {key for key in usual if key in ("first.weight",) or "embed.tokens" in key or "places" in key}
    assert scaled
    for key in scaled:
        assert torch.equal(16 * usual[key], gained[key])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("option", ["time_scale", "input_gain"])
def test_neither_scale_may_vanish(name, option):
    with pytest.raises(ValueError, match=option):
        built(name, **{option: 0.0})


def test_a_cpu_works_on_what_its_cache_holds_when_no_gradient_is_wanted():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert at_once(10 * CACHED, cpu) == at_once(10 * CACHED, gpu) == 10 * CACHED
    with torch.no_grad():
        assert at_once(10 * CACHED, cpu) == CACHED
        assert at_once(10, cpu) == 10
        assert at_once(10 * CACHED, gpu) == 10 * CACHED
