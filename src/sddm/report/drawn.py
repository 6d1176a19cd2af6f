"""The pictures of a report, each as a PNG file in memory. Names from the table are shortened and never interpreted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from textwrap import wrap

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sddm.report.measured import Measured

Shares = Float64[np.ndarray, "values"]
INK, DATA, SAMPLES, PAPER = "#22223b", "#b8bccb", "#2a6f97", "#ffffff"
WIDE = 10.0
"""Inches of every picture."""
PANELS, ACROSS = 24, 4
"""How many columns are shown value by value, and how many side by side."""
LISTED = 40
"""How many columns are listed in a picture."""
NAMED = 40
"""A matrix of no more columns than this names them."""
LEAST_GAP = 0.1
"""The scale of differences in association ends here, or at the largest one."""
LABELLED = 8
"""A panel with more values than this has labels at some of them."""


def pictures(measured: Measured) -> dict[str, bytes]:
    """All pictures, by what stands above each of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # of a script that the font does not have
        drawn = {
            "Columns: total variation from the held-out rows": _variations(measured),
            "Columns: shares of the values, those furthest from the held-out rows first": _columns(measured),
            "Pairs of columns: association (Cramer's V)": _associations(measured),
            "Distance to the nearest training row": _distances(measured),
        }
        return {title: _finished(figure, title) for title, figure in drawn.items()}


def table_drawn(title: str, said: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """A title, a sentence and a table, as wide as the pictures."""
    figure = Figure(figsize=(WIDE, 1.5 + 0.26 * len(rows)), facecolor=PAPER, layout="constrained")
    axis = figure.subplots()
    axis.axis("off")
    axis.set_title(plain(title, 80), loc="left", fontsize=13, color=INK, pad=10)
    axis.text(0, 1, "\n".join(wrap(plain(said, 600), 150)), fontsize=8, color=INK, va="top", transform=axis.transAxes)
    cells = [[plain(header[i], 40) for i in range(4)], *([plain(cell, 90) for cell in row] for row in rows)]
    places = (0.0, 0.47, 0.59, 0.71)
    for number, line in enumerate(cells):
        height = 0.66 - 0.6 * number / len(rows)
        for x, cell in zip(places, line, strict=True):
            weight = "bold" if number == 0 else "normal"
            axis.text(x, height, cell, fontsize=7.5, color=INK, weight=weight, transform=axis.transAxes)
    return _finished(figure, "")


def plain(text: str, most: int = 16) -> str:
    """A text that fits and that is drawn as it is."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    short = text if len(text) <= most else text[: most - 1] + "…"
    return short.replace("\\", "\\\\").replace("$", r"\$") if "$" in short else short


def _furthest(measured: Measured) -> list[int]:
    """The columns, those furthest from the data first."""
    return sorted(range(len(measured.columns)), key=lambda d: -measured.columns[d].value)


def _variations(measured: Measured) -> Figure:
    shown = _furthest(measured)[:LISTED][::-1]
    figure = Figure(figsize=(WIDE, 0.9 + 0.22 * len(shown)), facecolor=PAPER, layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(shown))
    columns = [measured.columns[d] for d in shown]
    data = [(column.of_data, column.of_data_standard_error) for column in columns]
    samples = [(column.value, column.standard_error) for column in columns]
    for name, colour, shift, points in (("training rows", DATA, -0.12, data), ("samples", SAMPLES, 0.12, samples)):
        values, errors = np.array(points, np.float64).T
        axis.errorbar(values, places + shift, xerr=errors, fmt="o", ms=4, lw=1.2, color=colour, label=name)
    axis.set_yticks(places, [plain(c.title, 28) for c in columns], fontsize=8)
    axis.set_ylim(-0.6, len(shown) - 0.4)
    axis.set_xlim(left=0)
    axis.set_xlabel("total variation")
    axis.legend(fontsize=8, loc="lower right")
    return figure


def _columns(measured: Measured) -> Figure:
    shown = _furthest(measured)[:PANELS]
    down = -(-len(shown) // ACROSS)
    figure = Figure(figsize=(WIDE, 1.9 * down + 0.3), facecolor=PAPER, layout="constrained")
    axes = figure.subplots(down, ACROSS, squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    for d, axis in zip(shown, axes.flat, strict=False):
        labels = measured.cells.labels[d]
        _bars(axis, *(shares.numpy() for shares in measured.shares[d]))
        every = -(-len(labels) // LABELLED)
        axis.set_xticks(range(0, len(labels), every), [plain(label, 9) for label in labels[::every]], fontsize=6.5)
        if len(labels) > 3:
            axis.tick_params(axis="x", rotation=35)
            for label in axis.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
        axis.tick_params(axis="y", labelsize=6.5)
        axis.set_title(plain(measured.cells.names[d], 24), fontsize=8.5, color=INK)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="upper right", ncols=2)
    return figure


def _associations(measured: Measured) -> Figure:
    samples, data = (table.numpy() for table in measured.associations)
    figure = Figure(figsize=(WIDE, 4.0), facecolor=PAPER, layout="constrained")
    axes = figure.subplots(1, 3)
    names = [plain(name, 12) for name in measured.cells.names]
    gap = samples - data
    largest = max(LEAST_GAP, float(np.abs(gap).max()))
    panels = (
        ("held-out rows", data, "Blues", 0, 1),
        ("samples", samples, "Blues", 0, 1),
        ("samples minus held-out rows", gap, "RdBu_r", -largest, largest),
    )
    for axis, (title, table, colours, low, high) in zip(axes, panels, strict=True):
        image = axis.imshow(table, cmap=colours, vmin=low, vmax=high)
        axis.set_title(title, fontsize=9, color=INK)
        told = names if len(names) <= NAMED else []
        axis.set_xticks(range(len(told)), told, fontsize=6, rotation=90)
        told = told if axis is axes[0] else []
        axis.set_yticks(range(len(told)), told, fontsize=6)
        bar = figure.colorbar(image, ax=axis, fraction=0.046, pad=0.04)
        bar.ax.tick_params(labelsize=6.5)
        bar.outline.set_visible(False)
    return figure


def _distances(measured: Measured) -> Figure:
    figure = Figure(figsize=(WIDE, 2.6), facecolor=PAPER, layout="constrained")
    axis = figure.subplots()
    farthest = max(int(distances.max()) for distances in measured.closeness.distances)
    counts = [np.bincount(each.numpy(), minlength=farthest + 1) / len(each) for each in measured.closeness.distances]
    _bars(axis, *counts)
    axis.locator_params(axis="x", integer=True)
    axis.set(xlabel="columns that differ from the nearest training row", ylabel="share of the rows")
    axis.legend(fontsize=8)
    return figure


def _bars(axis: Axes, samples: Shares, held_out: Shares) -> None:
    """Two bars a value."""
    places = np.arange(len(samples))
    axis.bar(places - 0.2, held_out, 0.4, color=DATA, label="held-out rows")
    axis.bar(places + 0.2, samples, 0.4, color=SAMPLES, label="samples")


def _finished(figure: Figure, title: str) -> bytes:
    """The file, with a title above all panels."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(DATA)
        axis.tick_params(color=DATA, labelcolor=INK)
        axis.xaxis.label.set_color(INK)
    if title:
        figure.suptitle(title, x=0.008, ha="left", fontsize=11, color=INK)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()
