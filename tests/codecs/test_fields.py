"""Columns of tables: what they are found to be, their bins, and what is drawn inside these."""

import json
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from sddm.codecs import CODECS, PARTS, Columns, Date, Number, saved_names
from sddm.codecs.kinds import FEW_ROWS, MOST_BINS, ROWS_A_BIN, bins
from sddm.commands.runs import reading
from sddm.config import build, describe
from sddm.data import Dataset, load

RANDOM = np.random.default_rng(0)
ROWS = 600
WHOLE = RANDOM.integers(0, 10_000, ROWS)
PRICES = np.round(RANDOM.lognormal(3, 1, ROWS), 2)
DAYS = [date(2000, 1, 1) + timedelta(days=int(day)) for day in RANDOM.integers(0, 5_000, ROWS)]
LETTERS = [str(letter) for letter in RANDOM.choice(list("abc"), ROWS)]


def found(values, kind=None, name="x"):
    return Columns.of(
        [name, "other"], [values, (["a", "b"] * len(values))[: len(values)]], {name: kind} if kind else None
    )


def field(values, kind=None):
    return found(values, kind).codec.fields[0]


def told(values, kind=None, name="x"):
    return found(values, kind, name).report.splitlines()[0]


def rows_of(encoded):
    return torch.from_numpy(encoded.tokens.astype(np.int64))


# ---- kinds


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (LETTERS, "x: category, 3 values: 'a', 'b', 'c'."),
        ([*LETTERS, *[""] * 7], "x: category, 3 values: 'a', 'b', 'c'; 7 missing."),
        ([*LETTERS, *["?"] * 7], "x: category, 3 values: 'a', 'b', 'c'; 7 missing."),
        ([*LETTERS, "", "NA"], "x: category, 4 values: 'NA', 'a', 'b', 'c'; 1 missing."),
        (["yes", "NA"] * 50, "x: category, 2 values: 'NA', 'yes'."),
        (
            [*map(str, WHOLE), "NaN", "null", "?", "n/a"],
            f"x: whole number, {min(WHOLE)} to {max(WHOLE)}, 30 bins (values are drawn inside a bin); 4 missing.",
        ),
        (
            [*PRICES, None, float("nan")],
            f"x: number, {min(PRICES)} to {max(PRICES)}, 30 bins (values are drawn inside a bin); 2 missing.",
        ),
        ([0, 1, 2] * 50, "x: whole number, 0 to 2, 3 bins (a bin for each value)."),
        ([0.5, 1.0] * 50, "x: number, 0.5 to 1.0, 2 bins (a bin for each value)."),
        ([True, False] * 50, "x: category, 2 values: 'false', 'true'."),
        (["01", "02", "10"] * 50, "x: category, 3 values: '01', '02', '10'."),
        (DAYS, f"x: date, read as %Y-%m-%d, {min(DAYS)} to {max(DAYS)}, 30 bins"),
        (
            [f"{day:%d.%m.%Y}" for day in DAYS],
            f"x: date, read as %d.%m.%Y, {min(DAYS):%d.%m.%Y} to {max(DAYS):%d.%m.%Y}, 30 bins",
        ),
        ([f"{day:%m/%d/%Y}" for day in DAYS], "x: date, read as %m/%d/%Y"),
        ([f"{day:%d/%m/%Y %H:%M}" for day in DAYS], "x: date, read as %d/%m/%Y %H:%M"),
        ([f"{day:%Y-%m-%d}T12:30:05Z" for day in DAYS], "x: date, read as %Y-%m-%dT%H:%M:%SZ"),
        ([f"{day:%Y-%m-%d} 12:30:05+02:00" for day in DAYS], "x: date, read as %Y-%m-%d %H:%M:%S%z"),
        ([f"name {row}" for row in range(99)], "x: identifier, 99 different values in 99 rows; left out."),
        ([7 * row for row in range(99)], "x: whole number, 0 to 686, 4 bins"),
        (list(range(1000, 1099)), "x: identifier, 99 different values in 99 rows; left out."),
        ([f"name {row}" for row in range(FEW_ROWS - 1)], "x: category, 19 values"),
        (["web"] * 9, "x: constant, 'web'; not learnt, written back."),
        ([None] * 9, "x: all missing; not learnt, left empty."),
        ([5, None] * 9, "x: whole number, 5 to 5, 1 bin (a bin for each value); 9 missing."),
    ],
)
def test_a_column_is_found_to_be_what_its_values_say(values, said):
    assert told(values).startswith(said)


