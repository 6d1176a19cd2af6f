"""What people hold in Python, as a data set: one function for each kind of object, and a table of them.

A function takes the object and, where it has such arguments, options of `sddm.data.Reading`, `num_states` and the name
of the column that holds the labels. It returns what a reader of files returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from sddm import _checks
from sddm.codecs import Encoded
from sddm.data.dataset import Dataset
from sddm.data.examples import LABELS, of_loader, of_torch
from sddm.data.frames import columns_of_frame, comes_from, is_frame, is_series, names_of
from sddm.data.labels import numbered
from sddm.data.load import load, read_options, takes
from sddm.data.rows import of_array, of_columns, of_list, of_strings, of_text

LONGEST_NAME = 1_024
"""A longer string is a text, not the name of a file."""
ADVICE = (
    "Give an array or a tensor of whole numbers (num, dim), a list of rows, a list of strings, a text, a DataFrame of "
    "pandas or polars, a Dataset of Hugging Face or torch, a DataLoader, a path, or a sddm.data.Dataset."
)


def dataset_of(
    data: Any, *, labels: Any = None, num_states: int | None = None, seed: int = 0, **reading: Any
) -> Dataset:
    """The rows that an object holds, with their codec.

    labels: the class of each row, as numbers from 0 or as names; or the name of the column that holds them.
    num_states: how many values a token can have, where the numbers do not show all of them.
    seed: draws the points of a toy, and the order in which a DataLoader shuffles.
    reading: options of `sddm.data.Reading`.

    >>> dataset_of([[0, 1, 2], [2, 1, 0]])
    >>> dataset_of(frame, labels="species")
    >>> dataset_of(frame, kinds={"zip": "category"})
    """
    column = labels if isinstance(labels, str) else None
    if isinstance(data, Dataset):
        options = {**read_options(**reading), **_given(num_states=num_states, column=column)}
        for name, value in options.items():
            raise ValueError(f"{name}={value!r} was given, but data is a Dataset, which is complete. Leave it out.")
        return data if labels is None else _labelled(data, labels)
    if isinstance(data, Path) or (isinstance(data, str) and _is_name(data)):
        for name, value in _given(num_states=num_states, column=column).items():
            raise ValueError(f"{name}={value!r} was given, but data is the name of a file. Load it by sddm.data.load.")
        loaded = load(data, seed=seed, **reading)
        return loaded if labels is None else _labelled(loaded, labels)
    kind = kind_of(data)
    options = {**read_options(**reading), **_given(num_states=num_states, column=column)}
    for name, value in options.items():
        shown = "labels" if name == "column" else name
        _checks.require(
            takes(kind.read, name),
            f"{shown}={value!r} was given, but data is {kind.name}, which does not take it. "
            + ("Give a label for each row." if name == "column" else "Leave it out."),
        )
    if takes(kind.read, "seed"):
        options["seed"] = seed
    made = Dataset(*kind.read(data, **options), name="data")
    return made if labels is None or column is not None else _labelled(made, labels)


class Kind(NamedTuple):
    """A kind of object."""

    name: str
    is_one: Callable[[Any], bool]
    read: Callable[..., Encoded]


def kind_of(data: Any) -> Kind:
    """The kind of an object; a TypeError says what can be given instead."""
    for kind in KINDS:
        if kind.is_one(data):
            return kind
    name = type(data).__name__
    if isinstance(data, dict) and comes_from(data, "datasets", "DatasetDict"):
        raise TypeError(f"data is a {name} of several splits. Name one of them: data[{next(iter(data), 'train')!r}].")
    for kinds, advice in WRONG.items():
        if isinstance(data, kinds):
            raise TypeError(f"data is a {name}. {advice}")
    raise TypeError(f"data is a {name}, which sddm cannot read. {ADVICE}")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _is_name(text: str) -> bool:
    """Whether a string names a file, a toy or a set."""
    return "\n" not in text and "\r" not in text and len(text) <= LONGEST_NAME


def _labelled(data: Dataset, labels: Any) -> Dataset:
    """The same data with these labels."""
    numbers, names = numbered(labels, len(data))
    return Dataset(data.tokens, data.codec, data.groups, numbers, data.lengths, data.report, names, data.name)


def of_frame(frame: Any, column: str | None = None, kinds: str | None = None) -> Encoded:
    """A DataFrame of pandas or polars: a table."""
    frame = frame.collect() if comes_from(frame, "polars", "LazyFrame") else frame
    return of_columns(dict(zip(names_of(frame), columns_of_frame(frame), strict=True)), column, kinds, table=True)


def of_series(series: Any) -> Encoded:
    """A column of pandas or polars that holds text."""
    values = list(series.to_list())
    if not values or not all(isinstance(value, str) for value in values):
        raise TypeError("data is a Series, but not of strings. Give a table of it, data.to_frame(), or whole rows.")
    return of_strings(values)


def of_hugging_face(dataset: Any, column: str | None = None, kinds: str | None = None) -> Encoded:
    """A Dataset of Hugging Face. A column `label` with names gives the labels unless another is named."""
    named = {name: feature.names for name, feature in dataset.features.items() if hasattr(feature, "names")}
    column = column or next((name for name in LABELS if name in named), None)
    encoded = of_columns({name: list(dataset[name]) for name in dataset.column_names}, column, kinds)
    names = named.get(column or "")
    return encoded if names is None else encoded._replace(label_names=list(names))


def of_other_array(array: Any, num_states: int | None = None) -> Encoded:
    """What another package can make an array of numpy."""
    return of_array(np.asarray(array), num_states)


WRONG: dict[tuple[type, ...], str] = {
    (dict,): "Give a DataFrame of it, or a list of dictionaries, one a row.",
    (set, frozenset): "A set has no order and no row twice. Give a list.",
    (bytes, bytearray): "Give text, data.decode(), or numbers, numpy.frombuffer(data, 'uint8').",
    (range,): "Give a list of rows.",
    (Iterable,): "Give what it yields as a list: list(data).",
}
"""What can be done with objects that are no data."""
KINDS = [
    Kind("a text", lambda data: isinstance(data, str), of_text),
    Kind("a DataFrame", lambda data: is_frame(data) or comes_from(data, "polars", "LazyFrame"), of_frame),
    Kind("a Series", is_series, of_series),
    Kind("a Dataset of Hugging Face", lambda data: comes_from(data, "datasets", "Dataset"), of_hugging_face),
    Kind("an array or a tensor", lambda data: isinstance(data, (np.ndarray, Tensor)), of_array),
    Kind("a DataLoader", lambda data: isinstance(data, DataLoader), of_loader),
    Kind("a Dataset of torch", lambda data: isinstance(data, TorchDataset), of_torch),
    Kind("a list", lambda data: isinstance(data, (list, tuple)), of_list),
    Kind("an array", lambda data: hasattr(data, "__array__"), of_other_array),
]
"""The first kind that an object is decides."""
