"""A recipe: the model, its training and its sampling, as `sddm train`, `sddm sample` and the experiments use them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from sddm import _checks
from sddm.data import Dataset
from sddm.diffusion import Diffusion
from sddm.lengths import Lengths
from sddm.marginals import MODELS, Energy, Guided, Hollow, MarginalModel, Restricted
from sddm.networks.embeddings import TIME_SCALE
from sddm.networks.sizes import LARGEST
from sddm.processes import HORIZON, PROCESSES, Process
from sddm.samplers import (
    GRIDS,
    SAMPLERS,
    Correction,
    Corrector,
    Grid,
    Informed,
    ReverseStep,
    Steered,
    pilot_grid,
    sample,
    steer,
)
from sddm.samplers.grids import check_grid
from sddm.samplers.pilot import step_of_grid
from sddm.samplers.plan import STEPS
from sddm.samplers.rewards import Function
from sddm.schedules import SCHEDULES
from sddm.training import TrainingConfig, train
from sddm.training.batches import Batches, generator_of

PILOT = "pilot"
"""The grid that no rule makes, but a pilot run of the model."""
PILOTS, LEAST_PILOTS, PILOT_ROUNDS = 512, 8, 4
"""Steps of all pilot samples together, how many samples there are at least, and how often they improve the grid."""


def choices() -> dict[str, list[str]]:
    """The choices of each option that names a class: the entries of the family's table that need no other arguments."""
    return {
        "model": [*(name for name, kind in MODELS.items() if kind.architecture is not None), "mlp-energy"],
        "process": [name for name in PROCESSES if name != "custom-rate"],  # which needs a matrix
        "schedule": [*SCHEDULES],
        "sampler": [*SAMPLERS],
        "grid": [*GRIDS, PILOT],
    }


if TYPE_CHECKING:
    ModelName = str
    ProcessName = str
    ScheduleName = str
    SamplerName = str
    GridName = str
else:
    ModelName, ProcessName, ScheduleName, SamplerName, GridName = (Literal[tuple(each)] for each in choices().values())
ENERGIES = ("energy", "mlp-energy")
MOST_STEPS, MOST_ROUNDS, MILD = 1_000_000, 1_000, 1e6
"""Numbers above which a typing error is more likely than intent; temperatures and factors beyond `MILD`, or below its
inverse, change nothing more until they overflow."""


