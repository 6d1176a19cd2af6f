"""Objects that people hold: each as data to train on, with its own gaps, and what they become."""

import numpy as np
import pandas
import polars
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from sddm.data import Dataset

ROWS = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 2, 2]] * 4
CLASSES = [0, 1, 2] * 4
LINES = ["abca", "bacb", "cabc"] * 4
TABLE = {"size": [1, 2, 3] * 4, "colour": ["red", "blue", "red"] * 4, "new": [True, False, True] * 4}


class Examples(TorchDataset):
    """A data set of torch that somebody wrote."""

    def __init__(self, examples):
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, place):
        return self.examples[place]


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(map(torch.tensor, ROWS))


class Feature:
    def __init__(self, names):
        self.names = names


def hugging_face(columns, names=None, kind="Dataset"):
    """What a Dataset of Hugging Face has of columns: their names, features and values by name."""

    def init(self):
        self.column_names = list(columns)
        self.features = {name: Feature(names) if names and name == "label" else object() for name in columns}

    body = {"__init__": init, "__getitem__": lambda self, name: columns[name], "__module__": "datasets.arrow_dataset"}
    return type(kind, (), body)()


def pairs(**options):
    return DataLoader(TensorDataset(torch.tensor(ROWS), torch.tensor(CLASSES)), batch_size=5, **options)


FITTED = {
    "lists": ROWS,
    "tuples": tuple(map(tuple, ROWS)),
    "ragged lists": [[0, 1, 2], [2, 1]] * 6,
    "strings": LINES,
    "strings of several lengths": ["abc", "ab", "c"] * 4,
    "lines in one string": "\n".join(LINES),
    "one long string": "abcabcacb" * 150,
    "an array": np.array(ROWS, np.uint8),
    "an array of strings": np.array(LINES),
    "a tensor": torch.tensor(ROWS),
    "a list of tensors": [torch.tensor(row) for row in ROWS],
    "a list of arrays of several lengths": [np.array([0, 1]), np.array([1, 0, 2])] * 5,
    "pictures": np.zeros((4, 2, 2, 3), np.uint8) + np.arange(4, dtype=np.uint8)[:, None, None, None] * 60,
    "dictionaries": [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)],
    "a frame of pandas": pandas.DataFrame(TABLE),
    "a frame of polars": polars.DataFrame(TABLE),
    "a lazy frame of polars": polars.LazyFrame(TABLE),
    "a series of pandas": pandas.Series(LINES),
    "a series of polars": polars.Series(LINES),
    "a data set of torch": TensorDataset(torch.tensor(ROWS)),
    "pairs of torch": TensorDataset(torch.tensor(ROWS), torch.tensor(CLASSES)),
    "dictionaries of torch": Examples([{"input_ids": row, "label": label} for row, label in zip(ROWS, CLASSES)]),  # noqa: B905
    "texts of torch": Examples(list(zip(LINES, CLASSES, strict=True))),
    "a stream of torch": Streamed(),
    "a loader": DataLoader(TensorDataset(torch.tensor(ROWS)), batch_size=5),
    "a loader of pairs": pairs(),
    "tokens of Hugging Face": hugging_face({"input_ids": ROWS, "label": CLASSES}, ["a", "b", "c"]),
    "texts of Hugging Face": hugging_face({"text": LINES}),
    "a table of Hugging Face": hugging_face(TABLE),
    "a data set": Dataset.from_tokens(torch.tensor(ROWS)),
    "a name": "moons",
}

GAPS = {
    "a tensor": (torch.tensor(ROWS), torch.tensor([[0, -1, 2, 3], [3, 2, 1, 0], [-1, -1, -1, -1]], dtype=torch.int32)),
    "a row": (ROWS, torch.tensor([0, -1, -1, 3])),
    "an array": (np.array(ROWS), np.array([[0, -1, 2, 3]], np.int8)),
    "lists": (ROWS, [[0, None, 2, 3], [None, None, 1, 0]]),
    "a list": (ROWS, [0, None, 2, 3]),
    "tuples": (ROWS, ((0, None, 2, 3),)),
    "ragged lists": ([[0, 1, 2], [2, 1]] * 6, [[0, None, 2], [None, 1]]),
    "a string": (LINES, "a_c_"),
    "strings": (["abc", "ab", "c"] * 4, ["a_", "_bc", "_"]),
    "tokens of text": (LINES, torch.tensor([[0, -1, 2, -1]])),
    "pictures": (FITTED["pictures"], np.array([[[[0, -1, 60]] * 2] * 2], np.int16)),
    "a frame of pandas": (
        pandas.DataFrame(TABLE),
        pandas.DataFrame(
            {"new": [None, True, False], "colour": ["red", None, "blue"], "size": [None, 3, 1]}, index=[7, 7, 3]
        ),
    ),
    "fractions": (
        pandas.DataFrame({**TABLE, "size": [0.5, 1.5, 2.5] * 4}),
        pandas.DataFrame({"size": [None, 1.5], "colour": [None, "red"], "new": [True, False]}),
    ),
    "types of pandas": (
        pandas.DataFrame({**TABLE, "day": pandas.to_datetime(["2020-01-01", "2021-01-02"] * 6)}),
        pandas.DataFrame(
            {
                "size": pandas.array([None, 2], "Int8"),
                "colour": pandas.Categorical([None, "blue"], ["blue", "red"]),
                "new": pandas.array([None, True], "boolean"),
                "day": pandas.to_datetime([None, "2020-01-01"]),
            }
        ),
    ),
    "a frame of polars": (
        polars.DataFrame({**TABLE, "cut": polars.Series(["x", "y"] * 6, dtype=polars.Categorical)}),
        polars.DataFrame(
            {
                "cut": polars.Series([None, "y"], dtype=polars.Categorical),
                "new": polars.Series([None, True]),
                "colour": polars.Series([None, "blue"]),
                "size": polars.Series([None, 2], dtype=polars.Int8),
            }
        ),
    ),
}
