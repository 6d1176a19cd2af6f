"""An energy function by a transformer."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sddm import _checks
from sddm.networks.chunks import at_once, in_chunks
from sddm.networks.energy import EnergyNetwork, other_values, with_own_value
from sddm.networks.feedforward import feedforward
from sddm.networks.sizes import Places, Sizes
from sddm.networks.transformer import BidirectionalTransformer
from sddm.query import Query


class TransformerEnergy(EnergyNetwork):
    """f(x, t): a bidirectional transformer whose features, averaged over the positions, are read out as one number."""

    def __init__(
        self, num_tokens: int, places: Places = Places(), sizes: Sizes = Sizes(), chunk_tokens: int = 1 << 17
    ) -> None:
        super().__init__()
        self.num_tokens = _checks.whole(num_tokens, "num_tokens", 2)
        self.chunk_tokens = _checks.whole(chunk_tokens, "chunk_tokens", 1)
        self.places, self.sizes, self.length = places, sizes, places.length
        self.body = BidirectionalTransformer(num_tokens, places, sizes)
        self.energy = feedforward(sizes.width, sizes.width, 1)

    def forward(self, query: Query) -> Float[Tensor, "batch"]:
        """f(x, t); the average leaves out padded positions."""
        features = self.body(query._replace(positions=None))
        if query.padding is None:
            pooled = features.mean(1)
        else:
            present = (~query.padding)[..., None]
            pooled = (features * present).sum(1) / present.sum(1).clamp(min=1)
        return self.energy(pooled).squeeze(-1)

    def replaced(self, query: Query) -> Float[Tensor, "batch num tokens"]:
        """f at x and its neighbours, k(C - 1) + 1 copies a row, in chunks of `chunk_tokens` tokens."""
        places, here, others = query.places, query.here, self.num_tokens - 1
        batch, num = places.shape
        copies = num * others + 1
        neighbours = query.xt[:, None].repeat(1, copies, 1)
        where = places.repeat_interleave(others, dim=1)
        neighbours[:, 1:].scatter_(2, where[..., None], other_values(here, self.num_tokens).flatten(1)[..., None])
        all_rows = query.repeated(copies)._replace(xt=neighbours.flatten(0, 1), positions=None)
        rows = max(1, at_once(self.chunk_tokens, query.xt.device) // (query.xt.shape[1] + 1))
        energies = in_chunks(self.forward, (all_rows,), rows).reshape(batch, copies)
        return with_own_value(energies[:, 1:].unflatten(1, (num, others)), energies[:, 0], here)
