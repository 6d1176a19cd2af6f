"""The adversary and its weight, against autograd by hand."""

import pytest
import torch
import torch.nn.functional as F

from enumerated import seeded
from sddm.tokenizers import VQGAN, PatchDiscriminator
from sddm.tokenizers.discriminator import LARGEST_FACTOR, SMALLEST_NORM, adaptive_factor, gradients_of, hinge
from sddm.tokenizers.vqgan import to_planes
from tiny_pictures import SIZES, pictures

FLOAT32 = 1e-4
"""Relative error of norms of float32 gradients through some twenty layers: a few hundred roundings."""


def test_the_hinge_is_zero_beyond_the_margin_and_linear_before_it():
    assert hinge(torch.tensor([1.0, 3.0]), torch.tensor([-1.0, -2.0])) == 0
    assert hinge(torch.tensor([0.0, -1.0]), torch.tensor([-1.0, 1.0])) == ((1 + 2) / 2 + (0 + 2) / 2) / 2


def test_a_number_of_the_discriminator_sees_a_patch():
    torch.manual_seed(0)
    discriminator = PatchDiscriminator(3, 4)
    for norm in (4, 7):  # group norms look at the whole picture
        discriminator.layers[norm - 1] = torch.nn.Identity()
    planes = torch.randn(1, 3, 48, 48, generator=seeded(0)).requires_grad_()
    answers = discriminator(planes)
    assert answers.shape == (1, 1, 12, 12)
    (slope,) = torch.autograd.grad(answers[0, 0, 6, 6], planes)
    rows, columns = slope[0].abs().sum(0).nonzero(as_tuple=True)
    assert int(rows.max() - rows.min()) == int(columns.max() - columns.min()) == 18 - 1


def test_the_factor_is_the_ratio_of_the_gradients_at_the_last_layer():
    torch.manual_seed(0)
    tokenizer, discriminator = VQGAN(SIZES), PatchDiscriminator(3, 4)
    planes = to_planes(torch.from_numpy(pictures(4)))
    made = tokenizer(planes).planes
    last = tokenizer.last_layer
    norms = [
        torch.autograd.grad(loss, last, retain_graph=True)[0].norm()
        for loss in (F.mse_loss(made, planes), -discriminator(made).mean())
    ]
    leaf = made.detach().requires_grad_()
    slopes = [torch.autograd.grad(f, leaf)[0] for f in (F.mse_loss(leaf, planes), -discriminator(leaf).mean())]
    factor = adaptive_factor(*gradients_of(made, last, slopes))
    assert float(factor) == pytest.approx(float(norms[0] / (norms[1] + SMALLEST_NORM)), rel=FLOAT32)
    assert float(adaptive_factor(*gradients_of(made, last, [slopes[0], torch.zeros_like(leaf)]))) == pytest.approx(
        min(float(norms[0]) / SMALLEST_NORM, LARGEST_FACTOR), rel=FLOAT32
    )
    assert float(adaptive_factor(*gradients_of(made, last, [1e9 * slopes[0], slopes[1]]))) == LARGEST_FACTOR
