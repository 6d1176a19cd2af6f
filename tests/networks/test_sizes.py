"""The sizes of the paper's models, counted piece by piece. Nothing is allocated: the weights are on the meta device."""

import pytest
import torch

from sddm.marginals import Energy, Hollow, Masked
from sddm.networks import BERT_BASE, MUSIC, Sizes
from sddm.processes import Uniform
from sddm.schedules import Constant


def count(module):
    return sum(weight.numel() for weight in module.parameters())


def build(make, num_states, **options):
    with torch.device("meta"):
        return make(Uniform(num_states, Constant(1.0)), **options)


def linear(inputs, outputs):
    return inputs * outputs + outputs


def norm(width):
    return 2 * width


def mlp(inputs, hidden, outputs):
    return linear(inputs, hidden) + linear(hidden, outputs)


def attention(width):
    """Queries, keys and values, and the map of what was attended to."""
    return linear(width, 3 * width) + linear(width, width)


def block(width, hidden):
    return attention(width) + mlp(width, hidden, width) + 2 * norm(width)


def stack(width, hidden, layers):
    """Blocks and the norm after the last."""
    return layers * block(width, hidden) + norm(width)


def embedding(num_tokens, width):
    """A vector a token, and the one for being given."""
    return num_tokens * width + width


def film_readout(features, time_width, hidden, blocks, classes):
    time = mlp(time_width, hidden, 4 * time_width)
    each = mlp(features, hidden, features) + norm(features) + linear(4 * time_width, 2 * features)
    return time + blocks * each + linear(features, classes)


def joint_readout(width, hidden, classes):
    """The query from both streams, one transformer layer, its last norm, and the logits."""
    return linear(2 * width, width) + block(width, hidden) + norm(width) + linear(width, classes)


def test_the_energy_of_the_synthetic_experiment_is_three_layers_of_256_on_32_bits():
    network = build(Energy.mlp, 2, length=32).network
    assert count(network.first) == 32 * 256 + 256
    assert [count(layer) for layer in network.hidden] == [256 * 256 + 256] * 2
    assert count(network.last) == 256 + 1
    assert network.time is None  # the sinusoids are added as they are
    assert count(network) == 32 * 256 + 256 + 2 * (256 * 256 + 256) + 256 + 1 == 140_289


def test_the_size_of_the_music_model_is_that_of_the_paper():
    assert Sizes(width=256, layers=6, heads=8, mlp=2048) == MUSIC


def test_the_music_model_has_two_streams_of_eight_million_weights_and_either_readout():
    """256 notes of 129 values. Both streams share the vectors of the notes, but each has vectors of its own for the
    places and six layers of its own."""
    concatenated = build(Hollow.for_process, 129, length=256, sizes=MUSIC).network
    joint = build(Hollow.for_process, 129, length=256, joint_attention=True, sizes=MUSIC).network
    for network in (concatenated, joint):
        assert count(network.embed) == embedding(129, 256) == 33_280
        assert count(network.places_left) == count(network.places_right) == 256 * 256 == 65_536
        assert count(network.left) == count(network.right) == stack(256, 2048, 6) == 7_890_944
    trunk = 33_280 + 2 * 65_536 + 2 * 7_890_944
    # Two residual blocks on the 512 features of both streams, scaled and shifted by 4 * 256 features of the time.
    assert count(concatenated.join) == film_readout(512, 256, 2048, 2, 129) == 8_991_361
    assert count(concatenated) == trunk + 8_991_361 == 24_937_601
    # One more layer of the same width, as in the paper's figure.
    assert count(joint.join) == joint_readout(256, 2048, 129) == 1_480_065
    assert count(joint) == trunk + 1_480_065 == 17_426_305


def test_the_size_of_the_image_model_is_that_of_bert_base():
    assert Sizes(width=768, layers=12, heads=12, mlp=3072) == BERT_BASE


def test_the_image_model_has_the_transformer_of_bert_base():
    """8 x 8 codes out of 512. BERT-base is 110 M weights, of which its 12 layers are 85,054,464 and the rest is its
    table of 30,522 words; here the table is small, and the readout, with its blocks for the time, is what comes on
    top."""
    network = build(Masked.for_process, 512, grid=(8, 8), sizes=BERT_BASE).network
    blocks = sum(count(b) for b in network.body.blocks)
    assert blocks == 12 * block(768, 3072) == 85_054_464
    assert count(network.body.embed) == embedding(512 + 1, 768)  # the codes and HIDDEN
    assert count(network.body.places) == (8 + 8) * 768  # a vector a row and one a column
    assert count(network.body) == blocks + norm(768) + embedding(513, 768) + 16 * 768 == 85_463_040
    assert count(network.readout) == film_readout(768, 768, 3072, 2, 512) == 31_084_544
    assert count(network) == 85_463_040 + 31_084_544 == 116_547_584


def test_the_image_model_with_a_plain_readout_is_bert_base_and_a_head():
    network = build(Masked.for_process, 512, grid=(8, 8), film_blocks=0, sizes=BERT_BASE).network
    assert count(network.readout) == mlp(768, 3072, 512)
    assert count(network) == 85_463_040 + mlp(768, 3072, 512) == 89_398_784


def test_the_hollow_model_of_the_benchmark_has_2_65_million_weights():
    """128 notes of 129 values, 3 + 3 layers of 128."""
    sizes = {"width": 128, "layers": 3, "heads": 4, "mlp": 512}
    network = build(Hollow.for_process, 129, length=128, **sizes).network
    streams = 2 * stack(128, 512, 3)
    tables = embedding(129, 128) + 2 * 128 * 128
    assert count(network) == streams + tables + film_readout(256, 128, 512, 2, 129)
    assert count(network) / 1e6 == pytest.approx(2.65, abs=0.005)


def test_the_defaults_of_a_hollow_model_are_those_of_the_benchmark():
    default, explicit = (
        build(Hollow.for_process, 129, length=128, **sizes).network
        for sizes in ({}, {"width": 128, "layers": 3, "heads": 4, "mlp": 512, "film_blocks": 2})
    )
    assert [w.shape for w in default.parameters()] == [w.shape for w in explicit.parameters()]
