"""Energy functions f(x, t), and the energies of all sequences that differ from x in one position.

The conditionals at k positions need f at k(C - 1) + 1 sequences: x itself, and x with each of the other
values in each of these positions. A network that can share work between these sequences does so in `replaced`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks
from sddm.config import Configurable
from sddm.networks.chunks import at_once, in_chunks
from sddm.networks.elu_layers import elu_layers
from sddm.networks.embeddings import TIME_SCALE, sinusoidal
from sddm.networks.neighbours import at_neighbours, other_values, with_own_value
from sddm.networks.readouts import feedforward, pooled
from sddm.networks.sizes import LARGEST, Places, Sizes
from sddm.networks.transformer import BidirectionalTransformer
from sddm.query import Query
from sddm.shapes import Asked, Tokens

First = Float[Tensor, "batch width"]
"""The sum of the first layer of each sequence."""
ByLayer = Float[Tensor, "batch layers width"]
Energies = Float[Tensor, "batch copies"]
"""The energies of a sequence and then of its neighbours, position by position."""


class EnergyNetwork(nn.Module, Configurable, ABC):
    """f(x, t) for sequences of `length` tokens with `num_tokens` values each."""

    num_tokens: int
    length: int | None

    @abstractmethod
    def forward(self, query: Query) -> Float[Tensor, "batch"]:
        """f(x, t)."""

    @abstractmethod
    def replaced(self, query: Query) -> Float[Tensor, "batch num tokens"]:
        """f([x with value c at position d], t) for every c, and for every d that is asked for."""


class MLPEnergy(EnergyNetwork):
    """The energy of the paper's synthetic experiment: an MLP on the tokens, with a sinusoidal embedding of the time
    added before each activation (elu).

    The first layer is a sum of one weight column a position, W[d, x^d]; changing x^d from a to c only adds
    W[d, c] - W[d, a] to it. Binary tokens enter as the numbers 0 and 1, so that W[d, 0] = 0 and W[d, 1] is learned.

    learned_time: pass the embedding of the time through an MLP of its own, with an output for each layer.
    time_scale: the time is embedded as sin and cos of time_scale * t. At the paper's 1000 the fastest features change
        too quickly with t to be told from noise; at 10 all of them are smooth.
    input_gain: a factor on the first layer's initial weights, whose inputs are small beside the embedding of the time.
    chunk_rows: how many sequences (rows times neighbours) are evaluated at once.
    """

    def __init__(
        self,
        length: int,
        num_tokens: int = 2,
        width: int = 256,
        layers: int = 3,
        learned_time: bool = False,
        time_scale: float = TIME_SCALE,
        input_gain: float = 1.0,
        chunk_rows: int = 1 << 16,
    ) -> None:
        super().__init__()
        self.length = _checks.whole(length, "length", 1)
        self.num_tokens = _checks.whole(num_tokens, "num_tokens", 2)
        self.width = _checks.whole(width, "width", 2, LARGEST["width"])
        self.chunk_rows = _checks.whole(chunk_rows, "chunk_rows", 1)
        self.layers = _checks.whole(layers, "layers", 1, LARGEST["layers"])
        self.learned_time, self.input_gain = learned_time, _checks.positive(input_gain, "input_gain")
        inputs = length if num_tokens == 2 else length * num_tokens
        self.time_scale = _checks.positive(time_scale, "time_scale")
        self.first = nn.Linear(inputs, width)
        with torch.no_grad():
            self.first.weight.mul_(self.input_gain)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.time = None
        if learned_time:
            self.time = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, width * layers))
        self.last = nn.Linear(width, 1)

    def _first(self, x: Tokens) -> First:
        if self.num_tokens == 2:
            return self.first(x.to(self.first.weight.dtype))
        index = x + torch.arange(x.shape[1], device=x.device) * self.num_tokens
        return F.embedding_bag(index, self.first.weight.T.contiguous(), mode="sum") + self.first.bias

    def times(self, t: Float[Tensor, "batch"]) -> ByLayer:
        """What the time adds before each activation."""
        embedding = sinusoidal(t, self.width, self.time_scale).to(self.first.weight.dtype)
        if self.time is None:
            return embedding[:, None].expand(-1, len(self.hidden) + 1, -1)
        return self.time(embedding).unflatten(1, (-1, self.width))

    def forward(self, query: Query) -> Float[Tensor, "batch"]:
        nothing = self.first.weight.new_empty(len(query.xt), 0, self.width)
        return self._energies(self._first(query.xt), self.times(query.t), nothing).squeeze(1)

    def replaced(self, query: Query) -> Float[Tensor, "batch num tokens"]:
        """The energies of x and its neighbours, from k(C - 1) + 1 evaluations of the upper layers."""
        if query.padding is not None:
            raise ValueError("padding: an MLP energy knows rows of one length only. Use a transformer.")
        positions, here = query.places, query.here
        copies = positions.shape[1] * (self.num_tokens - 1) + 1
        rows = max(1, at_once(self.chunk_rows, here.device) // copies)
        arguments = (self._first(query.xt), self.times(query.t), positions, here)
        energies = in_chunks(self._neighbours, arguments, rows)
        own, others = energies[:, 0], energies[:, 1:].unflatten(1, (-1, self.num_tokens - 1))
        return with_own_value(others, own, here)

    def _neighbours(self, first: First, times: ByLayer, positions: Asked, here: Asked) -> Energies:
        columns = self.first.weight.T
        if self.num_tokens == 2:
            # Turning a 1 into a 0 subtracts its column, so the table holds all columns, then their negatives.
            change = F.embedding(positions + here * len(columns), torch.cat([columns, -columns]))
        else:
            base = positions * self.num_tokens
            others = F.embedding(base[..., None] + other_values(here, self.num_tokens), columns)
            change = (others - F.embedding(base + here, columns)[..., None, :]).flatten(1, 2)
        return self._energies(first, times, change)

    def _energies(self, first: First, times: ByLayer, change: Float[Tensor, "batch others width"]) -> Energies:
        """Everything after the sum of columns."""
        weights, biases = ([getattr(layer, name) for layer in self.hidden] for name in ("weight", "bias"))
        return elu_layers(first, change, times, self.last.weight[0], weights, biases) + self.last.bias


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
        return self.energy(pooled(features, query.padding)).squeeze(-1)

    def replaced(self, query: Query) -> Float[Tensor, "batch num tokens"]:
        """f at x and its neighbours, k(C - 1) + 1 copies a row, in chunks of `chunk_tokens` tokens."""
        return at_neighbours(self.forward, query, self.num_tokens, self.chunk_tokens)
