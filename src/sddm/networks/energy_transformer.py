"""An energy function by a transformer."""

from __future__ import annotations

from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.networks.chunks import at_once, in_chunks
from sddm.networks.embeddings import TIME_SCALE
from sddm.networks.energy import EnergyNetwork, other_values, with_own_value
from sddm.networks.feedforward import feedforward
from sddm.networks.transformer import BidirectionalTransformer


class TransformerEnergy(EnergyNetwork):
    """f(x, t): a bidirectional transformer whose features, averaged over the positions, are read out as one number.

    time_scale, input_gain: as for `MLPEnergy`; here the gain is on the initial vectors of tokens and places.
    """

    def __init__(
        self,
        num_tokens: int,
        length: int | None = None,
        grid: tuple[int, int] | list[int] | None = None,
        width: int = 128,
        layers: int = 3,
        heads: int = 4,
        mlp: int = 512,
        dropout: float = 0.0,
        time_scale: float = TIME_SCALE,
        input_gain: float = 1.0,
        chunk_tokens: int = 1 << 17,
    ) -> None:
        super().__init__()
        self.num_tokens = _checks.whole(num_tokens, "num_tokens", 2)
        self.chunk_tokens = _checks.whole(chunk_tokens, "chunk_tokens", 1)
        self.body = BidirectionalTransformer(
            num_tokens, length, grid, width, layers, heads, mlp, dropout, time_scale, input_gain
        )
        self.length = self.body.length
        self.energy = feedforward(width, width, 1)

    def forward(
        self,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch"]:
        """f(x, t); padded positions leave the average."""
        features = self.body(x, t, None, given, padding)
        if padding is None:
            pooled = features.mean(1)
        else:
            present = (~padding)[..., None]
            pooled = (features * present).sum(1) / present.sum(1).clamp(min=1)
        return self.energy(pooled).squeeze(-1)

    def replaced(
        self,
        x: Int[Tensor, "batch dim"],
        t: Float64[Tensor, "batch"],
        positions: Int[Tensor, "batch num"],
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
    ) -> Float[Tensor, "batch num tokens"]:
        """f at x and its neighbours, k(C - 1) + 1 copies a row, in chunks of `chunk_tokens` tokens."""
        batch, num = positions.shape
        here = x.gather(1, positions)
        copies = num * (self.num_tokens - 1) + 1
        neighbours = x[:, None].repeat(1, copies, 1)
        where = positions.repeat_interleave(self.num_tokens - 1, dim=1)
        neighbours[:, 1:].scatter_(2, where[..., None], other_values(here, self.num_tokens).flatten(1)[..., None])
        arguments = (
            neighbours.flatten(0, 1),
            t.repeat_interleave(copies),
            None if given is None else given.repeat_interleave(copies, dim=0),
            None if padding is None else padding.repeat_interleave(copies, dim=0),
        )
        rows = max(1, at_once(self.chunk_tokens, x.device) // (x.shape[1] + 1))
        energies = in_chunks(self.forward, arguments, rows).reshape(batch, copies)
        others = energies[:, 1:].unflatten(1, (num, self.num_tokens - 1))
        return with_own_value(others, energies[:, 0], here)
