"""Pictures of points in the plane (data beside samples, the reverse process as a strip and as a film), and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.animation import PillowWriter
from matplotlib.colors import PowerNorm
from PIL import Image

from sddm.data.toys import REACH, Cloud
from sddm.formats.sheet import Pictures

INK, PAPER = "#22223b", "#ffffff"


def side_by_side(panels: Sequence[tuple[str, Cloud]], path: Path, size: tuple[float, float] = (3.2, 3.5)) -> None:
    """One density a panel, each of this size, all on the same scale."""
    size = (size[0] * len(panels), size[1])
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, facecolor=PAPER)
    for axis, (title, points) in zip(axes[0], panels, strict=True):
        _density(axis, points, title, 11)
    write(figure, path)


def strip(times: Sequence[float], clouds: Sequence[Cloud], path: Path) -> None:
    """The same samples at several times, from noise on the left to data on the right."""
    side_by_side([(f"t = {t:.2f}", cloud) for t, cloud in zip(times, clouds, strict=True)], path, (2.1, 2.5))


def matrix(rows: Sequence[str], columns: Sequence[str], clouds: Sequence[Sequence[Cloud | None]], path: Path) -> None:
    """A density for each row and column; a place without points stays empty."""
    size = (1.5 * len(columns) + 0.6, 1.5 * len(rows) + 0.3)
    figure, axes = plt.subplots(len(rows), len(columns), figsize=size, squeeze=False, facecolor=PAPER)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            points = clouds[i][j]
            _density(axes[i, j], np.zeros((0, 2)) if points is None else points, "" if i else column, 9)
        axes[i, 0].set_ylabel(row.replace(", ", ",\n").replace(" + ", "\n+ "), fontsize=9, color=INK)
    write(figure, path)


def animation(times: Sequence[float], clouds: Sequence[Cloud], path: Path) -> None:
    """The same samples from noise to data as a small GIF that pauses at its end."""
    figure, axis = plt.subplots(figsize=(2.2, 2.4), facecolor=PAPER)
    writer = PillowWriter(fps=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writer.saving(figure, str(path), dpi=90):
        for i in [*range(len(clouds)), *[len(clouds) - 1] * 12]:
            axis.clear()
            _density(axis, clouds[i], f"t = {times[i]:.2f}", 10)
            writer.grab_frame()
    plt.close(figure)


def curves(
    lines: Mapping[str, Sequence[tuple[float, float, float]]], floor: float | None, labels: tuple[str, str], path: Path
) -> None:
    """Lines of (x, value, standard error) on a logarithmic x axis, and the floor of the metric if it has one."""
    figure, axis = plt.subplots(figsize=(8, 4), facecolor=PAPER)
    if floor is not None:
        axis.axhspan(-floor, floor, color=INK, alpha=0.08, lw=0, label="data against data:\none standard error")
    for name, points in lines.items():
        at, y, error = zip(*sorted(points), strict=True)
        axis.errorbar(at, y, error, marker="o", ms=3, lw=1.2, capsize=2, label=name)
    axis.set_xscale("log")
    axis.minorticks_off()
    places: list[float] = []
    for x in sorted({x for points in lines.values() for x, _, _ in points}):
        if not places or x > 1.2 * places[-1]:  # labels nearer to each other would overlap
            places.append(x)
    axis.set_xticks(places, [f"{x:.0f}" for x in places])
    if floor is not None:
        linear = max(floor, 0.01)
        axis.set_yscale("symlog", linthresh=linear)
        low, high = axis.get_ylim()
        decades = [10.0**k for k in range(-2, 4) if 10.0**k >= linear]
        ticks = [y for y in (*(-d for d in decades), 0.0, *decades) if low <= y <= high]
        axis.set_yticks(ticks, [f"{y:g}" for y in ticks])
    axis.set(xlabel=labels[0], ylabel=labels[1])
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    write(figure, path)


def panels(
    panel_lines: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    floors: Mapping[str, float],
    labels: tuple[str, str],
    path: Path,
) -> None:
    """Lines of (x, value) in a panel for each name, on logarithmic axes, and the metric's floor where it is known."""
    columns = (len(panel_lines) + 1) // 2
    figure, axes = plt.subplots(
        3, columns, figsize=(11, 9.5), facecolor=PAPER, height_ratios=(4, 4, 1.2), squeeze=False
    )
    names = list(dict.fromkeys(name for lines in panel_lines.values() for name in lines))
    colours, marks = plt.get_cmap("tab20"), "os^Dv"
    for axis, (title, lines) in zip(axes[:2].flat, panel_lines.items(), strict=False):
        for name, points in lines.items():
            at, y = zip(*sorted(points), strict=True)
            number = names.index(name)
            axis.loglog(at, y, marker=marks[number % 5], color=colours(number % 20), ms=4, lw=1.1, label=name)
        if title in floors:
            axis.axhline(floors[title], color=INK, lw=0.8, ls=":")
        axis.set_title(title, fontsize=10, color=INK)
        axis.set(xlabel=labels[0], ylabel=labels[1])
        ticks = sorted({2 ** round(np.log2(x)) for points in lines.values() for x, _ in points})
        axis.minorticks_off()
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.grid(alpha=0.3)
    found = {
        label: line for axis in axes[:2].flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    for axis in axes[2]:
        axis.axis("off")
    place = {"loc": "center left", "bbox_to_anchor": (0, 0.5)}
    key = axes[2, 0].legend(found.values(), found.keys(), fontsize=8, ncols=4, **place)
    key.set_in_layout(False)  # it is wider than its column
    write(figure, path)


def side_curves(
    panel_lines: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]],
    levels: Mapping[str, float],
    x: str,
    level: str,
    path: Path,
) -> None:
    """Lines of (x, value, standard error) in a panel for each name, on linear axes, and a level of some panels."""
    size = (3.8 * len(panel_lines), 3.4)
    figure, axes = plt.subplots(1, len(panel_lines), figsize=size, squeeze=False, facecolor=PAPER)
    for axis, (title, lines) in zip(axes[0], panel_lines.items(), strict=True):
        for name, points in lines.items():
            at, y, error = zip(*sorted(points), strict=True)
            axis.errorbar(at, y, error, marker="o", ms=3, lw=1.2, capsize=2, label=name)
        if title in levels:
            axis.axhline(levels[title], color=INK, lw=0.8, ls=":", label=level)
        axis.set_title(title, fontsize=9, color=INK)
        axis.set(xlabel=x)
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    write(figure, path)


