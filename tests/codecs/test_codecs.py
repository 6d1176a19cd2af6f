"""Codecs: what tokens mean, how samples are written, and how conditions become tokens."""

import csv
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image

from sddm.codecs import (
    CODECS,
    PARTS,
    Category,
    Characters,
    Codes,
    Columns,
    Constant,
    Date,
    Integers,
    Notes,
    Number,
    Pixels,
    Points,
    saved_names,
)
from sddm.config import build, describe
from sddm.data import Dataset, Toy, load
from sddm.tokenizers import VQGANSizes

NAMES = saved_names()
PAD = 3
COLUMNS = Columns(["colour", "size, in feet"], [["", "red", 'a "b"'], ["1", "2\n3"]])
MEASURED = Columns(
    ["age", "born", "where, or none"],
    [
        Number([0, 18, 65], [17, 64, 120], missing="NA"),
        Date([0, 365, 7000], [364, 6999, 9000], "%d.%m.%Y"),
        Category(["?", "a", "b"], "?", "text"),
    ],
    [Constant("source", "web", 1)],
)

EXAMPLES = [
    (Integers(4), [[0, 3, 1], [2, 2, 0]]),
    (Integers(4, offset=-2), [[0, 3, 1], [2, 2, 0]]),
    (Characters("abc", padded=False), [[0, 1], [2, 2]]),
    (Characters("aé🙂", padded=True), [[0, PAD, PAD], [2, 1, 0]]),
    (Characters("abc", padded=False, ragged=True), [[0, PAD, PAD], [2, 1, 0]]),
    (Integers(4, offset=1, ragged=True), [[0, 3, 1], [2, 2, 0]]),
    (COLUMNS, [[0, 1], [1, 0], [2, 1]]),
    (MEASURED, [[0, 1, 0], [1, 0, 1], [3, 2, 2]]),
    (Points("moons"), [[0, 1] * 16, [1] * 32]),
    (Pixels(1, 2), [[0, 1, 2, 253, 254, 255]]),
    (Pixels(2, 1, channels=1, levels=3), [[0, 2], [1, 0]]),
    (Notes(), [[60, 60, 128, 0], [127, 62, 62, 62]]),
    (Notes(voices=2, held=True, key=list(range(129, -1, -1))), [[69, 0, 0, 69], [1, 1, 2, 3]]),
    (Codes(4, 8, VQGANSizes(filters=4, blocks=1, codes=5, code_width=4)), [[0, 4], [3, 1]]),
]
EXACT = [(codec, rows) for codec, rows in EXAMPLES if codec.network is None]
"""Those whose values are what they stand for; a network only comes near to it."""


def every(examples=EXAMPLES):
    return pytest.mark.parametrize(("codec", "rows"), examples, ids=lambda v: type(v).__name__)


# ---- meaning


def test_every_codec_of_the_table_is_among_the_examples():
    assert {type(codec) for codec, _ in EXAMPLES} == set(CODECS.values())


@every()
def test_a_codec_survives_json(codec, rows):
    rebuilt = build(json.loads(json.dumps(describe(codec, NAMES))), {**CODECS, **PARTS})
    if codec.network is not None:  # its weights are saved elsewhere
        rebuilt.network.load_state_dict(codec.network.state_dict())
    assert rebuilt == codec
    tokens = torch.tensor(rows)
    assert np.array_equal(np.array(rebuilt.decode(tokens)), np.array(codec.decode(tokens)))
    assert (rebuilt.num_states, rebuilt.sizes, rebuilt.endings) == (codec.num_states, codec.sizes, codec.endings)


@every(EXACT)
def test_encoding_inverts_decoding(codec, rows):
    tokens = torch.tensor(rows)
    assert torch.equal(codec.encode(codec.decode(tokens)), tokens)


def test_codecs_are_equal_if_their_tokens_mean_the_same():
    assert Integers(4) == Integers(4, 0) != Integers(5)
    assert Integers(4) != Integers(4, offset=1)
    assert Characters("ab", padded=True) != Characters("ab", padded=False)


def test_integers_are_shifted_by_the_offset():
    assert Integers(4, offset=-2).decode(torch.tensor([[0, 3]])).tolist() == [[-2, 1]]


