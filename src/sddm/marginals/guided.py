"""Guidance without a classifier: what a model says with a label and without it, mixed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals
from sddm.marginals.wrappers import Wrapper
from sddm.processes import Process
from sddm.query import NO_LABEL, Query
from sddm.shapes import Laws

LARGEST_LOG_RATIO = 60.0
"""Where the formula divides by a probability of 0, the ratio of the two laws counts as e^60."""


class Guided(Wrapper):
    """The geometric mixture of the conditionals with the label y of the row and without it, for any number gamma:

        p_gamma(. | x_t^{\\d})  is proportional to  p(. | x_t^{\\d})^(1 - gamma)  p(. | x_t^{\\d}, y)^gamma.

    gamma = 1 is the model of the label and 0 that of all data. Above 1, what tells the label from the rest of the data
    is exaggerated; below 0, the samples lead away from the label.

    What is mixed is the law of X_0^d, if the model predicts it. The noise is that of the process: a law of data, pushed
    to t. So every step is defined for it, the rate at which positions are unmasked does not change, and

        in one dimension the samples have the law  p(x)^(1 - gamma) p(x | y)^gamma / Z  exactly, for every gamma.

    In more dimensions no mixture of conditionals gives that law, unless the positions are independent.

    rates: mix the laws of X_t^d instead, whose ratios the reverse rates are made of. This is the geometric mixture of
        rates, R_gamma = R^(1 - gamma) R(. | y)^gamma (Nisonoff et al., 2025), exactly. It is not the reverse process of
        any law unless gamma is 0 or 1. Under uniform noise, even in one dimension the samples do not have the law
        above; under absorbing noise positions are unmasked faster for gamma > 1, as the mixture is not normalised.
        Sample it by rates: `Euler`, `TauLeaping`. A model that predicts X_t alone is always mixed so.

    The label of a row may be missing; then gamma does not matter. A question costs two evaluations, made as one batch.

    >>> Diffusion(process, Guided(model, 2.0)).sample(16, labels=torch.full((16,), 3))
    """

    def __init__(self, model: MarginalModel, guidance: float, rates: bool = False) -> None:
        super().__init__(model)
        self.guidance = _checks.finite(guidance, "guidance")
        self.rates = _checks.instance(rates, bool, "rates")
        self.implicit = model.implicit and not rates
        self.ordered = model.ordered and self.implicit
        _checks.require(
            model.num_labels != 0,
            "guidance needs a model that was trained with labels, but this one knows none. Leave out guidance, or "
            "train on data with labels.",
        )

    def forward(self, process: Process, query: Query) -> Marginals:
        if query.label is None or self.guidance in (0.0, 1.0):
            one = query if self.guidance else query._replace(label=None)
            return self.changed(self.model(process, one), process, query)
        without, told = self._both(process, query)
        mixed = mixture(without, told, self.guidance)
        return Marginals.from_x0(mixed, process, query.t) if self.implicit else Marginals(mixed)

    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        return marginals if self.implicit else Marginals(marginals.log_xt)

    def _both(self, process: Process, query: Query) -> tuple[Laws, Laws]:
        """The laws to mix: without the labels, and with them."""
        assert query.label is not None
        twice = query.rows(torch.arange(len(query.xt), device=query.xt.device).repeat(2))
        labels = torch.cat([torch.full_like(query.label, NO_LABEL), query.label])
        marginals = self.model(process, twice._replace(label=labels, memory=query.memory))
        without, told = (marginals.require_x0("Guided") if self.implicit else marginals.log_xt).chunk(2)
        return without, told


def mixture(without: Laws, told: Laws, guidance: float) -> Laws:
    """(1 - gamma) log p + gamma log p_y, normalised. What is impossible without the label stays so."""
    ratio = told - without
    ratio = ratio.clamp(max=LARGEST_LOG_RATIO) if guidance > 0 else ratio.clamp(min=-LARGEST_LOG_RATIO)
    return F.log_softmax(torch.where(without == -float("inf"), without, without + guidance * ratio), dim=-1)
