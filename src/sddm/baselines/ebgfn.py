"""EB-GFN: an energy and a GFlowNet that learn from each other.

The GFlowNet learns to sample from the energy's law: with R(x) = exp(-f(x)) it lowers the square of the residual

    r(tau) = log Z + sum_i log P_F(s_i | s_{i-1}) - sum_i log P_B(s_{i-1} | s_i) + f(x)            (trajectory balance)

on trajectories that P_B draws from data and on trajectories that P_F draws. The energy learns by contrastive
divergence, from f(x) - f(x') of data x and of what one move of a chain that leaves exp(-f) invariant makes of it:

    x --- K steps of P_B ---> s --- K steps of P_F ---> x'          accepted with probability min(1, exp(log ratio))
    log ratio = f(x) - f(x') + log P_B(x' -> s) P_F(s -> x) - log P_B(x -> s) P_F(s -> x') = r(tau) - r(tau')

Here tau and tau' are trajectories to x and x' that share the way to s, so that it cancels, as does Z. So one evaluation
of the two serves both losses, and where trajectories are balanced every proposal is accepted. With K = D the way back
ends in the void state, and tau' is a sample of the GFlowNet.

(Zhang, Malkin, Liu, Volokhova, Courville, Bengio: Generative Flow Networks for Discrete Probabilistic Modeling, 2022.)
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.baselines.base import Baseline, TimelessEnergy
from sddm.baselines.gflownet import Fillings, Policy, explored
from sddm.randomness import Stream
from sddm.training.ema import follow


class Losses(NamedTuple):
    """The losses of a batch of data, and which proposals were accepted."""

    balance: Float[Tensor, ""]
    """The mean square residual, of the policies and log Z."""
    divergence: Float[Tensor, ""]
    """The mean of f(x) - f(x'), of the energy; x' = x where the proposal was not accepted."""
    accepted: Bool[Tensor, "batch"]


class EBGFN(Baseline):
    """An energy f and a GFlowNet, trained jointly; samples are the GFlowNet's.

    length: the number D of bits.
    energy_width, energy_layers: of the energy's MLP.
    policy_width, policy_layers: of the MLP of the policies.
    learned_backward: whether P_B is learned, or empties every filled position with the same probability.
    steps_back: how many steps K a proposal goes back and forth; None is all D, and proposals are independent of x.
    exploration: the probability with which a step forward in training fills a void position at random. The acceptance
        of proposals takes it into account.
    data_share: alpha, the weight of trajectories from data in the balance; that of trajectories of P_F is the rest. The
        commands that the authors released have 0.5 throughout; with 1, as the published runs are described, P_F is
        never corrected on its own trajectories. docs/densities.md has the figures of both.
    energy_rate, policy_rate, partition_rate: Adam's learning rates for f, for the policies and for log Z, a single
        number that has to change much.
    decay_steps: the rates fall to 0 along half a cosine in this many steps; None keeps them constant.
    averaging: decay of the moving average of the policies, from which samples come.

    The defaults suit a few thousand steps on one core. The authors' code runs 100,000 steps on batches of 128 with
    policy_width=256, a learned P_B, the rates 1e-3, 1e-3 and 1, and a K that grows from 1 to D during training.

    >>> system = EBGFN(length=32, decay_steps=5_000)
    >>> learn(system, lambda step: toy.tokens(64, generator_of(0, "rows", step)), RunConfig(steps=5_000))
    >>> system.sample(4_000, torch.Generator().manual_seed(0))
    """

    piece = 4_096
    steps: Int[Tensor, ""]

    def __init__(
        self,
        length: int,
        energy_width: int = 256,
        energy_layers: int = 3,
        policy_width: int = 128,
        policy_layers: int = 3,
        learned_backward: bool = False,
        steps_back: int | None = None,
        exploration: float = 0.0,
        data_share: float = 0.5,
        energy_rate: float = 5e-4,
        policy_rate: float = 2e-3,
        partition_rate: float = 0.1,
        decay_steps: int | None = None,
        averaging: float = 0.999,
    ) -> None:
        super().__init__(length, decay_steps)
        self.steps_back = length if steps_back is None else _checks.whole(steps_back, "steps_back", 1, length)
        self.exploration = _checks.share(exploration, "exploration")
        self.data_share = _checks.finite(data_share, "data_share")
        _checks.require(0 <= data_share <= 1, f"data_share must lie in [0, 1], but it is {data_share:g}.")
        self.averaging = _checks.share(averaging, "averaging")
        self.energy = TimelessEnergy(length, width=energy_width, layers=energy_layers)
        self.policy = Policy(length, width=policy_width, layers=policy_layers, learned_backward=learned_backward)
        self.averaged_policy = copy.deepcopy(self.policy).requires_grad_(False)
        self.log_partition = nn.Parameter(torch.zeros(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        learners = {
            "energy": (self.energy.parameters(), energy_rate),
            "policy": (self.policy.parameters(), policy_rate),
            "partition": ([self.log_partition], partition_rate),
        }
        self._optimizers = {
            name: torch.optim.Adam(weights, lr=_checks.positive(rate, f"{name}_rate"), fused=True)
            for name, (weights, rate) in learners.items()
        }

    def update(self, rows: Int[Tensor, "batch dim"], generator: torch.Generator) -> dict[str, float]:
        """One step of the energy, of the policies and of log Z, on the same rows."""
        losses = self.losses(_checks.tokens(rows, 2, "rows", length=self.length), generator)
        done = 0.0 if self.decay_steps is None else min(1.0, int(self.steps) / self.decay_steps)
        self._descend(losses.balance + losses.divergence, rate=(1 + math.cos(math.pi * done)) / 2)
        follow(self.averaged_policy.parameters(), self.policy.parameters(), int(self.steps), self.averaging)
        self.steps += 1
        return {
            "balance": float(losses.balance.detach()),
            "divergence": float(losses.divergence.detach()),
            "accepted": float(losses.accepted.double().mean()),
            "log Z": float(self.log_partition.detach()),
        }

    def losses(self, rows: Int[Tensor, "batch dim"], generator: torch.Generator) -> Losses:
        """Go back from data and forth to proposals; the trajectories of both serve the balance and the test.

        No gradient passes from one loss to the other's weights: the reward is given to the policies, and the
        acceptance to the energy.
        """
        back = self.policy.empty(rows, generator)
        forth = self.policy.back_and_forth(back, self.steps_back, generator, self.exploration)
        energies = self.energy(torch.cat([back.rows, forth.rows]))
        residuals, drawn_residuals = self.residuals(back.joined(forth), energies.detach())

        data, proposed = residuals.square().chunk(2)
        balance = self.data_share * data.mean() + (1 - self.data_share) * proposed.mean()

        data, proposed = drawn_residuals.detach().chunk(2)
        uniforms = Stream(generator).uniform((len(rows),), rows.device)
        accepted = uniforms < (data - proposed).exp()

        data, proposed = energies.chunk(2)
        return Losses(balance, (accepted * (data - proposed)).mean(), accepted)

    def residuals(
        self, trajectory: Fillings, energies: Float[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
        """r(tau) with P_F, for the balance, and with the exploring P_F of the draws, for the acceptance."""
        forward, backward = self.policy.log_probabilities(trajectory)
        rest = self.log_partition - backward.sum(1) + energies
        return forward.sum(1) + rest, explored(forward, self.exploration).sum(1) + rest

    def _drawn(self, rows: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows dim"]:
        """Trajectories of P_F from the void state."""
        return self.averaged_policy.sample(len(rows), generator)