@dataclass(frozen=True)
class ModelConfig:
    """What to train. Sizes that are not given are chosen by how much data there is."""

    model: ModelName = "hollow"
    """The kind of network, a transformer except for mlp-energy; docs/models.md says which to choose."""
    process: ProcessName | None = None
    """What the noise does to a token: replace it by any value (uniform), by a mask (absorbing), by a neighbouring value
    (birth-death) or by one not far away (discretized-gaussian). Unless given, absorbing for ordered models and uniform
    for others."""
    schedule: ScheduleName = "sqrt-cosine"
    """How the speed of the noise changes over time."""
    left: float = 0.02
    """The share of the data that is left when the noise ends; it determines the rate of the noise."""
    width: int | None = None
    """Width of the network."""
    layers: int | None = None
    """Layers of the network (in each direction of the hollow one)."""
    heads: int | None = None
    """Attention heads: a head for every 32 of the width unless given."""
    mlp: int | None = None
    """Width of the layers between two attentions: four times the width unless given."""
    dropout: float = 0.0
    """Share of activations dropped in training."""
    grid: tuple[int, int] | None = None
    """Rows and columns, if the positions are an image: each position then has a vector for its row and its column.
    Unless given, those of pictures, with the channels of a pixel as columns of their own."""
    film_blocks: int | None = None
    """Residual blocks of the readout of hollow, masked and leave-one-out models; energies have none. 0 stands for a
    plain readout. Unless given, 0 for ordered models and 2 for others."""
    ordered: bool | None = None
    """For the hollow model under absorbing noise: learn to be asked from left to right as well, and sample so. Unless
    given, a hollow model of text, a table or music is ordered if its noise may be absorbing; others are not."""
    labels: bool | None = None
    """Tell the model the label of each row, so that samples of a label can be asked for. Unless given, if the data have
    labels, for every model but mlp-energy."""
    fading: bool = False
    """For energies: predict x_t as the prior times exp(-a f), where a is the share of the data that is left."""
    time_scale: float = TIME_SCALE
    """The time enters as sin and cos of this times t; with small values the features are smooth in time."""
    input_gain: float = 1.0
    """A factor on the initial weights of the tokens."""

    def __post_init__(self) -> None:
        for name in ("model", "process", "schedule"):
            if getattr(self, name) is not None:
                _checks.one_of(getattr(self, name), name, choices()[name])
        for name, most in LARGEST.items():
            value = getattr(self, name)
            if value is not None:
                _checks.whole(value, name, 1, most)
        _checks.require(0 < self.left < 1, f"left must lie between 0 and 1, but it is {self.left}.")
        _checks.share(self.dropout, "dropout")
        _checks.positive(self.time_scale, "time_scale")
        _checks.positive(self.input_gain, "input_gain")
        if self.film_blocks is not None:
            _checks.whole(self.film_blocks, "film_blocks", 0, LARGEST["layers"])
        _checks.require(
            not self.fading or self.model in ENERGIES,
            f"fading is for the models {' and '.join(ENERGIES)}, but model is {self.model}.",
        )
        _checks.require(
            not self.ordered or (self.model == "hollow" and self.process in (None, "absorbing")),
            f"ordered is for a hollow model under absorbing noise, but this is {self.model} under "
            f"{self.process or 'absorbing'}.",
        )
        _checks.require(
            self.model != "mlp-energy" or (self.heads, self.mlp, self.dropout, self.grid) == (None, None, 0, None),
            "heads, mlp, dropout and grid are options of a transformer, which an mlp-energy is not. Leave them out.",
        )
        _checks.require(
            self.model != "mlp-energy" or not self.labels, "labels are for transformers, which an mlp-energy is not."
        )

    def sizes(self, num_tokens: int) -> dict[str, int]:
        """The sizes of the network, for this many tokens of data."""
        if self.model == "mlp-energy":
            return {"width": self.width or 256, "layers": self.layers or 3}
        width, layers = (64, 2) if num_tokens < 200_000 else (128, 3) if num_tokens < 20_000_000 else (256, 6)
        width, layers = self.width or width, self.layers or layers
        return {
            "width": width,
            "layers": layers,
            "heads": self.heads or max(1, width // 32),
            "mlp": self.mlp or 4 * width,
        }

    def build(self, data: Dataset, seed: int = 0) -> Diffusion:
        """A diffusion with fresh weights for these data."""
        _checks.require(
            self.grid is None or self.grid[0] * self.grid[1] == data.length,
            f"grid is {self.grid}, but the data have {data.length} positions.",
        )
        _checks.require(
            not self.labels or data.labels is not None,
            f"labels were asked for, but {data.name} has none. Leave the option out, or give data with labels.",
        )
        num_labels, names = (data.num_labels, data.label_names) if self.labels else (0, None)
        bare = self.diffusion(data.num_states, data.length, seed, len(data) * data.length, num_labels)
        sizes = data.codec.sizes
        model = bare.model if sizes is None else Restricted(bare.model, sizes)
        lengths = Lengths.of(data.lengths, data.length) if data.codec.ragged and data.lengths is not None else None
        return Diffusion(bare.process, model, data.codec, names, lengths)

    def diffusion(
        self, num_states: int, length: int, seed: int = 0, num_tokens: int = 0, num_labels: int = 0
    ) -> Diffusion:
        """A diffusion whose fresh weights follow from the seed; torch's own generator is unchanged.

        num_tokens: how much data there is, which decides the sizes that are not given.
        num_labels: how many labels the model can be told.
        """
        kind: Any = PROCESSES[self.process or ("absorbing" if self.ordered else "uniform")]
        process: Process = kind(num_states, SCHEDULES[self.schedule]()).leaving(self.left)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Diffusion(process, self._model(process, length, num_tokens, num_labels))

    def _model(self, process: Process, length: int, num_tokens: int, num_labels: int) -> MarginalModel:
        options: dict[str, Any] = {"time_scale": self.time_scale, "input_gain": self.input_gain}
        options |= self.sizes(num_tokens)
        if self.model == "mlp-energy":
            model: MarginalModel = Energy.mlp(process, length, **options)
        else:
            if self.model not in ENERGIES:
                usual = 0 if self.ordered else 2
                options["film_blocks"] = usual if self.film_blocks is None else self.film_blocks
            at = length if self.grid is None else None
            options |= {"dropout": self.dropout, "num_labels": num_labels}
            model = MODELS[self.model].for_process(process, at, self.grid, **options)
        if isinstance(model, Hollow) and self.ordered:
            return Hollow(model.network, ordered=True)
        if isinstance(model, Energy) and self.fading:
            return Energy(model.network, implicit=False, fading=True)
        return model


def suited(model: ModelConfig, training: TrainingConfig, data: Dataset) -> tuple[ModelConfig, TrainingConfig]:
    """The same options, and what was not given chosen for these data: a hollow model of text, a table or music learns
    from left to right as well (`ordered`), ordered models are trained by Muon, models of music learn to complete it,
    and transformers are told the labels that the data have. docs/models.md says why."""
    if model.ordered is None:
        able = model.model == "hollow" and model.process in (None, "absorbing")
        plain = training.loss is None and training.pool is None and training.noise_weight == 0
        model = replace(model, ordered=data.codec.ordered and able and plain)
    if model.labels is None:
        able = model.model != "mlp-energy" and training.pool is None
        model = replace(model, labels=data.labels is not None and able)
    if model.grid is None and model.model != "mlp-energy":
        model = replace(model, grid=data.codec.usual_grid(data.length))
    usual = data.codec.usual_known(data.length)
    if training.known is None and usual is not None and training.pool is None and model.model != "mlp-energy":
        training = replace(training, known=usual)
    if training.optimizer is None:
        training = replace(training, optimizer="muon" if model.ordered and not training.shard else "adamw")
    return model, replace(training, learning_rate=training.peak)


@dataclass(frozen=True)
class SamplingConfig:
    """How to sample."""

    steps: int | None = None
    """Steps of the reverse process: 100 if not given; with in-order, confident and entropic one for each position. A
    step of trapezoidal evaluates the network twice."""
    sampler: SamplerName | None = None
    """The reverse step; by default in-order for an ordered model, analytical if the model and the process allow it, and
    otherwise euler."""
    grid: GridName = "share"
    """How the steps are spaced: equal in time, in the logarithm of the data's share that is left, or in that share;
    tauldr: equal in time down to 0.01, and from there one to 0; pilot: closer where this model loses more between two
    steps, which a pilot run finds out first, at the cost of some 6,000 evaluations of a row."""
    corrector: int = 0
    """Rounds of correction after each step."""
    corrector_factor: float = 1.0
    """Length of a round of jumps, as a multiple of the step's."""
    corrector_entry: float = HORIZON
    """Steps are corrected only if they lead to this time or an earlier one."""
    informed: int = 0
    """Positions that a round of correction draws again, mostly those that fit the others least; if 0, a round consists
    of jumps instead."""
    temperature: float = 1.0
    """Below 1, likely values become more likely; above 1, probabilities become more equal."""
    guidance: float = 1.0
    """How much samples of a label follow it: 1 as the model learnt it, more than 1 exaggerates what tells the label
    from the rest of the data, 0 forgets it, and below 0 leads away from it."""

    def __post_init__(self) -> None:
        if self.sampler is not None:
            _checks.one_of(self.sampler, "sampler", SAMPLERS)
        _checks.one_of(self.grid, "grid", choices()["grid"])
        if self.steps is not None:
            _checks.whole(self.steps, "steps", 1, MOST_STEPS)
        _checks.whole(self.corrector, "corrector", 0, MOST_ROUNDS)
        _checks.whole(self.informed, "informed", 0, MOST_ROUNDS)
        _checks.require(
            self.corrector > 0 or self.informed == 0,
            f"informed={self.informed} says how many positions a round of correction draws again, but corrector is 0 "
            "rounds. Set corrector to 1, or leave informed out.",
        )
        entry = _checks.finite(self.corrector_entry, "corrector_entry")
        _checks.require(0 < entry <= HORIZON, f"corrector_entry must lie in (0, {HORIZON:g}], but it is {entry:g}.")
        _checks.require(
            abs(_checks.finite(self.guidance, "guidance")) <= MILD,
            f"guidance must lie between {-MILD:g} and {MILD:g}, but it is {self.guidance:g}.",
        )
        for name in ("temperature", "corrector_factor"):
            value = _checks.positive(getattr(self, name), name)
            _checks.require(
                1 / MILD <= value <= MILD, f"{name} must lie between {1 / MILD:g} and {MILD:g}, but it is {value:g}."
            )

    @property
    def step(self) -> ReverseStep | None:
        return None if self.sampler is None else SAMPLERS[self.sampler]()

    def check(self, diffusion: Diffusion) -> None:
        """Check that these settings fit the diffusion, before any work is done."""
        if (step := self.step) is not None:
            step.check(diffusion)
        if self.grid == PILOT:
            step_of_grid(diffusion, self.step)
        else:
            check_grid(GRIDS[self.grid](diffusion.process, self.steps or STEPS))
        if self.guidance != 1.0:
            Guided(diffusion.model, self.guidance)

    def times(self, diffusion: Diffusion, length: int | None = None, seed: int = 0) -> Grid | Tensor:
        """The argument `grid` of `sddm.sample`: a rule, or the times that a pilot run with this seed finds.

        The run is one of the model itself: without conditions, labels and temperature.
        """
        if self.grid != PILOT:
            return GRIDS[self.grid]
        steps, generator = self.steps or STEPS, generator_of(seed, "pilot", 0)
        num = max(LEAST_PILOTS, PILOTS // steps)
        return pilot_grid(diffusion, steps, self.step, num=num, rounds=PILOT_ROUNDS, length=length, generator=generator)

    def sample(self, diffusion: Diffusion, num: int, **options: Any) -> Int[Tensor, "num dim"]:
        """`sddm.sample` with these settings; options are its other arguments, and `grid` if it is known by now."""
        return sample(diffusion, num, **self._arguments(diffusion, options), **options)

    def steer(self, diffusion: Diffusion, num: int, reward: Function, **options: Any) -> Steered:
        """`sddm.steer` with these settings; options are its other arguments, and `grid` if it is known by now."""
        return steer(diffusion, num, reward, **self._arguments(diffusion, options), **options)

    def _arguments(self, diffusion: Diffusion, options: dict[str, Any]) -> dict[str, Any]:
        """The settings as arguments of a sampler, and the grid if it is not among the options."""
        corrector: Correction | None = None
        if self.corrector and self.informed:
            corrector = Informed(self.informed, rounds=self.corrector, entry=self.corrector_entry)
        elif self.corrector:
            corrector = Corrector(self.corrector, self.corrector_factor, self.corrector_entry)
        grid = {} if "grid" in options else {"grid": self.times(diffusion, options.get("length"))}
        return {
            "steps": self.steps,
            "sampler": self.step,
            "corrector": corrector,
            "temperature": self.temperature,
            "guidance": self.guidance,
            **grid,
        }


@dataclass(frozen=True)
class Recipe:
    """Everything but the data that decides the samples.

    >>> recipe = Recipe(ModelConfig(model="masked"), TrainingConfig(steps=2_000), SamplingConfig(steps=50))
    >>> model = recipe.trained(lambda step: rows_of(step), num_states=2, length=32)
    >>> recipe.sampling.sample(model, 16)
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def but(self, **parts: dict[str, Any]) -> Recipe:
        """The same recipe with other settings, such as recipe.but(training={"seed": 1}, sampling={"steps": 50})."""
        return replace(self, **{part: replace(getattr(self, part), **settings) for part, settings in parts.items()})

    def trained(self, rows: Batches, num_states: int, length: int, out: Path | None = None) -> Diffusion:
        """Train a fresh model, or resume from a checkpoint in the folder `out`."""
        diffusion = self.model.diffusion(num_states, length, self.training.seed)
        return train(diffusion, rows, self.training, out=out, resume=out is not None)
