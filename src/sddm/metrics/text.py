"""Bits a character of text, of a model and of what it should beat: n-grams, gzip and bz2, all given the training text.

The n-grams are interpolated by Witten and Bell's rule. After the context h, which the training text has N(h) times with
T(h) different next characters, and with h' the context without its first character,

    p(c | h) = (N(h c) + T(h) p(c | h')) / (N(h) + T(h)),

and 1 / (number of characters) stands for p(c | h') where h is empty. Their order is the one that predicts a tenth of
the training rows best from the others. gzip and bz2 are charged what the rows add to the compressed end of the training
text: 32 thousand bytes of it for gzip, which looks no further back, and for bz2 what is left beside the rows of a block
of 900 thousand. Each row is scored by itself, without those before it, except by gzip and bz2, to which the rows are
one text.
"""

from __future__ import annotations

import bz2
import math
import zlib
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64
from torch import Tensor

from sddm.codecs import Characters, Codec
from sddm.metrics.figure import Figure

ORDERS = 8
"""The longest contexts that are tried."""
APART = 10
"""One of so many training rows is kept apart to choose the order."""
GZIP_WINDOW, BZ2_BLOCK = 1 << 15, 900_000
Rows = Int64[np.ndarray, "rows dim"]
Exists = Bool[np.ndarray, "rows dim"]


class NGrams:
    """Counts of characters after contexts of up to `order` characters. A row begins with a context of its own.

    rows: numbers from 0 to num_symbols - 1.   exists: which of them count; the others are at the ends of rows.

    >>> NGrams(rows, exists, num_symbols=27, order=5).nats(others, exists_of_others)
    """

    def __init__(self, rows: Rows, exists: Exists, num_symbols: int, order: int) -> None:
        self.num_symbols = num_symbols
        self.tables = [self._counted(key[exists]) for key in self._keys(rows, order)]

    @staticmethod
    def longest(num_symbols: int) -> int:
        """The largest order whose contexts can be numbered by 63 bits."""
        return min(ORDERS, int(63 / math.log2(num_symbols + 1)) - 1)

    def nats(self, rows: Rows, exists: Exists, order: int | None = None) -> Float64[np.ndarray, "rows"]:
        """- log p of each row, by contexts of up to `order` characters."""
        order = len(self.tables) - 1 if order is None else order
        p = np.full(rows.shape, 1 / self.num_symbols)
        for key, (keys, times, contexts, totals, different) in zip(
            self._keys(rows, order), self.tables[: order + 1], strict=True
        ):
            n = _looked_up(key, keys, times)
            context = key // (self.num_symbols + 1)
            total, kinds = _looked_up(context, contexts, totals), _looked_up(context, contexts, different)
            p = np.where(total > 0, (n + kinds * p) / np.maximum(total + kinds, 1), p)
        return -np.where(exists, np.log(p), 0).sum(1)

    def _keys(self, rows: Rows, order: int) -> list[Rows]:
        """A number for each context and the character behind it, for contexts of 0 to `order` characters."""
        base, keys = self.num_symbols + 1, [rows.astype(np.int64)]
        begun = np.pad(keys[0], ((0, 0), (order, 0)), constant_values=self.num_symbols)  # stands before the row
        for length in range(1, order + 1):
            first = begun[:, order - length : begun.shape[1] - length]
            keys.append(keys[-1] + first * base**length)
        return keys

    def _counted(self, key: Int64[np.ndarray, "n"]) -> tuple[np.ndarray, ...]:
        """The keys that occur and how often, and of each context that occurs its number and its different keys."""
        keys, times = np.unique(key, return_counts=True)
        contexts, first, different = np.unique(keys // (self.num_symbols + 1), return_index=True, return_counts=True)
        return keys, times, contexts, np.add.reduceat(times, first), different


def _looked_up(wanted: Rows, keys: Int64[np.ndarray, "k"], values: Int64[np.ndarray, "k"]) -> Rows:
    """The value of each key, and 0 for keys that do not occur."""
    place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def chosen_order(rows: Rows, exists: Exists, num_symbols: int) -> int:
    """The order that predicts some of the rows best from the others."""
    apart = np.arange(len(rows)) % APART == APART - 1
    most = NGrams.longest(num_symbols)
    if not apart.any():
        return min(1, most)
    model = NGrams(rows[~apart], exists[~apart], num_symbols, most)
    return int(np.argmin([model.nats(rows[apart], exists[apart], order).sum() for order in range(most + 1)]))


def extra_bits(text: bytes, before: bytes) -> dict[str, int]:
    """The bits that a text adds to the compressed end of the one before it, by gzip and by bz2."""

    def added(compress: Callable[[bytes], bytes], seen: int) -> int:
        end = before[max(0, len(before) - seen) :]
        return 8 * (len(compress(end + text)) - len(compress(end)))

    return {
        "gzip": added(lambda data: zlib.compress(data, 9), GZIP_WINDOW),  # a header is the same for both
        "bz2": added(lambda data: bz2.compress(data, 9), max(0, BZ2_BLOCK - len(text))),
    }


def text_figures(
    nats: Float64[Tensor, "rows"],
    rows: Int[Tensor, "rows dim"],
    codec: Codec,
    training: Int[Tensor, "others dim"] | None = None,
) -> list[Figure]:
    """Bits a character of rows of text to which a model gives so many nats, and of others; of no other data.

    The end of a row that is shorter than others counts as one character. Without the training rows the model stands
    alone.
    """
    if not isinstance(codec, Characters):
        return []
    tokens, exists = _characters(rows, codec)
    marks = exists.sum()

    def figure(name: str, title: str, each: Float64[np.ndarray, "rows"]) -> Figure:
        spread = float(each.std(ddof=1)) * math.sqrt(len(each)) / math.log(2) / marks
        return Figure(name, f"bits a character, {title}", float(each.sum()) / math.log(2) / float(marks), spread)

    figures = [figure("bits_per_character", "this model", nats.cpu().double().numpy())]
    if training is None:
        return figures
    known, known_exists = _characters(training, codec)
    symbols = len(codec.alphabet) + (codec.end is not None)
    order = chosen_order(known, known_exists, symbols)
    by_counts = NGrams(known, known_exists, symbols, order).nats(tokens, exists)
    figures.append(figure("bits_per_character_of_ngrams", f"n-grams of order {order}", by_counts))
    for name, bits in extra_bits(_text(rows, codec), _text(training, codec)).items():
        figures.append(Figure(f"bits_per_character_of_{name}", f"bits a character, {name}", bits / float(marks)))
    return figures


def _characters(rows: Int[Tensor, "rows dim"], codec: Characters) -> tuple[Rows, Exists]:
    """The characters of rows, and which positions hold one: those up to the end, which counts as one."""
    tokens = rows.cpu()
    ended = (tokens == codec.pad).cumsum(1)
    return tokens.numpy(), (ended - (tokens == codec.pad).long() == 0).numpy()


def _text(rows: Int[Tensor, "rows dim"], codec: Characters) -> bytes:
    """Rows as one text: lines, or windows one after the other."""
    lines = codec.decode(rows)
    return ("".join(lines) if codec.end is None else "".join(f"{line}\n" for line in lines)).encode()
