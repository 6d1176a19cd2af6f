"""The figures of pictures that `sddm evaluate` shows, for every codec that decodes to pictures.

The network is not downloaded unasked: if it is not on this machine, the figures are left out, and a note says how to
get it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from sddm import _files
from sddm.codecs import Codec
from sddm.metrics.features import features
from sddm.metrics.figure import Metric
from sddm.metrics.frechet import FID, fid
from sddm.metrics.inception import load_inception, missing_inception
from sddm.metrics.kid import kid
from sddm.metrics.u_statistic import MIN_ROWS_FOR_ERROR, MMD

ROWS_FOR_FID = 5_000
"""With fewer pictures FID is mostly bias. KID has none, and is shown for any number."""
_last: dict[str, Float32[Tensor, "num features"]] = {}
"""The features of the last samples, which several metrics ask for."""


def _kid(samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"], codec: Codec) -> MMD:
    return kid(_of_samples(samples, codec), features(_pictures(data[: len(samples)], codec)))


def _fid(samples: Int[Tensor, "num dim"], data: Int[Tensor, "others dim"], codec: Codec) -> FID:
    return fid(_of_samples(samples, codec), features(_pictures(data, codec)))


def _of_samples(samples: Int[Tensor, "num dim"], codec: Codec) -> Float32[Tensor, "num features"]:
    """In memory only, as other samples come next. The features of the data are kept."""
    pictures, network = _pictures(samples, codec), load_inception()
    digest = _files.digest(network.digest, {"pictures": torch.tensor(pictures)})
    if digest not in _last:
        found = features(pictures, network, keep=False)
        _last.clear()
        _last[digest] = found
    return _last[digest]


def _pictures(tokens: Int[Tensor, "num dim"], codec: Codec) -> np.ndarray:
    return np.asarray(codec.decode(tokens))


_metric = partial(Metric, suits=lambda codec: codec.pictures, missing=missing_inception)

PICTURES: dict[str, Metric] = {
    "kid": _metric("KID of samples and data", _kid, rows=MIN_ROWS_FOR_ERROR),
    "fid": _metric("FID of samples and data", _fid, rows=ROWS_FOR_FID),
}
"""FID is that of all samples and all rows of data given; compare it only with that of the same numbers of both."""
