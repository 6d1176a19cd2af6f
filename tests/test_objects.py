"""Whatever people hold in Python: it is trained on, its gaps are filled, and what is no data is answered in words."""

import subprocess
import sys

import numpy as np
import pandas
import polars
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import sddm
from held import CLASSES, FITTED, GAPS, LINES, ROWS, TABLE, Examples, hugging_face, pairs
from sddm.codecs import Characters, Columns, Integers
from sddm.data import Dataset, dataset_of
from sddm.data.frames import is_frame
from sddm.training import Scattered

FRAME = pandas.DataFrame(TABLE)
NAN = float("nan")
QUICK = {"width": 8, "layers": 1, "heads": 2, "mlp": 8, "steps": 2, "batch_size": 4, "progress": False}
RAGGED = [[0, 1, 2], [2, 1], [3, 0, 1, 2], [0]] * 6


def every(table):
    return pytest.mark.parametrize("name", table)


# ---- training


@every(FITTED)
def test_every_kind_of_object_is_trained_on_and_its_samples_are_of_its_kind(name):
    model = sddm.fit(FITTED[name], **QUICK)
    made = model.decode(model.sample(3, steps=2, seed=0))
    assert len(made) == 3
    assert type(model.codec) is type(dataset_of(FITTED[name]).codec)


@pytest.mark.parametrize(
    "name",
    [
        *("lists", "tuples", "an array", "a tensor", "a list of tensors", "a data set of torch", "pairs of torch"),
        *("dictionaries of torch", "a stream of torch", "a loader", "a loader of pairs", "tokens of Hugging Face"),
    ],
)
def test_the_same_rows_are_the_same_data_whatever_holds_them(name):
    data = dataset_of(FITTED[name])
    assert data.tokens[:].tolist() == ROWS
    assert isinstance(data.codec, Integers)
    if data.labels is not None:
        assert data.labels.tolist() == CLASSES


@pytest.mark.parametrize("name", ["strings", "an array of strings", "lines in one string", "texts of Hugging Face"])
def test_the_same_lines_are_the_same_text_whatever_holds_them(name):
    data = dataset_of(FITTED[name])
    assert isinstance(data.codec, Characters)
    assert data.codec.decode(data.tokens[:]) == LINES


@pytest.mark.parametrize(
    "name",
    ["dictionaries", "a frame of pandas", "a frame of polars", "a lazy frame of polars", "a table of Hugging Face"],
)
def test_the_same_table_is_the_same_data_whatever_holds_it(name):
    data = dataset_of(FITTED[name])
    assert isinstance(data.codec, Columns)
    assert data.codec.names == list(TABLE)
    assert data.codec.decode(data.tokens[:1]) == [["1", "red", "true"]]
    assert data.fingerprint() == dataset_of(FITTED["dictionaries"]).fingerprint()


def test_lists_of_different_lengths_have_a_law_of_lengths():
    data = dataset_of([[3, 1], [2, 2, 0]])
    assert data.lengths.tolist() == [2, 3]
    assert data.codec.ragged
    assert data.tokens[:].tolist() == [[3, 1, 4], [2, 2, 0]]  # 4, which is no state, stands behind the end
    assert data.fingerprint() == Dataset.from_rows([[3, 1], [2, 2, 0]]).fingerprint()


def test_strings_and_a_text_have_a_law_of_lengths_if_it_is_asked_for():
    for held in (["ab", "bca"], "ab\nbca\n"):
        data = dataset_of(held, lengths="separate")
        assert data.codec.ragged
        assert data.lengths.tolist() == [2, 3]
        assert dataset_of(held).codec.padded


def test_a_text_without_lines_is_cut_into_windows():
    assert dataset_of("abcabcacb" * 150).length == 128
    data = dataset_of("abcabcacb" * 150, window=50)
    assert data.length == 50
    assert data.codec.decode(data.tokens[:1]) == ["abcabcacb" * 5 + "abcab"]
    assert dataset_of("ab\ncd\nef", window=4).codec.decode(dataset_of("ab\ncd\nef", window=4).tokens[:]) == [
        "ab\nc",
        "d\nef",
    ]


def test_a_string_without_line_breaks_is_a_name():
    with pytest.raises(FileNotFoundError, match=r"There is no file 'lines\.tx'"):
        dataset_of("lines.tx")


