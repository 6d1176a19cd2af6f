"""What the experiments on music show: the paper's table and those beside it, pictures, and files to listen to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Int
from torch import Tensor

from sddm.codecs import Codec, Notes
from sddm.data.music import WINDOW
from sddm.experiments.experiment import markdown, with_error
from sddm.formats.piano_roll import draw_roll
from sddm.formats.score import REST
from sddm.metrics import paired_difference
from sddm.training.diffusion import BOUND_ROWS

FIRST = "SDDM"
"""The row to which the others are compared."""
RIVALS = ("tauLDR-0 uniform", "D3PM uniform")
"""The rows whose final loss is a level that others reach earlier or later."""
PAPER = {
    "tauLDR-0 birth-death": ("0.3928 ± 0.0010", "0.1316 ± 0.0012"),
    "tauLDR-0 uniform": ("0.3765 ± 0.0013", "0.1106 ± 0.0010"),
    "tauLDR-2 uniform": ("0.3762 ± 0.0015", "0.1091 ± 0.0014"),
    "D3PM uniform": ("0.3839 ± 0.0002", "0.1137 ± 0.0010"),
    "SDDM": ("0.3736 ± 0.0024", "0.1093 ± 0.0016"),
    "SDDM, schedule 1 - sqrt(cos)": ("0.3735 ± 0.0025", "0.1071 ± 0.0017"),
}
"""The paper's figures, on other data: Hellinger distance and share of outliers."""
LISTENED = 2
"""Pieces of each row that are kept as MIDI files."""
MUSICAL = {
    "pitch_class_distance": "pitch classes",
    "interval_distance": "intervals",
    "note_length_distance": "note lengths",
    "repeated_bars": "repeated bars",
}
TEXT = """\
Completions of test melodies after {given} of {window} steps, {runs} for each melody. Errors are standard errors over
tunes; differences are paired by tune.

- **Hellinger**: the distance, 0 to 1, between how often each pitch and the rest occur in a completion and in the melody
  itself, with the given steps; the mean over completions. **outliers**: the share of a completion's steps that hold a
  pitch which the melody does not have. Both are the paper's; lower is nearer to the melody.
- **bits a note**: -log2 of the probability of what follows in the melody, for each step, of {scored} test rows. Exact
  for the ordered and the left-to-right model, bounds for the others.
- **less that of {first}**: the row's figure less that of {first}, on the same melodies: above 0, {first} is better.
- **paper, other data**: what the paper reports for this row, trained for much longer, on other melodies that are not
  published in this form. Only the order of its rows can be compared with the order of ours.
- **seconds of the cell**: on the clock, with training (unless a row before it left it), sampling and measuring.
"""
MUSICAL_TEXT = """\
What a musician would ask. Hellinger distances, 0 to 1, between all completions and all test melodies: of the laws of
pitch classes, of intervals from note to note and of note lengths; and the share of bars that are heard before in their
piece. The last row is half of the test melodies against the other half.
"""
CURVE_TEXT = """\
Seconds of training (of one core, without evaluations) until the loss on held-out melodies, in bits a note given the
first {given} steps, is as low as that of a rival, or of {first}, at its end. Between two evaluations the time is
interpolated. The loss is each system's own bound on -log2 p, of the same {rows} melodies: in continuous time for SDDM
and tauLDR, in 1000 steps for D3PM. That of the ordered model is exact, and of more melodies. Errors of bounds are those
of the estimate for these melodies. The picture is `loss.png`.
"""


STEPS_TEXT = """\
The Hellinger distance, 0 to 1, between how often each pitch and the rest occur in a completion and in the melody
itself, for one completion of each of {tunes} test melodies after {given} steps, by the number of evaluations of the
network, those of the corrector counted in. Errors are standard errors over tunes.
"""


