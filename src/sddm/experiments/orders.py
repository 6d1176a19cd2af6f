"""How a model that was learnt is best sampled: valid molecules against evaluations of the network, for each order.

`sddm reproduce orders` samples the models of `sddm reproduce learning`, whose trainings it shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sddm import _files
from sddm.experiments.corpora import Corpus
from sddm.experiments.experiment import Experiment, Row, markdown, with_error
from sddm.experiments.learning import SAMPLED, Learning, recipes
from sddm.experiments.systems import Drawn, Source
from sddm.experiments.timed import TimedDiffusion
from sddm.metrics import MoleculeQuality

MODELS = ("ordered hollow", "hollow, absorbing")
SAMPLERS = {
    "in-order": "from left to right",
    "confident": "the most certain first",
    "analytical": "at random, as noise would",
}
EVALUATIONS = (8, 16, 32, 57)
"""The last is a step for each position."""


class Orders(Learning):
    """`sddm reproduce orders`: the absorbing models of molecules, sampled in several orders and numbers of steps."""

    def __init__(self, scale: str) -> None:
        learnt = recipes(8 if scale == "small" else 480)
        rows = {}
        for model in MODELS:
            system = learnt[model]
            assert isinstance(system, TimedDiffusion)
            for sampler in SAMPLERS:
                for steps in EVALUATIONS:
                    recipe = system.recipe.but(sampling={"sampler": sampler, "steps": steps})
                    rows[named(model, sampler, steps)] = Row(TimedDiffusion(system.minutes, recipe), SAMPLED)
        Experiment.__init__(self, "learning/orders", scale, rows, ["molecules"])

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        assert isinstance(source, Corpus)
        known, made = (source.train.codec.decode(tokens) for tokens in (source.train.tokens[:20_000], drawn.tokens))
        return MoleculeQuality(known).measure(made)._asdict()  # type: ignore[arg-type]

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", table(results, self.name, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        pass


def named(model: str, sampler: str, steps: int) -> str:
    return f"{model}, {sampler}, {steps} steps"


def table(results: list[dict[str, Any]], name: str, scale: str) -> str:
    """The share of valid molecules by order and number of evaluations."""
    figures: Mapping[str, dict[str, Any]] = {r["row"]: r["figures"] for r in results if r["seed"] == 0}

    def shown(row: str) -> str:
        return with_error(figures[row]["valid"], figures[row]["valid_error"]) if row in figures else ""

    lines = [
        [model, order, *(shown(named(model, sampler, steps)) for steps in EVALUATIONS)]
        for model in MODELS
        for sampler, order in SAMPLERS.items()
    ]
    header = ["model", "order", *(f"{steps} evaluations" for steps in EVALUATIONS)]
    command = f"`sddm reproduce orders --scale {scale}`"
    return f"# {name}, {scale} scale\n\nValid molecules of {SAMPLED:,}.\n\n{markdown(header, lines)}\nFrom {command}.\n"
