"""How far samples are from data. `METRICS` lists what `sddm evaluate` measures."""

import math

from jaxtyping import Int
from torch import Tensor

from sddm.codecs import Codec, Columns
from sddm.metrics.association import association_gap, cramers_v
from sddm.metrics.cells import cell_distance
from sddm.metrics.figure import Figure, Metric
from sddm.metrics.histograms import hellinger, outlier_fraction
from sddm.metrics.jackknife import jackknife
from sddm.metrics.mmd import MIN_ROWS_FOR_ERROR, MMD, hamming_mmd
from sddm.metrics.molecules import MoleculeFigures, MoleculeQuality, draw_molecules
from sddm.metrics.paired import Difference, paired_difference
from sddm.metrics.scores import MUSIC

__all__ = [
    "METRICS",
    "MMD",
    "Difference",
    "Figure",
    "Metric",
    "MoleculeFigures",
    "MoleculeQuality",
    "cell_distance",
    "compare",
    "cramers_v",
    "draw_molecules",
    "hamming_mmd",
    "hellinger",
    "jackknife",
    "outlier_fraction",
    "paired_difference",
]

METRICS: dict[str, Metric] = {
    "mmd": Metric(
        "MMD of samples and data",
        lambda samples, data, codec: hamming_mmd(samples, data[: len(samples)]),
        rows=MIN_ROWS_FOR_ERROR,
    ),
    "association_gap": Metric(
        "largest gap in pairwise association (Cramer's V)",
        lambda samples, data, codec: association_gap(samples, data),
        codec=Columns,
        rows=2,
    ),
    **MUSIC,
}


def compare(samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"], codec: Codec) -> list[Figure]:
    """How far samples are from data, by every metric that suits the codec and has enough rows."""
    figures = []
    for name, metric in METRICS.items():
        if not isinstance(codec, metric.codec) or not metric.suits(codec) or min(len(samples), len(data)) < metric.rows:
            continue
        value = metric.measure(samples, data, codec)
        value, error = value if isinstance(value, MMD) else (value, None)
        of_data = None
        if metric.compared and len(data) >= 2 * metric.rows:
            others = metric.measure(data[::2], data[1::2], codec)
            of_data = others.value if isinstance(others, MMD) else others
        if not math.isnan(value):  # where there is nothing to measure, such as notes
            figures.append(Figure(name, metric.title, value, error, of_data))
    return figures
