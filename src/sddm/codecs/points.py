"""Points of the plane as the bits of a toy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm.codecs.base import Codec, Writers
from sddm.formats.arrays import write_array
from sddm.formats.tables import write_csv


class Points(Codec):
    """Points of the plane as the bits of the toy `density`."""

    num_states = 2
    preview = 2_000

    def __init__(self, density: str) -> None:
        from sddm.data.toys import Toy  # here, because sddm.data imports sddm.codecs

        self.density, self.toy = density, Toy(density)

    def encode(self, values: Float64[np.ndarray, "num 2"]) -> Int[Tensor, "num 32"]:
        return self.toy.encode(torch.from_numpy(values))

    def decode(self, tokens: Int[Tensor, "num 32"]) -> Float64[np.ndarray, "num 2"]:
        return self.toy.decode(self.check(tokens)).numpy()

    def writers(self) -> Writers:
        return {
            ".npy": lambda tokens, path: write_array(self.decode(tokens), path),
            ".csv": lambda tokens, path: write_csv(["x", "y"], self.decode(tokens).tolist(), path),
            ".png": lambda tokens, path: _scatter(self.decode(tokens), path),
        }


def _scatter(points: Float64[np.ndarray, "num 2"], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import, and only pictures need it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), facecolor="white")
    axes = FigureCanvasAgg(figure).figure.add_subplot()
    axes.scatter(points[:, 0], points[:, 1], s=max(0.2, min(8.0, 4_000 / len(points))), color="#22223b", linewidths=0)
    axes.set_aspect("equal")
    figure.tight_layout()
    figure.savefig(path, dpi=150, format="png")