def test_a_line_ends_at_its_first_pad():
    assert Characters("abc", padded=True).decode(torch.tensor([[0, PAD, 1], [PAD, 0, 0], [2, 1, 0]])) == [
        "a",
        "",
        "cba",
    ]


def test_a_column_has_as_many_states_as_it_has_values():
    assert COLUMNS.sizes == [3, 2]
    assert COLUMNS.num_states == 3
    assert Integers(4).sizes is None


def test_a_table_never_decodes_a_value_that_its_column_does_not_have():
    for impossible in ([[0, 2]], [[0, 0], [2, 2]]):
        with pytest.raises(ValueError, match="tokens holds 2 at position 1, which has values 0 to 1 only"):
            COLUMNS.decode(torch.tensor(impossible))


def test_what_the_caller_does_to_its_lists_later_changes_no_codec():
    names, values = ["a"], [["x", "y"]]
    codec = Columns(names, values)
    names.append("b")
    values[0].append("z")
    assert describe(codec, NAMES) == {"type": "columns", "names": ["a"], "values": [["x", "y"]]}


def test_points_are_those_of_the_toy():
    tokens = Toy("moons").tokens(5, torch.Generator().manual_seed(0))
    assert np.array_equal(Points("moons").decode(tokens), Toy("moons").decode(tokens).numpy())


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8))
def test_any_lines_survive_encoding_and_decoding(lines):
    codec = Characters("".join(sorted(set("".join(lines)))), padded=True)
    assert codec.decode(codec.encode(lines)) == lines


# ---- writing


@every()
def test_every_ending_that_a_codec_names_can_be_written(codec, rows, tmp_path):
    assert codec.default_ending == codec.endings[0]
    for ending in (*codec.endings, *(ending.upper() for ending in codec.endings)):
        path = tmp_path / "new" / f"samples{ending}"
        codec.write(torch.tensor(rows[:1] if ending.lower() in codec.single else rows), path)
        assert path.stat().st_size > 0
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        path.unlink()


@every()
def test_an_unknown_ending_is_answered_with_those_there_are(codec, rows, tmp_path):
    with pytest.raises(
        ValueError, match=r"ends in '\.docx'\. Samples can be written to files that end in \."
    ) as caught:
        codec.write(torch.tensor(rows), tmp_path / "samples.docx")
    assert all(ending in str(caught.value) for ending in codec.endings)
    assert not list(tmp_path.iterdir())


@every()
def test_tokens_that_mean_nothing_are_not_written(codec, rows, tmp_path):
    tokens = torch.tensor(rows[:1])
    tokens[0, 0] = codec.num_states + codec.ragged  # behind the end of a row stands num_states
    with pytest.raises(ValueError, match="tokens must hold tokens from 0 to"):
        codec.write(tokens, tmp_path / f"samples{codec.default_ending}")
    assert not list(tmp_path.iterdir())


def test_integers_are_written_as_an_array_or_as_lines_of_numbers(tmp_path):
    codec, tokens = Integers(12, offset=5), torch.tensor([[0, 11], [3, 4]])
    for ending in codec.endings:
        codec.write(tokens, tmp_path / f"s{ending}")
    written = np.load(tmp_path / "s.npy")
    assert written.dtype == np.int64
    assert written.tolist() == [[5, 16], [8, 9]]
    assert (tmp_path / "s.txt").read_text() == "5 16\n8 9\n"
    assert (tmp_path / "s.csv").read_text() == "5,16\n8,9\n"


def test_text_is_written_a_sample_a_line(tmp_path):
    Characters("ab é", padded=True).write(torch.tensor([[0, 3, 4], [2, 1, 0]]), tmp_path / "s.txt")
    assert (tmp_path / "s.txt").read_bytes() == "aé\n ba\n".encode()


def test_samples_that_hold_newlines_are_kept_apart_by_a_line_of_percent_signs(tmp_path):
    Characters("\nab", padded=False).write(torch.tensor([[1, 0, 2], [2, 2, 2]]), tmp_path / "s.txt")
    assert (tmp_path / "s.txt").read_bytes() == b"a\nb\n%%\nbbb\n"


