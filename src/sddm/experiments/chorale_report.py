"""What the experiment on chorales says: a table for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sddm.experiments.experiment import markdown, with_error

DISTANCES = {
    "pitch classes": "pitch classes",
    "intervals": "intervals",
    "note lengths": "note lengths",
    "chords": "intervals between voices",
}
SHARES = ("outside ranges", "crossings")
RATES = ("parallel fifths", "parallel octaves")
TEXT = """\
One model, trained once, on chorales of which no variant is a test chorale; in training, one voice, a beginning or some
spans of a row are known. Each row of a table asks it in another way for the same parts of {tunes} test chorales (64
sixteenths of each), {runs} times. Errors are standard errors over chorales.

- **as Bach**: the share of the generated tokens (a voice in a sixteenth) that are Bach's own. More is not always
  better: a soprano has several good harmonisations.
- **bits a note**: -log2 of the probability of what Bach wrote, given what is given, for a token; of all {rows} test
  rows. Exact for samples drawn in order, a bound for the analytical sampler; the other ways have none.
- **Distances**: Hellinger distances, 0 to 1, between the laws of completions and of Bach's own voices in these places:
  of pitch classes, of intervals from note to note and of note lengths, in the generated voices; and of the intervals
  between all voices that sound at once.
- **Rules**: the share of notes outside the range of their voice, the share of steps in which neighbouring voices cross,
  and parallel fifths and octaves in 100 changes of the chord; of all voices in the steps in which any is generated.
- **another chorale**: what is missing is taken from a random training chorale. That is chance, and its distances are
  those of data against data.
- **blind to what follows**: the same model, in which each position sees only what is given or drawn before it, as in a
  left-to-right model. Such a model can complete a beginning: there, both ways to ask are the same.
"""


def tables(results: Sequence[dict[str, Any]], rows: Sequence[str], tasks: Mapping[str, str], scale: str) -> str:
    """For each task, what the model is asked for, and the figures of each way to ask it, with errors."""
    found = {(r["row"], r["column"]): r["figures"] for r in results if r["seed"] == 0}
    parts = [f"# music/chorales, {scale} scale\n"]
    if found:
        first = next(iter(found.values()))
        parts.append(TEXT.format(**{key: first[key] for key in ("tunes", "runs", "rows")}))
    header = ["", "as Bach", "bits a note", *DISTANCES.values(), *SHARES, *RATES]
    for task, title in tasks.items():
        there = [row for row in rows if (row, task) in found]
        if there:
            bach = found[there[0], task]
            lines = [_line(row, found[row, task]) for row in there]
            lines.append(_line("Bach", {key: bach[f"{key}, Bach"] for key in (*SHARES, *RATES)}))
            parts += [f"## {task}: {title}\n", markdown(header, lines)]
    parts += [f"{figures['leaks']}\n" for figures in list(found.values())[:1]]
    return "\n".join([*parts, f"From `sddm reproduce chorales --scale {scale}`.\n"])


def _line(row: str, figures: Mapping[str, Any]) -> list[str]:
    """The figures in the order of the header; shares in percent."""
    line = [row, _percent(figures, "same"), _plain(figures, "bits", 3)]
    line += [_plain(figures, name, 3) for name in DISTANCES]
    line += [_percent(figures, name) for name in SHARES]
    return line + [_plain(figures, name, 2) for name in RATES]


def _plain(figures: Mapping[str, Any], name: str, digits: int) -> str:
    if name not in figures:
        return ""
    value, error = figures[name]
    return with_error(value, error, digits)


def _percent(figures: Mapping[str, Any], name: str) -> str:
    if name not in figures:
        return ""
    value, error = figures[name]
    return f"{100 * value:.1f} ± {100 * error:.1f}%"
