"""The network of a tokenizer: the paper's number of parameters, its shapes, and what it refuses in a sentence."""

import json

import numpy as np
import pytest
import torch

from sddm.tokenizers import VQGAN, VQGANSizes
from sddm.tokenizers.vqgan import Residual, to_pictures, to_planes
from tiny_pictures import SIZES, pictures


def made(seed=0, **sizes):
    torch.manual_seed(seed)
    return VQGAN(VQGANSizes(**sizes)) if sizes else VQGAN(SIZES)


def test_the_paper_s_size_has_the_paper_s_number_of_parameters():
    network = VQGAN()
    parameters = sum(weight.numel() for weight in network.parameters())
    assert abs(parameters / 12.35e6 - 1) < 0.02
    assert round(parameters / 1e6, 2) == 12.35  # to all the digits that it gives
    assert network.quantizer.codebook.shape == (512, 256)


@pytest.mark.parametrize(
    ("height", "width", "multipliers", "grid"),
    [(32, 32, (1, 2, 4), (8, 8)), (64, 32, (1, 2, 4), (16, 8)), (16, 8, (1, 1, 1, 1), (2, 1)), (5, 3, (1,), (5, 3))],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_code_stands_for_a_patch(height, width, multipliers, grid, channels):
    network = made(filters=4, multipliers=multipliers, blocks=1, codes=7, code_width=4, channels=channels)
    shown = torch.randint(256, (2, height, width, channels), dtype=torch.uint8)
    tokens = network.encode(shown)
    assert tokens.shape == (2, *grid)
    assert tokens.dtype == torch.int64
    assert int(tokens.max()) < 7
    decoded = network.decode(tokens)
    assert (decoded.shape, decoded.dtype) == (shown.shape, torch.uint8)
    assert network.sizes.grid(height, width) == grid


@pytest.mark.parametrize("filters", [1, 2, 5, 9, 16, 64])
def test_any_number_of_filters_has_a_group_norm(filters):
    block = Residual(filters, 2 * filters)
    assert block(torch.randn(2, filters, 4, 4)).shape == (2, 2 * filters, 4, 4)


def test_pictures_survive_the_way_to_a_network_and_back():
    every_value = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1)
    planes = to_planes(every_value)
    assert (float(planes.min()), float(planes.max())) == (-1, 1)
    assert torch.equal(to_pictures(planes), every_value)
    assert torch.equal(
        to_pictures(torch.tensor([[[[-9.0, 9.0]]]])).flatten(), torch.tensor([0, 255], dtype=torch.uint8)
    )


def test_pictures_and_features_stay_in_channels_last_order():
    network, seen = made(filters=16, codes=8, code_width=8), []
    for layer in [*network.encoder, *network.decoder]:
        layer.register_forward_hook(lambda _, __, x: seen.append(x.is_contiguous(memory_format=torch.channels_last)))
    network(to_planes(torch.randint(256, (2, 16, 16, 3), dtype=torch.uint8)))
    assert len(seen) == len(network.encoder) + len(network.decoder)
    assert all(seen)


def test_pieces_do_not_change_what_is_encoded_and_decoded(monkeypatch):
    network, shown = made(), torch.from_numpy(pictures(6))
    tokens = network.encode(shown)
    decoded = network.decode(tokens)
    monkeypatch.setattr("sddm.tokenizers.vqgan.AT_ONCE", 2 * 8 * 8)
    assert torch.equal(network.encode(shown), tokens)
    # A convolution may sum in another order in a smaller batch, and a value in the middle of two be rounded otherwise.
    assert int((network.decode(tokens).int() - decoded.int()).abs().max()) <= 1


def test_encoding_leaves_the_mode_of_the_network_as_it_was():
    network = made().train()
    network.encode(torch.from_numpy(pictures(1)))
    assert network.training


def test_a_tokenizer_that_is_saved_and_loaded_gives_the_same_tokens(tmp_path):
    network, shown = made(), torch.from_numpy(pictures(5))
    network.save_pretrained(tmp_path / "saved")
    again = VQGAN.from_pretrained(tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert again.sizes == network.sizes
    assert not again.training
    assert torch.equal(again.encode(shown), network.encode(shown))
    assert torch.equal(again.decode(again.encode(shown)), network.decode(network.encode(shown)))


def test_a_saved_tokenizer_that_is_damaged_is_refused_in_a_sentence(tmp_path):
    made().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        VQGAN.from_pretrained(tmp_path)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="its weights are missing"):
        VQGAN.from_pretrained(tmp_path)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"format": 2, "process": {}, "model": {}}, "not the config of a tokenizer saved by this version"),
        ({"format": 1, "tokenizer": {"type": "vqvae"}}, "describes no tokenizer .* unknown type 'vqvae'"),
        ({"format": 1, "tokenizer": {"type": "vqgan-sizes"}}, "describes no tokenizer .* must be an sddm VQGAN"),
        (
            {"format": 1, "tokenizer": {"type": "vqgan", "sizes": {"type": "vqgan-sizes", "filters": 10**9}}},
            "filters must be at most",
        ),
    ],
)
def test_a_config_of_no_tokenizer_is_refused_in_a_sentence(tmp_path, config, sentence):
    made().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=sentence):
        VQGAN.from_pretrained(tmp_path)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda n: n.encode(torch.zeros(1, 30, 32, 3, dtype=torch.uint8)), "Pictures of 30 x 32 pixels cannot be cut"),
        (lambda n: n.encode(torch.zeros(1, 32, 30, 3, dtype=torch.uint8)), "must be multiples of 4: cut or enlarge"),
        (
            lambda n: n.encode(torch.zeros(1, 32, 32, 1, dtype=torch.uint8)),
            r"must have shape \(num, height, width, 3\)",
        ),
        (lambda n: n.decode(torch.zeros(2, 4, dtype=torch.int64)), r"must have shape \(num, rows, columns\)"),
        (lambda n: n.decode(torch.full((1, 2, 2), 16)), "tokens must hold tokens from 0 to 15"),
        (lambda n: VQGANSizes(filters=0), "filters must be at least 1"),
        (lambda n: VQGANSizes(codes=1), "codes must be at least 2"),
        (lambda n: VQGANSizes(multipliers=()), "multipliers must be 1 to 8 numbers"),
        (lambda n: VQGANSizes(multipliers=(1, 0)), "multipliers must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(act, sentence):
    with pytest.raises(ValueError, match=sentence):
        act(made())


def test_the_gradient_reaches_every_weight_but_those_of_unused_codes():
    network = made()
    result = network(to_planes(torch.from_numpy(pictures(8))))
    (result.planes.square().mean() + result.quantized.codebook_loss).backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert np.isfinite(weight.grad.numpy()).all(), name
        assert weight.grad.abs().sum() > 0, name
