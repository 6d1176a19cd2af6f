"""Data files: each reader gives back what was written, and each bad file is answered by one sentence."""

import csv
import io
import os
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sddm.codecs import MAX_LENGTH, MAX_STATES, Characters, Columns, Integers, Points, file_readers
from sddm.data import DENSITIES, Dataset, Toy, load
from sddm.formats.midi_writer import midi_bytes

ROWS = np.array([[0, 1, 2], [2, 2, 0], [1, 0, 0]])


def csv_bytes(*rows):
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def npy(array, allow_pickle=False):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def archive(name, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        if name:
            members.writestr(name, content)
    return file.getvalue()


def parquet(**columns):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


# ---- every reader


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", ">i4", "uint8", "uint16", "uint32"])
def test_an_array_of_any_whole_type_is_read_as_it_was(dtype, tmp_path):
    data = load(written(tmp_path, "a.npy", npy(ROWS.astype(dtype))))
    assert data.tokens[:].dtype == torch.int64
    assert data.tokens[:].tolist() == ROWS.tolist()
    assert (data.codec, data.num_states, data.length, data.name) == (Integers(3), 3, 3, "a.npy")
    assert len(data) == 3


def test_an_array_of_truth_values_has_two_states(tmp_path):
    assert load(written(tmp_path, "a.npy", npy(ROWS > 0))).tokens[:].tolist() == (ROWS > 0).astype(int).tolist()


def test_an_array_in_column_order_is_read_as_it_was(tmp_path):
    assert load(written(tmp_path, "a.npy", npy(np.asfortranarray(ROWS)))).tokens[:].tolist() == ROWS.tolist()


def test_an_archive_of_one_array_needs_no_key(tmp_path):
    assert load(written(tmp_path, "a.npz", npz(train=ROWS))).tokens[:].tolist() == ROWS.tolist()


def test_an_archive_of_several_arrays_is_read_by_key(tmp_path):
    path = written(tmp_path, "a.npz", npz(train=ROWS, test=ROWS[::-1]))
    assert load(path, key="test").tokens[:].tolist() == ROWS[::-1].tolist()


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_line_is_a_sequence_padded_to_the_longest(ending, mark, tmp_path):
    text = mark + ending.join(["ba", "", "c b a", ""])
    data = load(written(tmp_path, "a.txt", text.encode()))
    assert data.codec == Characters(" abc", padded=True)
    assert data.tokens[:].tolist() == [[2, 1, 4, 4, 4], [3, 0, 2, 0, 1]]


def test_lines_of_one_length_need_no_padding(tmp_path):
    data = load(written(tmp_path, "a.TXT", b"ab\nba"))
    assert data.codec == Characters("ab", padded=False)
    assert data.num_states == 2


def test_other_separators_of_unicode_are_characters(tmp_path):
    lines = ["a\u2028b", "c\x0cd"]
    data = load(written(tmp_path, "a.txt", "\n".join(lines).encode()))
    assert data.codec.decode(data.tokens[:]) == lines


def test_windows_cut_the_stream_and_drop_the_remainder(tmp_path):
    data = load(written(tmp_path, "a.txt", b"ab\r\ncd\naz"), window=3)
    assert data.codec == Characters("\nabcd", padded=False)
    assert data.codec.decode(data.tokens[:]) == ["ab\n", "cd\n"]
    assert load(tmp_path / "a.txt", window=1).tokens.shape == (8, 1)


def test_a_csv_column_is_a_category_in_the_order_of_numbers_or_of_text(tmp_path):
    content = csv_bytes(["n", "mixed", "gap"], ["10", "10", "x"], ["9", "9", ""], ["-1.5", "b", "y"])
    data = load(written(tmp_path, "a.csv", b"\xef\xbb\xbf" + content))
    assert data.codec == Columns(["n", "mixed", "gap"], [["-1.5", "9", "10"], ["10", "9", "b"], ["", "x", "y"]])
    assert data.tokens[:].tolist() == [[2, 0, 1], [1, 1, 0], [0, 2, 2]]
    assert data.codec.sizes == [3, 3, 3]


def test_a_missing_number_comes_first_and_not_a_number_is_text(tmp_path):
    content = csv_bytes(["gap", "nan"], ["10", "10"], ["", "nan"], ["9", "9"], ["9.0", "9"])
    codec = load(written(tmp_path, "a.csv", content)).codec
    assert codec.values == [["", "9", "9.0", "10"], ["10", "9", "nan"]]


def test_a_table_may_have_one_column_and_empty_lines(tmp_path):
    data = load(written(tmp_path, "a.csv", b'\na\n\nx\n""\n'))
    assert data.codec.decode(data.tokens[:]) == [["x"], [""]]


def test_a_parquet_column_of_any_plain_type_is_a_category(tmp_path):
    columns = {
        "text": ["b", None, "a"],
        "whole": [10, 9, 9],
        "truth": [True, False, None],
        "coded": pyarrow.array(["y", "x", "y"]).dictionary_encode(),
        "nothing, or one": pyarrow.array([None, 1.5, None]),
    }
    data = load(written(tmp_path, "a.parquet", parquet(**columns)))
    assert data.codec.names == list(columns)
    assert data.codec.values == [["", "a", "b"], ["9", "10"], ["", "false", "true"], ["x", "y"], ["", "1.5"]]
    assert data.codec.decode(data.tokens[:])[1] == ["", "9", "false", "x", "1.5"]


def test_a_path_with_an_equals_sign_adds_no_column(tmp_path):
    (tmp_path / "year=2020").mkdir()
    assert load(written(tmp_path / "year=2020", "a.parquet", parquet(x=["a", "b"]))).codec.names == ["x"]


@pytest.mark.parametrize("name", DENSITIES)
def test_a_toy_is_loaded_by_name(name):
    data = load(name, seed=3)
    assert data.tokens.shape == (100_000, 32)
    assert (data.codec, data.num_states, data.name) == (Points(name), 2, name)
    assert torch.equal(data.tokens[:], Toy(name).tokens(100_000, torch.Generator().manual_seed(3)))


CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\ufeff\0")
CELLS = st.text(st.one_of(st.sampled_from("a,\"'\n\r ?é🙂"), CHARACTERS), max_size=6)
FIELDS = st.text(CHARACTERS, min_size=1, max_size=6).filter(lambda name: name.strip() and not set(name) & set(";\t|"))


@given(st.lists(st.text(CHARACTERS.filter(lambda c: c not in "\r\n"), min_size=1), min_size=1, max_size=8))
def test_any_lines_of_text_survive(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes("\n".join([*lines, "", "01"]).encode())
    data = load(path)
    assert data.codec.decode(data.tokens[:]) == [*lines, "01"]
    data.codec.write(data.tokens[:], path)
    assert load(path).fingerprint() == data.fingerprint()


@st.composite
def tables(draw):
    names = draw(st.lists(FIELDS, min_size=1, max_size=4, unique=True))
    return names, draw(st.lists(st.lists(CELLS, min_size=len(names), max_size=len(names)), max_size=6))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@given(table=tables())
def test_any_table_survives(tmp_path_factory, ending, table):
    names, rows = table
    rows = [*rows, ["one"] * len(names), ["another"] * len(names)]
    path = tmp_path_factory.mktemp("table") / f"a{ending}"
    codec = Columns(names, [sorted(set(column)) for column in zip(*rows, strict=True)])
    codec.write(codec.encode(rows), path)
    data = load(path)
    assert data.codec.names == names
    assert data.codec.decode(data.tokens[:]) == rows
    data.codec.write(data.tokens[:], path)
    assert load(path).fingerprint() == data.fingerprint()


# ---- bad files


def bad(name, content, match, error=ValueError, **options):
    return pytest.param(name, content, options, match, error, id=f"{match[:40]} {options or ''}")


RECORD = np.array([(1, 2)], dtype="i4,i4")
BAD_FILES = [
    # ---- by name
    bad(
        "a.xyz",
        b"1",
        r"ends in '\.xyz', but data are read from files that end in \.npy, \.npz, \.txt, \.smi, \.fasta, \.csv, ",
    ),
    bad("a.csv.gz", b"1", r"ends in '\.gz', but data are read"),
    bad("data", b"1", r"ends in '', but data are read"),
    *(bad(f"a{ending}", b"", f"a{ending}' is empty. Give a file that holds data") for ending in file_readers()),
    bad("a.npy", npy(ROWS), "window=3 was given, but only .txt, .fasta, .mid, .midi, .zip files", window=3),
    bad("a.npy", npy(ROWS), "key='x' was given, but only .npz files", key="x"),
    # ---- arrays
    bad("a.npy", npy(ROWS[0]), r"one sample a row, but it has shape \(3,\). Reshape it, .* array.reshape\(-1, dim\)"),
    bad("a.npy", npy(ROWS[None]), r"int64 of shape \(1, 3, 3\). Pictures are uint8 .* array.reshape\(1, -1\)"),
    bad("a.npy", npy(np.array(3)), r"but it has shape \(\)"),
    bad("a.npy", npy(ROWS / 2), "must hold whole numbers .* but it holds float64", TypeError),
    bad("a.npy", npy(ROWS * 1j), "but it holds complex128", TypeError),
    bad("a.npy", npy(np.array([["a", "b"]])), "but it holds <U1", TypeError),
    bad("a.npy", npy(ROWS.astype("uint64")), "but it holds uint64", TypeError),
    bad("a.npy", npy(ROWS.astype("datetime64[s]")), "but it holds datetime64", TypeError),
    bad("a.npy", npy(RECORD), "must hold whole numbers", TypeError),
    bad("a.npy", npy(ROWS - 1), "a.npy must not hold negative numbers, but its smallest is -1"),
    bad("a.npy", npy(ROWS[:0]), r"a.npy is empty: it has shape \(0, 3\)"),
    bad("a.npy", npy(ROWS[:, :0]), r"a.npy is empty: it has shape \(3, 0\)"),
    bad("a.npy", npy(ROWS * 0), "All tokens of a.npy equal 0: there is nothing to learn"),
    bad("a.npy", npy(ROWS * 0 + 7), "All tokens of a.npy equal 7"),
    bad("a.npy", npy(ROWS + MAX_STATES), "has 1000003 states, but at most 1000000 are possible. Number the values"),
    bad("a.npy", npy(np.eye(2, MAX_LENGTH + 1, dtype=bool)), "65537 positions a sample, but at most 65536 .* Cut the"),
    bad("a.npy", npy(np.array([[1, None]]), allow_pickle=True), "Pickles can run code and are not read"),
    bad("a.npy", b"1 2 3\n", "holds Python objects or is not a numpy file"),
    bad("a.npy", npy(ROWS)[:-1], "is damaged or not a numpy file"),
    bad("a.npy", npy(ROWS)[:30], "is damaged or not a numpy file"),
    bad("a.npy", npy(ROWS).replace(b"(3, 3)", b"(3, 3 "), "is damaged or not a numpy file"),
    bad("a.npz", npz(train=ROWS, test=ROWS), "holds 2 arrays: 'train', 'test'. Choose one with key"),
    bad("a.npz", npz(train=ROWS), "has no array 'test'. It holds 'train'", key="test"),
    bad("a.npz", npz(train=ROWS)[:-30], "is damaged or not a numpy file"),
    bad("a.npz", npz(train=ROWS / 2), "but it holds float64", TypeError),
    bad("a.npz", archive("train.npy", npy(np.array([{}]), allow_pickle=True)), "Pickles can run code"),
    bad("a.npz", archive("train.txt", b"1 2"), "'train.txt' of .* is not an array"),
    bad("a.npz", archive("", b""), "holds no arrays"),
    bad("a.npz", npy(ROWS), "key='x' was given, but .* holds one array without a name", key="x"),
    # ---- text
    bad("a.txt", "naïve".encode("latin1"), "is not UTF-8: the byte at offset 2 cannot be decoded. Convert .* iconv"),
    bad("a.txt", "ab".encode("utf-16"), "is not UTF-8 but UTF-16. Convert"),
    bad("a.txt", b"\n\r\n\n", "holds empty lines only"),
    bad("a.txt", b"\xef\xbb\xbf", "holds empty lines only"),
    bad("a.txt", b"aaa\na\n", "holds one character only, 'a': there is nothing to learn"),
    bad("a.txt", b"aaaaaa", "holds one character only, 'a'", window=2),
    bad("a.txt", b"ab" * 2_049, "Line 1 of .* has 4098 characters, but .* at most 4096. Pass --window N"),
    bad("a.txt", b"abcde", "has 5 characters, too few for 2 windows of 3. Choose a window of at most 2", window=3),
    bad("a.txt", b"abcde", "too few for 2 windows of 9", window=9),
    bad("a.txt", b"abcde", "window must be at least 1, but it is 0", window=0),
    bad("a.txt", b"abcde", "window must be a whole number, but it is 2.5", TypeError, window=2.5),
    bad("a.txt", b"ab" * (MAX_LENGTH + 1), "65537 positions a sample, but at most 65536", window=MAX_LENGTH + 1),
    # ---- csv
    bad("a.csv", b"a,b\n", "has a header but no rows"),
    bad("a.csv", b"\n\n", "holds empty lines only. Give a header"),
    bad("a.csv", b"a,,b\n1,2,3\n", "has no name for column 2. Give every column a name"),
    bad("a.csv", b"a, \n1,2\n", "has no name for column 2"),
    bad("a.csv", b"0,1,0\n1,1,1\n", "has the name '0' twice. Names must differ; is the header missing"),
    bad("a.csv", b"a,b\n1,2\n3\n", "Line 3 of .* has 1 field, but the header has 2. Correct the line"),
    bad("a.csv", b'a,b\n"1\n",2\n\n3,4,5\n', "Line 5 of .* has 3 fields, but the header has 2"),
    bad("a.csv", b'a,b\n1,"2\n3,4\n', "is not valid csv near line 3: .* Check the quotes"),
    bad("a.csv", b'a,b\n1,"2"2\n', "is not valid csv near line 2"),
    bad("a.csv", b"a\n" + b"x" * 200_000, "is not valid csv near line 2: field larger"),
    bad("a.csv", b"a;b\n1;2\n", "is one column, 'a;b', which looks like several. Separate them by commas"),
    bad("a.csv", b"a\tb\n1\t2\n", "which looks like several"),
    bad("a.csv", b"a,b\n1,x\n2,x\n", "Column 'b' has only one value, 'x': there is nothing to learn in it. Drop it"),
    bad("a.csv", b"a,b\n1,2\n", "Column 'a' has only one value, '1'"),
    bad(
        "a.csv",
        b"a\n" + b"\n".join(b"%d" % i for i in range(10_001)),
        "Column 'a' has 10001 distinct values, more than",
    ),
    bad("a.csv", "a,b\né,2\n".encode("latin1"), "is not UTF-8: the byte at offset 4"),
    # ---- parquet
    bad("a.parquet", b"PAR1", "is damaged or not a parquet file"),
    bad("a.parquet", parquet(a=["x", "y"])[:-9], "is damaged or not a parquet file"),
    bad("a.parquet", parquet(a=pyarrow.array([], pyarrow.string())), "has a header but no rows"),
    bad("a.parquet", parquet(), "has no columns"),
    bad("a.parquet", parquet(a=[1, 1]), "Column 'a' has only one value, '1'"),
    bad("a.parquet", parquet(a=[None, None]), "Column 'a' has only one value, ''"),
    bad("a.parquet", parquet(a=[[1], [2, 3]]), "Column 'a' of .* is of type list<.*>, which cannot be written as text"),
    bad("a.parquet", parquet(a=[{"b": 1}]), "Column 'a' of .* is of type struct"),
    bad("a.parquet", parquet(a=[b"\xff", b"a"]), "Column 'a' of .* is of type binary, which cannot be written as text"),
    bad("a.parquet", parquet(**{"": [1, 2]}), "has no name for column 1"),
    bad("a.parquet", parquet(a=list(range(10_001))), "Column 'a' has 10001 distinct values, more than 10000"),
]


@pytest.mark.parametrize(("name", "content", "options", "match", "error"), BAD_FILES)
def test_a_bad_file_is_answered_by_one_sentence(
    without_annotation_checks, name, content, options, match, error, tmp_path
):
    with pytest.raises(error, match=match) as caught:
        load(written(tmp_path, name, content), **options)
    assert "\n" not in str(caught.value)


def test_a_parquet_file_with_a_name_twice_is_refused(tmp_path):
    table = pyarrow.table([pyarrow.array([1, 2]), pyarrow.array([1, 2])], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="has the name 'a' twice"):
        load(tmp_path / "a.parquet")


@pytest.mark.parametrize("source", ["checkerbord", "missing.csv", Path("nowhere") / "a.npy"])
def test_a_missing_file_is_answered_with_the_names_of_the_toys(source):
    with pytest.raises(
        FileNotFoundError,
        match=r"There is no file '.*'\. The toys are 2spirals, .*, checkerboard; published .*, digits-test\.$",
    ):
        load(source)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"is a directory\. Give the path of a file in it"):
        load(tmp_path)


def test_a_file_in_place_of_a_directory_is_refused(tmp_path):
    path = written(tmp_path, "a.txt", b"ab")
    with pytest.raises(OSError, match=r"a\.txt/b\.txt' cannot be read \(Not a directory\)"):
        load(path / "b.txt")


def test_a_name_that_is_too_long_is_refused():
    with pytest.raises(OSError, match=r"cannot be read \(File name too long\)"):
        load("a" * 5_000)


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    def forbidden(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path, "a.txt", b"ab")
    if os.geteuid() == 0:
        monkeypatch.setattr(Path, "open", forbidden)  # the superuser may read every file
    else:
        path.chmod(0)
    with pytest.raises(
        PermissionError, match=r"a\.txt' cannot be read \(Permission denied\)\. Check its name and your"
    ):
        load(path)


def test_a_source_of_another_type_is_refused(without_annotation_checks):
    with pytest.raises(TypeError, match="source must be a path or the name of a toy, but it is a ndarray"):
        load(ROWS)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        load("moons", seed=-1)
    with pytest.raises(ValueError, match=r"only \.txt, .* files and moby-dick, melodies, chorales take this"):
        load("moons", window=3)


def test_without_pyarrow_the_answer_is_how_to_install_it(tmp_path, monkeypatch):
    path = written(tmp_path, "a.parquet", parquet(a=["x", "y"]))
    data = load(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: load(path), lambda: data.codec.write(data.tokens[:], tmp_path / "b.parquet")):
        with pytest.raises(ValueError, match=r'needs pyarrow\. Install it with pip install "sddm\[tables\]"\.'):
            call()


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


TUNE = midi_bytes(np.arange(40, 104).repeat(4)[None])
WHOLE_FILES = {
    ".npy": npy(ROWS),
    ".npz": npz(train=ROWS),
    ".txt": "déjà\nvu".encode(),
    ".csv": b'a,b\n1,"x,y"\n2,z\n',
    ".tsv": b'a\tb\n1\t"x\ty"\n2\tz\n',
    ".jsonl": b'{"a": 1, "b": "x"}\n{"a": 2.5, "b": null}\n',
    ".smi": b"CCO ethanol\nC1CC1\n",
    ".fasta": b">one\nACGT\nAC\n>two\nAC\n",
    ".parquet": parquet(a=["x", "y"], b=[1, 2]),
    **dict.fromkeys((".mid", ".midi"), TUNE),
    ".zip": zipped(**{"a.mid": TUNE, "b.mid": TUNE}),
}


@pytest.mark.parametrize("ending", file_readers())
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_file_is_read_or_refused_but_nothing_else(tmp_path_factory, ending, place, byte, cut):
    content = bytearray(WHOLE_FILES[ending])
    index = int(place * len(content))
    content[index] = byte
    path = tmp_path_factory.mktemp("damaged") / f"a{ending}"
    path.write_bytes(content[:index] if cut else content)
    refusal = refused(path)
    assert refusal is None or "\n" not in refusal
    assert refusal is None or f"a{ending}" in refusal or "Column" in refusal


def refused(path):
    """The sentence that refuses a file, or None if the file is read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is left out of music is said in a warning
            load(path)
    except (ValueError, TypeError, OSError) as error:
        return str(error)
    return None


# ---- tokens in memory


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32]
)
def test_a_tensor_of_any_whole_type_is_taken(dtype):
    tokens = torch.tensor([[0, 1], [1, 0]])
    assert torch.equal(Dataset.from_tokens(tokens.to(dtype)).tokens[:], tokens)


def test_the_number_of_states_is_the_largest_token_and_one_unless_it_is_given():
    assert Dataset.from_tokens(ROWS).num_states == 3
    assert Dataset.from_tokens(ROWS, num_states=9).num_states == 9
    assert Dataset.from_tokens(ROWS * 0, num_states=2).num_states == 2


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_what_the_caller_does_to_its_array_later_changes_no_data(kind):
    array = kind([[0, 1], [1, 0]])
    data = Dataset.from_tokens(array)
    array[:] = 5
    assert data.tokens[:].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("make", "match", "error"),
    [
        (
            lambda: Dataset.from_tokens([[0, 1]]),
            "tokens must be a numpy array or a torch tensor, but it is a list",
            TypeError,
        ),
        (lambda: Dataset.from_tokens(torch.rand(2, 2)), r"but it holds torch\.float32", TypeError),
        (lambda: Dataset.from_tokens(torch.tensor([0, 1])), r"has shape \(2,\)", ValueError),
        (lambda: Dataset.from_tokens(torch.tensor([[0, -1]])), "its smallest is -1", ValueError),
        (lambda: Dataset.from_tokens(ROWS, num_states=2), "from 0 to 1, but it holds values from 0 to 2", ValueError),
        (lambda: Dataset.from_tokens(ROWS, num_states=1), "num_states must be at least 2", ValueError),
        (lambda: Dataset.from_tokens(ROWS, num_states=2.0), "num_states must be a whole number", TypeError),
        (lambda: Dataset.from_tokens(ROWS, num_states=MAX_STATES + 1), "has 1000001 states, but at most", ValueError),
        (
            lambda: Dataset.from_tokens(ROWS[:1]).split(0.5, 0),
            "tokens has 1 row, but a split needs at least 2",
            ValueError,
        ),
        (lambda: Dataset.from_tokens(ROWS).split(0, 0), "held_out must lie between 0 and 1, but it is 0", ValueError),
        (lambda: Dataset.from_tokens(ROWS).split(1.0, 0), "held_out must lie between 0 and 1, but it is 1", ValueError),
        (lambda: Dataset.from_tokens(ROWS).split(float("nan"), 0), "held_out must be finite", ValueError),
        (lambda: Dataset.from_tokens(ROWS).split("half", 0), "held_out must be a number", TypeError),
        (lambda: Dataset.from_tokens(ROWS).split(0.5, 0.5), "seed must be a whole number", TypeError),
    ],
)
def test_bad_tokens_are_answered_by_one_sentence(without_annotation_checks, make, match, error):
    with pytest.raises(error, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_fingerprint_is_that_of_tokens_and_meaning_whatever_the_name():
    data = Dataset.from_tokens(ROWS)
    assert data.fingerprint() == Dataset.from_tokens(torch.tensor(ROWS.tolist()), name="other").fingerprint()
    assert (
        data.fingerprint()
        == Dataset(data.tokens[:].T.contiguous().T, Integers(3, offset=0), name="other").fingerprint()
    )
    changed = data.tokens[:].clone()
    changed[1, 1] = 1
    others = [
        Dataset(changed, data.codec),
        Dataset(data.tokens[:].flip(0), data.codec),
        Dataset(data.tokens[:2], data.codec),
        Dataset(data.tokens[:].reshape(1, 9), data.codec),
        Dataset(data.tokens[:], Integers(4)),
        Dataset(data.tokens[:], Integers(3, offset=1)),
        Dataset(data.tokens[:], Characters("abc", padded=False)),
        Dataset(data.tokens[:], Characters("abd", padded=False)),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 1 + len(others)


@given(num=st.integers(2, 200), share=st.floats(0, 1, exclude_min=True, exclude_max=True), seed=st.integers(0, 2**32))
def test_a_split_is_disjoint_complete_and_never_empty(num, share, seed):
    data = Dataset.from_tokens(np.arange(num)[:, None])
    kept, apart = data.split(share, seed)
    assert sorted([*kept.tokens[:][:, 0].tolist(), *apart.tokens[:][:, 0].tolist()]) == list(range(num))
    assert len(apart) == min(max(round(share * num), 1), num - 1)
    assert (kept.codec, apart.codec, kept.name) == (data.codec, data.codec, data.name)
    again = data.split(share, seed)
    assert torch.equal(again[0].tokens[:], kept.tokens[:])
    assert torch.equal(again[1].tokens[:], apart.tokens[:])


def test_another_seed_holds_out_other_rows():
    data = Dataset.from_tokens(np.arange(100)[:, None])
    assert not torch.equal(data.split(0.5, 0)[1].tokens[:], data.split(0.5, 1)[1].tokens[:])


def test_every_row_is_held_out_equally_often():
    data = Dataset.from_tokens(np.arange(10)[:, None])
    num = 1_000
    held = torch.cat([data.split(0.2, seed)[1].tokens[:][:, 0] for seed in range(num)]).bincount(minlength=10)
    # A row is held out with probability 0.2: five standard errors of a binomial count.
    assert (held - 0.2 * num).abs().max() <= 5 * (num * 0.2 * 0.8) ** 0.5
