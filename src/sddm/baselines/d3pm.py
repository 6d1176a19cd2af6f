"""D3PM: diffusion in discrete time (Austin, Johnson, Ho, Tarlow and van den Berg, NeurIPS 2021).

A chain makes N steps from the data x_0 to noise x_N, and the model is a chain back,

    p(x_{k-1}^d | x_k)  is proportional to  q(x_k^d | x_{k-1}^d) sum_c q(x_{k-1}^d | x_0^d = c) p_{0|k}(c | x_k^{\\d}).

This is the library's analytical step: by the leave-one-out identity it is the mean of the posterior
q(x_{k-1}^d | x_k^d, x_0^d) over what an ordinary denoiser p(x_0^d | x_k) says of x_0. Any numbers of steps s < k may be
taken in place of k - 1. The variational bound is

    -log p(x_0)  <=  KL(q(x_N | x_0) || p(x_N)) + sum_k E sum_d KL(q(x_{k-1}^d | x_k^d, x_0^d) || p(x_{k-1}^d | x_k)),

where the term of k = 1 is -log p(x_0 | x_1). Training minimises the mean over k of its terms, plus the cross entropy
-log p(x_0^d | x_k) with a small weight.

The network's logits are those of p_{0|k}(x_0^d | x_k^{\\d}), as those of the released code are when they enter the
formula above (`LeaveOneOut`), and the network sees all of x_k. There are two differences to that code. It takes the
same logits as log p(x_0^d | x_k) in the cross entropy and at k = 1, without the factor q(x_k^d | x_0^d), which is exact
where all x_0 are equally likely to give x_k^d (for a MASK, say); and its last step takes the most likely value, where
this one draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.baselines.chains import Chain
from sddm.codecs import Codec
from sddm.diffusion import Diffusion
from sddm.likelihood import Bound, estimated_bound, with_a_moved_token
from sddm.losses import Loss, Noised
from sddm.marginals import MarginalModel
from sddm.noising import NoisedBatch
from sddm.randomness import Stream
from sddm.shapes import Times
from sddm.training.batches import Data
from sddm.training.config import TrainingConfig
from sddm.training.descent import Descent
from sddm.training.diffusion import DiffusionLearner
from sddm.training.rules import Known, OnGrid

AUXILIARY = 0.001
"""The weight of the cross entropy; the paper takes 0.001 or 0.01."""


class D3PM(Diffusion):
    """A chain, and a model of x_0.

    >>> model = D3PM(chain := UniformChain(129, steps=1000), LeaveOneOut.for_process(chain, length=256))
    >>> config = TrainingConfig(learning_rate=2e-4, known="prefix:32")
    >>> model = learn(D3PMLearner(model, config), Epochs(data, config.batch_size), config)
    >>> model.sample(16, seed=0, steps=50, condition=Condition.from_prefix(melody, 256))
    >>> model.bound(rows).bits_per_dim
    """

    def __init__(self, chain: Chain, model: MarginalModel, codec: Codec | None = None) -> None:
        _checks.instance(chain, Chain, "chain")
        super().__init__(chain, model, codec)
        _checks.require(model.implicit, "D3PM needs a model that predicts x0. Build it with implicit=True.")
        self.chain = chain

    def sample(
        self, num: int, *, seed: int | None = None, steps: int | None = None, **options: Any
    ) -> Int[Tensor, "num dim"]:
        """Ancestral sampling by `steps` of the chain's steps, equally far apart; by all of them unless it is given.

        The other options are those of `sddm.sample`.
        """
        steps = self.chain.steps if steps is None else steps
        return super().sample(num, seed=seed, **{"grid": self.chain.grid(steps), **options})

    def bound(self, x0: Int[Tensor, "batch dim"], num_times: int = 128, **options: Any) -> Bound:
        """The variational bound on -log p(x_0) of each row; arguments and result are those of `sddm.likelihood.bound`.

        Its N terms are added up by drawing k in num_times / 8 strata, eight times; with num_times = 8 N, each term is
        evaluated eight times. Each evaluation takes two passes of the model.
        """
        return estimated_bound(self, x0, num_times, _numbers, _terms, **options)


def _numbers(diffusion: Diffusion, u: Float64[Tensor, "times"]) -> tuple[Times, Float64[Tensor, "times"]]:
    """The time k/N of k = ceil(N u), and the weight N that turns a mean over k into a sum."""
    assert isinstance(diffusion, D3PM)
    steps = diffusion.chain.steps
    k = (u * steps - 1e-9).ceil().clamp(1, steps)  # u = k/N may be rounded up
    return k / steps, torch.full_like(u, steps)


def _terms(diffusion: Diffusion, noised: NoisedBatch, randomness: Stream) -> Float64[Tensor, "batch"]:
    return with_a_moved_token(step_divergence, diffusion, noised, randomness)


def _divergence(noised: Noised, s: Times) -> Float64[Tensor, "batch num"]:
    """KL(q(x_s^d | x_t^d, x_0^d) || p(x_s^d | x_t)), in float64, as neighbouring steps hardly differ.

    Both laws are proportional to q(x_t^d | x_s^d), times the law of x_s^d given x_0^d, or given x_t^{\\d}.
    """
    noised.forbid_pool("The loss of D3PM")
    process, t = noised.process, noised.t
    log_x0, least = noised.marginals.require_x0("D3PM").double(), torch.finfo(torch.float64).tiny
    early, likelihood = process.tau(0.0, s), process.likelihood_by(noised.xt, process.tau(s, t), torch.float64)
    log_p = torch.log_softmax(process.log_push_by(log_x0, early) + likelihood.clamp_min(least).log(), dim=-1)
    q = process.law_by(noised.x0, early, torch.float64) * likelihood
    q = q / q.sum(-1, keepdim=True).clamp_min(least)  # 0 for a given token that the noise cannot leave
    return torch.where(q > 0, q * (q.clamp_min(least).log() - log_p), 0).sum(-1)


@Loss
def step_divergence(noised: Noised) -> Float[Tensor, "batch num"]:
    """KL(q(x_{k-1}^d | x_k^d, x_0^d) || p(x_{k-1}^d | x_k)): the term of step k in the variational bound."""
    assert isinstance(noised.process, Chain)
    return _divergence(noised, noised.process.before(noised.t))


def hybrid(auxiliary: float = AUXILIARY) -> Loss:
    """`step_divergence` plus `auxiliary` times the cross entropy -log p(x_0^d | x_k), which is the same divergence of a
    step from k to 0."""
    _checks.require(_checks.finite(auxiliary, "auxiliary") >= 0, f"auxiliary must be at least 0, but is {auxiliary}.")

    def d3pm_hybrid(noised: Noised) -> Float[Tensor, "batch num"]:
        value = step_divergence.value(noised)
        return value if auxiliary == 0 else value + auxiliary * _divergence(noised, torch.zeros_like(noised.t))

    return Loss(d3pm_hybrid)


class D3PMLearner(DiffusionLearner):
    """Trains a `D3PM` by the hybrid loss at steps k drawn uniformly, by the loop that trains diffusions.

    auxiliary: weight of the cross entropy.   known: a rule for what is known of each row, if not that of the config.
    """

    def __init__(
        self,
        model: D3PM,
        config: TrainingConfig,
        auxiliary: float = AUXILIARY,
        known: Known | None = None,
        held_out: Data | None = None,
    ) -> None:
        _checks.instance(model, D3PM, "model")
        _checks.require(
            (config.loss, config.times) == (None, "uniform"),
            "loss and times: D3PM has its own loss, at the steps of its chain. Leave them out.",
        )
        self.auxiliary, self.chain = auxiliary, model.chain
        super().__init__(model, config, hybrid(auxiliary), known, OnGrid(model.chain.steps), held_out)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "chain": repr(self.chain), "auxiliary": self.auxiliary}

    def finish(self, folder: Path | None) -> D3PM:
        """The model with the averaged weights. They are in the last checkpoint; no model is saved beside it."""
        result: D3PM = Descent.finish(self, folder)
        return result