def test_a_loader_that_shuffles_leaves_torchs_own_generator_alone_and_follows_the_seed():
    before = torch.get_rng_state()
    first, again, other = (dataset_of(pairs(shuffle=True), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.tokens[:], again.tokens[:])
    assert not torch.equal(first.labels, other.labels)


def test_neither_pandas_nor_polars_is_imported_by_the_library():
    code = "import sddm, sys; sddm.data.dataset_of([[0, 1], [1, 0]]); print({'pandas', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- labels


@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        ([1, 0, 1], [1, 0, 1], None),
        (np.array([1, 0, 1]), [1, 0, 1], None),
        (torch.tensor([1, 0, 1]), [1, 0, 1], None),
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        (np.array(["b", "a", "b"]), [1, 0, 1], ["a", "b"]),
        (pandas.Series(["b", "a", "b"]), [1, 0, 1], ["a", "b"]),
        ((True, False, True), [1, 0, 1], None),
    ],
)
def test_labels_are_numbers_or_names(labels, numbers, names):
    data = dataset_of(ROWS[:3], labels=labels)
    assert data.labels.tolist() == numbers
    assert data.label_names == names
    known = Dataset.from_tokens(torch.tensor(ROWS[:3]))
    assert dataset_of(known, labels=labels).labels.tolist() == numbers


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, hugging_face, FITTED.get])
def test_labels_may_be_a_column(make):
    table = FITTED["dictionaries"] if make == FITTED.get else make(TABLE)
    data = dataset_of(table, labels="colour")
    assert data.codec.names == ["size", "new"]
    assert data.label_names == ["blue", "red"]
    assert data.labels.tolist() == [1, 0, 1] * 4


def test_the_names_of_labels_of_hugging_face_are_kept():
    data = dataset_of(hugging_face({"text": LINES, "label": CLASSES}, ["x", "y", "z"]))
    assert data.label_names == ["x", "y", "z"]
    assert data.codec.decode(data.tokens[:]) == LINES


def test_a_model_is_told_the_labels_unless_that_is_declined():
    assert sddm.fit(ROWS, labels=CLASSES, **QUICK).model.num_labels == 3
    data = Dataset.from_tokens(torch.tensor(ROWS))
    assert sddm.fit(dataset_of(data, labels=CLASSES), labels=False, **QUICK).model.num_labels == 0


# ---- gaps


def same_kind(found, given):
    """Whether an object has the kind, the types, the order and the known values of another with gaps."""
    if is_frame(given):
        assert list(found.columns) == list(given.columns)
        assert list(found.dtypes) == list(given.dtypes)
        if isinstance(given, pandas.DataFrame):
            assert found.index.equals(given.index)
            assert not found.isna().any().any()
            known = given.notna()
            assert ((found == given) | ~known).all().all()
        else:
            assert found.null_count().sum_horizontal().item() == 0
            assert all(
                a is None or a == b
                for old, new in zip(given.rows(), found.rows(), strict=True)
                for a, b in zip(old, new, strict=True)
            )
    elif isinstance(given, (np.ndarray, torch.Tensor)):
        assert type(found) is type(given)
        assert found.dtype == given.dtype
        assert tuple(found.shape) == tuple(given.shape)
        assert bool(((found == given) | (given == -1)).all())
        assert bool((found >= 0).all())
    elif isinstance(given, str):
        assert len(found) == len(given)
        assert "_" not in found
        assert all(a in ("_", b) for a, b in zip(given, found, strict=True))
    elif given is None or isinstance(given, int):
        assert isinstance(found, int)
        assert given in (None, found)
    else:
        assert type(found) is type(given)
        assert len(found) == len(given)
        for new, old in zip(found, given, strict=True):
            same_kind(new, old)


@pytest.fixture(scope="module")
def models():
    made = {}

    def of(name):
        data = GAPS[name][0]
        return made.setdefault(id(data), sddm.fit(data, **QUICK))

    return of


@every(GAPS)
def test_the_gaps_of_every_kind_of_object_are_filled_and_all_else_is_kept(name, models):
    model, given = models(name), GAPS[name][1]
    one, *several = model.fill(given, seed=0, steps=3), *model.fill(given, 3, seed=0, steps=3)
    assert len(several) == 3
    for found in (one, *several):
        same_kind(found, given)


