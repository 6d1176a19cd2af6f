"""Which of some lines are molecules, which of these are new, and how their properties are distributed.

The same molecule can be written in many ways. So molecules are compared by their canonical SMILES, which is the same
for all of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from sddm import _checks
from sddm.codecs import Characters, Codec
from sddm.formats.smiles import (
    NEEDED,
    SIDE,
    canonical,
    draw_molecules,
    is_installed,
    may_be_smiles,
    molecules,
    quiet_chemistry,
)
from sddm.metrics.figure import Metric

__all__ = ["MOLECULES", "SIDE", "MoleculeFigures", "MoleculeQuality", "canonical", "draw_molecules", "property_of"]

MEASURED = 10_000
"""The most lines whose properties enter a distance."""
LEAST_SHARE = 0.5
"""Text is not measured as molecules if fewer lines of the data than this share are."""


class MoleculeFigures(NamedTuple):
    """Shares of samples. Those of the valid ones are NaN if no sample is valid."""

    valid: float
    """The share of samples that are molecules."""
    valid_error: float
    """Its standard error, sqrt(p (1 - p) / n)."""
    unique: float
    """How many different molecules there are, as a share of the valid samples."""
    novel: float
    """The share of these different molecules that the training lines do not hold."""


class MoleculeQuality:
    """Measures samples against training lines, which are read once.

    >>> quality = MoleculeQuality(["CCO", "c1ccccc1"])
    >>> quality.measure(["OCC", "CCN", "NCC", "C1CC"])      # ethanol is known, the ring is open
    MoleculeFigures(valid=0.75, valid_error=0.2165..., unique=0.666..., novel=0.5)
    """

    def __init__(self, training: Iterable[str]) -> None:
        self.known = set(canonical(training)) - {None}

    def measure(self, samples: Sequence[str]) -> MoleculeFigures:
        _checks.require(len(samples) > 0, "samples must hold at least one line.")
        valid = [smiles for smiles in canonical(samples) if smiles is not None]
        different = set(valid)
        share = len(valid) / len(samples)
        return MoleculeFigures(
            share,
            math.sqrt(share * (1 - share) / len(samples)),
            len(different) / len(valid) if valid else math.nan,
            len(different - self.known) / len(different) if valid else math.nan,
        )


# ---- properties


def property_of(name: str, lines: Iterable[str]) -> Float64[Tensor, "lines"]:
    """A property of each line, by its name in `PROPERTIES`; NaN where it is not a molecule.

    >>> property_of("log_p", ["CCO", "c1ccccc1", "C1CC"])
    tensor([-0.0014,  1.6866,     nan], dtype=torch.float64)
    """
    _checks.one_of(name, "name", PROPERTIES)
    found = molecules(lines)
    with quiet_chemistry():
        measure = PROPERTIES[name]()
        values = [math.nan if molecule is None else float(measure(molecule)) for molecule in found]
    return torch.tensor(values, dtype=torch.float64)


def wasserstein(one: Float64[Tensor, "n"], other: Float64[Tensor, "m"]) -> float:
    """The integral of |F - G| over the values: how far those of one law are moved on average to get the other."""
    one, other = one.sort().values, other.sort().values
    values = torch.cat([one, other]).sort().values
    shares = [torch.searchsorted(law, values[:-1], right=True) / len(law) for law in (one, other)]
    return float(((shares[0] - shares[1]).abs() * values.diff()).sum())


def _from(module: str, function: str) -> Callable[[], Callable[[Any], float]]:
    return lambda: getattr(importlib.import_module(module), function)


@lru_cache(1)
def _accessibility() -> Any:
    """The score of Ertl and Schuffenhauer, which comes with RDKit as a file beside the package; None without it."""
    folder = Path(importlib.import_module("rdkit.RDConfig").RDContribDir)
    path = folder / "SA_Score" / "sascorer.py"
    spec = importlib.util.spec_from_file_location("sascorer", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.calculateScore


PROPERTIES: dict[str, Callable[[], Callable[[Any], float]]] = {
    "weight": _from("rdkit.Chem.Descriptors", "MolWt"),
    "log_p": _from("rdkit.Chem.Crippen", "MolLogP"),
    "qed": _from("rdkit.Chem.QED", "qed"),
    "accessibility": _accessibility,
    "rings": _from("rdkit.Chem.rdMolDescriptors", "CalcNumRings"),
}
"""Properties of molecules: the weight in Dalton, the octanol-water coefficient of Crippen, the drug likeness of
Bickerton, how hard it is to make (1 easy, 10 hard), and the number of rings."""
TITLES = {"weight": "molecular weight", "log_p": "logP", "qed": "QED", "accessibility": "SA score", "rings": "rings"}


# ---- what `sddm evaluate` shows


def _lines(codec: Codec, tokens: Tensor) -> list[str]:
    assert isinstance(codec, Characters)
    return codec.decode(tokens)


def _of_molecules(codec: Codec, data: Tensor) -> bool:
    """Whether the first lines of the data are molecules, most of them."""
    lines = _lines(codec, data[:200])
    return sum(smiles is not None for smiles in canonical(lines)) >= LEAST_SHARE * len(lines)


def _may_be_molecules(codec: Any) -> bool:
    return may_be_smiles(codec.alphabet)


def _share(title: str, share: Callable[[MoleculeFigures], float], training: bool = False) -> Metric:
    def measure(samples: Tensor, data: Tensor, codec: Codec) -> float:
        if not _of_molecules(codec, data):
            return math.nan
        known = _lines(codec, data) if training else []
        return share(MoleculeQuality(known).measure(_lines(codec, samples)))

    return _metric(title, measure, training=training)


def _distance(name: str) -> Metric:
    """The distance between the laws of a property of the molecules among samples and among the data."""

    def measure(samples: Tensor, data: Tensor, codec: Codec) -> float:
        if not _of_molecules(codec, data):
            return math.nan
        one, other = (property_of(name, _lines(codec, rows[:MEASURED])) for rows in (samples, data))
        one, other = one[~one.isnan()], other[~other.isnan()]
        return wasserstein(one, other) if len(one) and len(other) else math.nan

    return _metric(f"Wasserstein distance of {TITLES[name]}", measure, compared=True, name=name)


def _metric(title: str, measure: Callable[[Tensor, Tensor, Codec], float], name: str = "", **options: Any) -> Metric:
    def missing() -> str:
        if not is_installed():
            return NEEDED
        if name == "accessibility" and _accessibility() is None:
            return "RDKit was installed without its folder Contrib. Install it by pip."
        return ""

    return Metric(title, measure, codec=Characters, suits=_may_be_molecules, missing=missing, **options)


MOLECULES: dict[str, Metric] = {
    "valid": _share("share of samples that are molecules", lambda figures: figures.valid),
    "unique": _share("share of different ones among these", lambda figures: figures.unique),
    "novel": _share("share of these that are not in the training rows", lambda figures: figures.novel, training=True),
    **{f"{name}_distance": _distance(name) for name in PROPERTIES},
}
"""Metrics of text whose lines are molecules. The distances of two small sets of one law are above 0: compare them with
that of data."""
