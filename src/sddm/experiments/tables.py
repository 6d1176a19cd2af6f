"""Tables of a known law: how far the laws of several systems are from it, and what they say of rare combinations.

`sddm reproduce tables` draws the same 10,000 rows of a Bayesian network for all systems. The truth p and the law q of
each system are known row by row (that of the ordered model from left to right), so that

    KL(p || q) = E_p log p - log q        KL(q || p) = E_q log q - log p

are means over rows of the truth and over samples. A sample that the truth never draws would make the second infinite:
the share of these samples is a figure of its own, and the divergence is that of the others, as a law of their own.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _files
from sddm.data.published import NETWORKS, network
from sddm.diffusion import Diffusion
from sddm.experiments.corpora import Corpus, of_network
from sddm.experiments.experiment import Experiment, Row, estimated
from sddm.experiments.questions import Question, answer, questions
from sddm.experiments.systems import Drawn, Source
from sddm.experiments.table_laws import LAWS, Fitted
from sddm.experiments.table_report import agreement, tables
from sddm.experiments.timed import TimedDiffusion
from sddm.likelihood import in_order
from sddm.recipe import ModelConfig, Recipe
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of

TRAINED_ON, TRUE_ROWS, SAMPLES = 10_000, 50_000, 100_000
"""Rows that all systems are given, rows of the truth that they are scored on, and samples of each."""
QUESTIONS, ASKED = 20, 1_000
"""Questions about each table, and samples that the diffusion draws for each."""
MINUTES = {"small": 4.0, "paper": 240.0}
DEFAULT = Recipe(
    ModelConfig(ordered=True), TrainingConfig(optimizer="muon", learning_rate=5e-3, known="nothing@1+scattered")
)
"""What `sddm train` chooses for a table."""


class Tables(Experiment[Row]):
    """`sddm reproduce tables`."""

    family = "tables"

    def __init__(self, scale: str) -> None:
        systems = {name: Fitted(name) for name in LAWS} | {"ordered hollow": TimedDiffusion(MINUTES[scale], DEFAULT)}
        super().__init__("tables", scale, {name: Row(system, SAMPLES) for name, system in systems.items()}, NETWORKS)

    def source(self, column: str) -> Corpus:
        return of_network(column, TRAINED_ON, TRUE_ROWS)

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        assert isinstance(source, Corpus)
        law = network(source.name)
        asked = _questions(source.name, QUESTIONS)
        answers = [
            answer(drawn.model, question, ASKED, generator_of(seed, "answers", number))
            for number, question in enumerate(asked)
        ]
        return {
            **_divergence(drawn.model, law.log_prob, source.test.tokens[:]),
            **_reverse(drawn.model, law.log_prob, drawn.tokens.cpu()),
            "answers": [
                {
                    "asked": _told(law.names, law.states, question.target, question.value),
                    "given": [_told(law.names, law.states, d, token) for d, token in question.given.items()],
                    "share": question.share,
                    "truth": question.truth,
                    "answer": None if math.isnan(said.chance) else said.chance,
                    "error": None if math.isnan(said.error) else said.error,
                }
                for question, said in zip(asked, answers, strict=True)
            ],
        }

    def headline(self, figures: dict[str, Any]) -> str:
        there = "infinite" if figures["kl"] is None else f"{figures['kl']:.3f}"
        return f"KL of the truth from the system {there}, {figures['impossible']:.1%} of its samples impossible"

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", tables(results, self.name, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        agreement(results, folder / "conditionals.png")


@lru_cache(len(NETWORKS))
def _questions(column: str, num: int) -> list[Question]:
    return questions(network(column), num)


def _log_law(model: Any, rows: Int[Tensor, "num dim"]) -> Float64[Tensor, "num"]:
    return -in_order(model, rows.to(model.device)).cpu() if isinstance(model, Diffusion) else model.log_prob(rows)


def _divergence(model: Any, log_truth: Any, rows: Int[Tensor, "num dim"]) -> dict[str, Any]:
    """KL(p || q), None if it is infinite, and the share of the truth's rows that the system can draw."""
    said = _log_law(model, rows)
    possible = said.isfinite()
    figures: dict[str, Any] = {"kl": None, **estimated("covered", possible.double())}
    return figures | (estimated("kl", log_truth(rows) - said) if bool(possible.all()) else {})


def _reverse(model: Any, log_truth: Any, samples: Int[Tensor, "num dim"]) -> dict[str, Any]:
    """KL(q || p) of the samples that the truth can draw, and the share of those that it cannot."""
    truth = log_truth(samples)
    possible = truth.isfinite()
    figures = estimated("impossible", (~possible).double())
    if int(possible.sum()) < 2:
        return {"reverse_kl": None, **figures}
    log_ratio = _log_law(model, samples[possible]) - truth[possible] - math.log(1 - figures["impossible"])
    return figures | estimated("reverse_kl", log_ratio)


def _told(names: list[str], states: list[list[str]], d: int, token: int) -> str:
    return f"{names[d]} = {states[d][token]}"
