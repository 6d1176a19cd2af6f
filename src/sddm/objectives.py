"""The objectives of other papers, as their authors state them, and the table of all losses.

They are one bound in three forms. With x = x_t^d, r_y = q(y) / q(x) of q = q_{t|0}(. | x_0^d), and s_y the same ratio
of the model, the integrand of the continuous-time bound at the drawn x_t^d is

    sum_{y != x} Q_t(y, x) [ s_y - r_y + r_y log(r_y / s_y) ].

    score_entropy   the same without the terms that hold no parameters; for any noise
    mdlm            what it is under absorbing noise: cross entropy where x is MASK, with a weight
    udlm            what it is under uniform noise
    tauldr          the bound, with a little of a denoiser's cross entropy

`losses.ct_elbo` is the mean of these over x_t^d, where the prediction does not look at x_t^d: the same mean, less noise
in the gradient. tests/test_objectives.py proves each of these statements on enumerated spaces.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sddm.losses import (
    Loss,
    Noised,
    conditional_ratio_matching,
    ct_elbo,
    denoising_cross_entropy,
    ratio_matching,
    x0_cross_entropy,
)
from sddm.processes import Absorbing, Process, Uniform

TAULDR_AUXILIARY = 0.001
"""The weight of the cross entropy in `tauldr`."""


def _only_under(kind: type[Process], process: Process, loss: str) -> None:
    if not isinstance(process, kind):
        raise ValueError(f"{loss} is for the process {kind.__name__}, but this is {process!r}. Use ct_elbo.")


@Loss
def score_entropy(noised: Noised) -> Float[Tensor, "batch num"]:
    """sum_{y != x} Q_t(y, x) [ s_y - r_y log s_y ],    the denoising score entropy of SEDD (Lou et al., 2024)."""
    noised.forbid_pool("score_entropy")
    process, xt, log_p = noised.process, noised.xt[..., None], noised.marginals.log_xt
    log_s = log_p - log_p.gather(-1, xt)
    q = process.law_by(noised.x0, process.tau(0.0, noised.t), log_p.dtype)
    r = q / q.gather(-1, xt)
    rates = process.rates_into(noised.xt, log_p.dtype) * process.speed(noised.t, log_p.dtype)
    return torch.where(rates > 0, rates * (log_s.exp() - torch.where(r > 0, r * log_s, 0)), 0).sum(-1)


@Loss
def mdlm(noised: Noised) -> Float[Tensor, "batch num"]:
    """-a' / (1 - a) [x = MASK] (-log p_{0|t}(x_0^d)),    with a the share of the data that is left: the weighted cross
    entropy of MDLM (Sahoo et al., 2024), also of MD4 (Shi et al., 2024)."""
    _only_under(Absorbing, noised.process, "mdlm")
    noised.forbid_pool("mdlm")
    log_x0, process = noised.marginals.require_x0("mdlm"), noised.process
    assert isinstance(process, Absorbing)
    masked, tau = noised.xt == process.mask, process.tau(0.0, noised.t)
    # a = exp(-tau) and a' = -beta a. Where nothing is masked, at t = 0, the weight has no value.
    weight = process.speed(noised.t, log_x0.dtype)[..., 0] / torch.expm1(tau).to(log_x0.dtype)[:, None]
    return torch.where(masked, weight, 0) * -log_x0.gather(-1, noised.x0[..., None]).squeeze(-1)


@Loss
def udlm(noised: Noised) -> Float[Tensor, "batch num"]:
    """-a' / (C a) [ C / m_x - C / u_x + sum_y (u_y / u_x) log((m_x u_y) / (m_y u_x)) ],

    with u = C a [. = x_0^d] + 1 - a, and m = C a p_{0|t} + 1 - a of the model: the bound of UDLM (Schiff et al., 2025).
    """
    _only_under(Uniform, noised.process, "udlm")
    noised.forbid_pool("udlm")
    log_x0, process = noised.marginals.require_x0("udlm"), noised.process
    count, xt = process.num_states, noised.xt[..., None]
    decay = -count * process.tau(0.0, noised.t)
    # In float32, 1 - a would be 0 near t = 0.
    a, gone = (share.to(log_x0.dtype)[:, None, None] for share in (torch.exp(decay), -torch.expm1(decay)))
    m = count * a * log_x0.exp() + gone
    u = gone.expand_as(m).scatter_add(-1, noised.x0[..., None], (count * a).expand(-1, xt.shape[1], 1))
    m_x, u_x = m.gather(-1, xt), u.gather(-1, xt)
    possible = u > 0
    terms = torch.where(possible, u / u_x * (m_x / m * torch.where(possible, u / u_x, 1)).log(), 0)
    # a' = -C beta a
    return (process.speed(noised.t, log_x0.dtype) * (count / m_x - count / u_x + terms.sum(-1, keepdim=True)))[..., 0]


@Loss
def tauldr(noised: Noised) -> Float[Tensor, "batch num"]:
    """ct_elbo + 0.001 (-log p(x_0^d | x_t)), both from one evaluation: the loss of tauLDR (Campbell et al., 2022).

    The authors write the bound as the model's rate out of x_t, minus Z(x_t) times the logarithm of its rate from x~
    back to x_t, where x~ is one jump of the noise later, and Z the noise's rate out of x_t. That takes two evaluations.
    Here the second term is summed over all jumps that lead to the one row that is drawn, so that one evaluation gives
    both, and the gradient has the same mean.

    The released code evaluates once at x~ and corrects the second term for that, but not the first, so that the mean of
    its gradient is another; and it divides the cross entropy, not the bound, by the number of positions.
    """
    return ct_elbo.value(noised) + TAULDR_AUXILIARY * denoising_cross_entropy.value(noised)


LOSSES: dict[str, Loss] = {
    "conditional-ratio-matching": conditional_ratio_matching,
    "ratio-matching": ratio_matching,
    "x0-cross-entropy": x0_cross_entropy,
    "denoising-cross-entropy": denoising_cross_entropy,
    "ct-elbo": ct_elbo,
    "score-entropy": score_entropy,
    "mdlm": mdlm,
    "udlm": udlm,
    "tauldr": tauldr,
}
"""By the names that `sddm train --loss` takes."""