def test_an_object_without_gaps_is_returned_as_it_is(models):
    model = models("lists")
    assert model.fill(ROWS[:2]) == ROWS[:2]
    assert model.fill(torch.tensor(ROWS), 2)[1].tolist() == ROWS


def test_the_seed_decides_what_is_filled_in_and_fillings_differ(models):
    model, given = models("lists"), [[None] * 4] * 8
    first, again, other = (model.fill(given, seed=seed, steps=4) for seed in (0, 0, 1))
    assert first == again != other
    assert len({str(found) for found in model.fill(given, 4, seed=0, steps=4)}) == 4


def test_gaps_are_filled_with_what_the_others_imply():
    """Rows of equal tokens: the known position tells the other."""
    rows = [[0] * 3, [1] * 3, [2] * 3] * 10
    options = {"width": 32, "layers": 1, "process": "absorbing", "known": Scattered(), "learning_rate": 1e-2}
    model = sddm.fit(rows, **options, steps=100, batch_size=30, progress=False)
    found = model.fill([[0, None, None], [None, 1, None], [None, None, 2]] * 10, seed=0, steps=20)
    assert np.mean([len(set(row)) == 1 for row in found]) > 0.8


def test_a_missing_value_is_never_filled_with_missing():
    """Three quarters of the data are missing values, which are a value of the table."""
    frame = pandas.DataFrame({"a": ["x", None, None, None] * 5, "b": ["u", "v"] * 10})
    model = sddm.fit(frame, **QUICK)
    assert model.codec.fields[0].values == ["", "x"]
    found = model.fill(frame, seed=0, steps=3)
    assert found["a"].tolist() == ["x"] * 20


WIDE = {"name": [f"n{row}" for row in range(40)], "unit": ["m"] * 40, "length": list(range(0, 8000, 200))}


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame])
def test_constants_are_known_and_columns_that_are_not_learnt_are_left_alone(make):
    model = sddm.fit(make({**WIDE, "size": [1, 2] * 20}), **QUICK)
    assert model.codec.names == ["length", "size"]
    gaps = make({"name": ["x", None], "unit": [None, "m"], "other": [None, 1.5], "size": [2, None], "length": [7, 8]})
    found = model.fill(gaps, seed=0, steps=2)
    for name in ("name", "other"):
        assert found[name].equals(gaps[name])
    assert found["length"].to_list() == [7, 8]
    assert found["unit"].to_list() == ["m", "m"]
    assert found["size"].to_list()[1] in (1, 2)
    without = model.fill(make({"length": [7, 8], "size": [2, 1]}), seed=0, steps=2)
    assert list(without.columns) == ["length", "size"]


def test_several_fillings_draw_numbers_apart_inside_their_bins():
    """Two bins of 4000 numbers: what is drawn in a bin would be the same in all fillings if they were drawn alike."""
    model = sddm.fit(pandas.DataFrame({"length": WIDE["length"], "size": [1, 2] * 20}), **QUICK)
    assert model.codec.fields[0].size == 2
    ways = model.fill(pandas.DataFrame({"length": [None] * 3, "size": [1, 2, 1]}), 6, seed=0, steps=2)
    assert len({way["length"][0] for way in ways}) == 6


def test_the_user_may_say_what_columns_are():
    model = sddm.fit(pandas.DataFrame(TABLE), kinds={"size": "category", "new": "drop"}, **QUICK)
    assert model.codec.names == ["size", "colour"]
    assert model.codec.fields[0].values == ["1", "2", "3"]
    records = dataset_of(FITTED["dictionaries"], kinds="size=category,new=drop")
    assert records.codec == model.codec


@pytest.mark.parametrize(("learnt", "given"), [([1, 2, 3, 1], [1.0, NAN, 3.0]), ([1.0, 2.0, NAN, 1.0], [1, None, 2])])
def test_categories_that_are_whole_numbers_may_be_fractions_where_some_are_missing(learnt, given):
    data = pandas.DataFrame({"a": learnt * 5, "b": ["x", "y"] * 10})
    model = sddm.fit(data, kinds={"a": "category"}, **QUICK)
    found = model.fill(polars.DataFrame({"a": given, "b": ["x", "y", "x"]}, strict=False), seed=0, steps=2)
    assert found["a"][0] == given[0]
    assert found["a"][2] == given[2]
    assert found["a"][1] in (1, 2, 3)


