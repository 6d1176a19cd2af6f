"""The figures of music that `sddm evaluate` shows: of samples, and beside them of data against other data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from sddm.codecs import Codec, Notes
from sddm.metrics import music, voices
from sddm.metrics.figure import Metric, always

Scores = music.Scores


def _distance(
    title: str, law: Callable[[Scores], Float64[np.ndarray, "values"]], suits: Callable[[Any], bool] = always
) -> Metric:
    """The Hellinger distance between a law of the samples and that of the data."""

    def measure(samples: Tensor, data: Tensor, codec: Codec) -> float:
        return music.distance(law(_scores(codec, samples)), law(_scores(codec, data)))

    return Metric(f"Hellinger distance of {title}", measure, codec=Notes, suits=suits, compared=True)


def _share(title: str, share: Callable[[Scores], float]) -> Metric:
    """A figure of the samples of four voices alone."""
    return Metric(
        title,
        lambda samples, data, codec: share(_scores(codec, samples)),
        codec=Notes,
        suits=_of_four_voices,
        compared=True,
    )


def _of_four_voices(codec: Any) -> bool:
    return bool(codec.voices == len(voices.RANGES))


def _repeated_bars(samples: Tensor, data: Tensor, codec: Codec) -> float:
    assert isinstance(codec, Notes)
    return music.repeated_bars(codec.decode(samples), codec.steps_per_bar)


def _scores(codec: Codec, tokens: Tensor) -> Scores:
    return np.asarray(codec.decode(tokens))


MUSIC: dict[str, Metric] = {
    "pitch_class_distance": _distance("pitch classes", music.pitch_classes),
    "interval_distance": _distance("intervals", music.intervals),
    "note_length_distance": _distance("note lengths", music.note_lengths),
    "repeated_bars": Metric("share of bars that were there before", _repeated_bars, codec=Notes, compared=True),
    "chord_distance": _distance("intervals between voices", voices.chords, _of_four_voices),
    "outside_ranges": _share("share of notes outside the range of their voice", voices.outside_ranges),
    "voice_crossings": _share("share of steps with crossed voices", voices.voice_crossings),
    "parallel_fifths": _share("parallel fifths in 100 changes of the chord", voices.parallel_fifths),
    "parallel_octaves": _share("parallel octaves in 100 changes of the chord", voices.parallel_octaves),
}
"""Metrics of `Notes`. The distances of two small sets of equal law are above 0: compare them with that of data."""
