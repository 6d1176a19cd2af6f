"""Straightforward versions of our models, written for comparison: textbook code, one thought after the other.

They have the same parameters, compute the same numbers and are what one would write first: attention with an explicit
score matrix, a dense transition matrix for the forward process, one copy of the sequence for each replaced value.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sddm.networks.embeddings import sinusoidal


class PlainAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q = self.query(x).view(split).transpose(1, 2)
        k = self.key(x).view(split).transpose(1, 2)
        v = self.value(x).view(split).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores.masked_fill(~mask, -float("inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = PlainAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, mlp), nn.GELU(), nn.Linear(mlp, width))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class PlainReadout(nn.Module):
    def __init__(self, features: int, classes: int, width: int, hidden: int) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 4 * width))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(2))
        self.films = nn.ModuleList(nn.Linear(4 * width, 2 * features) for _ in range(2))
        self.logits = nn.Linear(features, classes)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(sinusoidal(t, self.width))
        for mlp, norm, film in zip(self.mlps, self.norms, self.films, strict=True):
            scale, shift = film(time)[:, None].chunk(2, dim=-1)
            x = (1 + scale) * norm(x + mlp(x)) + shift
        return self.logits(x)


class PlainHollow(nn.Module):
    """Two causal streams and the concatenate readout."""

    def __init__(self, states: int, length: int, width: int, layers: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(states, width)
        self.places = nn.ParameterList(nn.Parameter(0.02 * torch.randn(length, width)) for _ in range(2))
        self.streams = nn.ModuleList(
            nn.ModuleList(PlainBlock(width, heads, mlp) for _ in range(layers)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.readout = PlainReadout(2 * width, states, width, mlp)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        tokens, time = self.embed(x), sinusoidal(t, self.width)[:, None]
        inputs = (torch.cat([time, tokens[:, :-1]], dim=1), torch.cat([tokens[:, 1:], time], dim=1))
        before = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        features = []
        for h, place, blocks, norm, mask in zip(
            inputs, self.places, self.streams, self.norms, (before, before.T), strict=True
        ):
            h = h + place
            for block in blocks:
                h = block(h, mask)
            features.append(norm(h))
        return self.readout(torch.cat(features, dim=-1), t)


class PlainDenoiser(nn.Module):
    """A bidirectional transformer with the FiLM readout at every position."""

    def __init__(self, tokens: int, classes: int, length: int, width: int, layers: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(tokens, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(PlainBlock(width, heads, mlp) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.readout = PlainReadout(width, classes, width, mlp)

    def features(self, x: Tensor, t: Tensor) -> Tensor:
        h = torch.cat([sinusoidal(t, self.width)[:, None], self.embed(x) + self.places], dim=1)
        for block in self.blocks:
            h = block(h, None)
        return self.norm(h[:, 1:])

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.readout(self.features(x, t), t)


class PlainMasked(nn.Module):
    """One masked copy of the sequence for each position."""

    def __init__(self, states: int, length: int, **sizes: int) -> None:
        super().__init__()
        self.states = states
        self.denoiser = PlainDenoiser(states + 1, states, length, **sizes)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        length = x.shape[1]
        copies = x.repeat_interleave(length, dim=0)
        where = torch.arange(length).repeat(x.shape[0])
        rows = torch.arange(len(where))
        copies[rows, where] = self.states
        return self.denoiser(copies, t.repeat_interleave(length))[rows, where].view(*x.shape, -1)


class PlainMLPEnergy(nn.Module):
    """One copy of the sequence for each value of each position, through the whole MLP."""

    def __init__(self, length: int, states: int, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.states, self.width = states, width
        inputs = [length if states == 2 else length * states] + [width] * (layers - 1)
        self.layers = nn.ModuleList(nn.Linear(n, width) for n in inputs)
        self.last = nn.Linear(width, 1)

    def energy(self, x: Tensor, t: Tensor) -> Tensor:
        h = x.float() if self.states == 2 else F.one_hot(x, self.states).float().flatten(1)
        time = sinusoidal(t, self.width)
        for layer in self.layers:
            h = F.elu(layer(h) + time)
        return self.last(h).squeeze(-1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        batch, length = x.shape
        copies = x[:, None, None].repeat(1, length, self.states, 1)
        for d in range(length):
            copies[:, d, :, d] = torch.arange(self.states)
        times = t.repeat_interleave(length * self.states)
        return -self.energy(copies.flatten(0, 2), times).view(batch, length, self.states)


def transition(a: Tensor, states: int) -> Tensor:
    """The uniform process as a dense matrix, (batch, states, states)."""
    return a[:, None, None] * torch.eye(states) + (1 - a)[:, None, None] / states


def loss(model: nn.Module, x0: Tensor, rate: float, states: int) -> Tensor:
    """Conditional ratio matching with a dense transition matrix."""
    t = (torch.arange(len(x0)) + torch.rand(len(x0))) / len(x0)
    matrix = transition(torch.exp(-states * rate * t), states)
    target = matrix[torch.arange(len(x0))[:, None], x0]
    xt = torch.distributions.Categorical(probs=target).sample()
    p0 = torch.softmax(model(xt, t), dim=-1)
    log_pt = torch.log(p0 @ matrix)
    return -(target * log_pt).sum(-1).sum(-1).mean()


@torch.no_grad()
def analytical_step(model: nn.Module, xt: Tensor, t: float, s: float, rate: float, states: int) -> Tensor:
    """One analytical step with dense transition matrices."""
    time = torch.full((len(xt),), t)
    p0 = torch.softmax(model(xt, time), dim=-1)
    to_s = transition(torch.exp(-states * rate * torch.full((len(xt),), s)), states)
    s_to_t = transition(torch.exp(-states * rate * torch.full((len(xt),), t - s)), states)
    likelihood = s_to_t.transpose(1, 2)[torch.arange(len(xt))[:, None], xt]
    weights = likelihood * (p0 @ to_s)
    return torch.distributions.Categorical(probs=weights).sample()