def test_a_gap_of_a_column_without_type_gets_values_of_the_data():
    model = sddm.fit(pandas.DataFrame(TABLE), **QUICK)
    for gaps in (pandas.DataFrame({**TABLE, "size": [None] * 12}), polars.DataFrame({**TABLE, "size": [None] * 12})):
        assert set(model.fill(gaps, seed=0, steps=2)["size"].to_list()) <= {1, 2, 3}


def test_a_gap_of_a_text_is_never_filled_with_its_end():
    model = sddm.fit(["a", "b", "abab"] * 5, **QUICK)
    assert all(len(text) == 4 for text in model.fill(["____"] * 50, seed=0, steps=3))


def test_a_model_of_rows_of_different_lengths_makes_them_and_fills_their_gaps():
    model = sddm.fit(RAGGED, **QUICK)
    made = model.decode(model.sample(30, seed=0, steps=3))
    assert {len(row) for row in made} == {1, 2, 3, 4}
    gaps = [[0, None], [None], [1, None, None, 3], [2, 2, 1]]
    for found in model.fill(gaps, 3, seed=0, steps=3):
        same_kind(found, gaps)
    assert model.fill([None, None], seed=0, steps=3) != [None, None]


def test_the_ends_of_rows_in_a_tensor_are_kept_where_its_gaps_are_filled():
    model = sddm.fit(RAGGED, **QUICK)
    given = torch.tensor([[0, -1, model.pad, model.pad], [-1, 2, -1, model.pad]])
    for asked in (given, given[1], given[:, :3]):
        found = model.fill(asked, seed=0, steps=3)
        assert torch.equal(found[asked != -1], asked[asked != -1])
        assert int(found[asked == -1].min()) >= 0
        assert int(found[asked == -1].max()) < model.pad


def test_a_line_keeps_its_length_where_a_model_that_is_told_lengths_fills_it():
    model = sddm.fit(["abc", "a", "bcab"] * 10, lengths="separate", **QUICK)
    found = model.fill(["a__", "_", "____"], seed=0, steps=3)
    assert [len(line) for line in found] == [3, 1, 4]
    assert set("".join(found)) <= set("abc")


def test_filling_takes_labels_one_a_row(models):
    model = sddm.fit(ROWS, labels=CLASSES, **QUICK)
    found = model.fill([[0, None, 2, 3], ROWS[0], [None] * 4], 2, labels=torch.tensor([0, 1, 2]), seed=0, steps=2)
    assert [made[1] for made in found] == [ROWS[0]] * 2


# ---- samplers by name, conditions as tensors


def test_a_sampler_may_be_named(models):
    model = models("lists")
    named, made = (model.sample(3, steps=3, seed=0, sampler=sampler) for sampler in ("euler", sddm.samplers.Euler()))
    assert torch.equal(named, made)
    with pytest.raises(ValueError, match=r"sampler must be one of euler, analytical, .*, but it is 'oiler'"):
        model.sample(3, sampler="oiler")


@pytest.mark.parametrize("convert", [torch.tensor, np.array, lambda v: torch.tensor(v, dtype=torch.int8)])
def test_a_condition_may_be_tokens_with_blanks(models, convert):
    model, known = models("lists"), [0, -1, -1, 3]
    found = model.sample(3, steps=3, seed=0, condition=convert(known))
    whole = model.sample(3, steps=3, seed=0, condition=sddm.Condition.from_blanks(torch.tensor(known)))
    assert torch.equal(found, whole)
    assert found[:, [0, 3]].tolist() == [[0, 3]] * 3


# ---- what is no data


def bad(name, data, error, sentence, **options):
    return pytest.param(data, options, error, sentence, id=name)