@pytest.mark.parametrize("codec", [Characters("abc", padded=True), COLUMNS])
def test_an_array_of_text_or_of_a_table_holds_the_tokens(codec, tmp_path):
    tokens = torch.tensor([[0, 1], [2, 0]])
    codec.write(tokens, tmp_path / "s.npy")
    assert np.load(tmp_path / "s.npy").tolist() == tokens.tolist()
    assert torch.equal(codec.read_condition(tmp_path / "s.npy", 2), tokens)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_written_table_is_read_again_as_it_was(ending, tmp_path):
    tokens = torch.tensor([[0, 1], [1, 0], [2, 1]])
    COLUMNS.write(tokens, tmp_path / f"s{ending}")
    again = load(tmp_path / f"s{ending}")
    assert again.codec.names == COLUMNS.names
    assert again.codec.decode(again.tokens[:]) == COLUMNS.decode(tokens)


def test_points_are_written_as_numbers_and_as_a_white_picture(tmp_path):
    codec, tokens = Points("moons"), Toy("moons").tokens(50, torch.Generator().manual_seed(0))
    for ending in codec.endings:
        codec.write(tokens, tmp_path / f"s{ending}")
    points = codec.decode(tokens)
    assert np.array_equal(np.load(tmp_path / "s.npy"), points)
    header, *rows = csv.reader((tmp_path / "s.csv").read_text().splitlines())
    assert header == ["x", "y"]
    assert np.array_equal(np.array(rows, dtype=float), points)
    picture = image.imread(tmp_path / "s.png")[..., :3]
    assert (picture[0, 0] == 1).all()
    assert 0 < (picture < 0.5).all(-1).mean() < 0.2


# ---- conditions

TEXT, UNDERSCORED, BOTH = (Characters(alphabet, padded=True) for alphabet in ("abc", "ab_", "a_▁"))
QUESTION = Columns(["a", "b"], [["?", "x"], ["1", "2"]])

CONDITIONS = [
    pytest.param(
        Integers(4), "c.txt", "0 _ 3\n? 1\n\n-1 -1 2\n", 3, [[0, -1, 3], [-1, 1, -1], [-1, -1, 2]], id="spaces"
    ),
    pytest.param(Integers(4), "c.csv", "0,,3\n?, 1,_\n", 3, [[0, -1, 3], [-1, 1, -1]], id="commas"),
    pytest.param(Integers(4, offset=5), "c.txt", "5 -1 8\n", 3, [[0, -1, 3]], id="offset"),
    pytest.param(Integers(4, offset=-2), "c.txt", "-1 -3 1\n", 3, [[1, -1, 3]], id="negative numbers"),
    pytest.param(TEXT, "c.txt", "a_c\r\nb\n", 3, [[0, -1, 2], [1, -1, -1]], id="text"),
    pytest.param(UNDERSCORED, "c.txt", "a_▁\n", 3, [[0, 2, -1]], id="underscore is a character"),
    pytest.param(BOTH, "c.txt", "_▁\n", 3, [[1, 2, -1]], id="both marks are characters"),
    pytest.param(TEXT, "c.txt", "a" * 5_000, 5_001, [[0] * 5_000 + [-1]], id="longer than a sequence of a file"),
    pytest.param(COLUMNS, "c.csv", '"size, in feet"\n1\n"2\n3"\n?\n', 2, [[-1, 0], [-1, 1], [-1, -1]], id="one column"),
    pytest.param(COLUMNS, "c.csv", '"size, in feet",colour\n1,red\n,?\n', 2, [[1, 0], [-1, -1]], id="other order"),
    pytest.param(QUESTION, "c.csv", "a,b\n?,?\n,1\n", 2, [[0, -1], [-1, 0]], id="question mark is a value"),
]


@pytest.mark.parametrize(("codec", "name", "text", "length", "tokens"), CONDITIONS)
def test_a_condition_is_read_with_its_blanks(codec, name, text, length, tokens, tmp_path):
    (tmp_path / name).write_bytes(text.encode())
    assert codec.read_condition(tmp_path / name, length).tolist() == tokens


@pytest.mark.parametrize(
    ("codec", "array", "length", "tokens"),
    [
        (Integers(4), [[0, -1], [3, 2]], 3, [[0, -1, -1], [3, 2, -1]]),
        (Integers(4, offset=5), [[5, -1]], 2, [[0, -1]]),
        (Characters("ab", padded=True), [[2, -1]], 2, [[2, -1]]),
        (COLUMNS, [[2, -1]], 2, [[2, -1]]),
        (Points("moons"), [[1, -1] * 16], 32, [[1, -1] * 16]),
    ],
)
def test_a_condition_may_be_an_array_with_minus_one_as_blank(codec, array, length, tokens, tmp_path):
    np.save(tmp_path / "c.npy", np.array(array))
    assert codec.read_condition(tmp_path / "c.npy", length).tolist() == tokens


