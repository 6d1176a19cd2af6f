"""Chorales: one model harmonises a soprano, fills a gap and completes a beginning.

`sddm reproduce chorales` trains what `sddm train --data chorales --transpose 5` trains, for ten minutes of one core,
and does the three tasks on test chorales: by several samplers, beside the voices of other chorales, which is what
chance gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from sddm import _files
from sddm.codecs import Notes
from sddm.conditions import Condition
from sddm.data.leaks import leaks
from sddm.data.music import CHORALE_WINDOW
from sddm.data.music_pieces import VOICES
from sddm.diffusion import Diffusion
from sddm.experiments.chorale_report import tables
from sddm.experiments.corpora import Corpus, corpus
from sddm.experiments.experiment import Cell, Experiment, Row, slug
from sddm.experiments.music_report import Gallery
from sddm.experiments.systems import Drawn, Fresh, Source, System
from sddm.experiments.timed import TimedDiffusion
from sddm.likelihood import in_order
from sddm.metrics import jackknife, music, voices
from sddm.metrics.music import Histogram, Scores
from sddm.query import Query
from sddm.randomness import Randomness
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.samplers import InOrder, sample
from sddm.shapes import Times, Tokens
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of

RUNS, TUNES, TIMES = 3, 22, 16
"""Completions of a chorale, test chorales that are completed (one window of each), and times of the bound of a row."""
ALTERNATIVES = 2
"""Completions in a picture."""
BAR = 16
COMPLETIONS = "completions.safetensors"
"""The file of a cell's completions."""
SHOWN, BLIND = "in order", "in order, blind to what follows"
"""The row whose completions are shown, and one that is the same when a beginning is completed."""
Law = Callable[[Scores], Histogram]
KEYS = 5
"""Semitones by which rows are transposed in training."""


@dataclass(frozen=True)
class Task:
    """Which voices are generated in which steps, when all else is given."""

    title: str
    voices: slice
    steps: slice

    def mask(self) -> Bool[Tensor, "dim"]:
        """What is given."""
        mask = torch.ones(CHORALE_WINDOW, VOICES, dtype=torch.bool)
        mask[self.steps, self.voices] = False
        return mask.flatten()

    def part(self, codec: Notes, tokens: Int[Tensor, "num dim"]) -> Scores:
        """All voices of the steps in which something is generated."""
        steps = rearrange(tokens, "num (steps voices) -> num steps voices", voices=VOICES)[:, self.steps]
        return codec.decode(rearrange(steps, "num steps voices -> num (steps voices)"))


WHOLE = slice(None)
TASKS = {
    "harmonise": Task("alto, tenor and bass to a soprano", slice(1, None), WHOLE),
    "fill": Task("the second and the third of four bars", WHOLE, slice(BAR, 3 * BAR)),
    "complete": Task("what follows the first of four bars", WHOLE, slice(BAR, None)),
}
LAWS: dict[str, Law] = {
    "pitch classes": music.pitch_classes,
    "intervals": music.intervals,
    "note lengths": music.note_lengths,
}
"""Laws of the generated voices alone. The law of `voices.chords`, and the rest, are of all voices."""
RULES: dict[str, Callable[[Scores], float]] = {
    "outside ranges": voices.outside_ranges,
    "crossings": voices.voice_crossings,
    "parallel fifths": voices.parallel_fifths,
    "parallel octaves": voices.parallel_octaves,
}


class FromTheLeft(InOrder):
    """In order, but no position sees what is given behind it, as a left-to-right model does not."""

    def __call__(self, diffusion: Diffusion, query: Query, s: Times, randomness: Randomness) -> Tokens:
        return super().__call__(diffusion, query._replace(given=None), s, randomness)


@dataclass(frozen=True)
class Blind(TimedDiffusion):
    """The same model, asked as a left-to-right model would be."""

    def sample(self, model: Any, num: int, seed: int, condition: Condition | None = None) -> Int[Tensor, "num dim"]:
        generator = generator_of(seed, "samples", 0)
        return sample(model, num, model.length, FromTheLeft(), condition=condition, generator=generator)


def rows(minutes: float, **sizes: Any) -> dict[str, Row]:
    """One training, asked in several ways, and chance."""
    known = Notes(VOICES).usual_known(VOICES * CHORALE_WINDOW)
    training = TrainingConfig(optimizer="muon", learning_rate=5e-3, known=known, transpose=KEYS)
    recipe = Recipe(ModelConfig(ordered=True, **sizes), training, SamplingConfig(sampler="in-order"))
    ours = TimedDiffusion(minutes, recipe)
    ways: dict[str, dict[str, Any]] = {
        SHOWN: {},
        "by confidence, 64 steps": {"sampler": "confident", "steps": 64},
        "analytical, 64 steps": {"sampler": "analytical", "steps": 64},
    }
    systems: dict[str, System] = {
        name: replace(ours, recipe=recipe.but(sampling=changes)) for name, changes in ways.items()
    }
    systems["in order, blind to what follows"] = Blind(minutes, recipe)
    return {name: Row(system, TUNES) for name, system in (systems | {"another chorale": Fresh()}).items()}


SCALES: dict[str, dict[str, Any]] = {
    "small": {"minutes": 10.0},
    "paper": {"minutes": 2_880.0, "width": 256, "layers": 6},
}


