"""Pictures of a few coloured squares, and the sizes of a tokenizer that learns them in seconds."""

import numpy as np

from sddm.codecs import Encoded, Pixels
from sddm.data import Dataset
from sddm.tokenizers import VQGANSizes

SIDE, PATCH, CHANNELS = 8, 4, 3
SIZES = VQGANSizes(filters=4, multipliers=(1, 2, 2), blocks=1, codes=16, code_width=8)
TINY = ["--filters", "4", "--multipliers", "1", "2", "2", "--blocks", "1", "--codes", "16", "--code-width", "8"]
TINY += ["--batch-size", "8", "--log-every", "2", "--evaluate-every", "6", "--save-every", "3"]


def pictures(num, seed=0, channels=CHANNELS):
    """uint8 (num, 8, 8, channels): four squares, each of one of eight colours."""
    generator = np.random.default_rng(seed)
    colours = generator.integers(256, size=(8, channels), dtype=np.uint8)
    squares = colours[generator.integers(8, size=(num, SIDE // PATCH, SIDE // PATCH))]
    return squares.repeat(PATCH, axis=1).repeat(PATCH, axis=2)


def encoded(num=48, seed=0):
    """The same as rows of tokens, with labels: what a reader of pictures gives."""
    codec = Pixels(SIDE, SIDE, CHANNELS)
    return Encoded(codec.compact(pictures(num, seed)), codec, labels=[row % 3 for row in range(num)])


def dataset(num=48, seed=0):
    return Dataset(*encoded(num, seed), name="squares")
