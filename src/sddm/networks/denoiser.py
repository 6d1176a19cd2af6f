"""A bidirectional transformer with a readout: logits at each position that see the whole sequence."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.readouts import readout
from sddm.networks.sizes import Places, Sizes
from sddm.networks.transformer import BidirectionalTransformer
from sddm.query import Query


class Denoiser(nn.Module, Configurable):
    """Logits of `num_classes` for each position, from sequences of `num_tokens` values and the time.

    film_blocks: residual blocks of the readout that are modulated by the time; 0 for a plain MLP.
    """

    def __init__(
        self, num_tokens: int, num_classes: int, places: Places = Places(), sizes: Sizes = Sizes(), film_blocks: int = 2
    ) -> None:
        super().__init__()
        self.num_tokens, self.num_classes, self.length = num_tokens, num_classes, places.length
        self.places, self.sizes, self.film_blocks = places, sizes, film_blocks
        self.body = BidirectionalTransformer(num_tokens, places, sizes)
        _checks.whole(film_blocks, "film_blocks", 0)
        self.readout = readout(sizes.width, num_classes, sizes, film_blocks)

    def forward(self, query: Query) -> Float[Tensor, "batch num classes"]:
        """Logits at the positions asked for."""
        return self.readout(self.body(query), query.t)