class Chorales(Experiment[Row]):
    """`sddm reproduce chorales`: the columns are tasks, on the same test chorales."""

    family = "music"

    def __init__(self, scale: str) -> None:
        super().__init__("music/chorales", scale, rows(**SCALES[scale]), list(TASKS))

    def cells(self) -> list[Cell]:
        return [cell for cell in super().cells() if cell != (BLIND, "complete")]

    def source(self, column: str) -> Corpus:
        """The chorales, under the name of the task."""
        return replace(corpus("chorales"), name=column)

    def run(self, cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
        source, row = self.source(cell.column), self.rows[cell.row]
        truth, condition = asked(source, row.many)
        figures: dict[str, Any] = {}
        if isinstance(row.system, TimedDiffusion):
            training = folder.parent / slug(f"{row.system.training}/chorales-{seed}")
            model = row.system.trained(source, seed, training)
            drawn = Drawn(row.system.sample(model, len(truth), seed, condition), model=model)
            figures["curve"] = [list(point) for point in row.system.curve(training, source.length)]
        else:
            other = row.system.draw(source, len(truth), seed, folder).tokens
            drawn = Drawn(torch.where(condition.mask, truth, other))
        folder.mkdir(parents=True, exist_ok=True)
        _files.save_tensors(folder / COMPLETIONS, {"tokens": drawn.tokens, "truth": truth})
        return figures | self.measure(drawn, source, row, seed)

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        """Each figure with its error over chorales; that of Bach's own voices beside it, where it is no distance."""
        assert isinstance(source, Corpus)
        task, codec = TASKS[source.name], source.train.codec
        assert isinstance(codec, Notes)
        truth, condition = asked(source, row.many)
        groups = groups_of(source)[one_of_each(source, row.many)].repeat_interleave(RUNS)
        made, right = (task.part(codec, tokens) for tokens in (drawn.tokens, truth))
        free, same = ~condition.mask[0], drawn.tokens == truth
        figures: dict[str, Any] = {
            "same": jackknife(lambda some: float(same[some][:, free].double().mean()), groups),
            "tunes": len(groups.unique()),
            "runs": RUNS,
            "rows": len(source.test),
            "leaks": str(leaks(source.train, source.test)),
        }
        for name, law in LAWS.items():
            figures[name] = jackknife(_apart(law, made[:, task.voices], right[:, task.voices]), groups)
        figures["chords"] = jackknife(_apart(voices.chords, made, right), groups)
        for name, rule in RULES.items():
            figures[name] = jackknife(_of_rows(rule, made), groups)
            figures[f"{name}, Bach"] = jackknife(_of_rows(rule, right), groups)
        if (nats := nats_of(row.system, drawn.model, source, seed)) is not None:
            bits = nats / (math.log(2) * int(free.sum()))
            figures["bits"] = jackknife(lambda some: float(bits[some].mean()), groups_of(source))
        return figures

    def headline(self, figures: dict[str, Any]) -> str:
        bits = f", {figures['bits'][0]:.3f} bits a note" if "bits" in figures else ""
        return f"{figures['same'][0]:.1%} as Bach wrote{bits}"

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        titles = {name: task.title for name, task in TASKS.items()}
        _files.write_text(folder / "tables.md", tables(results, list(self.rows), titles, self.scale))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """What is given, Bach, and two completions, of the first test chorales."""
        for name, task in TASKS.items():
            made = work / slug(f"{SHOWN}/{name}-0") / COMPLETIONS
            if made.exists():
                tokens, truth = (_files.load_tensors(made)[1][kind] for kind in ("tokens", "truth"))
                gallery = Gallery(folder / f"{name}.png", RUNS, ALTERNATIVES, "chorale", "Bach", name)
                gallery.show(self.source(name).test.codec, tokens, truth, task.mask())


def asked(source: Corpus, many: int) -> tuple[Int[Tensor, "num dim"], Condition]:
    """Test chorales, each as often as it is completed, and what is given of them."""
    truth = source.test.tokens[one_of_each(source, many)].repeat_interleave(RUNS, dim=0)
    return truth, Condition(TASKS[source.name].mask().expand_as(truth), truth)


def groups_of(source: Corpus) -> Int[Tensor, "num"]:
    """The chorale of each test row: variants of one chorale are one group."""
    assert source.test.groups is not None
    return source.test.groups


def one_of_each(source: Corpus, many: int) -> Int[Tensor, "num"]:
    """The first window of the first so many test chorales."""
    groups = groups_of(source).tolist()
    return torch.tensor(sorted({group: row for row, group in reversed(list(enumerate(groups)))}.values())[:many])


def nats_of(system: Any, model: Any, source: Corpus, seed: int) -> Float64[Tensor, "num"] | None:
    """The nats of what is generated in each test row: exact in order, a bound for the analytical step, else None."""
    if not isinstance(system, TimedDiffusion) or isinstance(system, Blind) or system.recipe.sampling.temperature != 1:
        return None
    rows, sampler = source.test.tokens[:], system.recipe.sampling.sampler
    given = TASKS[source.name].mask().expand_as(rows)
    if sampler == "in-order":
        return in_order(model, rows, given=given)
    if sampler != "analytical":
        return None
    bound = model.bound(rows, TIMES, given=given, generator=generator_of(seed, "bound", 0), batch_size=64)
    return torch.as_tensor(bound.nats)


def _apart(law: Law, made: Scores, right: Scores) -> Callable[[Tensor], float]:
    """The distance between a law of completions and that of Bach's own voices in the same chorales."""
    return lambda some: music.distance(law(made[some.numpy()]), law(right[some.numpy()]))


def _of_rows(rule: Callable[[Scores], float], made: Scores) -> Callable[[Tensor], float]:
    return lambda some: rule(made[some.numpy()])
