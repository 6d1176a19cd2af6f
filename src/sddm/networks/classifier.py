"""A classifier of noised rows, p(y | x_t, t), to guide a model that knows no labels."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.readouts import feedforward, pooled
from sddm.networks.sizes import Places, Sizes
from sddm.networks.transformer import BidirectionalTransformer
from sddm.query import Query


class Classifier(nn.Module, Configurable):
    """log p(y | x_t, t): a bidirectional transformer whose features, averaged over the positions, are read out.

    num_tokens: how many values a position of x_t can hold, `process.num_symbols`.

    >>> Classifier(process.num_symbols, num_labels=10, places=Places(length=64))
    """

    def __init__(self, num_tokens: int, num_labels: int, places: Places = Places(), sizes: Sizes = Sizes()) -> None:
        super().__init__()
        self.num_tokens = _checks.whole(num_tokens, "num_tokens", 2)
        self.num_labels = _checks.whole(num_labels, "num_labels", 2)
        self.places, self.sizes, self.length = places, sizes, places.length
        self.body = BidirectionalTransformer(num_tokens, places, sizes)
        self.readout = feedforward(sizes.width, sizes.mlp, num_labels)

    def forward(self, query: Query) -> Float[Tensor, "batch labels"]:
        """The logarithms of the probabilities of all labels. `query.xt` may hold one-hot vectors instead of tokens."""
        features = self.body(query._replace(positions=None, label=None))
        return F.log_softmax(self.readout(pooled(features, query.padding)).float(), dim=-1)