def named_strips(strips: Mapping[str, Pictures], columns: Sequence[str], path: Path) -> None:
    """A row of pictures beside each name, one for each column; a row may end early."""
    size = (0.5 * len(columns) + 2.2, 0.5 * len(strips) + 0.4)
    figure, axes = plt.subplots(len(strips), len(columns), figsize=size, squeeze=False, facecolor=PAPER)
    for axis in axes.flat:
        axis.axis("off")
    for row, (name, pictures) in zip(axes, strips.items(), strict=True):
        row[0].text(-0.2, 0.5, name, transform=row[0].transAxes, ha="right", va="center", fontsize=8, color=INK)
        for axis, picture in zip(row, pictures, strict=False):
            axis.imshow(picture if picture.shape[-1] == 3 else picture[..., 0], cmap="gray", vmin=0, vmax=255)
    for axis, column in zip(axes[0], columns, strict=True):
        axis.set_title(column, fontsize=8, color=INK)
    write(figure, path)


def progress_curves(lines: Mapping[str, Sequence[tuple[float, float, float, float]]], label: str, path: Path) -> None:
    """Lines of (seconds, rows seen, value, standard error), against seconds and against rows."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), facecolor=PAPER, sharey=True)
    for axis, place, title in zip(axes, (0, 1), ("seconds of training", "rows seen"), strict=True):
        for name, points in lines.items():
            if points:
                x, y, error = ([point[i] for point in points] for i in (place, 2, 3))
                axis.errorbar(x, y, error, marker="o", ms=3, lw=1.2, capsize=2, label=name)
        axis.set(xlabel=title)
        axis.locator_params(axis="x", nbins=5)
        axis.set_yscale("log")
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    values = sorted(point[2] for points in lines.values() for point in points)
    ticks = [round(float(t), 1) for t in np.geomspace(values[0], values[-1], 6)]
    axes[0].set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes[0].set_ylabel(label)
    axes[1].legend(fontsize=8)
    write(figure, path)


def _density(axis: Any, points: Cloud, title: str, size: int) -> None:
    axis.set_title(title, fontsize=size, color=INK)
    bins = int(np.clip(1.2 * np.sqrt(len(points)), 24, 160))
    edges = np.linspace(-REACH, REACH, bins + 1)
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=[edges, edges])
    axis.imshow(counts.T, origin="lower", extent=(-REACH, REACH, -REACH, REACH), cmap="magma", norm=PowerNorm(0.5))
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_visible(False)


def write(figure: Any, path: Path) -> None:
    """Save a picture in few bytes."""
    figure.tight_layout(pad=0.6)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=130)
    plt.close(figure)
    # 256 colours are enough for a colour map and some lines, and take a third of the bytes.
    Image.open(drawn).convert("RGB").quantize(256).save(path, "png", optimize=True)
