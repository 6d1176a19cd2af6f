"""Conditionals from a masked model: each position is hidden in turn."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.marginals.base import MarginalModel, Marginals, all_positions, num_classes
from sddm.networks import Denoiser
from sddm.networks.chunks import at_once, in_chunks
from sddm.processes import Process


class Masked(MarginalModel):
    """p(X^d | x_t^{\\d}) = softmax of the logits at d when x_t^d is replaced by a token HIDDEN   (Section 5.2).

    k positions cost k passes, in chunks of `chunk_tokens` tokens. The network's last token is HIDDEN.

    >>> Masked.for_process(process, grid=(8, 8), **BERT_BASE)
    """

    by_position = True

    def __init__(self, network: Denoiser, implicit: bool = True, chunk_tokens: int = 1 << 17) -> None:
        super().__init__()
        self.network = network
        self.implicit = implicit
        self.chunk_tokens = _checks.whole(chunk_tokens, "chunk_tokens", 1)
        self.length = network.length

    @classmethod
    def for_process(
        cls,
        process: Process,
        length: int | None = None,
        grid: tuple[int, int] | None = None,
        implicit: bool = True,
        **sizes: Any,
    ) -> Masked:
        """A masked transformer for this process; `sizes` are those of `Denoiser`."""
        classes = num_classes(process, implicit)
        return cls(Denoiser(process.num_symbols + 1, classes, length, grid, **sizes), implicit)

    def forward(
        self,
        process: Process,
        xt: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Marginals:
        if positions is None:
            positions = all_positions(xt)
        copies = positions.shape[1]
        arguments = (
            xt.repeat_interleave(copies, dim=0),
            t.repeat_interleave(copies),
            positions.reshape(-1, 1),
            None if given is None else given.repeat_interleave(copies, dim=0),
            None if padding is None else padding.repeat_interleave(copies, dim=0),
        )
        rows = max(1, at_once(self.chunk_tokens, xt.device) // (xt.shape[1] + 1))
        logits = in_chunks(self._hidden, arguments, rows)
        return self.from_logits(logits.reshape(*positions.shape, -1), process, t)

    def _hidden(
        self,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        position: Int[Tensor, "batch 1"],
        given: Bool[Tensor, "batch dim"] | None,
        padding: Bool[Tensor, "batch dim"] | None,
    ) -> Float[Tensor, "batch 1 classes"]:
        hidden = x.scatter(1, position, self.network.num_tokens - 1)
        if given is not None:  # a hidden token tells nothing, not even that it was clean
            given = given.scatter(1, position, False)
        return self.network(hidden, t, position, given, padding)
