"""Guidance by a classifier of noised data, for a model that knows no labels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals
from sddm.marginals.wrappers import Wrapper
from sddm.networks.neighbours import at_neighbours
from sddm.processes import Process
from sddm.query import NO_LABEL, Query, at_positions
from sddm.shapes import AskedLaws

LEAST_LOG = -1e4
"""A label that the classifier excludes has this log-probability, so that guidance away from it stays finite."""


class Classified(Wrapper):
    """Guidance towards the label y of the row by a classifier p(y | x_t, t):

        p_t(c | x_t^{\\d}, y)  is proportional to  p_t(c | x_t^{\\d})  p(y | [c, x_t^{\\d}], t)^gamma,

    so that the reverse rates are R(x -> x') (p(y | x', t) / p(y | x, t))^gamma (Nisonoff et al., 2025).

    For gamma = 1 this is Bayes' rule: with the true model and the true classifier it is the reverse process given y,
    exactly. Other gammas change the rates alone, as `Guided` with rates=True does: sample these by `Euler` or
    `TauLeaping`.

    The exact form asks the classifier about every single change of x_t, D (C - 1) + 1 rows of each row.

    first_order: ask once, for the gradient with respect to the one-hot x_t:

        log p(y | [c, x_t^{\\d}]) - log p(y | x_t)  is about  the slope along c minus that along x_t^d.

        With log p(y | .) = f(eps h), f smooth and h linear in the one-hot vectors, this errs by O(eps^2) where the
        logarithm of the ratio itself is O(eps). The prediction at d then looks at x_t^d.

    classifier: a module such as `sddm.NoisedClassifier`: it has `num_labels`, takes a `Query` and returns
        log p(y | x_t, t) for every y. For first_order it must take one-hot vectors in `query.xt` too. If it has a
        `length` or a method `check(process)`, it is used with such models alone.
    chunk_tokens: how many tokens the classifier is asked about at once.

    >>> Diffusion(process, Classified(model, classifier, 2.0)).sample(16, labels=torch.full((16,), 3))
    """

    def __init__(
        self,
        model: MarginalModel,
        classifier: nn.Module,
        guidance: float = 1.0,
        first_order: bool = False,
        chunk_tokens: int = 1 << 17,
    ) -> None:
        super().__init__(model)
        _checks.instance(classifier, nn.Module, "classifier")
        self.classifier = classifier
        length = getattr(classifier, "length", None)
        _checks.require(
            length is None or model.length in (None, length),
            f"The classifier is for rows of {length} positions, but those of the model have {model.length}. Train a "
            "classifier of such rows, or name one.",
        )
        self.guidance = _checks.finite(guidance, "guidance")
        self.first_order = _checks.instance(first_order, bool, "first_order")
        self.chunk_tokens = _checks.whole(chunk_tokens, "chunk_tokens", 1)
        self.implicit = self.ordered = self.takes_ahead = False
        self.sees_own_token, self.by_position = model.sees_own_token or first_order, not first_order

    @property
    def num_labels(self) -> int:
        known: Any = self.classifier.num_labels
        return int(known)

    def check(self, process: Process) -> None:
        super().check(process)
        found = getattr(self.classifier, "num_tokens", process.num_symbols)
        _checks.require(
            found == process.num_symbols,
            f"classifier has num_tokens={found}, but {type(process).__name__} of {process.num_states} states needs "
            f"{process.num_symbols}. Build it with num_tokens=process.num_symbols.",
        )
        if hasattr(self.classifier, "check"):
            check: Any = self.classifier.check
            check(process)

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.changed(self.model(process, query._replace(label=None)), process, query)

    def changed(self, marginals: Marginals, process: Process, query: Query) -> Marginals:
        log_p = marginals.log_xt
        if query.label is None or self.guidance == 0:
            return Marginals(log_p)
        log_ratio = self.log_ratio(query, process.num_symbols).to(log_p.dtype)
        log_ratio = log_ratio.masked_fill((query.label == NO_LABEL)[:, None, None], 0)
        return Marginals(F.log_softmax(log_p + self.guidance * log_ratio, dim=-1))

    def log_ratio(self, query: Query, num_symbols: int) -> AskedLaws:
        """log p(y | [c, x_t^{\\d}], t) for every c at the positions asked for, up to a number for each position."""
        if self.first_order:
            return self._slopes(query, num_symbols)
        return at_neighbours(self._log_p, query, num_symbols, self.chunk_tokens).clamp(min=LEAST_LOG)

    def _log_p(self, query: Query) -> Float[Tensor, "batch"]:
        """log p(y | x_t, t) of the row's label; a row without one has any."""
        assert query.label is not None
        log_p: Tensor = self.classifier(query)
        return log_p.gather(1, query.label.clamp(min=0)[:, None]).squeeze(1)

    def _slopes(self, query: Query, num_symbols: int) -> AskedLaws:
        """The gradient of log p(y | x_t, t) with respect to the one-hot x_t, also inside `torch.inference_mode`."""
        dtype = next((weight.dtype for weight in self.classifier.parameters()), torch.float64)
        with torch.inference_mode(False), torch.enable_grad():
            own = query.copied()._replace(positions=None)
            one_hot = F.one_hot(own.xt, num_symbols).to(dtype).requires_grad_()
            (slopes,) = torch.autograd.grad(self._log_p(own._replace(xt=one_hot)).sum(), one_hot)
        return at_positions(slopes, query.positions)