@dataclass(frozen=True)
class Setting:
    """What the words of a report need to know."""

    name: str
    scale: str
    given: int
    runs: int
    scored: int
    ordered: frozenset[str]
    """Rows whose curve holds exact nats of what follows the given steps; the curves of others are scaled to a row."""
    unlike: frozenset[str]
    """Rows whose curve is of whole rows."""


def tables(results: Sequence[dict[str, Any]], rows: Sequence[str], setting: Setting, of_data: Mapping[str, Any]) -> str:
    """The paper's table with all rows, differences paired by tune, what a musician would ask, and times to a loss.

    of_data: what a musician would ask, of half of the test melodies against the other half.
    """
    cells = {r["row"]: r for r in results if r["seed"] == 0}
    found = {row: cells[row]["figures"] for row in rows if row in cells}
    words = {"given": setting.given, "runs": setting.runs, "scored": setting.scored, "first": FIRST, "window": WINDOW}
    header = ["", "Hellinger", "outliers", "bits a note", f"Hellinger, less that of {FIRST}", f"outliers, less {FIRST}"]
    header += ["paper, other data: Hellinger", "paper, other data: outliers", "seconds of the cell"]
    lines = []
    for row, figures in found.items():
        line = [row, *(with_error(*mean_over_tunes(figures, key), 4) for key in ("hellinger", "outliers"))]
        line += [with_error(figures["bits"], figures["bits_standard_error"], 3) if "bits" in figures else ""]
        for key in ("hellinger", "outliers"):
            line.append("" if row == FIRST or FIRST not in found else _difference(figures, found[FIRST], key))
        lines.append([*line, *PAPER.get(row, ("", "")), f"{cells[row]['seconds']:.0f}"])
    parts = [f"# {setting.name}, {setting.scale} scale\n", TEXT.format(**words), markdown(header, lines)]
    musical = [[row, *(_number(figures, key) for key in MUSICAL)] for row, figures in found.items()]
    musical.append(["melodies against melodies", *(_number(of_data, key) for key in MUSICAL)])
    parts += [MUSICAL_TEXT, markdown(["", *MUSICAL.values()], musical)]
    lines_of = bits_curves(found, setting)
    parts += [CURVE_TEXT.format(rows=BOUND_ROWS, **words), times_to_loss(lines_of)] if lines_of else []
    leak = next((figures["leaks"] for figures in found.values()), "")
    return "\n".join([*parts, f"{leak}\n", f"From `sddm reproduce music --scale {setting.scale}`.\n"])


Curve = Sequence[tuple[float, float, float, float]]
"""Seconds of training, rows seen, bits a note and their standard error."""


def bits_curves(found: Mapping[str, dict[str, Any]], setting: Setting) -> dict[str, Curve]:
    """The loss of a training against time, as bits of a note that is not given."""
    curves: dict[str, Curve] = {}
    for row, figures in found.items():
        if row in setting.unlike or not figures.get("curve"):
            continue
        notes = WINDOW - setting.given if row in setting.ordered else WINDOW
        bit = math.log(2) * notes
        line = [(seconds, seen, nats / bit, error / bit) for seconds, seen, nats, error in figures["curve"]]
        if line not in curves.values():  # rows that differ in sampling alone share a training
            curves[row] = line
    return curves


def times_to_loss(lines: Mapping[str, Curve]) -> str:
    """A table: for each row, the seconds until it is as good as each rival, and as SDDM, at the end of its training."""
    levels = {row: lines[row][-1][2] for row in (*RIVALS, FIRST) if row in lines}
    header = ["", "bits a note at the end", "after seconds"]
    header += [f"{level:.3f}, the end of {row}" for row, level in levels.items()]
    body = []
    for row, points in lines.items():
        seconds, _, bits, error = points[-1]
        body.append([row, with_error(bits, error), f"{seconds:.0f}", *(_reached(points, x) for x in levels.values())])
    return markdown(header, body)