BAD = [
    bad("nothing", None, TypeError, "data is a NoneType, which sddm cannot read. Give an array"),
    bad("a number", 3, TypeError, "data is a int, which sddm cannot read"),
    bad("a function", len, TypeError, "data is a builtin_function_or_method, which sddm cannot read"),
    bad("a module", sys, TypeError, "data is a module"),
    bad("an empty list", [], ValueError, "data is empty. Give a list with at least two rows"),
    bad("a row of nothing", [[], []], ValueError, "Row 1 of data is empty. Leave it out"),
    bad("one row of numbers", [1, 2, 3], TypeError, r"Row 1 of data is 1, a number\. .* give \[data\]"),
    bad("negative", [[0, 1], [1, -1, 2]], ValueError, "data must not hold negative numbers, but its smallest is -1"),
    bad("fractions", [[0.5, 1.0]], TypeError, "Row 1 of data holds 0.5. Tokens are whole numbers"),
    bad("an array of fractions", np.ones((2, 2)) / 3, TypeError, "data must hold whole numbers .*float64"),
    bad("a tensor of fractions", torch.rand(2, 2), TypeError, "data must hold whole numbers .*float32"),
    bad("NaN", [[0, NAN]], TypeError, "Row 1 of data holds nan"),
    bad("a gap", [[0, 1], [None, 1]], TypeError, r"Row 2 of data holds None\. .* model\.fill\(rows\)"),
    bad("words", [["a", "b"]], TypeError, "Row 1 of data holds 'a'. Give a DataFrame"),
    bad("depth three", [[[0, 1]], [[1, 0]]], TypeError, "Row 1 of data holds 0, 1. A row is one list of numbers: flat"),
    bad("too large", [[0, 2**70]], ValueError, "data holds 1180591620717411303424, which is too large for a token"),
    bad("a billion states", [[0, 10**9]], ValueError, "at most 1000000 are possible. Number the values"),
    bad("all alike", [[1, 1], [1, 1]], ValueError, "All tokens of data equal 1: there is nothing to learn"),
    bad("one row", [[0, 1]], ValueError, "data has 1 row, but a split needs at least 2. Give more data"),
    bad("rows and strings", [[0, 1], "ab"], TypeError, "Row 2 of data is a str"),
    bad("strings and rows", ["ab", [0, 1]], TypeError, r"String 2 of data is 0, 1, no text"),
    bad("empty strings", ["", ""], ValueError, "String 1 of data is empty. Leave it out"),
    bad("one character", ["aa", "aa"], ValueError, "data holds one character only, 'a'"),
    bad("a string too long", ["ab" * 3_000, "ab"], ValueError, "String 1 of data has 6000 characters, .* window=N"),
    bad("a text too short", "ab" * 600, ValueError, "has 1200 characters, too few for 2 windows of 700", window=700),
    bad("an empty text", "\n\n", ValueError, "data holds no strings"),
    bad("window of numbers", ROWS, ValueError, "window=3 was given, but data is a list, which does not", window=3),
    bad("states of text", LINES, ValueError, "num_states is for numbers, but data holds strings", num_states=9),
    bad("too few states", ROWS, ValueError, "values from 0 to 3", num_states=3),
    bad("a vector", np.arange(4), ValueError, r"data must have shape \(num, dim\), .* has shape \(4,\)"),
    bad("no rows", np.zeros((0, 3), int), ValueError, r"data is empty: it has shape \(0, 3\)"),
    bad("five axes", np.zeros((2, 1, 1, 1, 1), int), ValueError, r"data must have shape \(num, dim\)"),
    bad("pictures of fractions", np.zeros((2, 4, 4, 3)), ValueError, "data holds float64 .* Pictures are uint8"),
    bad("channels first", torch.zeros(2, 3, 4, 4, dtype=torch.uint8), ValueError, r"array\.transpose\(0, 2, 3, 1\)"),
    bad("an object array", np.array([[1, None]], object), TypeError, "data is an array of object, but tokens are"),
    bad("a matrix of words", np.array([["a", "b"]]), TypeError, "data is an array of <U1"),
    bad("a record array", np.zeros(2, [("a", int)]), TypeError, "data is an array of .*a.*, but tokens are"),
    bad("unsigned 64", np.eye(2, dtype=np.uint64), TypeError, "data must hold whole numbers .* uint64"),
    bad("masked", np.ma.array([[0, 1]], mask=[[True, False]]), ValueError, "data has masked entries. Leave out"),
    bad("complex", np.eye(2, dtype=complex), TypeError, "data must hold whole numbers .* complex128"),
    bad("sparse", torch.eye(2).long().to_sparse(), ValueError, r"sparse tensor\. Give data\.to_dense\(\)"),
    bad("arrays of two shapes", [np.eye(2, dtype=int), np.eye(3, dtype=int)], ValueError, "arrays of different shapes"),
    bad("a generator", (row for row in ROWS), TypeError, r"data is a generator\. .* list\(data\)"),
    bad("a map", map(list, ROWS), TypeError, r"data is a map\. .* list\(data\)"),
    bad("a dictionary", dict(TABLE), TypeError, "data is a dict. Give a DataFrame of it"),
    bad("a set", {1, 2}, TypeError, "data is a set. A set has no order"),
    bad("a range", range(4), TypeError, "data is a range. Give a list of rows"),
    bad("bytes", b"abc", TypeError, r"data is a bytes\. Give text, data\.decode\(\)"),
    bad("a frame without rows", FRAME.iloc[:0], ValueError, "data is a table without rows"),
    bad("a frame without columns", pandas.DataFrame(index=[0, 1]), ValueError, "data has no columns"),
    bad(
        "a name twice",
        pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]),
        ValueError,
        "data has the name 'a' twice",
    ),
    bad(
        "a column of lists",
        pandas.DataFrame({"a": [[1], [2]]}),
        TypeError,
        r"Column 'a' holds \[1\], which is no value",
    ),
    bad("constants", pandas.DataFrame({"a": [1, 1], "b": [2, 2]}), ValueError, "Nothing is left to learn .* constant"),
    bad("kinds of a list", ROWS, ValueError, "kinds is for the columns of a table", kinds={"a": "drop"}),
    bad("kinds of an array", np.array(ROWS), ValueError, "kinds=.* was given, but data is an array", kinds="a=drop"),
    bad("no such kind", FRAME, ValueError, "kinds says that 'size' is 'big', but a column is", kinds={"size": "big"}),
    bad("kinds of no column", FRAME, ValueError, "kinds names a column 'z', which the data do", kinds={"z": "drop"}),
    bad("a polars frame without rows", polars.DataFrame(TABLE).head(0), ValueError, "data is a table without rows"),
    bad(
        "a series of numbers", FRAME["size"], TypeError, r"data is a Series, but not of strings\. .*data\.to_frame\(\)"
    ),
    bad("a series of polars", polars.Series([1, 2]), TypeError, "data is a Series, but not of strings"),
    bad("dictionaries that differ", [{"a": 1}, {"b": 1}], ValueError, "Row 2 of data has the keys 'b', but the first"),
    bad("a dictionary and a row", [{"a": 1}, [1]], TypeError, "Row 2 of data is a list, but the first is a dictionary"),
    bad("several splits", hugging_face({}, kind="Nothing"), TypeError, "data is a Nothing, which sddm cannot read"),
    bad(
        "unknown keys", DataLoader(Examples([{"z": torch.ones(2)}] * 4)), TypeError, "keys 'z', of which none is a row"
    ),
    bad("three at a time", TensorDataset(*[torch.eye(3).long()] * 3), ValueError, "gives 3 things at a time"),
    bad("an empty data set", Examples([]), ValueError, "data is empty"),
    bad(
        "targets that are fractions", TensorDataset(torch.eye(3).long(), torch.rand(3)), TypeError, "label of row 1 is"
    ),
    bad("too few labels", ROWS, ValueError, "labels has 2 entries, but data has 12 rows", labels=[0, 1]),
    bad("labels of fractions", ROWS, TypeError, "label of row 1 is 0.5. Labels are whole", labels=[0.5] * 12),
    bad("labels with a gap", ROWS, TypeError, "label of row 12 is None", labels=[0] * 11 + [None]),
    bad("negative labels", ROWS, ValueError, "labels of data must lie between 0", labels=[-1] * 12),
    bad("labels of no kind", ROWS, TypeError, "labels is a int. Give a number or a name for each row", labels=3),
    bad("a column of a list", ROWS, ValueError, "labels='a' names a column, but data has none", labels="a"),
    bad("a column of an array", np.array(ROWS), ValueError, "labels='a' was given, but data is an array", labels="a"),
    bad("no such column", FRAME, ValueError, "labels='z' names no column of data. It has 'size'", labels="z"),
    bad("nothing but labels", FRAME[["size"]], ValueError, "data has no column beside 'size'", labels="size"),
    bad("column of a name", "moons", ValueError, "column='a' was given, but data is the name", labels="a"),
    bad(
        "an option of a Dataset",
        dataset_of(ROWS),
        ValueError,
        "num_states=9 was given, but data is a Dataset",
        num_states=9,
    ),
]


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(("data", "options", "error", "sentence"), BAD)
def test_what_is_no_data_is_answered_by_one_sentence(data, options, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        sddm.fit(data, **QUICK, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", "?"))


def test_the_table_of_bad_objects_is_long():
    assert len(BAD) >= 40


BAD_GAPS = [
    bad("a set", {1}, TypeError, "data is a set, whose gaps sddm cannot fill", model="lists"),
    bad("an empty list", [], ValueError, "data is empty", model="lists"),
    bad("fractions", np.array([[0.5, NAN, 1, 1]]), TypeError, "whole numbers, and -1 in its gaps", model="lists"),
    bad(
        "other length", torch.tensor([[0, -1]]), ValueError, "data has 2 positions a row, but the model", model="lists"
    ),
    bad(
        "unseen number", [[9, None, 0, 0]], ValueError, "Row 1 of data holds 9 at position 0, .* 0 to 3", model="lists"
    ),
    bad("a fraction in a list", [[0.5, None, 0, 0]], TypeError, "Row 1 of data holds 0.5", model="lists"),
    bad("a word in a list", [["a", None, 0, 0]], TypeError, "Row 1 of data holds 'a'", model="lists"),
    bad("a row and a number", [[0, 1, 2, 3], 1], TypeError, "Row 2 of data is 1, but the others", model="lists"),
    bad("a row too long", [[0], [1] * 5], ValueError, "a row of 5 positions, but the model has 4", model="lists"),
    bad(
        "tokens behind an end",
        torch.tensor([[0, 3, -1]]),
        ValueError,
        "Row 1 of data goes on behind its end, which is 3",
        model="ragged lists",
    ),
    bad("text for numbers", "a_c_", ValueError, "data is text, but the model was trained on integers", model="lists"),
    bad("a table for numbers", FRAME, ValueError, "data is a table, but the model was trained on", model="lists"),
    bad("numbers for text", [[0, None]], ValueError, "data is lists of numbers, but .* characters", model="a string"),
    bad("unseen character", "a_z_", ValueError, "holds 'z', which is not in the alphabet", model="a string"),
    bad("short text", "a_", ValueError, "has 2 characters, but the model makes 4", model="a string"),
    bad("long text", "a_" * 3, ValueError, "has 6 characters, but the model makes at most 3", model="strings"),
    bad("an empty text", "", ValueError, "has 0 characters", model="strings"),
    bad("other pictures", np.zeros((1, 3, 3, 3), int), ValueError, "but the model makes colour pict", model="pictures"),
    bad("no column", FRAME[["size"]], ValueError, "data has no column 'colour'. Add it", model="a frame of pandas"),
    bad("no rows", FRAME.iloc[:0], ValueError, "table without rows", model="a frame of pandas"),
    bad(
        "unseen value",
        FRAME.assign(colour="green"),
        ValueError,
        "Column 'colour' has no value 'green'. Its values are 'blue', 'red'",
        model="a frame of pandas",
    ),
    bad(
        "a fraction for whole numbers",
        FRAME.assign(size=pandas.array([None] * 12, "Int64")),
        ValueError,
        "Column 'size' holds values of type int, .* also held '[0-9]\\.5'",
        model="fractions",
    ),
    bad(
        "another type",
        FRAME.assign(colour=pandas.Series([NAN] * 12)),
        ValueError,
        "Column 'colour' holds values of type float, .* 'red'|'blue'. Convert the column to text",
        model="a frame of pandas",
    ),
]


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(("data", "options", "error", "sentence"), BAD_GAPS)
def test_gaps_that_cannot_be_filled_are_answered_by_one_sentence(models, data, options, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        models(options["model"]).fill(data, seed=0, steps=2)
    assert "\n" not in str(caught.value)
