"""The distance by VGG16, with random weights in files of the right shapes."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from enumerated import seeded
from sddm.tokenizers import Perceptual

PLAN = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


def vgg16():
    """The features of VGG16 as its papers' tables give them, with weights that keep the size of what passes."""
    layers, inside = [], 3
    for width in PLAN:
        if width == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU()]
            inside = width
    torch.manual_seed(0)
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.normal_(layer.bias, std=0.1)
    return nn.Sequential(*layers).requires_grad_(False)


@pytest.fixture(scope="module")
def network():
    return vgg16()


@pytest.fixture(scope="module")
def weights(network):
    return {f"features.{name}": value for name, value in network.state_dict().items()}


@pytest.fixture(scope="module")
def file(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "vgg16.pth"
    torch.save({**weights, "classifier.0.bias": torch.zeros(7)}, path)
    return path


@pytest.fixture(scope="module")
def distance(file):
    return Perceptual.from_file(file)


def some(num=2, side=32, channels=3, seed=0):
    return torch.rand(num, channels, side, side, generator=seeded(seed)) * 2 - 1


def by_hand(network, x, y):
    stages = []
    x, y = (
        ((z + 1) / 2 - torch.tensor([0.485, 0.456, 0.406])[:, None, None])
        / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
        for z in (x, y)
    )
    for layer, following in zip(network, [*network[1:], None], strict=True):
        x, y = layer(x), layer(y)
        if isinstance(following, nn.MaxPool2d):
            stages.append((F.normalize(x, dim=1) - F.normalize(y, dim=1)).square().sum(1).mean())
    return torch.stack(stages).mean()


def test_the_distance_is_that_of_the_usual_network(distance, network):
    x, y = some(seed=0), some(seed=1)
    assert float(distance(x, y)) == pytest.approx(float(by_hand(network, x, y)), rel=1e-4)  # of 13 layers in float32
    assert float(distance(x, x)) == 0
    assert float(distance(x, y)) == pytest.approx(float(distance(y, x)), rel=1e-6)


def test_a_nearer_picture_has_a_smaller_distance_and_the_gradient_leads_to_it(distance):
    x, noise = some(), torch.randn(2, 3, 32, 32, generator=seeded(2))
    near, far = float(distance(x, x + 0.01 * noise)), float(distance(x, x + 0.5 * noise))
    assert 0 < near < far
    y = (x + 0.1 * noise).requires_grad_()
    loss = distance(x, y)
    (slope,) = torch.autograd.grad(loss, y)
    assert float(distance(x, (y - 1e-2 * slope / slope.norm()).detach())) < float(loss.detach())
    assert not any(weight.requires_grad for weight in distance.parameters())


def test_grey_pictures_are_three_equal_channels_and_small_ones_have_fewer_stages(distance):
    x, y = some(channels=1), some(channels=1, seed=1)
    assert float(distance(x, y)) == float(distance(x.expand(-1, 3, -1, -1), y.expand(-1, 3, -1, -1)))
    assert float(distance(some(side=2), some(side=2, seed=1))) > 0


def test_safetensors_hold_the_same_weights(distance, weights, tmp_path):
    save_file(weights, tmp_path / "vgg16.safetensors")
    again = Perceptual.from_file(tmp_path / "vgg16.safetensors")
    assert all(torch.equal(again.state_dict()[name], value) for name, value in distance.state_dict().items())


@pytest.mark.parametrize(
    ("content", "name", "sentence"),
    [
        ({"features.0.weight": torch.zeros(64, 3, 3, 3)}, "a.pth", r"features\.0\.bias is missing there, but must be"),
        (
            {"features.0.weight": torch.zeros(64, 1, 3, 3), "features.0.bias": torch.zeros(64)},
            "a.pth",
            r"features\.0\.weight is of shape \(64, 1, 3, 3\) there, but must be of shape \(64, 3, 3, 3\)",
        ),
        ([1, 2], "a.pth", "holds no state dict"),
        (print, "a.pth", r"cannot be read as weights \(UnpicklingError\)\. Only tensors are read"),
        (None, "a.pth", "cannot be read as weights"),
        (None, "a.safetensors", "cannot be read"),
        (None, "a.onnx", r"ends in '\.onnx'\. Weights are read from files that end in \.safetensors"),
    ],
)
def test_wrong_files_are_answered_by_a_sentence(tmp_path, content, name, sentence):
    if content is None:
        (tmp_path / name).write_bytes(b"no weights at all, but some bytes")
    else:
        torch.save(content, tmp_path / name)
    with pytest.raises(ValueError, match=sentence):
        Perceptual.from_file(tmp_path / name)


def test_a_file_that_is_not_there_is_answered_by_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="Name a file with the weights of VGG16"):
        Perceptual.from_file(tmp_path / "vgg16.pth")
