"""The sampling loop. There is one, for every sampler, corrector, condition and grid."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from tqdm import tqdm

from sddm import _checks
from sddm._modes import evaluating
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.marginals import Guided, Tempered
from sddm.processes import HORIZON
from sddm.query import Query
from sddm.randomness import StreamPerSample, draw_seeds
from sddm.samplers.corrector import Corrector
from sddm.samplers.ends import finish, start, with_settled
from sddm.samplers.grids import Grid, check_grid, uniform_in_share
from sddm.samplers.in_order import InOrder
from sddm.samplers.steps import Analytical, Euler, OwnStart, ReverseStep, can_be_analytical
from sddm.shapes import Tokens

BATCH_ELEMENTS = 1 << 24
"""The default batch holds at most this many (sample, position, state) triples."""
STEPS = 100
"""How many steps are taken if no number is given."""
ROWS, ROWS_ON_CPU = 4096, 1024
"""It also holds at most this many samples: a CPU is faster with a batch that stays in its cache."""


@dataclass(frozen=True)
class Progress:
    """What a callback sees: the number of steps made, of all steps, the time, which samples, and their tokens."""

    step: int
    steps: int
    t: float
    rows: slice
    tokens: Tokens


Callback = Callable[[Progress], None]


@dataclass
class Trajectory:
    """A callback that records the noise, every `every`-th step and the result: `times` and `tokens` (times, num, dim).

    >>> path = Trajectory()
    >>> sample(diffusion, 16, steps=50, callback=path)
    >>> path.tokens[0], path.tokens[-1]                    # noise, samples
    """

    every: int = 1
    times: list[float] = field(default_factory=list, init=False)
    _batches: dict[int, list[Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, progress: Progress) -> None:
        if progress.step % self.every and progress.step != progress.steps:
            return
        if progress.step not in self._batches:
            self.times.append(progress.t)
        self._batches.setdefault(progress.step, []).append(progress.tokens.cpu().clone())

    @property
    def tokens(self) -> Int[Tensor, "times num dim"]:
        return torch.stack([torch.cat(self._batches[step]) for step in sorted(self._batches)])


def sample(
    diffusion: Diffusion,
    num: int,
    steps: int | None = None,
    sampler: ReverseStep | None = None,
    corrector: Corrector | None = None,
    condition: Condition | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
    *,
    grid: Grid | Tensor = uniform_in_share,
    length: int | None = None,
    temperature: float = 1.0,
    labels: Int[Tensor, "num"] | None = None,
    guidance: float = 1.0,
    padding: Bool[Tensor, "num dim"] | None = None,
    seeds: Sequence[int] | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> Int[Tensor, "num dim"]:
    """Generate `num` samples by running the process backwards from T to 0.

    Each sample has its own seed, drawn from the generator. So the samples do not depend on the batch size.

    steps: 100 if not given, or with InOrder() one for each position.
    sampler: a reverse step. By default InOrder() for an ordered model, otherwise Analytical() where the model or the
        process allows it, otherwise Euler().
    corrector: run after every step, at the time to which the step leads.
    condition: positions whose tokens are known. They keep them.
    callback: called with a `Progress` before the first and after every step; see `Trajectory`.
    grid: a rule for the times of the steps, or the times themselves. Then `steps` is not used.
    length: the number of positions, for a model that takes any.
    temperature: below 1, each conditional of the data is sharpened; above 1, flattened. See `Tempered`.
    labels: the class of each sample, for a model that was trained with labels. Without them, samples are of any class.
    guidance: how much a sample follows its label: 1 as learnt, above 1 more, 0 not at all, below 0 away from it. See
        `Guided`.
    padding: positions that do not exist, in samples that are shorter than `length`. They hold 0.
    seeds: one for each sample, instead of a generator; `sddm.randomness.draw_seeds` makes them for a part of a job.
    batch_size: how many samples are drawn at once. The default suits the device.
    progress: whether to show a progress bar. By default it is shown if the output is a terminal.

    >>> sample(diffusion, 64, steps=50, generator=torch.Generator().manual_seed(0))
    """
    _checks.instance(diffusion, Diffusion, "diffusion")
    _checks.whole(num, "num", 1)
    if guidance != 1.0:
        guided = Guided(diffusion.model, guidance)
        _checks.require(labels is not None, f"guidance is {guidance}, but no labels were given to follow. Give labels.")
        diffusion = Diffusion(diffusion.process, guided)
    if temperature != 1.0:
        tempered = Tempered(diffusion.model, _checks.positive(temperature, "temperature"))
        diffusion = Diffusion(diffusion.process, tempered)
    step = _choose_step(diffusion, sampler)
    if corrector is not None:
        _checks.instance(corrector, Corrector, "corrector")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, but it is a {type(callback).__name__}.")
    length = _choose_length(diffusion, length)
    if not isinstance(grid, Tensor) and not callable(grid):
        raise TypeError(
            f"grid must be a rule such as sddm.samplers.uniform_in_share or a tensor of times, "
            f"but it is a {type(grid).__name__}."
        )
    if steps is None:
        steps = step.usual_steps(length) if isinstance(step, OwnStart) else STEPS
    times = grid if isinstance(grid, Tensor) else grid(diffusion.process, _checks.whole(steps, "steps", 1))
    times = check_grid(times)
    query = _first_query(diffusion, num, length, condition, labels, padding)
    if batch_size is None:
        most = ROWS_ON_CPU if diffusion.device.type == "cpu" else ROWS
        batch_size = min(most, max(1, BATCH_ELEMENTS // (length * diffusion.process.num_symbols)))
    _checks.whole(batch_size, "batch_size", 1)
    if seeds is None:
        seeds = draw_seeds(num, _checks.generator(generator))
    _checks.require(len(seeds) == num, f"seeds has {len(seeds)} entries, but {num} samples were asked for.")

    starts = range(0, num, batch_size)
    bar = tqdm(
        total=len(starts) * (len(times) - 1),
        desc="sampling",
        unit="step",
        leave=False,
        disable=not (sys.stderr.isatty() if progress is None else progress),
    )
    batches = []
    with evaluating(diffusion), torch.inference_mode(), bar:
        for first in starts:
            rows = slice(first, min(first + batch_size, num))
            known = query.rows(rows).to(diffusion.device)
            for number, some in enumerate(_steps(diffusion, known, seeds[rows], times, step, corrector)):
                if number:
                    bar.update()
                if callback is not None:
                    callback(Progress(number, len(times) - 1, float(times[number]), rows, some.xt))
            batches.append(some.xt)
    # Out of inference mode, so that the caller may train on what was sampled.
    return torch.cat(batches).clone()


def _first_query(
    diffusion: Diffusion,
    num: int,
    length: int,
    condition: Condition | None,
    labels: Tensor | None,
    padding: Tensor | None,
) -> Query:
    """What is known of all samples before anything is drawn, at time T; settled positions hold their values."""
    values, given = torch.zeros(num, length, dtype=torch.int64), None
    if condition is not None:
        _checks.instance(condition, Condition, "condition")
        given, values = condition.for_samples(num, length, diffusion.process.num_states)
    if labels is not None:
        labels = _checks.labels(labels, num, known=diffusion.model.num_labels)
    if padding is not None:
        padding = _checks.boolean_mask(padding, (num, length), "padding")
        _checks.require(not bool(padding.all(1).any()), "padding leaves nothing of some samples.")
        _checks.require(
            given is None or not bool((given & padding).any()),
            "condition gives tokens for positions that padding says do not exist. Leave them out of one of the two.",
        )
        values = values.masked_fill(padding, 0)
    return Query(values, torch.full((num,), HORIZON, dtype=torch.float64), None, given, padding, labels)


def _steps(
    diffusion: Diffusion,
    query: Query,
    seeds: Sequence[int],
    times: Tensor,
    step: ReverseStep,
    corrector: Corrector | None,
) -> Iterator[Query]:
    """The samples of a batch at each of the times."""
    randomness = StreamPerSample(seeds)
    begin = step.start if isinstance(step, OwnStart) else start
    query = query.holding(begin(diffusion, query, randomness))._replace(memory={})
    yield query
    for number, time in enumerate(times[1:].to(diffusion.device), start=1):
        t, s = query.t, time.expand(len(seeds))
        x = with_settled(step(diffusion, query, s, randomness), query)
        if corrector is not None:
            x = corrector(diffusion, query.holding(x, s), t, randomness)
        if number == len(times) - 1:
            x = finish(diffusion, query.holding(x), randomness)
        query = query.holding(x, s)
        yield query


def _choose_step(diffusion: Diffusion, sampler: ReverseStep | None) -> ReverseStep:
    if sampler is None:
        if diffusion.model.ordered:
            return InOrder()
        return Analytical() if can_be_analytical(diffusion) else Euler()
    if isinstance(sampler, type) or not callable(sampler) or not hasattr(sampler, "check"):
        raise TypeError(f"sampler must be a reverse step such as sddm.samplers.Euler(), but it is {sampler!r}.")
    sampler.check(diffusion)
    return sampler


def _choose_length(diffusion: Diffusion, length: int | None) -> int:
    if length is None:
        if diffusion.length is None:
            raise ValueError("length must be given: this model takes sequences of any length.")
        return diffusion.length
    _checks.whole(length, "length", 1)
    _checks.require(
        diffusion.length in (None, length),
        f"length is {length}, but the model was built for {diffusion.length} positions.",
    )
    return length
