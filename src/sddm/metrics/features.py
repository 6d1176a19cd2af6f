"""Features of many pictures: in batches, and in parts that are kept, so that nothing is computed twice.

A part is 500 pictures. Its features are a file whose name is a digest of these very pictures and of the network's file.
So a call that was stopped goes on where it was, the first 10,000 pictures of a set need not be computed again when all
50,000 are asked for, and no file can be taken for that of other pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from tqdm import tqdm

from sddm import _checks, _files
from sddm.data.packages import cache_folder
from sddm.metrics.inception import Inception, Pictures, check_pictures, load_inception

PART = 500
BATCH = 16
"""Larger batches are slower on a CPU."""
ENTRY = "outputs"


def feature_folder() -> Path:
    """Where features are kept: 8 KB a picture. It may be deleted at any time, and they are computed again."""
    return cache_folder() / "features"


def features(
    pictures: Pictures,
    network: Inception | None = None,
    keep: bool = True,
    folder: Path | None = None,
    batch: int = BATCH,
    progress: bool | None = None,
) -> Float32[Tensor, "num features"]:
    """The features of pictures, in uint8 of shape (num, height, width, channels).

    keep: keep the features of each part, and read those that were kept.
    folder: where; None is `feature_folder()`.
    batch: how many pictures the network gets at a time.
    progress: show a bar; None shows it on a terminal.

    The network runs in this process, on the threads that torch is set to: more processes would only take its cores.
    """
    network = load_inception() if network is None else network
    return in_parts(network.features, f"features {network.digest}", pictures, keep, folder, batch, progress)


def as_features(
    sets: Mapping[str, Any], network: Inception | None, keep: bool, folder: Path | None
) -> list[Float[Tensor, "num features"]]:
    """The features of sets by name, each of pictures or already of features."""
    found: list[Tensor] = []
    for name, values in sets.items():
        if getattr(values, "ndim", 0) == 4:
            check_pictures(values, name)
            network = load_inception() if network is None else network
            found.append(features(values, network, keep, folder))
            continue
        rows = torch.as_tensor(values) if isinstance(values, (np.ndarray, Tensor)) else torch.empty(0)
        _checks.require(
            rows.ndim == 2 and rows.numel() > 0 and rows.is_floating_point() and bool(torch.isfinite(rows).all()),
            f"{name} must be pictures, in uint8 of shape (num, height, width, channels), or a row of finite features a "
            f"picture, but they are {getattr(values, 'dtype', type(values).__name__)} of shape {np.shape(values)}.",
        )
        found.append(rows)
    widths = {rows.shape[1] for rows in found}
    _checks.require(
        len(widths) == 1,
        f"{' and '.join(sets)} must have the same number of features, but they have "
        f"{' and '.join(str(rows.shape[1]) for rows in found)}. Compute both by one network.",
    )
    return found


def in_parts(
    compute: Callable[[Pictures], Tensor],
    key: str,
    pictures: Pictures,
    keep: bool,
    folder: Path | None,
    batch: int = BATCH,
    progress: bool | None = None,
) -> Float32[Tensor, "num outputs"]:
    """What `compute` gives for each picture, as `features` does it; `key` is what is computed, by which network."""
    check_pictures(pictures)
    _checks.whole(batch, "batch", 1)
    bar = tqdm(
        total=len(pictures),
        desc="features",
        unit="picture",
        leave=False,
        file=sys.stderr,
        disable=not (sys.stderr.isatty() if progress is None else progress),
    )
    folder, parts = folder or feature_folder(), []
    with bar:
        for start in range(0, len(pictures), PART):
            part = torch.tensor(np.asarray(pictures[start : start + PART]))
            path = folder / f"{_files.digest(key, {'pictures': part})}.safetensors"
            found = _kept(path) if keep else None
            if found is None:
                batches = []
                for some in part.split(batch):
                    batches.append(compute(some))
                    bar.update(len(some))
                found = torch.cat(batches)
                if keep:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _files.save_tensors(path, {ENTRY: found}, key)
            else:
                bar.update(len(part))
            parts.append(found)
    return torch.cat(parts)


def _kept(path: Path) -> Tensor | None:
    """A part that is there and whole; one that is damaged is computed again."""
    try:
        return _files.load_tensors(path)[1][ENTRY] if path.is_file() else None
    except ValueError:
        return None
