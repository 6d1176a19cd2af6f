"""What the experiment on pictures shows: the paper's tables, sheets of pictures, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Int, UInt8
from torch import Tensor

from sddm import _files
from sddm.conditions import Condition
from sddm.diffusion import Diffusion
from sddm.experiments.experiment import markdown, with_error
from sddm.experiments.pictures import curves
from sddm.formats.sheet import sheet
from sddm.recipe import SamplingConfig
from sddm.samplers import Trajectory
from sddm.training.batches import generator_of

Pictures = UInt8[np.ndarray, "num height width channels"]
COLUMNS, SHOWN_TIMES, COMPLETED, WAYS = 10, 8, 6, 4
"""Pictures in a row of a sheet; times of the reverse process; pictures that are completed, and in how many ways."""
PAPER = {
    ("codes", "test set"): "9.05",
    ("codes", "D3PM-VQ uniform"): "16.47",
    ("codes", "tauLDR-VQ uniform"): "40.06",
    ("codes", "SDDM-VQ masked, analytical"): "12.23",
    ("pixels, 8 x 8", "D3PM gaussian"): "7.34",
    ("pixels, 8 x 8", "D3PM uniform"): "51.27",
    ("pixels, 8 x 8", "D3PM absorbing"): "30.97",
    ("pixels, 8 x 8", "tauLDR-0 birth-death"): "8.10",
    ("pixels, 8 x 8", "tauLDR-10 birth-death"): "3.74",
}
"""The paper's FID by column and row: at full size, after days of training on several GPUs, and pixels at 32 x 32."""
PAPER_STEPS = {
    "D3PM-VQ uniform": ("102.3", "90.1", "84.72", "62.15", "38.56", "32.61"),
    "SDDM-VQ hollow, Euler": ("28", "17.73", "16.51", "13.61", "12.64", "12.5"),
    "SDDM-VQ hollow, analytical": ("21.06", "15.96", "14.99", "13.29", "13.39", "13.41"),
}
"""The paper's FID at 20 to 250 steps; its SDDM is the masked model."""
TEXT = """\
{many:,} samples of each row against {reference:,} pictures of the training set, by Inception features. Lower is nearer.
FID depends on the numbers of pictures: compare it only within a column. `test set` is what real pictures give: in the
column of codes, after their way through the tokenizer, which no model of its codes can pass. Errors of FID and KID are
those of the samples and pictures as draws. Bits are the bound on unseen rows, for each code or each value of a pixel.
"""


def table(results: list[dict[str, Any]], columns: Sequence[str], scale: str, many: int, reference: int) -> str:
    """A table for each column."""
    parts = [f"# images, {scale} scale\n", TEXT.format(many=many, reference=reference)]
    for column in columns:
        found = [r for r in results if r["column"] == column and r["seed"] == 0]
        if not found:
            continue
        header = ["", "FID", "FID, less its bias", "KID x 1000", "bits", "FID in the paper", "seconds of the cell"]
        lines = []
        for result in found:
            f = result["figures"]
            bits = with_error(f["bits"], f["bits_standard_error"]) if "bits" in f else ""
            line = [result["row"], with_error(f["fid"], f["fid_standard_error"], 2), f"{f['fid_corrected']:.2f}"]
            line += [with_error(1000 * f["kid"], 1000 * f["kid_standard_error"], 2), bits]
            lines.append([*line, PAPER.get((column, result["row"]), ""), f"{result['seconds']:.0f}"])
        parts += [f"## {column}\n", markdown(header, lines)]
    return "\n".join([*parts, f"From `sddm reproduce images --scale {scale}`.\n"])


