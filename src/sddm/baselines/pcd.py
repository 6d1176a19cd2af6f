"""Persistent contrastive divergence (Tieleman 2008): an energy, trained by maximum likelihood.

The model is p(x) = exp(-f(x)) / Z. The gradient of its log-likelihood needs no Z, but draws from the model itself:

    grad E_data[log p(x)] = E_p[grad f(x)] - E_data[grad f(x)]

The draws are the states of Markov chains that are never restarted: a training step makes some Gibbs moves of them under
the current energy. A step changes the energy little: chains whose law was p before it have nearly the law p after it.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.baselines.base import Baseline, TimelessEnergy
from sddm.baselines.gibbs import random_scan
from sddm.training.ema import follow


class PCD(Baseline):
    """Persistent contrastive divergence with Gibbs sampling, on the energy MLP of the diffusion.

    The chains start from uniform noise in the first step. A step on a batch of n rows moves n of them, drawn at random
    (all, if there are fewer), and takes their new states as the draws from p.

    Samples are made with the moving average of the weights, by `sampling_moves` Gibbs moves from the states of the
    chains, taken in turn. The chains have the right share of each mode, which Gibbs moves from noise reach slowly. The
    moves lead from the law of the last weights to that of the average, and separate samples of the same chain. On
    2spirals as 32 bits, samples after 320 moves, ten a position, could not be distinguished from those after twice as
    many, nor from chains that started from uniform noise. Still, samples of one chain may be in the same mode: `groups`
    says which these are, so that a metric can count the chains as the independent draws.

    width, layers: of the energy.
    chains: the number of persistent chains. More chains represent the law of the model better, but each is moved more
        rarely: with 32 times the batch and 8 moves the chains lagged behind the energy, and training diverged.
    moves: Gibbs moves of a chain in a step that chooses it.
    learning_rate: Adam's learning rate, at the start.
    decay_steps: the learning rate falls linearly to 0 over this many steps (None: it is constant).
    average: decay of the moving average of the weights; 0 takes the last weights.
    penalty: weight of E_data[f^2] + E_p[f^2] in the loss, which keeps energies near 0.
    sampling_moves: Gibbs moves of a sample.

    >>> toy = Toy("2spirals")
    >>> system = PCD(toy.length, decay_steps=12_000)
    >>> learn(system, lambda step: toy.tokens(128, generator_of(0, "data", step)), RunConfig(steps=12_000))
    >>> system.sample(4_000, torch.Generator().manual_seed(0))
    """

    chains: Int[Tensor, "chains dim"]
    steps_made: Int[Tensor, ""]

    def __init__(
        self,
        length: int,
        width: int = 256,
        layers: int = 3,
        chains: int = 500,
        moves: int = 16,
        learning_rate: float = 1e-3,
        decay_steps: int | None = None,
        average: float = 0.999,
        penalty: float = 0.0,
        sampling_moves: int = 320,
    ) -> None:
        super().__init__(length, decay_steps)
        self.moves = _checks.whole(moves, "moves", 1)
        self.decay = _checks.share(average, "average")
        self.penalty = _checks.finite(penalty, "penalty")
        _checks.require(penalty >= 0, f"penalty must not be negative, but it is {penalty}.")
        self.sampling_moves = _checks.whole(sampling_moves, "sampling_moves", 0)
        self.energy = TimelessEnergy(length, width, layers)
        self.averaged_energy = copy.deepcopy(self.energy).requires_grad_(False)
        _checks.whole(chains, "chains", 1)
        self.register_buffer("chains", torch.zeros(chains, length, dtype=torch.int64))
        self.register_buffer("steps_made", torch.zeros((), dtype=torch.int64))
        rate = _checks.positive(learning_rate, "learning_rate")
        self._optimizers = {"energy": torch.optim.Adam(self.energy.parameters(), rate)}

    def update(self, rows: Int[Tensor, "batch dim"], generator: torch.Generator) -> dict[str, float]:
        """Move some chains, and follow the gradient of the likelihood with their states as draws from the model."""
        rows = _checks.tokens(rows, 2, "rows", length=self.length, device=self.chains.device)
        step = int(self.steps_made)
        if step == 0:
            self.chains.copy_(self._noise(len(self.chains), generator))
        order = torch.randperm(len(self.chains), generator=generator, device=generator.device)
        chosen = order[: len(rows)].to(self.chains.device)
        drawn = self.chains[chosen] = random_scan(self.energy, self.chains[chosen], self.moves, generator)

        data, model = self.energy(torch.cat([rows, drawn])).split([len(rows), len(drawn)])
        loss = data.mean() - model.mean() + self.penalty * (data.square().mean() + model.square().mean())
        self._descend(loss, rate=1.0 if self.decay_steps is None else max(0.0, 1 - step / self.decay_steps))
        follow(self.averaged_energy.parameters(), self.energy.parameters(), step, self.decay)
        self.steps_made += 1
        gap, level = torch.stack([model.mean() - data.mean(), data.mean()]).tolist()
        return {"energy gap": gap, "energy of data": level}

    def _drawn(self, rows: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows dim"]:
        """Chains after `sampling_moves` moves from the persistent ones (before any training: from noise)."""
        untrained = int(self.steps_made) == 0
        start = self._noise(len(rows), generator) if untrained else self.chains[rows % len(self.chains)]
        return random_scan(self.averaged_energy, start, self.sampling_moves, generator)

    def groups(self, num: int) -> Int[Tensor, "num"]:
        """The chain from which each sample starts."""
        return torch.arange(num, device=self.chains.device) % len(self.chains)

    def _noise(self, num: int, generator: torch.Generator) -> Int[Tensor, "num dim"]:
        bits = torch.randint(2, (num, self.length), generator=generator, device=generator.device)
        return bits.to(self.chains.device)
