"""Bits a character: n-grams against counting by hand, compressors, and the figures that `sddm evaluate` shows."""

import bz2
import itertools
import json
import math
import zlib

import numpy as np
import pytest
import torch

from sddm.cli import main
from sddm.codecs import Characters, Integers
from sddm.metrics.text import APART, NGrams, chosen_order, extra_bits, text_figures

ALL = np.ones((3, 4), dtype=bool)
ROWS = np.array([[0, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]])


def by_hand(row, rows, exists, num_symbols, order):
    """- log p of a row, by the rule as it is written, with dictionaries."""
    total = 0.0
    for d, symbol in enumerate(row):
        p = 1 / num_symbols
        for length in range(order + 1):
            context = tuple(row[max(0, d - length) : d]), d < length and length - d

            def matches(other, place, context=context, length=length):
                return (tuple(other[max(0, place - length) : place]), place < length and length - place) == context

            after = [
                other[place]
                for other, there in zip(rows, exists, strict=True)
                for place in range(len(other))
                if there[place] and matches(other, place)
            ]
            if after:
                different = len(set(after))
                p = (after.count(symbol) + different * p) / (len(after) + different)
        total -= math.log(p)
    return total


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_ngrams_are_witten_and_bells(order):
    exists = ALL.copy()
    exists[1, 3] = False
    model = NGrams(ROWS, exists, 3, order)
    others = np.array([[0, 1, 0, 0], [1, 0, 2, 1]])
    expected = [by_hand(row, ROWS.tolist(), exists, 3, order) for row in others.tolist()]
    assert model.nats(others, np.ones((2, 4), dtype=bool)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", [0, 2])
def test_ngrams_are_a_law_of_rows(order):
    every = np.array(list(itertools.product(range(3), repeat=4)))
    nats = NGrams(ROWS, ALL, 3, order).nats(every, np.ones(every.shape, dtype=bool))
    assert np.exp(-nats).sum() == pytest.approx(1, rel=1e-12)


def test_a_model_of_all_orders_is_asked_for_a_lower_one():
    whole = NGrams(ROWS, ALL, 3, 3)
    assert whole.nats(ROWS, ALL, 1) == pytest.approx(NGrams(ROWS, ALL, 3, 1).nats(ROWS, ALL))


def test_the_order_is_that_of_the_text():
    draws = np.random.RandomState(0)
    independent = draws.randint(3, size=(200, 20))
    exists = np.ones((200, 20), dtype=bool)
    assert chosen_order(independent, exists, 3) == 0
    second = independent.copy()  # each is the sum of the two before it, and seldom another
    for d in range(2, 20):
        follows = (second[:, d - 1] + second[:, d - 2]) % 3
        second[:, d] = np.where(draws.rand(200) < 0.1, independent[:, d], follows)
    assert chosen_order(second, exists, 3) == 2
    assert chosen_order(ROWS[: APART - 1], ALL[: APART - 1], 3) == 1  # too few rows to choose by
    assert NGrams.longest(80) == 8
    assert NGrams.longest(50_000) * math.log2(50_001) < 63


def test_compressors_are_charged_what_a_text_adds():
    before, text = b"the cat sat on the mat. " * 3000, b"the dog sat on the mat. "
    bits = extra_bits(text, before)
    gzip = len(zlib.compress(before[-32768:] + text, 9)) - len(zlib.compress(before[-32768:], 9))
    assert bits["gzip"] == 8 * gzip
    assert bits["bz2"] == 8 * (len(bz2.compress(before + text)) - len(bz2.compress(before)))
    assert bits["gzip"] < 8 * len(zlib.compress(text, 9))
    noise = bytes(np.random.RandomState(0).randint(256, size=4000).tolist())
    assert min(extra_bits(noise, before).values()) > 7.5 * len(noise)


@pytest.mark.parametrize("lengths", ["inside", "separate"])
def test_bits_are_per_character_and_the_end_of_a_shorter_line_is_one(lengths):
    data = Characters.of_rows(["abc", "a", "ab"] * 20, "x", lengths=lengths)
    tokens = torch.as_tensor(np.asarray(data.tokens), dtype=torch.int64)
    rows = tokens[:3]
    marks = 3 + 2 + 3
    nats = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    figures = {f.name: f for f in text_figures(nats, rows, data.codec, tokens)}
    own = figures["bits_per_character"]
    assert own.value == pytest.approx(6 / math.log(2) / marks)
    assert own.standard_error == pytest.approx(1 * math.sqrt(3) / math.log(2) / marks)
    # Lines of one, two or three characters with equal shares: log2(3) bits a line.
    assert figures["bits_per_character_of_ngrams"].value == pytest.approx(3 * math.log2(3) / marks, rel=0.15)
    assert {"bits_per_character_of_gzip", "bits_per_character_of_bz2"} < set(figures)
    assert [f.name for f in text_figures(nats, rows, data.codec)] == ["bits_per_character"]


def test_other_data_have_no_bits_a_character():
    assert text_figures(torch.zeros(2, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.int64), Integers(3)) == []


def test_a_run_on_text_is_scored_beside_compressors(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("it was the best of times, it was the worst of times. " * 40)
    run, out = tmp_path / "run", tmp_path / "figures.json"
    tiny = ["--window", "16", "--width", "8", "--layers", "1", "--batch-size", "8", "--steps", "3"]
    main(["train", "--data", str(tmp_path / "book.txt"), "--out", str(run), *tiny])
    main(["evaluate", str(run), "--num-times", "8", "--samples", "0", "--out", str(out)])
    figures = json.loads(out.read_text())
    assert figures["bits_per_character"] == pytest.approx(figures["bits_per_dim_in_order"])  # windows have no ends
    assert figures["bits_per_character_of_ngrams"] < figures["bits_per_character"]  # three steps are not enough
    assert "bits a character, n-grams of order" in capsys.readouterr().out
