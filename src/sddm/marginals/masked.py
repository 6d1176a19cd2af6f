"""Conditionals from a masked model: each position is hidden in turn."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals
from sddm.networks import Denoiser
from sddm.networks.chunks import at_once, in_chunks
from sddm.processes import Process
from sddm.query import Query


class Masked(MarginalModel):
    """p(X^d | x_t^{\\d}) = softmax of the logits at d when x_t^d is replaced by a token HIDDEN   (Section 5.2).

    k positions cost k passes, in chunks of `chunk_tokens` tokens. The network's last token is HIDDEN.

    >>> Masked.for_process(process, grid=(8, 8), sizes=BERT_BASE)
    """

    architecture = Denoiser
    by_position = True
    takes_ahead = True
    own_tokens = 1  # HIDDEN

    def __init__(self, network: Denoiser, implicit: bool = True, chunk_tokens: int = 1 << 17) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.chunk_tokens = _checks.whole(chunk_tokens, "chunk_tokens", 1)
        self.length = network.length

    def forward(self, process: Process, query: Query) -> Marginals:
        places, each = query.places, query.one_by_one()
        rows = max(1, at_once(self.chunk_tokens, query.xt.device) // (query.xt.shape[1] + 1))
        logits = in_chunks(self._hidden, (each,), rows)
        return self.from_logits(logits.reshape(*places.shape, -1), process, query.t)

    def _hidden(self, query: Query) -> Float[Tensor, "batch 1 classes"]:
        """The logits at the one position of each row that is asked for, while it is hidden."""
        hidden = query.xt.scatter(1, query.places, self.network.num_tokens - 1)
        given = query.given
        if given is not None:  # a hidden token tells nothing, not even that it was clean
            given = given.scatter(1, query.places, False)
        return self.network(query._replace(xt=hidden, given=given))