def test_whole_numbers_that_differ_are_identifiers_if_their_name_says_so():
    values = [7 * row for row in range(99)]
    for name in ("id", "ID", "user_id", "userId", "index"):
        assert "identifier" in told(values, name=name)
    for name in ("paid", "humid", "x"):
        assert "identifier" not in told(values, name=name)


def test_the_user_says_what_a_column_is():
    assert "category, 3 values" in told([0, 1, 2] * 50, "category")
    assert "whole number" in told(list(range(99)), "number")
    assert told(LETTERS, "drop") == "x: left out, as kinds says."
    assert "read as %d/%m/%Y" in told(["01/02/2003", "04/05/2006"] * 9, "date:%d/%m/%Y")
    assert "category, 2 values: '?', 'a'; 9 missing" in told(["?", "a", ""] * 9, "category")


@pytest.mark.parametrize("kinds", ["n=category,id=drop", '{"n": "category", "id": "drop"}', "kinds.json"])
def test_kinds_are_given_as_text_as_json_and_as_a_file(kinds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kinds.json").write_text('{"n": "category", "id": "drop"}')
    (tmp_path / "a.csv").write_text("id,n\n" + "".join(f"{row},{row % 3}\n" for row in range(30)))
    data = load("a.csv", kinds=kinds)
    assert describe(data.codec, saved_names()) == {"type": "columns", "names": ["n"], "values": [["0", "1", "2"]]}
    assert data.report == "id: left out, as kinds says.\nn: category, 3 values: '0', '1', '2'."


def test_a_run_of_a_version_that_knew_categories_alone_reads_its_table_so(tmp_path):
    (tmp_path / "a.csv").write_text("n,gap\n10,x\n9,\n-1.5,y\n")
    older = reading({"data": str(tmp_path / "a.csv"), "reading": {"window": None}})
    assert load(tmp_path / "a.csv", **older.given).codec == Columns(["n", "gap"], [["-1.5", "9", "10"], ["", "x", "y"]])
    assert reading({"data": "a.csv", "reading": {"kinds": None}}).given == {}
    assert reading({"data": "a.txt", "reading": {}}).given == {}


# ---- bins


def test_bins_have_equal_weights_and_at_least_about_twenty_rows():
    lows, highs = bins(*np.unique(WHOLE, return_counts=True))
    assert len(lows) == ROWS // ROWS_A_BIN
    counts = [int(((low <= WHOLE) & (high >= WHOLE)).sum()) for low, high in zip(lows, highs, strict=True)]
    assert sum(counts) == ROWS
    assert min(counts) >= ROWS_A_BIN - 2  # a number that occurs twice or thrice may fall on either side
    assert len(bins(np.arange(10**5), np.ones(10**5, dtype=np.int64))[0]) == MOST_BINS


def test_a_heavy_number_has_a_bin_of_its_own():
    values = np.r_[np.zeros(300, dtype=np.int64), WHOLE]
    lows, highs = bins(*np.unique(values, return_counts=True))
    assert (lows[0], highs[0]) == (0, 0)
    assert lows[1] > 0


@given(st.lists(st.integers(-50, 10**6), min_size=2, max_size=300).filter(lambda values: len(set(values)) > 1))
def test_bins_hold_every_number_once_and_there_are_two_at_least(values):
    steps, counts = np.unique(values, return_counts=True)
    lows, highs = bins(steps, counts)
    assert len(lows) >= 2
    inside = (np.array(lows)[:, None] <= steps) & (steps <= np.array(highs)[:, None])
    assert (inside.sum(0) == 1).all()
    assert inside.any(1).all()


# ---- draws


def test_numbers_are_drawn_evenly_over_their_bin_and_never_outside():
    codec = Columns(["x"], [Number([0, 100, 5_000], [0, 4_999, 9_999], decimals=1, places=0)])
    drawn = np.array(codec.table(torch.ones(4_000, 1, dtype=torch.int64))["x"])
    assert drawn.min() >= 10
    assert drawn.max() <= 499.9
    assert kstest(drawn, "uniform", args=(10, 490)).pvalue > 1e-4
    assert set(codec.table(torch.zeros(20, 1, dtype=torch.int64))["x"]) == {0.0}


def test_whole_numbers_stay_whole_and_decimals_keep_their_number():
    encoded = Columns.of(["n", "price"], [WHOLE, [f"{price:.2f}" for price in PRICES]])
    table = encoded.codec.table(rows_of(encoded))
    assert all(type(number) is int for number in table["n"])
    texts = encoded.codec.decode(rows_of(encoded))
    assert all(len(text.partition(".")[2]) == 2 for _, text in texts)
    assert len(set(table["price"]) - set(PRICES.tolist())) > ROWS / 2  # they are not copies of the data


def test_the_same_samples_give_the_same_numbers_whatever_follows_them():
    encoded = Columns.of(["n", "price"], [WHOLE, PRICES])
    tokens = rows_of(encoded)
    once = encoded.codec.decode(tokens)
    assert once == encoded.codec.decode(tokens)
    assert once[:50] == encoded.codec.decode(tokens[:50])
    assert encoded.codec.decode(tokens[1:2]) != once[1:2]  # another row of a file


NUMBERS = st.one_of(
    st.lists(st.integers(-(10**17), 10**17), min_size=2),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2),
    st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2),
    st.lists(st.datetimes(datetime(1000, 1, 1)), min_size=2),
    st.lists(st.dates(date(1000, 1, 1)), min_size=2),
    st.lists(st.datetimes(datetime(1900, 1, 1), timezones=st.just(timezone(timedelta(hours=2)))), min_size=2),
)


