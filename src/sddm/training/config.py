"""How to train: one documented dataclass, which is also the command line's help."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from sddm import _checks
from sddm.objectives import LOSSES
from sddm.training.optimizers import DECAYS, OPTIMIZERS, rate_at
from sddm.training.rules import TIMES, Known, Nothing, TimeRule, from_text, known_from_text
from sddm.training.trackers import TRACKERS, check_tracker

if TYPE_CHECKING:
    OptimizerName = str
    TrackerName = str
    DecayName = str
    LossName = str
else:
    OptimizerName, DecayName, LossName, TrackerName = (
        Literal[tuple(table)] for table in (OPTIMIZERS, DECAYS, LOSSES, TRACKERS)
    )

MAX_STEPS = 999_999_999
"""The names of checkpoints have nine digits."""
MAX_BATCH_SIZE = 1_000_000
CHANGEABLE = frozenset(
    {"steps", "accumulate", "bf16", "compile", "shard", "log_every", "evaluate_every", "save_every", "keep", "tracker"}
)
"""The options that may change when a run is resumed: its number of steps, how it is computed, and what it writes."""
MAX_SEED = 2**63 - 1
"""The largest seed; torch's generators take no more than 64 bits."""


MOST_SEMITONES = 127
RATES = {"adamw": 1e-3, "muon": 5e-3}
"""Learning rates unless one is given."""


@dataclass(frozen=True)
class RunConfig:
    """How long any learner is trained, and what the run writes."""

    steps: int = 10_000
    """Number of training steps."""
    batch_size: int = 64
    """Rows a step, over all processes together."""
    seed: int = 0
    """Seed of the weights, of the order of the data and of the noise."""
    log_every: int = 20
    """Steps between two lines of metrics.jsonl."""
    evaluate_every: int = 1_000
    """Steps between two evaluations on held-out data, and between two sets of early samples."""
    save_every: int = 500
    """Steps between two checkpoints."""
    keep: int = 3
    """How many checkpoints to keep."""
    tracker: TrackerName | None = None
    """Send the metrics to tensorboard (which gets them unasked where it is installed) or to wandb as well."""

    def __post_init__(self) -> None:
        _checks.whole(self.steps, "steps", 1, MAX_STEPS)
        _checks.whole(self.batch_size, "batch_size", 1, MAX_BATCH_SIZE)
        _checks.whole(self.seed, "seed", 0, MAX_SEED)
        for name in ("log_every", "evaluate_every", "save_every", "keep"):
            _checks.whole(getattr(self, name), name, 1)
        if self.tracker is not None:
            _checks.one_of(self.tracker, "tracker", TRACKERS)
            check_tracker(self.tracker)

    @property
    def lasting(self) -> dict[str, Any]:
        """The options that cannot change when a run is resumed."""
        return {name: value for name, value in asdict(self).items() if name not in CHANGEABLE}


