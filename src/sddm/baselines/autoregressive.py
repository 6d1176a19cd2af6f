"""The left-to-right model, which is the usual alternative to a diffusion of sequences.

    p(x) = prod_d p(x^d | x^{<d})

by a causal transformer, which gives all factors in one pass. So the likelihood is exact and cheap to train on. A sample
takes a pass for each position, and only the first positions of a row can be given.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from sddm import _checks
from sddm._modes import evaluating
from sddm.data import Dataset
from sddm.networks import Sizes
from sddm.networks.embeddings import INITIAL, PlaceEmbedding, TokenEmbedding
from sddm.networks.hollow import CausalStream
from sddm.networks.transformer import Past
from sddm.noising import Batch
from sddm.randomness import Randomness, StreamPerSample, categorical, draw_seeds
from sddm.training.batches import rows_of
from sddm.training.config import TrainingConfig
from sddm.training.descent import Descent

ROWS = 256
"""Rows that are sampled or scored at once."""
HELD_OUT_ROWS = 512
"""How many held-out rows an evaluation during training looks at."""


class Autoregressive(nn.Module):
    """A causal transformer over rows of `length` tokens from 0 to num_states - 1.

    values: how many values each position has, if not all of them have `num_states`.

    >>> model = Autoregressive(num_states=27, length=128, sizes=Sizes(width=128, layers=3))
    >>> model.log_prob(rows)                         # nats of each row, exact
    >>> model.sample(16, torch.Generator().manual_seed(0))
    """

    possible: Tensor | None

    def __init__(
        self, num_states: int, length: int, sizes: Sizes = Sizes(), values: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.num_states, self.length = _checks.whole(num_states, "num_states", 1), _checks.whole(length, "length", 1)
        self.sizes = sizes
        _checks.require(
            values is None or len(values) == length,
            f"values must have one entry for each of the {length} positions: how many values it has.",
        )
        possible = None if values is None else torch.arange(num_states) < torch.tensor(list(values))[:, None]
        self.register_buffer("possible", possible, persistent=False)
        self.first = nn.Parameter(INITIAL * torch.randn(sizes.width))
        self.embed = TokenEmbedding(num_states, sizes.width, sizes.input_gain)
        self.places = PlaceEmbedding((length,), sizes.width, sizes.input_gain)
        self.stream = CausalStream(sizes)
        self.head = nn.Linear(sizes.width, num_states)

    @classmethod
    def for_data(cls, data: Dataset, sizes: Sizes = Sizes(), seed: int = 0) -> Autoregressive:
        """A model of these data, with fresh weights that follow from the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(data.num_states, data.length, sizes, data.codec.sizes)

    def forward(self, x: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch dim states"]:
        """log p(. | x^{<d}) at every d."""
        before = torch.cat([self.first.expand(len(x), 1, -1), self.embed(x[:, :-1], None)], dim=1)
        return self._log_law(self.stream(before + self.places(), None, None), slice(self.length))

    def log_prob(
        self, x: Int[Tensor, "batch dim"], padding: Bool[Tensor, "batch dim"] | None = None
    ) -> Float64[Tensor, "batch"]:
        """log p(x) in nats, exact. `padding` marks positions at the end of a row that do not exist."""
        x = _checks.tokens(x, self.num_states, "x", length=self.length, device=self.first.device)
        if padding is not None:
            padding = _checks.boolean_mask(padding, x.shape, "padding", device=x.device)
        with evaluating(self), torch.inference_mode():
            pieces = [
                -self.surprise(x[i : i + ROWS], None if padding is None else padding[i : i + ROWS]).double().sum(1)
                for i in range(0, len(x), ROWS)
            ]
        return torch.cat(pieces).clone()

    def surprise(
        self, x: Int[Tensor, "batch dim"], padding: Bool[Tensor, "batch dim"] | None = None
    ) -> Float[Tensor, "batch dim"]:
        """- log p(x^d | x^{<d}) at every d, and 0 where a row is padded."""
        nats = -self(x).gather(-1, x[..., None]).squeeze(-1)
        return nats if padding is None else nats.masked_fill(padding, 0)

    def sample(
        self,
        num: int,
        generator: torch.Generator | None = None,
        prefix: Int[Tensor, "num given"] | None = None,
        temperature: float = 1.0,
    ) -> Int[Tensor, "num dim"]:
        """Draw rows from left to right; `prefix` gives the first tokens of each.

        temperature: below 1, every conditional is sharpened; above 1, flattened.
        """
        _checks.whole(num, "num", 1)
        _checks.positive(temperature, "temperature")
        if prefix is None:
            prefix = torch.empty(num, 0, dtype=torch.int64)
        else:
            prefix = _checks.tokens(prefix, self.num_states, "prefix")
            _checks.require(
                len(prefix) == num and prefix.shape[1] <= self.length,
                f"prefix must give at most {self.length} tokens for each of {num} rows, but has shape "
                f"{tuple(prefix.shape)}.",
            )
        prefix, seeds = prefix.to(self.first.device), draw_seeds(num, _checks.generator(generator))
        with evaluating(self), torch.inference_mode():
            pieces = [
                self._continued(prefix[i : i + ROWS], StreamPerSample(seeds[i : i + ROWS]), temperature)
                for i in range(0, num, ROWS)
            ]
        return torch.cat(pieces).clone()

    def _continued(
        self, prefix: Int[Tensor, "batch given"], randomness: Randomness, temperature: float
    ) -> Int[Tensor, "batch dim"]:
        places, past = self.places(), Past()
        x, here = prefix, self.first.expand(len(prefix), 1, -1)
        for d in range(self.length):
            log_law = self._log_law(self.stream.next(here + places[d], past), slice(d, d + 1))
            if d >= prefix.shape[1]:
                x = torch.cat([x, categorical((log_law / temperature).softmax(-1), randomness)], dim=1)
            here = self.embed(x[:, d : d + 1], None)
        return x

    def _log_law(self, features: Float[Tensor, "batch num width"], places: slice) -> Float[Tensor, "batch num states"]:
        logits = self.head(features).float()
        if self.possible is not None:
            logits = logits.masked_fill(~self.possible[places], -float("inf"))
        return F.log_softmax(logits, dim=-1)


class AutoregressiveLearner(Descent):
    """Trains an `Autoregressive` by its likelihood, by the loop that trains diffusions.

    >>> model = Autoregressive.for_data(data)
    >>> model = learn(AutoregressiveLearner(model, config), Epochs(data, config.batch_size), config)
    """

    def __init__(self, model: Autoregressive, config: TrainingConfig, held_out: Dataset | None = None) -> None:
        super().__init__(model, config)
        self.model, self.held_out = model, held_out

    def draw(self, batch: Int[Tensor, "batch dim"] | Batch, generator: torch.Generator) -> Batch:
        batch = batch if isinstance(batch, Batch) else Batch(batch)
        tokens = _checks.tokens(batch.x0, self.model.num_states, "rows", length=self.model.length, device=self.device)
        return Batch(tokens, None, batch.padding, None)

    def losses(self, drawn: Batch) -> Float[Tensor, "batch"]:
        return self.model.surprise(drawn.x0, drawn.padding).sum(1)

    def evaluate(self) -> dict[str, float]:
        """Nats a row of held-out rows, and their standard error."""
        if self.held_out is None:
            return {}
        rows = rows_of(self.held_out, slice(HELD_OUT_ROWS)).to(self.device)
        nats = -self.inside(lambda: self.model.log_prob(rows.x0, rows.padding))
        return {"held_out_nats": float(nats.mean()), "held_out_standard_error": float(nats.std() / len(nats) ** 0.5)}
