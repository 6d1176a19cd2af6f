"""Networks of pictures as TorchScript files: tiny ones of the two conventions in which Inception comes."""

import torch
from torch import Tensor, nn

WIDTH, CLASSES = 6, 4


class Layers(nn.Module):
    """299 x 299 pixels to a few features."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, WIDTH, 23, stride=23)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.convolution(images)).mean(dim=[2, 3])


class Whole(nn.Module):
    """It resizes and scales inside, and has its head: the arguments are those of NVIDIA's file."""

    def __init__(self, layers: Layers):
        super().__init__()
        self.layers = layers
        self.output = nn.Linear(WIDTH, CLASSES)

    def forward(
        self, img: Tensor, return_features: bool = False, use_fp16: bool = False, no_output_bias: bool = False
    ) -> Tensor:
        features = self.layers((resampled(img.to(torch.float32)) - 128) / 128)
        if return_features:
            return features
        bias = torch.zeros_like(self.output.bias) if no_output_bias else self.output.bias
        return torch.softmax(features @ self.output.weight.t() + bias, dim=1)


def resampled(images: Tensor) -> Tensor:
    """By grid_sample, whose places in [-1, 1] are here those of pixel i at i * size / 299."""
    num, height, width = len(images), images.shape[2], images.shape[3]
    rows = 2 * (torch.arange(299) * (height / 299) + 0.5) / height - 1
    columns = 2 * (torch.arange(299) * (width / 299) + 0.5) / width - 1
    grid = torch.stack([columns[None].expand(299, 299), rows[:, None].expand(299, 299)], dim=-1)
    grid = grid[None].expand(num, 299, 299, 2)
    return torch.nn.functional.grid_sample(images, grid, "bilinear", "border", False)


def tiny_inception(folder, whole=False, seed=0):
    """The path of a file. With one seed, both conventions have the same layers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = Layers()
        network = Whole(layers) if whole else layers
    return saved(network, folder / f"{'whole' if whole else 'headless'}{seed}.pt")


def saved(network, path):
    torch.jit.script(network).save(str(path))
    return path
