"""Muon: its steps, and what it leaves to AdamW."""

import pytest
import torch
from torch import nn

from enumerated import seeded, uniform
from sddm import Diffusion
from sddm.marginals import Energy, Hollow
from sddm.training import TrainingConfig, train
from sddm.training.optimizers import ADAM_STEP, MOMENTUM, Muon, adamw, orthogonal


def random_matrix(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=seeded(seed))


class Small(nn.Module):
    """A matrix and all that is none: an embedding, a norm, biases, a layer with a single output."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(5, 8)
        self.norm = nn.LayerNorm(8)
        self.hidden = nn.Linear(8, 12)
        self.last = nn.Linear(12, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.hidden(self.norm(self.embedding(x))))).sum()


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8), (2, 50)])
def test_the_polynomial_keeps_the_singular_vectors_and_makes_the_values_nearly_one(shape):
    matrix = random_matrix(*shape)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.T @ orthogonal(matrix) @ v.T
    values = inner.diagonal()
    assert ((values > 0.65) & (values < 1.2)).all()
    torch.testing.assert_close(inner, torch.diag(values), atol=1e-4, rtol=0)
    assert orthogonal(matrix).shape == shape


def test_a_matrix_without_a_gradient_does_not_move():
    assert not orthogonal(torch.zeros(4, 6)).any()


def test_the_factor_does_not_depend_on_the_size_of_the_gradient():
    matrix = random_matrix(6, 9)
    torch.testing.assert_close(orthogonal(1e-6 * matrix), orthogonal(matrix), atol=1e-5, rtol=0)


def test_matrices_follow_their_momentum_and_all_else_moves_as_under_adamw():
    ours, theirs = Small(), Small()
    muon, adam = Muon(ours, 0.01, 0.1), adamw(theirs, 0.01, 0.1)
    x, momentum = torch.tensor([0, 3, 1]), torch.zeros(12, 8)
    for _ in range(3):
        for module, optimizer in ((ours, muon), (theirs, adam)):
            optimizer.zero_grad()
            module(x).backward()
        gradient, before = ours.hidden.weight.grad.clone(), ours.hidden.weight.detach().clone()
        muon.step()
        adam.step()
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        step = orthogonal(MOMENTUM * momentum + (1 - MOMENTUM) * gradient) * ADAM_STEP * 12**0.5
        torch.testing.assert_close(ours.hidden.weight, before * (1 - 0.01 * 0.1) - 0.01 * step)
        for (name, weight), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            if name != "hidden.weight":
                assert torch.equal(weight, other)
        theirs.load_state_dict(ours.state_dict())


def test_a_step_of_a_matrix_is_as_large_as_one_of_adamw():
    layer = nn.Linear(64, 128, bias=False)
    optimizer, before = Muon(layer, 1.0, 0.0), layer.weight.detach().clone()
    layer.weight.grad = random_matrix(128, 64)
    optimizer.step()
    assert float((layer.weight.detach() - before).square().mean().sqrt()) == pytest.approx(ADAM_STEP, rel=0.2)


def rows(step):
    return torch.randint(3, (32, 1), generator=seeded(step)).expand(-1, 4).contiguous()


def trained(steps, make=Energy.mlp, out=None, resume=False, learning_rate=5e-3):
    torch.manual_seed(0)
    process = uniform()
    sizes = {"width": 16, "layers": 2} | ({"heads": 2, "mlp": 16} if make is Hollow.for_process else {})
    losses = []
    config = TrainingConfig(steps, 32, learning_rate=learning_rate, optimizer="muon", save_every=2)
    model = train(
        Diffusion(process, make(process, 4, **sizes)),
        rows,
        config,
        out=out,
        resume=resume,
        progress=False,
        report=lambda step, loss: losses.append(loss),
    )
    return torch.cat([w.detach().flatten() for w in model.parameters()]), losses


@pytest.mark.usefixtures("at_full_speed")
@pytest.mark.parametrize(("make", "steps"), [(Energy.mlp, 200), (Hollow.for_process, 120)])
def test_training_by_muon_learns(make, steps):
    _, losses = trained(steps, make, learning_rate=2e-2)
    assert sum(losses[-20:]) < 0.8 * 20 * losses[0]


def test_a_training_by_muon_that_was_stopped_goes_on_to_the_same_weights(tmp_path):
    class StopError(Exception):
        pass

    def stop(step):
        if step == 7:
            raise StopError
        return rows(step)

    torch.manual_seed(0)
    process = uniform()
    fresh = Diffusion(process, Energy.mlp(process, 4, width=16, layers=2))
    with pytest.raises(StopError):
        train(
            fresh,
            stop,
            TrainingConfig(10, 32, learning_rate=5e-3, optimizer="muon", save_every=2),
            out=tmp_path,
            progress=False,
        )
    assert torch.equal(trained(10, out=tmp_path, resume=True)[0], trained(10)[0])


@pytest.mark.usefixtures("without_annotation_checks")
def test_muon_on_split_weights_and_unknown_optimizers_are_refused():
    with pytest.raises(ValueError, match="optimizer must be one of adamw, muon, but it is 'sgd'"):
        TrainingConfig(optimizer="sgd")
    with pytest.raises(ValueError, match="muon needs whole matrices"):
        TrainingConfig(optimizer="muon", shard=True)
