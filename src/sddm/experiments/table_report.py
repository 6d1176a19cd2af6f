"""Tables and a picture of `sddm reproduce tables`, from its results alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from sddm.experiments.experiment import markdown, with_error
from sddm.experiments.pictures import INK, PAPER, write

SHOWN = 6
"""Questions about each table that the report shows one by one."""
LIMITS = (-0.03, 1.03)
"""Of axes of probabilities."""
Cells = dict[tuple[str, str], dict[str, Any]]
FIGURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "KL(truth ‖ system), nats": lambda figures: _estimate(figures, "kl"),
    "KL(system ‖ truth) of the samples that the truth can draw, nats": lambda figures: _estimate(figures, "reverse_kl"),
    "Samples that the truth never draws": lambda figures: _estimate(figures, "impossible", 4),
    "Rows of the truth that the system can draw": lambda figures: _estimate(figures, "covered", 4),
    "p(A | B, C) of rare B and C: the mean distance from the truth": lambda figures: _distance(figures["answers"]),
}


def tables(results: Sequence[dict[str, Any]], name: str, scale: str) -> str:
    """A table for each figure, systems by data, of the first training, and some questions about each data set."""
    cells: Cells = {(r["row"], r["column"]): r["figures"] for r in results if r["seed"] == 0}
    rows, columns = (list(dict.fromkeys(cell[i] for cell in cells)) for i in (0, 1))
    parts = [f"# {name}, {scale} scale\n"]
    for title, shown in FIGURES.items():
        lines = [[row, *(shown(cells[row, c]) if (row, c) in cells else "" for c in columns)] for row in rows]
        parts += [f"## {title}\n", markdown(["system", *columns], lines)]
    for column in columns:
        parts += [
            f"## Questions about {column}\n",
            _questions(cells, [r for r in rows if (r, column) in cells], column),
        ]
    parts.append(
        f"From `sddm reproduce tables --scale {scale}`. Errors are over rows, samples or questions, of one training. "
        "The laws of independent columns and of the tree are exact in the questions; the others are counted.\n"
    )
    return "\n".join(parts)


def agreement(results: Sequence[dict[str, Any]], path: Path) -> None:
    """What each system says of rare combinations against the truth, a panel a system."""
    rows = list(dict.fromkeys(r["row"] for r in results))
    if not rows:
        return
    figure, axes = plt.subplots(
        1, len(rows), figsize=(2.9 * len(rows), 3.3), squeeze=False, facecolor=PAPER, sharey=True
    )
    for axis, row in zip(axes[0], rows, strict=True):
        axis.plot([0, 1], [0, 1], color=INK, lw=0.8, alpha=0.5)
        for result in (r for r in results if r["row"] == row and r["seed"] == 0):
            told = [a for a in result["figures"]["answers"] if a["answer"] is not None]
            x, y, error = ([a[key] for a in told] for key in ("truth", "answer", "error"))
            axis.errorbar(x, y, error, fmt="o", ms=3, lw=0.8, alpha=0.8, label=result["column"])
        axis.set_title(row, fontsize=10, color=INK)
        axis.set(xlabel="p(A | B, C), truth", xlim=LIMITS, ylim=LIMITS, xticks=[0, 0.5, 1], aspect="equal")
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("p(A | B, C), system")
    axes[0, -1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    write(figure, path)


def _questions(cells: Cells, rows: Sequence[str], column: str) -> str:
    asked = cells[rows[0], column]["answers"][:SHOWN]
    lines = [
        [a["asked"], " and ".join(a["given"]), f"{a['share']:.2%}", f"{a['truth']:.3f}"]
        + [_answer(cells[row, column]["answers"][number]) for row in rows]
        for number, a in enumerate(asked)
    ]
    return markdown(["A", "given", "of all rows", "truth", *rows], lines)


def _answer(told: dict[str, Any]) -> str:
    if told["answer"] is None:
        return "no such row"
    return with_error(told["answer"], told["error"]) if told["error"] else f"{told['answer']:.3f}"


def _distance(answers: Sequence[dict[str, Any]]) -> str:
    gaps = [abs(a["answer"] - a["truth"]) for a in answers if a["answer"] is not None]
    if len(gaps) < 2:
        return ""
    unknown = f" ({len(answers) - len(gaps)} unanswered)" if len(gaps) < len(answers) else ""
    return with_error(mean(gaps), stdev(gaps) / math.sqrt(len(gaps))) + unknown


def _estimate(figures: dict[str, Any], name: str, digits: int = 3) -> str:
    if figures[name] is None:
        return "infinite" if name == "kl" else "no such sample"
    return with_error(figures[name], figures[f"{name}_standard_error"], digits)
