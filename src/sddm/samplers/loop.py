"""The sampling loop. There is one, for every sampler, corrector, condition and grid."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from tqdm import tqdm

from sddm import _checks
from sddm._modes import evaluating
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.query import Query
from sddm.randomness import StreamPerSample, draw_seeds
from sddm.samplers.corrector import Correction
from sddm.samplers.ends import finish, start, with_settled
from sddm.samplers.grids import Grid, uniform_in_share
from sddm.samplers.plan import Plan, planned
from sddm.samplers.ragged import Length, batches, with_pad
from sddm.samplers.ranges import with_ranges
from sddm.samplers.steps import OwnStart, ReverseStep
from sddm.shapes import Tokens


@dataclass(frozen=True)
class Progress:
    """What a callback sees: the number of steps made, of all steps, the time, which samples, and their tokens."""

    step: int
    steps: int
    t: float
    rows: slice | Int[Tensor, "batch"]
    tokens: Tokens


Callback = Callable[[Progress], None]
Between = Callable[[int, Query], Query]
"""What may exchange the samples of a batch after a step, by the number of the step."""


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
    _rows: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def __call__(self, progress: Progress) -> None:
        if progress.step % self.every and progress.step != progress.steps:
            return
        if progress.step not in self._batches:
            self.times.append(progress.t)
        if progress.step == 0:
            rows = progress.rows
            self._rows.append(torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)
        self._batches.setdefault(progress.step, []).append(progress.tokens.cpu().clone())

    @property
    def tokens(self) -> Int[Tensor, "times num dim"]:
        made = torch.stack([torch.cat(self._batches[step]) for step in sorted(self._batches)])
        return made[:, torch.cat(self._rows).argsort()]


def sample(
    diffusion: Diffusion,
    num: int,
    steps: int | None = None,
    sampler: ReverseStep | str | None = None,
    corrector: Correction | None = None,
    condition: Condition | Tensor | np.ndarray | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
    *,
    grid: Grid | Tensor = uniform_in_share,
    length: Length | None = None,
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
    sampler: a reverse step, or its name in `SAMPLERS`, such as "euler". By default InOrder() for an ordered model,
        otherwise Analytical() where the model or the process allows it, otherwise Euler().
    corrector: Corrector() or Informed(), run after every step, at the time to which the step leads.
    condition: positions whose tokens are known, which they keep, and positions that shall lie in ranges: a `Condition`,
        or tokens with -1 where nothing is known.
    callback: called with a `Progress` before the first and after every step; see `Trajectory`.
    grid: a rule for the times of the steps, or the times themselves. Then `steps` is not used.
    length: the number of positions, for a model that takes any; for one that was trained on rows of different lengths,
        one for all samples or one for each. If it is not given, that model draws the length of each sample.
    temperature: below 1, each conditional of the data is sharpened; above 1, flattened. See `Tempered`.
    labels: the class of each sample, for a model that was trained with labels. Without them, samples are of any class.
    guidance: how much a sample follows its label: 1 as learnt, above 1 more, 0 not at all, below 0 away from it. See
        `Guided`.
    padding: positions that do not exist, in samples that are shorter than `length`. They hold 0 or, if the diffusion
        has a law of lengths, `diffusion.pad`, as do those behind the end of any sample.
    seeds: one for each sample, instead of a generator; `sddm.randomness.draw_seeds` makes them for a part of a job.
    batch_size: how many samples are drawn at once. The default suits the device.
    progress: whether to show a progress bar. By default it is shown if the output is a terminal.

    >>> sample(diffusion, 64, steps=50, generator=torch.Generator().manual_seed(0))
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, but it is a {type(callback).__name__}.")
    _checks.instance(diffusion, Diffusion, "diffusion")
    _checks.whole(num, "num", 1)
    seeds = draw_seeds(num, _checks.generator(generator)) if seeds is None else seeds
    _checks.require(len(seeds) == num, f"seeds has {len(seeds)} entries, but {num} samples were asked for.")
    plan = planned(
        diffusion,
        num,
        steps,
        sampler,
        corrector,
        condition,
        grid=grid,
        length=length,
        temperature=temperature,
        labels=labels,
        guidance=guidance,
        padding=padding,
        seeds=seeds,
    )
    batch_size = _checks.whole(plan.usual_batch if batch_size is None else batch_size, "batch_size", 1)
    parts, width = batches(plan.query, batch_size, diffusion.lengths is not None), plan.query.xt.shape[1]
    bar = tqdm(
        total=len(parts) * plan.num_steps,
        desc="sampling",
        unit="step",
        leave=False,
        disable=not (sys.stderr.isatty() if progress is None else progress),
    )
    made = torch.empty(num, width, dtype=torch.int64, device=diffusion.device)
    with evaluating(plan.diffusion), torch.inference_mode(), bar:
        for rows, upto in parts:
            known = plan.query.rows(rows).upto(upto).to(diffusion.device)
            own = seeds[rows] if isinstance(rows, slice) else [seeds[row] for row in rows.tolist()]
            for number, some in enumerate(reverse(plan, known, own)):
                if number:
                    bar.update()
                if callback is not None:
                    tokens = with_pad(diffusion, some.xt, some.padding, width)
                    callback(Progress(number, plan.num_steps, float(plan.times[number]), rows, tokens))
            made[rows] = with_pad(diffusion, some.xt, some.padding, width)
    # Out of inference mode, so that the caller may train on what was sampled.
    return made.clone()


def reverse(plan: Plan, query: Query, seeds: Sequence[int], between: Between | None = None) -> Iterator[Query]:
    """The samples of a batch at each of the times. `between` may exchange them after each step."""
    diffusion, randomness = plan.diffusion, StreamPerSample(seeds)
    if plan.ranges:
        query = with_ranges(diffusion, query, plan.ranges, randomness)
    begin = plan.step.start if isinstance(plan.step, OwnStart) else start
    query = query.holding(begin(diffusion, query, randomness))._replace(memory={})
    yield query
    for number, time in enumerate(plan.times[1:].to(diffusion.device), start=1):
        t, s = query.t, time.expand(len(seeds))
        x = with_settled(plan.step(diffusion, query, s, randomness), query)
        if plan.corrector is not None:
            x = plan.corrector(diffusion, query.holding(x, s), t, randomness)
        if number == plan.num_steps:
            x = finish(diffusion, query.holding(x), randomness)
        query = query.holding(x, s)
        if between is not None:
            query = between(number, query)
        yield query
