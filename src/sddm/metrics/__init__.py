"""How far samples are from data. `METRICS` lists what `sddm evaluate` measures."""

from jaxtyping import Int
from torch import Tensor

from sddm.codecs import Codec, Columns
from sddm.metrics.association import association_gap, cramers_v
from sddm.metrics.cells import cell_distance
from sddm.metrics.figure import Figure, Metric
from sddm.metrics.mmd import MIN_ROWS_FOR_ERROR, MMD, hamming_mmd
from sddm.metrics.molecules import MoleculeFigures, MoleculeQuality, draw_molecules

__all__ = [
    "METRICS",
    "MMD",
    "Figure",
    "Metric",
    "MoleculeFigures",
    "MoleculeQuality",
    "cell_distance",
    "compare",
    "cramers_v",
    "draw_molecules",
    "hamming_mmd",
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
}


def compare(samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"], codec: Codec) -> list[Figure]:
    """How far samples are from data, by every metric that suits the codec and has enough rows."""
    figures = []
    for name, metric in METRICS.items():
        if isinstance(codec, metric.codec) and min(len(samples), len(data)) >= metric.rows:
            value = metric.measure(samples, data, codec)
            value, error = value if isinstance(value, MMD) else (value, None)
            figures.append(Figure(name, metric.title, value, error))
    return figures
