"""How far samples are from data. `METRICS` lists what `sddm evaluate` measures."""

import math
from collections.abc import Iterator

from jaxtyping import Int
from torch import Tensor

from sddm.codecs import Codec, Columns
from sddm.metrics.association import association_gap, cramers_v
from sddm.metrics.boosting import Boosting
from sddm.metrics.cells import cell_distance
from sddm.metrics.features import feature_folder, features
from sddm.metrics.figure import Figure, Metric
from sddm.metrics.frechet import FID, Moments, fid, frechet_distance
from sddm.metrics.histograms import hellinger, outlier_fraction
from sddm.metrics.inception import Inception, load_inception
from sddm.metrics.inception_score import InceptionScore, inception_score
from sddm.metrics.jackknife import jackknife
from sddm.metrics.kid import kid
from sddm.metrics.mmd import hamming_mmd
from sddm.metrics.molecules import MOLECULES, MoleculeFigures, MoleculeQuality, draw_molecules
from sddm.metrics.paired import Difference, paired_difference
from sddm.metrics.pictures import PICTURES
from sddm.metrics.privacy import Closeness, closeness, nearest
from sddm.metrics.scores import MUSIC
from sddm.metrics.telling import auc, told_apart
from sddm.metrics.text import NGrams, text_figures
from sddm.metrics.u_statistic import MIN_ROWS_FOR_ERROR, MMD
from sddm.metrics.utility import Utility, utility
from sddm.metrics.variation import Estimate, mean_association_gap, mean_variation, total_variation

__all__ = [
    "FID",
    "METRICS",
    "MMD",
    "Boosting",
    "Closeness",
    "Difference",
    "Estimate",
    "Figure",
    "Inception",
    "InceptionScore",
    "Metric",
    "MoleculeFigures",
    "MoleculeQuality",
    "Moments",
    "NGrams",
    "Utility",
    "auc",
    "cell_distance",
    "closeness",
    "compare",
    "cramers_v",
    "draw_molecules",
    "feature_folder",
    "features",
    "fid",
    "frechet_distance",
    "hamming_mmd",
    "hellinger",
    "inception_score",
    "jackknife",
    "kid",
    "left_out",
    "load_inception",
    "mean_association_gap",
    "mean_variation",
    "nearest",
    "outlier_fraction",
    "paired_difference",
    "text_figures",
    "told_apart",
    "total_variation",
    "utility",
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
    **PICTURES,
    **MOLECULES,
}


def compare(
    samples: Int[Tensor, "num dim"],
    data: Int[Tensor, "others dim"],
    codec: Codec,
    training: Int[Tensor, "rows dim"] | None = None,
) -> list[Figure]:
    """How far samples are from data, by every metric that suits the codec, has enough rows and lacks nothing.

    training: the rows that the model was trained on, for the metrics that ask for these.
    """
    figures = []
    for name, metric in _suiting(samples, data, codec):
        if metric.missing():
            continue
        if metric.training and training is None:
            continue
        against = training if metric.training and training is not None else data
        value, error = _with_error(metric.measure(samples, against, codec))
        of_data = None
        if metric.compared and len(data) >= 2 * metric.rows:
            of_data, _ = _with_error(metric.measure(data[::2], data[1::2], codec))
        if not math.isnan(value):  # where there is nothing to measure, such as notes
            figures.append(Figure(name, metric.title, value, error, of_data))
    return figures


def left_out(samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"], codec: Codec) -> list[str]:
    """Which metrics `compare` leaves out because something is not on this machine, and how to get it."""
    reasons: dict[str, list[str]] = {}
    for _, metric in _suiting(samples, data, codec):
        if reason := metric.missing():
            reasons.setdefault(reason, []).append(metric.title)
    return [f"Left out: {', '.join(titles)}. {reason}" for reason, titles in reasons.items()]


def _suiting(
    samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"], codec: Codec
) -> Iterator[tuple[str, Metric]]:
    rows = min(len(samples), len(data))
    for name, metric in METRICS.items():
        if isinstance(codec, metric.codec) and metric.suits(codec) and rows >= metric.rows:
            yield name, metric


def _with_error(measured: float | MMD | FID) -> tuple[float, float | None]:
    return (measured.value, measured.standard_error) if isinstance(measured, (MMD, FID)) else (measured, None)
