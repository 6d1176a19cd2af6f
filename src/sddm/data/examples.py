"""Data sets and loaders of torch as rows of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import Dataset as TorchDataset

from sddm import _checks
from sddm.codecs import Encoded
from sddm.data.labels import numbered
from sddm.data.rows import of_array, of_list

ROWS = ("input_ids", "tokens", "text", "x")
"""Under which name an example that is a dictionary holds its row."""
LABELS = ("label", "y")
"""Under which name it holds its class."""
MOST_EXAMPLES = 100_000_000
"""The most examples that are taken of an object whose end is not known."""


def of_loader(loader: DataLoader[Any], num_states: int | None = None, seed: int = 0) -> Encoded:
    """All batches of a DataLoader: rows, or pairs of rows and labels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if loader.batch_size is None and loader.batch_sampler is None:
            return _of_examples(loader, num_states)
        rows: list[Any] = []
        labels: list[Any] = []
        for batch in loader:
            some, classes = _parted(batch)
            rows.extend(some)
            labels.extend([] if classes is None else classes)
    return _with_labels(rows, labels, num_states)


def of_torch(dataset: TorchDataset[Any], num_states: int | None = None) -> Encoded:
    """A Dataset of torch, whose examples are rows, or pairs of a row and a label."""
    if isinstance(dataset, IterableDataset):
        return _of_examples(dataset, num_states)
    if not isinstance(dataset, Sized):
        raise TypeError("data is a Dataset of torch without a length. Give it a method __len__.")
    return _of_examples((dataset[place] for place in range(len(dataset))), num_states)


def _of_examples(examples: Iterable[Any], num_states: int | None) -> Encoded:
    parted = [_parted(example) for example in islice(examples, MOST_EXAMPLES)]
    labels = [label for _, label in parted if label is not None]
    return _with_labels([row for row, _ in parted], labels, num_states)


def _with_labels(rows: list[Any], labels: list[Any], num_states: int | None) -> Encoded:
    if rows and all(isinstance(row, Tensor) and row.ndim and row.shape == rows[0].shape for row in rows):
        encoded = of_array(torch.stack(rows), num_states)
    else:
        encoded = of_list(rows, num_states)
    if not labels:
        return encoded
    numbers, names = numbered(labels, len(rows))
    return encoded._replace(labels=numbers, label_names=names)


def _parted(example: Any) -> tuple[Any, Any]:
    """The row of an example, or the rows of a batch, and the label; None if there is none."""
    if isinstance(example, Mapping):
        name = next((name for name in ROWS if name in example), None)
        if name is None:
            raise TypeError(
                f"data gives dictionaries with the keys {_checks.shown(list(example))}, of which none is a row. Call "
                f"it one of {', '.join(ROWS)}."
            )
        return example[name], next((example[label] for label in LABELS if label in example), None)
    if isinstance(example, (list, tuple)) and example and isinstance(example[0], (np.ndarray, Tensor, list, tuple)):
        _checks.require(
            len(example) <= 2, f"data gives {len(example)} things at a time. Give a row, or a row and its label."
        )
        return example[0], example[1] if len(example) == 2 else None
    match example:
        case (str(), str()):
            return example, None
        case (str() as text, label):
            return text, label
    return example, None