@given(NUMBERS.filter(lambda values: len(set(values)) > 1), st.booleans())
def test_any_drawn_value_is_a_value_of_its_bin(values, gap):
    encoded = Columns.of(
        ["x", "y"], [[*values, None] if gap else values, (["a", "b"] * len(values))[: len(values) + gap]]
    )
    codec = build(json.loads(json.dumps(describe(encoded.codec, saved_names()))), {**CODECS, **PARTS})
    assert codec == encoded.codec
    tokens = rows_of(encoded)
    assert torch.equal(codec.encode(codec.decode(tokens)), tokens)
    columns = codec.table(tokens)
    assert torch.equal(codec.encode(list(zip(*(columns[name] for name in codec.names), strict=True))), tokens)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_of_all_kinds_keeps_its_columns_and_their_types(ending, tmp_path):
    columns = {
        "id": list(range(ROWS)),
        "n": WHOLE.tolist(),
        "price": [*PRICES.tolist()[:-1], None],
        "day": DAYS,
        "time": [datetime(2020, 1, 1) + timedelta(minutes=int(number)) for number in WHOLE],
        "source": ["web"] * ROWS,
        "truth": [letter == "a" for letter in LETTERS],
        "letter": LETTERS,
        "nothing": [None] * ROWS,
    }
    encoded = Columns.of(list(columns), list(columns.values()))
    tokens = rows_of(encoded)
    encoded.codec.write(tokens, tmp_path / f"a{ending}")
    again = load(tmp_path / f"a{ending}", like=encoded.codec)
    assert torch.equal(again.tokens[:], tokens)
    table = encoded.codec.table(tokens)
    assert list(table) == [name for name in columns if name != "id"]
    for name, values in table.items():
        assert {type(value) for value in values} == {type(value) for value in columns[name]}, name
    if ending == ".parquet":
        import pyarrow.parquet

        types = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(tmp_path / "a.parquet")}
        assert types == {
            "n": "int64",
            "price": "double",
            "day": "date32[day]",
            "time": "timestamp[us]",
            "source": "string",
            "truth": "bool",
            "letter": "string",
            "nothing": "string",
        }


def test_texts_of_a_typed_source_stay_texts():
    encoded = Columns.of(["n"], [[str(number) for number in WHOLE]])
    assert isinstance(encoded.codec.fields[0], Number)
    assert all(isinstance(text, str) for text in encoded.codec.table(rows_of(encoded))["n"])


def test_numbers_beyond_the_data_belong_to_the_outermost_bins():
    number = field(WHOLE)
    assert number.tokens(["-5", "99999", "1e300"]).tolist() == [0, number.size - 1, number.size - 1]
    assert isinstance(field(DAYS), Date)


def test_another_table_is_read_by_the_columns_that_are_known(tmp_path):
    codec = Columns.of(["n", "letter", "id"], [WHOLE, LETTERS, range(ROWS)]).codec
    (tmp_path / "a.csv").write_text("letter,more,n\nb,1,20000\na,2,0\n")
    data = load(tmp_path / "a.csv", like=codec)
    assert data.tokens[:].tolist() == [[codec.sizes[0] - 1, 1], [0, 0]]
    assert Dataset(data.tokens, codec).codec == data.codec
