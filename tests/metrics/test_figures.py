"""The table of metrics: what `sddm evaluate` measures."""

import pytest
import torch

from sddm.codecs import Columns, Integers
from sddm.metrics import METRICS, Figure, compare

TABLE = Columns(["left", "right", "other"], [["a", "b", "c"]] * 3)


def suits(metric, codec):
    return isinstance(codec, metric.codec) and metric.suits(codec)


def rows(num, seed, dependent):
    """Two columns that are equal if dependent, and a third."""
    tokens = torch.randint(3, (num, 3), generator=torch.Generator().manual_seed(seed))
    if dependent:
        tokens[:, 1] = tokens[:, 0]
    return tokens


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if suits(metric, TABLE)])
def test_a_metric_tells_samples_of_another_law_from_those_of_the_same(name):
    data = rows(400, 0, dependent=True)
    same, other = (
        {figure.name: figure.value for figure in compare(rows(400, 1, dependent), data, TABLE)}[name]
        for dependent in (True, False)
    )
    assert same < 0.1 * other


def test_metrics_of_tables_are_for_tables():
    data = rows(20, 0, dependent=True)
    assert [figure.name for figure in compare(data, data, TABLE)] == ["mmd", "association_gap"]
    assert [figure.name for figure in compare(data, data, Integers(3))] == ["mmd"]


def test_a_figure_is_saved_under_its_name_with_its_error():
    assert Figure("gap", "a gap", 0.5).saved() == {"gap": 0.5}
    assert Figure("gap", "a gap", 0.5, 0.25).saved() == {"gap": 0.5, "gap_standard_error": 0.25}
    assert str(Figure("gap", "a gap", 0.5, 0.25)) == "a gap  0.5 +- 0.25"