def steps_table(results: list[dict[str, Any]], steps: Sequence[int], scale: str, many: int) -> str:
    """FID and KID by the number of evaluations."""
    found = {r["row"]: r["figures"] for r in results if r["seed"] == 0}
    names = list(dict.fromkeys(row.rpartition(", ")[0] for row in found))
    parts = [f"# images by the number of evaluations, {scale} scale\n", f"{many:,} samples of each row.\n"]
    for title, key, factor in (("KID x 1000", "kid", 1000.0), ("FID", "fid", 1.0)):
        lines = []
        for name in names:
            at = [found.get(f"{name}, {number} evaluations") for number in steps]
            lines.append([name, *("" if f is None else _shown(f, key, factor) for f in at)])
            if key == "fid":
                lines.append([f"paper: {name.replace(' hollow', '')}", *PAPER_STEPS[name]])
        parts.append(markdown([title, *(f"{number}" for number in steps)], lines))
    return "\n".join([*parts, f"From `sddm reproduce images-steps --scale {scale}`.\n"])


def _shown(figures: dict[str, Any], key: str, factor: float) -> str:
    return with_error(factor * figures[key], factor * figures[f"{key}_standard_error"], 2)


def steps_curve(results: list[dict[str, Any]], path: Path) -> None:
    """KID against evaluations."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for result in results:
        name, _, last = result["row"].rpartition(", ")
        figures = result["figures"]
        point = (float(last.split()[0]), 1000 * figures["kid"], 1000 * figures["kid_standard_error"])
        lines.setdefault(name, []).append(point)
    if lines:
        curves(lines, None, ("evaluations of the network", "KID x 1000"), path)


def samples(pictures: Pictures, path: Path) -> None:
    """A sheet of samples."""
    with _files.replacing(path) as aside:
        sheet(pictures, aside, COLUMNS)


def tokenizer_curve(points: list[dict[str, Any]], folder: Path) -> None:
    """The error of reconstructions against the pictures that the tokenizer was trained on, as a table."""
    if not points:
        return
    shown = points[:: max(1, len(points) // 16)]
    shown += [points[-1]] * (shown[-1] != points[-1])
    lines = [[f"{p['pictures']:,}", f"{p['psnr']:.2f}", f"{p['codes_used']:.3f}"] for p in shown]
    text = "Reconstructions of held-out pictures while the tokenizer is trained.\n"
    body = markdown(["pictures trained on", "PSNR", "share of the codes in use"], lines)
    _files.write_text(folder / "tokenizer.md", f"# The tokenizer\n\n{text}\n{body}")


def reverse_process(model: Diffusion, sampling: SamplingConfig, path: Path) -> None:
    """Some samples, a row each, decoded at several times from noise to the result."""
    record = Trajectory()
    sampling.sample(model, COMPLETED, generator=generator_of(0, "reverse pictures", 0), callback=record)
    last = len(record.times) - 1
    shown = torch.tensor([round(number * last / (SHOWN_TIMES - 1)) for number in range(SHOWN_TIMES)])
    tokens = rearrange(record.tokens[shown], "times num dim -> (num times) dim")
    samples_of(model, tokens, path, SHOWN_TIMES)


def completions(model: Diffusion, sampling: SamplingConfig, rows: Int[Tensor, "num dim"], path: Path) -> None:
    """Each row: a picture, and ways in which the model completes it when the upper half of its codes is given."""
    upper = torch.arange(rows.shape[1]) < rows.shape[1] // 2
    repeated = rows.repeat_interleave(WAYS, dim=0)
    generator = generator_of(0, "completed pictures", 0)
    made = sampling.sample(
        model, len(repeated), condition=Condition(upper.expand_as(repeated), repeated), generator=generator
    )
    lines = rearrange(made, "(num ways) dim -> num ways dim", ways=WAYS)
    samples_of(
        model, rearrange(torch.cat([rows[:, None], lines], dim=1), "num ways dim -> (num ways) dim"), path, 1 + WAYS
    )


def samples_of(model: Diffusion, tokens: Int[Tensor, "num dim"], path: Path, columns: int) -> None:
    """Rows of tokens as pictures on a sheet."""
    assert model.codec is not None
    with _files.replacing(path) as aside:
        sheet(np.asarray(model.codec.decode(tokens)), aside, columns)
