"""CIFAR-10 as the codes of a tokenizer, which is trained for it once and kept in the cache."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sddm.commands.encode import encode
from sddm.data import Dataset, load
from sddm.data.packages import cache_folder
from sddm.experiments.corpora import Corpus
from sddm.experiments.experiment import slug
from sddm.experiments.systems import marked
from sddm.tokenizers import VQGAN
from sddm.tokenizers.config import TokenizerConfig
from sddm.tokenizers.learner import train_tokenizer
from sddm.training.loop import MODEL
from sddm.training.report import METRICS_FILE

APART = 2_000
"""Pictures of the training set that nothing is trained on; the curve of the tokenizer is that of some of them."""
TRAIN, TEST = "cifar10", "cifar10-test"


@dataclass(frozen=True)
class Tokenized:
    """The pictures as codes. Training and encoding go on where they were interrupted."""

    config: TokenizerConfig

    @property
    def folder(self) -> Path:
        """Where the tokenizer and the codes are kept."""
        return cache_folder() / "tokenizers" / slug(marked(TRAIN, self.config.lasting))

    def tokenizer(self) -> VQGAN:
        """The tokenizer, trained now if it was not before."""
        if not (self.folder / MODEL).exists():
            rows, apart = _parts(load(TRAIN))
            train_tokenizer(rows, self.config, held_out=apart, out=self.folder, resume=True)
        return VQGAN.from_pretrained(self.folder / MODEL)

    def corpus(self) -> Corpus:
        """Codes to train on, to choose recipes on, and those of the test set."""
        found = []
        for name in (TRAIN, TEST):
            out = self.folder / name
            if not out.exists():
                encode(load(name), self.tokenizer(), out)
            found.append(load(out))
        train, validation = _parts(found[0])
        return Corpus("codes", train, validation, found[1])

    def curve(self) -> list[dict[str, Any]]:
        """What was measured on the way: the error of reconstructions and the codes in use, by step."""
        path = self.folder / METRICS_FILE
        if not path.exists():
            return []
        lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [{"pictures": line["step"] * self.config.batch_size, **line} for line in lines if "psnr" in line]


@lru_cache(4)
def pixels(side: int) -> Corpus:
    """The pictures themselves, at this many pixels a side."""
    train, validation = _parts(load(TRAIN, size=side))
    return Corpus(f"pixels {side}", train, validation, load(TEST, size=side))


def _parts(data: Dataset) -> tuple[Dataset, Dataset]:
    return data.split(APART / len(data), 0)


def small() -> TokenizerConfig:
    """A quarter of the paper's filters, for as long as two CPU cores can afford."""
    return TokenizerConfig(
        steps=4_000, batch_size=64, filters=16, learning_rate=4e-4, evaluate_every=250, save_every=100, keep=1
    )


def paper() -> TokenizerConfig:
    """The paper's size and learning rate, for as many pictures of CIFAR-10 as 90 epochs have."""
    return replace(small(), steps=90 * 50_000 // 256, batch_size=256, filters=64, learning_rate=1e-4)


TOKENIZERS = {"small": Tokenized(small()), "paper": Tokenized(paper())}