def _reached(points: Curve, level: float) -> str:
    """When a curve falls to a level, with straight lines between its points."""
    before: tuple[float, float] | None = None
    for seconds, _, bits, _ in points:
        if bits <= level:
            if before is None:
                return f"before {seconds:.0f}"
            earlier, higher = before
            return f"{earlier + (seconds - earlier) * (higher - level) / (higher - bits):.0f}"
        before = (seconds, bits)
    return f"not in {points[-1][0]:.0f}"


def table_of_steps(results: Sequence[dict[str, Any]], steps: Sequence[int], tunes: int, setting: Setting) -> str:
    """How near completions come, by sampler and number of evaluations."""
    body = [
        [name, *(with_error(*points[n], 4) if n in points else "" for n in steps)]
        for name, points in by_sampler(results).items()
    ]
    parts = [f"# {setting.name}, {setting.scale} scale\n", STEPS_TEXT.format(tunes=tunes, given=setting.given)]
    parts.append(markdown(["Hellinger distance", *map(str, steps)], body))
    return "\n".join([*parts, f"From `sddm reproduce music-steps --scale {setting.scale}`.\n"])


def by_sampler(results: Sequence[dict[str, Any]]) -> dict[str, dict[int, tuple[float, float]]]:
    """The Hellinger distance and its error by sampler and number of evaluations."""
    lines: dict[str, dict[int, tuple[float, float]]] = {}
    for result in results:
        name, _, last = result["row"].rpartition(", ")
        lines.setdefault(name, {})[int(last.split()[0])] = mean_over_tunes(result["figures"], "hellinger")
    return lines


def mean_over_tunes(figures: dict[str, Any], key: str) -> tuple[float, float]:
    """The mean of a figure of each melody, and its error over tunes."""
    values = torch.tensor(figures[key], dtype=torch.float64)
    return paired_difference(values, torch.zeros_like(values), torch.tensor(figures["groups"]))


def _difference(figures: dict[str, Any], first: dict[str, Any], key: str) -> str:
    one, other = (torch.tensor(f[key], dtype=torch.float64) for f in (figures, first))
    return with_error(*paired_difference(one, other, torch.tensor(figures["groups"])), 4)


def _number(figures: Mapping[str, Any], key: str) -> str:
    return f"{figures[key]:.3f}" if key in figures else ""


@dataclass(frozen=True)
class Gallery:
    """How completions are shown: a picture, and MIDI files in the folder of the picture.

    runs, shown: completions of a piece, and how many of them are in the picture.
    piece, truth, made: what a piece, itself and a completion are called in the names of files; the second in the
    picture, too.
    """

    picture: Path
    runs: int
    shown: int
    piece: str
    truth: str
    made: str

    def show(
        self, codec: Codec, tokens: Int[Tensor, "num dim"], truth: Int[Tensor, "num dim"], mask: Bool[Tensor, "dim"]
    ) -> None:
        """What is given of the first piece, the piece itself and some completions, in which the given part is grey."""
        assert isinstance(codec, Notes)
        self.picture.parent.mkdir(parents=True, exist_ok=True)
        given = rearrange(mask, "(steps voices) -> voices steps", voices=codec.voices).numpy()
        whole, alone = codec.decode(truth[:1])[0], codec.decode(truth[:1])[0]
        alone[~given] = REST
        made = list(codec.decode(tokens[: min(self.runs, self.shown)]))
        titles = ["given", self.truth, *(f"completion {number + 1}" for number in range(len(made)))]
        draw_roll([alone, whole, *made], self.picture, given, titles, codec.steps_per_bar)
        for name, row in self._heard(tokens, truth):
            codec.write(row[None], self.picture.parent / f"{name}.mid")

    def _heard(self, tokens: Tensor, truth: Tensor) -> Iterator[tuple[str, Tensor]]:
        for number in range(min(LISTENED, len(tokens) // self.runs)):
            for name, rows in ((self.truth, truth), (self.made, tokens)):
                yield f"{self.piece}-{number + 1}-{name.lower()}", rows[number * self.runs]