@dataclass(frozen=True)
class TrainingConfig(RunConfig):
    """How to train."""

    learning_rate: float | None = None
    """Peak learning rate, reached after the warm-up: 0.001 for adamw and 0.005 for muon unless given."""
    decay: DecayName = "cosine"
    """How the learning rate falls after the warm-up: along a cosine or a line to 0, or not at all (constant)."""
    optimizer: OptimizerName | None = None
    """muon: weight matrices move along the orthogonal factor of their momentum, which may need fewer steps. Muon for
    ordered models and adamw for others unless given."""
    warmup: float = 0.02
    """Share of the steps over which the learning rate rises from 0."""
    weight_decay: float = 1e-6
    """Each step reduces the weights by this share times the learning rate."""
    clip: float = 5.0
    """The gradient is scaled down to this norm where it is larger."""
    ema: float = 0.999
    """Decay of the moving average of the weights, which is what training returns."""
    ema_share: float = 0.1
    """The average covers at most about this share of the steps so far; larger values, up to 0.5, remove more noise."""
    known: str | None = None
    """What is known of each row, so that the model learns the rest given that: nothing (the default, except for tables,
    where it is a mixture with scattered, and music, where it is one with prefix and spans), prefix (:32 fixes its
    length, :8:64 its range), spans (:5 pieces, every other one known), scattered (:0.3 of the positions), mask:0-31,48.
    Several are a mixture: nothing@2+prefix+spans, where nothing counts twice."""
    transpose: int = 0
    """Music: in training, each row is moved up or down by a random number of semitones, at most this many."""
    loss: LossName | None = None
    """What is minimised; by default conditional-ratio-matching or, for a model that sees its own token,
    denoising-cross-entropy. mdlm, udlm and score-entropy are as other papers state them."""
    in_order: float = 0.75
    """For an ordered model: this share of the rows is learnt from left to right, each position given the clean ones
    before it, and the others under independent noise, so that any positions can be given."""
    label_dropout: float = 0.1
    """For a model of labels: each row is learnt without its label with this probability, so that the model also knows
    the law of all data, which guidance needs."""
    times: str = "uniform"
    """At what times rows are noised: uniform (:0.01 from that time on), or grid:1000 for that many equal steps."""
    noise_weight: float = 0.0
    """The loss counts 1 / a^this at a time when the share a of the data is left; 1 stresses times of much noise."""
    num_positions: int | None = None
    """How many positions of each row the loss evaluates; all of them if not given."""
    pool: int | None = None
    """A step draws this many rows, and the target of each of the batch_size noised ones is its mean over all of them.
    Less noise in the gradient for few positions and states (see `sddm.pool`); without it each row is its own target."""
    accumulate: int = 1
    """Each process computes its rows in this many pieces, one after the other: less memory, the same gradient."""
    bf16: bool = False
    """Compute in bfloat16 where that is safe (mixed precision)."""
    compile: bool = False
    """Compile the model with torch.compile: a slow first step, then faster ones."""
    shard: bool = False
    """With several processes, split weights and optimizer state between them (FSDP) instead of copying them (DDP)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.whole(self.accumulate, "accumulate", 1)
        _checks.require(
            self.batch_size % self.accumulate == 0,
            f"batch_size must be a multiple of accumulate, but {self.batch_size} is not of {self.accumulate}.",
        )
        if self.num_positions is not None:
            _checks.whole(self.num_positions, "num_positions", 1)
        _checks.whole(self.transpose, "transpose", 0, MOST_SEMITONES)
        if self.pool is not None:
            _checks.whole(self.pool, "pool", self.batch_size, MAX_BATCH_SIZE)
        if self.loss is not None:
            _checks.one_of(self.loss, "loss", LOSSES)
        if self.optimizer is not None:
            _checks.one_of(self.optimizer, "optimizer", OPTIMIZERS)
        _checks.one_of(self.decay, "decay", DECAYS)
        _checks.instance(self.time_rule, TimeRule, "times")
        _checks.require(
            self.known_rule == Nothing() or self.pool is None,
            "pool: its targets are for whole rows. Leave out known, or the pool.",
        )
        _checks.require(
            not (self.shard and self.optimizer == "muon"),
            "shard splits weights between processes, but muon needs whole matrices. Leave one of them out.",
        )
        _checks.positive(self.peak, "learning_rate")
        _checks.positive(self.clip, "clip")
        _checks.require(0 <= self.in_order <= 1, f"in_order must lie in [0, 1], but it is {self.in_order}.")
        _checks.require(
            0 <= self.label_dropout <= 1, f"label_dropout must lie in [0, 1], but it is {self.label_dropout}."
        )
        _checks.share(self.warmup, "warmup")
        _checks.share(self.ema, "ema")
        _checks.require(0 < self.ema_share <= 1, f"ema_share must lie in (0, 1], but it is {self.ema_share}.")
        _checks.require(0 <= self.noise_weight <= 2, f"noise_weight must lie in [0, 2], but it is {self.noise_weight}.")
        _checks.require(
            0 <= self.weight_decay < math.inf, f"weight_decay must be at least 0, but it is {self.weight_decay}."
        )

    @property
    def lasting(self) -> dict[str, Any]:
        """The same, with the defaults of options that were not given."""
        usual = {"known": self.known or "nothing", "learning_rate": self.peak, "optimizer": self.optimizer or "adamw"}
        return super().lasting | usual

    @property
    def peak(self) -> float:
        """The largest learning rate."""
        if self.learning_rate is not None:
            return self.learning_rate
        return RATES[self.optimizer or "adamw"]

    def rate_at(self, step: int) -> float:
        """The learning rate of this step, as a share of the peak."""
        return rate_at(step, self.steps, self.warmup, self.decay)

    @property
    def known_rule(self) -> Known:
        return known_from_text(self.known or "nothing")

    @property
    def time_rule(self) -> TimeRule:
        return from_text(self.times, TIMES, "times")
