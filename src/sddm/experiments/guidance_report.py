"""What the experiment on guidance shows: a table, curves against the strength, and digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sddm.experiments.experiment import markdown, with_error
from sddm.experiments.pictures import named_strips, side_curves
from sddm.formats.sheet import Pictures

SPECIAL = {0.0: "no label", 1.0: "label, as learnt"}
FIGURES = {
    "recognised": "recognised as the wanted digit",
    "spread": "distance within a label, relative to test digits",
    "frechet_corrected": "Fréchet distance from test digits",
}
TEXT = """\
{many:,} samples of each row, as many of each digit, of {side} x {side} pixels in {levels} levels of grey, in {steps}
steps. All rows but `test digits` share one training of {minutes:g} minutes of one core, in which a tenth of the rows
have no label. Guidance mixes its conditionals with the label and without it; 1 is the model as learnt, 0 the model
without the label. The rows by a classifier take the model without labels, and the gradient of a classifier of noised
digits, which learnt for {minutes_of_classifier:g} minutes.

- **recognised**: the share of samples in which a convolutional network sees the wanted digit. It learnt from clean
  digits that the model has not seen, and recognises {accuracy:.2%} of all test digits.
- **distance within a label**: the mean share of pixels in which two samples of one digit differ, divided by that of
  test digits. Below 1 samples are less varied than handwriting.
- **Fréchet distance**: between the features of samples, the input of that network's last layer, and those of
  {reference:,} test digits, less its bias. Lower is nearer; it may be below 0.
"""


def guided(strength: float) -> str:
    """The name of a row. In words where it is negative, as names of files have no minus."""
    return SPECIAL.get(strength) or f"guidance {'minus ' if strength < 0 else ''}{abs(strength):g}"


def classified(strength: float) -> str:
    """The name of a row by the classifier."""
    return f"classifier, strength {strength:g}"


def table(results: Sequence[dict[str, Any]], sized: Any, scale: str, reference: int) -> str:
    """A line for each row, with standard errors over samples."""
    found = [r for r in results if r["seed"] == 0]
    parts = [f"# guidance, {scale} scale\n"]
    if found:
        accuracy = found[0]["figures"]["recogniser_accuracy"]
        parts.append(TEXT.format(**vars(sized), accuracy=accuracy, reference=reference))
    lines = []
    for result in found:
        f = result["figures"]
        errors = (f[f"{name.removesuffix('_corrected')}_standard_error"] for name in FIGURES)
        cells = [with_error(f[name], error) for name, error in zip(FIGURES, errors, strict=True)]
        lines.append([result["row"], *cells, f"{result['seconds']:.0f}"])
    parts.append(markdown(["", *FIGURES.values(), "seconds of the cell"], lines))
    return "\n".join([*parts, f"From `sddm reproduce guidance --scale {scale}`.\n"])


def curve(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Each figure against the strength: of the label's guidance, and of the classifier."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {title: {} for title in FIGURES.values()}
    levels: dict[str, float] = {}
    for result in results:
        figures, system = result["figures"], result["recipe"]["system"]
        for name, title in FIGURES.items():
            if "recipe" not in system:
                levels[title] = figures[name]
                continue
            by = "strength" in system
            x = system["strength"] if by else system["recipe"]["sampling"]["guidance"]
            point = (x, figures[name], figures[f"{name.removesuffix('_corrected')}_standard_error"])
            panels[title].setdefault("by a classifier" if by else "by the label", []).append(point)
    if any(panels.values()):
        side_curves(panels, levels, "strength of guidance", "test digits", path)


def digits(lines: Mapping[str, Pictures], names: Sequence[str], path: Path) -> None:
    """A line of digits for each row, one of each label."""
    if lines:
        named_strips(lines, names, path)
