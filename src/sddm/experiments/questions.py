"""Questions about rare combinations in a table of known law: how likely is a value, given those of two other columns?

A question is drawn at random among those whose two given values come together in one row of a thousand to one of a
hundred, and matter both: the law of the column that is asked for is another one without either of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from sddm.conditions import Condition
from sddm.data.bayesian import BayesianNetwork
from sddm.diffusion import Diffusion
from sddm.experiments.table_laws import Empirical
from sddm.samplers import sample
from sddm.training.batches import generator_of

RAREST, MOST = 0.001, 0.01
"""How often the given values come together."""
MATTERS = 0.05
"""The least total variation between the law given both and the law given one of them."""
TRIES = 20_000
"""Draws after which the search for more questions ends."""


class Question(NamedTuple):
    """p(X^target = value | given)."""

    target: int
    value: int
    given: dict[int, int]
    truth: float
    share: float
    """How often the given values come together."""


class Answer(NamedTuple):
    """A probability, and the standard error of what was counted; NaN where there is nothing to count."""

    chance: float
    error: float


def questions(law: BayesianNetwork, num: int, seed: int = 0) -> list[Question]:
    """At most `num` questions, about different columns as far as there are enough."""
    generator, found, asked = generator_of(seed, "questions", 0), list[Question](), set[int]()

    def drawn(most: int) -> int:
        return int(torch.randint(most, (1,), generator=generator))

    for _ in range(TRIES):
        if len(found) == num:
            break
        target, one, other = torch.randperm(len(law.sizes), generator=generator)[:3].tolist()
        given = {d: drawn(law.sizes[d]) for d in (one, other)}
        if target in asked and len(asked) < len(law.sizes) // 2:
            continue
        joint = law.joint([target], given)
        share = float(joint.sum())
        if not RAREST <= share <= MOST:
            continue
        chance = joint / share
        without = [law.joint([target], {d: given[d]}) for d in given]
        changes = [chance - less / less.sum() for less in without]
        if min(float(change.abs().sum()) / 2 for change in changes) < MATTERS:
            continue
        value = int(sum(change.abs() for change in changes).argmax())  # type: ignore[union-attr]
        found.append(Question(target, value, given, float(chance[value]), share))
        asked.add(target)
    return found


def answer(model: Any, question: Question, samples: int, generator: torch.Generator) -> Answer:
    """What a law says, exactly; what is counted in rows, or in samples of a diffusion that are given the two values."""
    if isinstance(model, BayesianNetwork):
        joint = model.joint([question.target], question.given)
        return Answer(float(joint[question.value] / joint.sum()), 0.0)
    if isinstance(model, Empirical):
        fits = torch.stack([model.rows[:, d] == token for d, token in question.given.items()]).all(dim=0)
        found = model.rows[fits]
    else:
        assert isinstance(model, Diffusion)
        assert model.length is not None
        values = torch.full((model.length,), -1)
        for d, token in question.given.items():
            values[d] = token
        known = Condition.from_blanks(values)
        found = sample(model, samples, condition=known, generator=generator).cpu()
    hits, num = int((found[:, question.target] == question.value).sum()), len(found)
    if num == 0:
        return Answer(math.nan, math.nan)
    # The error of a share of 0 or 1 is that of one row more, so that no counted share passes for certain.
    spread = (hits + 1) / (num + 2)
    return Answer(hits / num, math.sqrt(spread * (1 - spread) / num))
