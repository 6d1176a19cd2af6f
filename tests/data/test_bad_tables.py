"""Bad tables, each answered by one sentence; and odd ones, which are read."""

import io
import re
from datetime import datetime, timezone

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from sddm.codecs import Columns
from sddm.data import load


def lines(*rows, num=1):
    return "".join(f"{row}\n" for row in [rows[0], *rows[1:] * num])


def many(values, name="a"):
    """A column of these values beside another one."""
    return f"{name},other\n" + "".join(f"{value},{'xyz'[row % 3]}\n" for row, value in enumerate(values))


DATES = [f"20{year:02d}-0{month}-11" for year in range(30) for month in range(1, 9)]
CSV = [
    ("no lines", "\n\n\n", None, "holds empty lines only. Give a header and rows"),
    ("no rows", "a,b\n", None, "has a header but no rows. Give at least one row"),
    ("no rows but empty ones", "a,b\n\n\n", None, "has a header but no rows"),
    ("an empty name", "a,,c\n1,2,3\n", None, "has no name for column 2. Give every column a name"),
    ("a name of spaces", "a,  \n1,2\n", None, "has no name for column 2"),
    ("all names empty", ",,\n1,2,3\n", None, "has no name for column 1"),
    ("a name twice", "a,b,a\n1,2,3\n", None, "has the name 'a' twice. Names must differ; is the header missing"),
    ("no header", "1,1\n2,3\n", None, "has the name '1' twice"),
    ("semicolons", "a;b\n1;2\n", None, "is one column, 'a;b', which looks like several. Separate them by commas"),
    ("tabulators", "a\tb\n1\t2\n", None, "which looks like several"),
    ("a short line", "a,b\n1,2\n3\n", None, "Line 3 of .* has 1 field, but the header has 2. Correct the line"),
    ("a long line", "a,b\n1,2\n3,4,5\n", None, "Line 3 of .* has 3 fields, but the header has 2"),
    ("a short line far below", lines("a,b", "1,2", num=3_000) + "3\n", None, "Line 3002 of .* has 1 field"),
    ("an open quote", 'a,b\n1,"2\n', None, "is not valid csv near line 2: .* Check the quotes"),
    ("a quote in a field", 'a,b\n1,"2"3\n', None, "is not valid csv near line 2"),
    ("a NUL byte", "a,b\n1,2\n3,\0\n", None, "Line 3 of .* holds a NUL byte, which is no text. Save it again"),
    ("latin1", b"a,b\n1,caf\xe9\n", None, "is not UTF-8: the byte at offset 9 cannot be decoded"),
    ("one row", "a,b\n1,2\n", None, "Nothing is left to learn in .* a: constant, '1'; not learnt, written back"),
    ("one value everywhere", lines("a,b", "1,x", num=9), None, "Nothing is left to learn in"),
    ("all missing", lines("a,b", "NA,", num=9), None, "a: all missing; not learnt, left empty. b: all missing"),
    (
        "identifiers only",
        many(range(30)).replace(",x", ",").replace(",y", ",").replace(",z", ","),
        None,
        "a: identifier",
    ),
    ("nothing kept", lines("a,b", "1,x", "2,y"), "a=drop,b=drop", "a: left out, as kinds says"),
    (
        "numbers and a word",
        many([*range(70), "old"]),
        None,
        "Column 'a' has 70 different numbers, but also 'old'. Correct",
    ),
    ("infinite", many([*range(70), "inf"]), None, "Column 'a' has 70 different numbers, but also 'inf'"),
    (
        "beyond all numbers",
        many([*range(70), "1e999"]),
        "a=number",
        "Column 'a' is said to be a number, but '1e999' is",
    ),
    ("thousands", many([*range(70), '"1,000"']), None, "Column 'a' has 70 different numbers, but also '1,000'"),
    ("underscores", many([*range(70), "1_0"]), None, "but also '1_0'"),
    ("units", many([*range(70), "5 kg"]), None, "but also '5 kg'"),
    (
        "a date of no month",
        many([*DATES, "2020-13-01"]),
        None,
        "Column 'a' has 240 different dates, but also '2020-13-01'",
    ),
    ("a date too late", many([*DATES, "99999-01-01"]), None, "different dates, but also '99999-01-01'"),
    ("a date too early", many([*DATES, "0020-01-01"]), None, "different dates, but also '0020-01-01'"),
    ("dates and numbers", many([*DATES, "5"]), None, "different dates, but also '5'"),
    (
        "too many categories",
        many(np.arange(20_002) // 2),
        "a=category",
        "Column 'a' has 10001 distinct values, more than 10000",
    ),
    (
        "a category of one value",
        lines("a,b", "1,x", "1,y"),
        "a=category",
        "Column 'a' has only one value, '1'.* Drop it",
    ),
    ("words as numbers", lines("a,b", "x,1", "y,2"), "a=number", "Column 'a' is said to be a number, but 'x' is none"),
    ("words as dates", lines("a,b", "x,1", "y,2"), "a=date", "Column 'a' is said to be a date, but 'x' is none"),
    (
        "dates of another form",
        many(DATES),
        "a=date:%d.%m.%Y",
        "is said to be a date:%d.%m.%Y, but '2000-01-11' is none",
    ),
    ("a form of no date", many(DATES), "a=date:%Q", "is said to be a date:%Q, but '2000-01-11' is none"),
    (
        "a form of nothing",
        many(DATES),
        "a=date:",
        "kinds says that 'a' is 'date:', but a column is one of category, number",
    ),
    ("a kind of nothing", many(DATES), "a=colour", "kinds says that 'a' is 'colour', but a column is one of"),
    (
        "kinds of no column",
        many(DATES),
        "b=number",
        "kinds names a column 'b', which the data do not have. They have 'a', 'o",
    ),
    ("kinds without a name", many(DATES), "=number", "kinds is '=number', but it must be such as age=number,id=drop"),
    ("kinds without a kind", many(DATES), "a", "kinds is 'a', but it must be such as"),
    ("kinds that are no JSON", many(DATES), '{"a": ', "kinds is not valid JSON"),
    ("kinds that are a list", many(DATES), "list.json", "'list.json' must be an object, such as"),
    ("kinds that are numbers", many(DATES), '{"a": 3}', "kinds says that 'a' is 3, but a column is one of"),
    (
        "kinds that are nowhere",
        many(DATES),
        "nowhere.json",
        "There is no file 'nowhere.json'. Name a file with the kinds",
    ),
]


@pytest.mark.parametrize(("content", "kinds", "match"), [row[1:] for row in CSV], ids=[row[0] for row in CSV])
def test_a_bad_table_is_answered_by_one_sentence(
    without_annotation_checks, content, kinds, match, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text('["a"]')
    (tmp_path / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((ValueError, FileNotFoundError), match=match) as caught:
        load("a.csv", **({} if kinds is None else {"kinds": kinds}))
    assert "\n" not in str(caught.value)


def test_a_table_of_a_million_columns_is_refused_before_its_rows_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(",".join(map(str, range(i, i + 10**6))) for i in range(2)))
    with pytest.raises(ValueError, match=r"has 1000000 columns, but at most 65536 are possible\. Drop some"):
        load(tmp_path / "a.csv")


PARQUET = [
    ("lists", pyarrow.array([[1], [2]]), "is of type list<.*>, which cannot be written as text. Drop it"),
    ("bytes", pyarrow.array([b"\xff", b"a"]), "is of type binary"),
    ("structures", pyarrow.array([{"b": 1}, {"b": 2}]), "is of type struct"),
    ("nothing but null", pyarrow.nulls(3), "a: all missing"),
    ("not a number everywhere", pyarrow.array([float("nan")] * 3), "a: all missing"),
    ("infinite numbers", pyarrow.array([*map(float, range(70)), float("inf")]), "70 different numbers, but also 'inf'"),
]


@pytest.mark.parametrize(("column", "match"), [row[1:] for row in PARQUET], ids=[row[0] for row in PARQUET])
def test_a_bad_column_of_parquet_is_answered_by_one_sentence(column, match, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"a": column}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=match) as caught:
        load(tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)


RAW = [
    ("no columns", [], [], "names has no columns"),
    ("a name twice", ["a", "a"], [[1], [2]], "names has the name 'a' twice"),
    ("an empty name", [" "], [[1]], "names has no name for column 1"),
    (
        "a name too many",
        ["a", "b"],
        [[1, 2]],
        "columns must hold a sequence of values for each of the 2 names, all of one",
    ),
    ("ragged", ["a", "b"], [[1, 2], [3]], "all of one length"),
    ("no rows", ["a"], [[]], "all of one length"),
    (
        "objects",
        ["a"],
        [[object(), object()]],
        "Column 'a' holds a value of type object, but a table has texts, numbers",
    ),
    ("lists", ["a"], [[[1], [2]]], r"Column 'a' holds \[1\], which is no value of a table"),
    ("complex numbers", ["a"], [np.array([1j, 2j])], "Column 'a' holds a value of type complex"),
    ("infinite", ["a"], [[*range(70), float("inf")]], "Column 'a' has 70 different numbers, but also 'inf'"),
]


@pytest.mark.parametrize(("names", "columns", "match"), [row[1:] for row in RAW], ids=[row[0] for row in RAW])
def test_raw_values_that_are_no_table_are_answered_by_one_sentence(without_annotation_checks, names, columns, match):
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        Columns.of(names, columns)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, "x", 2.5, None] * 9, "category, 3 values: '1', '2.5', 'x'; 9 missing"),
        ([1, True, False] * 9, "category, 3 values: '1', 'false', 'true'"),
        ([2**70, -(2**70)] * 9, "whole number|number, -1180591620717411"),
        (["  5", "7 "] * 9, "whole number, 5 to 7, 2 bins"),
        (["+1", "-1", "1e2", ".5"] * 9, "number, -1 to 100, 4 bins"),
        ([datetime(2000, 1, 1), datetime(2001, 1, 1, tzinfo=timezone.utc)] * 9, "category, 2 values"),
        ([np.datetime64("2000-01-01"), np.datetime64("NaT")] * 9, "date, .*; 9 missing"),
        ([0.1, 1e-300, 1e300] * 9, "number, "),
        (["inf", "5"] * 9, "category, 2 values: 'inf', '5'|category, 2 values: '5', 'inf'"),
        (["2020-02-30", "x"] * 9, "category, 2 values"),
    ],
)
def test_odd_columns_are_read(values, told):
    if isinstance(values[0], np.datetime64):
        values = np.array(values)
    report = Columns.of(["a", "b"], [values, ["x", "y"] * (len(values) // 2) + ["x"] * (len(values) % 2)]).report
    assert re.match(f"a: ({told})", report), report


def test_a_report_of_a_wide_table_has_an_end(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(",".join(f"{name}{i}" for i in range(500)) for name in "abc"))
    report = load(tmp_path / "a.csv").report.splitlines()
    assert len(report) == 201
    assert report[-1] == "And 300 columns more."


def test_a_file_in_memory_is_no_table(without_annotation_checks):
    with pytest.raises(TypeError, match="source must be a path or the name of a toy"):
        load(io.StringIO("a,b\n1,2\n"))