@pytest.mark.parametrize(
    ("codec", "text", "tokens"),
    [
        (Integers(4), "0, 3", [[0, 3, -1, -1]]),
        (Integers(4, offset=5), "5 8 6", [[0, 3, 1, -1]]),
        (Characters("a_ ", padded=False), "a _", [[0, 2, 1, -1]]),
    ],
)
def test_a_prefix_is_the_beginning_of_a_sample(codec, text, tokens):
    assert codec.read_prefix(text, 4).tolist() == tokens


def bad(name, codec, file, content, length, match):
    return pytest.param(codec, file, content, length, match, id=name)


BAD_CONDITIONS = [
    bad("unknown number", Integers(4), "c.txt", "0 4", 2, "holds 4, but the numbers are 0 to 3, and -1 is a blank"),
    bad("two below zero", Integers(4), "c.txt", "0 -2", 2, "holds -2, but the numbers are 0 to 3"),
    bad("no number", Integers(4), "c.csv", "0,x", 2, "holds 'x' where a whole number is expected. A blank is"),
    bad("a fraction", Integers(4), "c.csv", "0,1.5", 2, "holds '1.5' where a whole number is expected"),
    bad("python's underscores", Integers(4), "c.csv", "0,0_1", 2, "holds '0_1' where a whole number is expected"),
    bad("a huge number", Integers(4), "c.txt", "9" * 5_000, 2, "where a whole number is expected"),
    bad(
        "long row", Integers(4), "c.txt", "1 1\n0 1 2", 2, "Sample 2 of .* has 3 positions, but samples have 2. Shorten"
    ),
    bad("array out of range", Integers(4), "c.npy", [[7]], 2, "holds 7, but the numbers are 0 to 3"),
    bad("array of floats", Integers(4), "c.npy", [[0.5]], 2, "must hold whole numbers"),
    bad("array of one axis", Integers(4), "c.npy", [0, 1], 2, r"must have shape \(num, dim\)"),
    bad(
        "unknown character", TEXT, "c.txt", "a-b", 3, "holds '-', which is not in the alphabet 'abc'. An unknown .* '_'"
    ),
    bad("blank of another alphabet", TEXT, "c.txt", "a▁", 3, "holds '▁', which is not in the alphabet"),
    bad("long line", TEXT, "c.txt", "abca", 3, "Sample 1 of .* has 4 positions, but samples have 3"),
    bad("no lines", TEXT, "c.txt", "\n\n", 3, "holds empty lines only"),
    bad("empty file", TEXT, "c.txt", "", 3, "is empty"),
    bad(
        "token of no meaning", TEXT, "c.npy", [[0, 4]], 2, "token 4 at position 1, but tokens there are 0 to 3, and -1"
    ),
    bad("token below the blank", TEXT, "c.npy", [[0, -2]], 2, "holds token -2 at position 1"),
    bad("unknown column", COLUMNS, "c.csv", "taste\nred", 2, "a column 'taste', which the data do not have. They have"),
    bad(
        "unknown value",
        COLUMNS,
        "c.csv",
        "colour\nblue",
        2,
        "Column 'colour' has no value 'blue'. Its values are '', 'r",
    ),
    bad("ragged", COLUMNS, "c.csv", "colour\nred,1", 2, "Line 2 of .* has 2 fields, but the header has 1"),
    bad("impossible token", COLUMNS, "c.npy", [[0, 2]], 2, "token 2 at position 1, but tokens there are 0 to 1"),
    bad("other length", COLUMNS, "c.csv", "colour\nred", 3, "length=3 was given, but the data have 2 positions"),
    bad(
        "points as text",
        Points("moons"),
        "c.csv",
        "0,1",
        32,
        "'.csv'. A condition can be read from files that end in .npy",
    ),
    bad("three states", Points("moons"), "c.npy", [[2] * 32], 32, "token 2 at position 0, but tokens there are 0 to 1"),
    bad(
        "text as table",
        TEXT,
        "c.csv",
        "a",
        3,
        "ends in '.csv'. A condition can be read from files that end in .txt, .npy",
    ),
]


