"""ALOE: an energy and a learned sampler of it, trained together (Dai, Singh, Dai, Sutton and Schuurmans, NeurIPS 2020).

The likelihood of the data under p_f(x) proportional to exp(-f(x)) rises along a contrast that needs draws of p_f,

    - grad log p_f = E_data[grad f(x)] - E_{p_f}[grad f(x)]

and a dual sampler q (see `editor`) supplies them. It is trained by variational power iteration. Gibbs moves under f are
a kernel K_f that leaves p_f invariant, so that q, K_f q, K_f K_f q, ... converges to p_f. The law K_f q has no closed
form, but one can draw from it, and q is fitted to the draws by likelihood:

    q <- argmax_q E_{x ~ K_f q_old}[log q(x)]

log q(x) is a sum over all trajectories of the sampler that end in x. It is replaced by a lower bound, at K trajectories
from the inverse proposal (random edits away from x), whose gradient weights them by importance.

A step of training makes one gradient step of each:
    1. draw x from q and improve it by K_f, which is `gibbs_sweeps` sweeps;
    2. step f down its contrast between the data and the improved rows;
    3. step q up the bound on log q of the same improved rows.

The code that the authors released differs: here a Gibbs sweep takes the positions of each row in random order; a
trajectory is reversed in the order in which it was drawn; to stop is one of the editor's choices instead of a network
of its own; one masked network replaces a network for each position; and samples are drawn with averaged weights.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.baselines.base import Baseline, TimelessEnergy
from sddm.baselines.editor import EditingSampler
from sddm.baselines.gibbs import sweep
from sddm.training.ema import follow


class ALOE(Baseline):
    """An energy MLP with a dual sampler.

    length: D, the number of bits.
    energy_width: width of the energy's three hidden layers.
    dual_width: width of both networks of the dual sampler. In ALOE+ it is well above that of the energy.
    max_edits: the most edits that the dual sampler makes.
    inverse_stop: the probability with which the inverse proposal stops before each further edit.
    trajectories: K, inverse trajectories a row.
    gibbs_sweeps: how often a training step redraws every position of the dual sampler's rows to improve them.
    sample_sweeps: the same when samples are drawn.
    energy_rate, dual_rate: learning rates of Adam.
    clip: largest norm of either gradient.
    averaging: decay of the averaged weights, with which samples are drawn.

    >>> torch.manual_seed(0)
    >>> system = ALOE(length=32)
    >>> learn(system, batches, RunConfig(steps=4_000))
    >>> system.sample(1_000, torch.Generator().manual_seed(0))
    """

    steps: Tensor

    def __init__(
        self,
        length: int,
        energy_width: int = 256,
        dual_width: int = 512,
        max_edits: int = 8,
        inverse_stop: float = 0.5,
        trajectories: int = 2,
        gibbs_sweeps: int = 1,
        sample_sweeps: int = 2,
        energy_rate: float = 1e-3,
        dual_rate: float = 1e-3,
        clip: float = 5.0,
        averaging: float = 0.998,
    ) -> None:
        super().__init__(length)
        self.trajectories = _checks.whole(trajectories, "trajectories", 1)
        self.gibbs_sweeps = _checks.whole(gibbs_sweeps, "gibbs_sweeps", 1)
        self.sample_sweeps = _checks.whole(sample_sweeps, "sample_sweeps", 0)
        self.clip = _checks.positive(clip, "clip")
        self.averaging = _checks.share(averaging, "averaging")
        self.energy = TimelessEnergy(length, energy_width)
        self.dual = EditingSampler(length, dual_width, max_edits, inverse_stop)
        self.averaged_energy = copy.deepcopy(self.energy).requires_grad_(False)
        self.averaged_dual = copy.deepcopy(self.dual).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._optimizers = {
            "energy": torch.optim.Adam(self.energy.parameters(), _checks.positive(energy_rate, "energy_rate")),
            "dual": torch.optim.Adam(self.dual.parameters(), _checks.positive(dual_rate, "dual_rate")),
        }

    def update(self, rows: Int[Tensor, "batch dim"], generator: torch.Generator) -> dict[str, float]:
        """One step of the energy and one of the dual sampler, on the same improved rows."""
        _checks.tokens(rows, 2, "rows", length=self.length)
        drawn = self.dual.sample(len(rows), generator)
        improved = sweep(self.energy, drawn, self.gibbs_sweeps, generator)
        contrast = self.energy(rows).mean() - self.energy(improved).mean()
        bound = self.dual.bound(improved, self.trajectories, generator).mean()
        self._descend(contrast - bound, clip=self.clip)  # the energy is in one of the two, the sampler in the other
        for average, present in ((self.averaged_energy, self.energy), (self.averaged_dual, self.dual)):
            follow(average.parameters(), present.parameters(), int(self.steps), self.averaging)
        self.steps += 1
        return {"contrast": contrast.item(), "bound": bound.item()}

    def _drawn(self, rows: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows dim"]:
        """Draws of the dual sampler after `sample_sweeps` Gibbs sweeps under the energy."""
        drawn = self.averaged_dual.sample(len(rows), generator)
        return sweep(self.averaged_energy, drawn, self.sample_sweeps, generator)