@pytest.mark.parametrize(("codec", "file", "content", "length", "match"), BAD_CONDITIONS)
def test_a_bad_condition_is_answered_by_one_sentence(codec, file, content, length, match, tmp_path):
    if isinstance(content, str):
        (tmp_path / file).write_bytes(content.encode())
    else:
        np.save(tmp_path / file, np.array(content))
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        codec.read_condition(tmp_path / file, length)
    assert "\n" not in str(caught.value)


def test_a_missing_condition_is_answered_by_its_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*c\.txt'\.$"):
        TEXT.read_condition(tmp_path / "c.txt", 3)


@pytest.mark.parametrize(
    ("codec", "text", "match"),
    [
        (COLUMNS, "red", "A prefix cannot be given for columns, .* Give a condition file"),
        (Points("moons"), "1,0", "A prefix cannot be given for points"),
        (TEXT, "ax", "'prefix' holds 'x', which is not in the alphabet 'abc'"),
        (TEXT, "a_", "'prefix' holds '_'"),
        (TEXT, "abc", "The prefix has 3 tokens, but samples have 3. Give at least one, and leave one"),
        (TEXT, "", "The prefix has 0 tokens"),
        (Integers(4), " ", "The prefix has 0 tokens"),
        (Integers(4), "0 9", "'prefix' holds 9, but the numbers are 0 to 3"),
        (Integers(4), "0;1", "'prefix' holds '0;1' where a whole number is expected"),
    ],
)
def test_a_bad_prefix_is_answered_by_one_sentence(codec, text, match):
    with pytest.raises(ValueError, match=match):
        codec.read_prefix(text, 3)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Integers(1), "num_states must be at least 2"),
        (lambda: Integers(2.0), "num_states must be a whole number"),
        (lambda: Integers(2, offset=None), "offset must be a whole number"),
        (lambda: Integers(4).encode(np.array([[9]])), "must hold tokens from 0 to 3"),
        (
            lambda: Characters("aba", padded=True),
            "alphabet must be a text of characters that all differ, but it is 'aba'",
        ),
        (lambda: Characters(["a", "b"], padded=True), "alphabet must be a text of characters that all differ"),
        (lambda: Characters(5, padded=True), "characters that all differ, but it is 5"),
        (lambda: Characters("a", padded=False), "alphabet must hold at least two characters"),
        (lambda: Characters("", padded=True), "alphabet must hold at least two characters"),
        (lambda: TEXT.encode(["ab", "ax"]), "values holds 'x', which is not in the alphabet"),
        (lambda: TEXT.encode([]), "values must hold at least one line of text"),
        (lambda: Characters("ab", padded=False).encode(["ab", "a"]), "lines of 1 to 2 characters, which only a padded"),
        (lambda: Columns([], []), "names must hold one name for each column"),
        (lambda: Columns(["a", "a"], [["x", "y"]] * 2), "names must hold one name for each column"),
        (lambda: Columns(["a"], [["x", "y"], ["x", "y"]]), "names must hold one name for each column"),
        (lambda: Columns(["a"], [["x", "x"]]), "The values of column 'a' must differ"),
        (lambda: Columns(["a"], [["x"]]), "Column 'a' has only one value, 'x'.* Drop it"),
        (lambda: COLUMNS.encode([["red"]]), "values must hold rows of 2 fields, but they hold 1"),
        (lambda: COLUMNS.encode([["red", "7"]]), "Column 'size, in feet' has no value '7'"),
        (lambda: COLUMNS.decode(torch.tensor([[0]])), "tokens has 1 positions"),
        (lambda: Points("torus"), "name='torus' is not a density"),
        (
            lambda: build({"type": "runes"}, CODECS),
            "unknown type 'runes'. Known are: characters, codes, columns, integers",
        ),
    ],
)
def test_a_codec_refuses_what_it_cannot_mean(without_annotation_checks, make, match):
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_dataset_checks_its_tokens_against_its_codec(without_annotation_checks):
    with pytest.raises(ValueError, match="tokens holds 2 at position 1"):
        Dataset(torch.tensor([[0, 2]]), COLUMNS, name="table")
    with pytest.raises(TypeError, match="codec must be an sddm Codec"):
        Dataset(torch.tensor([[0, 2]]), None, name="table")
