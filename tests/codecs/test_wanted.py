"""Conditions on the columns of a table: tests of their values, and given fields."""

from datetime import date, timedelta

import numpy as np
import pytest
import torch

import sddm
from enumerated import p_value
from sddm import Diffusion
from sddm.codecs import BLANK, Columns
from sddm.marginals import Oracle
from sddm.processes import Absorbing
from sddm.schedules import SqrtCosine

ROWS = 1_200
RANDOM = np.random.default_rng(1)
AGE = RANDOM.integers(0, 100, ROWS)
INCOME = [
    round(age * 100 + noise, 2) if noise > -40 else None
    for age, noise in zip(AGE, RANDOM.normal(0, 30, ROWS), strict=True)
]
SEX = [str(letter) for letter in RANDOM.choice(["F", "M", "?"], ROWS)]
DAY = [date(2000, 1, 1) + timedelta(days=int(age)) for age in AGE]
ENCODED = Columns.of(["age", "income", "sex", "day", "source"], [AGE, INCOME, SEX, DAY, ["web"] * ROWS])
CODEC = ENCODED.codec
TOKENS = torch.from_numpy(ENCODED.tokens.astype(np.int64))
ANY = {name: d for d, name in enumerate(CODEC.names)}


def shares(*tests):
    """The weights of a column's tokens that tests leave, and the smallest and largest number of each token's bin."""
    (weights,) = CODEC.where(*tests).ranges.values()
    return weights


def written(*tests, name="age", num=400):
    """Values that are written for tokens that tests allow."""
    wanted, d = CODEC.where(*tests), ANY[name]
    allowed = torch.arange(CODEC.sizes[d]) if d not in wanted.ranges else wanted.ranges[d].nonzero()[:, 0]
    tokens = TOKENS[torch.arange(num) % ROWS].clone()
    tokens[:, d] = allowed[torch.arange(num) % len(allowed)] if wanted.rows[0, d] == BLANK else wanted.rows[0, d]
    return wanted.codec.table(tokens)[name]


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("age>=40", lambda age: age >= 40),
        ("age > 40", lambda age: age > 40),
        ("age<40.5", lambda age: age <= 40),
        (" age <= 40 ", lambda age: age <= 40),
        ("age!=0", lambda age: age != 0),
        ("age in 3|50|99", lambda age: age in (3, 50, 99)),
    ],
)
def test_what_is_written_passes_the_test_and_nothing_that_passes_is_excluded(test, holds):
    values = written(test, num=6_000)
    assert all(map(holds, values))
    assert set(values) == {age for age in range(min(AGE), max(AGE) + 1) if holds(age)}


def test_a_bin_that_a_bound_cuts_counts_by_its_share():
    number = CODEC.fields[0]
    place = next(
        place for place, (low, high) in enumerate(zip(number.lows, number.highs, strict=True)) if high - low >= 2
    )
    low, high = number.lows[place], number.highs[place]
    weights = shares(f"age>={low + 1}")
    assert weights[place] == pytest.approx((high - low) / (high - low + 1))
    assert weights[:place].sum() == 0
    assert (weights[place + 1 :] == 1).all()


def test_several_tests_hold_at_once():
    assert set(written("age>=40", "age<43", "age!=41", num=600)) == {40, 42}
    assert set(written("day>=2000-02-01", "day<2000-02-03", name="day")) == {date(2000, 2, 1), date(2000, 2, 2)}
    assert CODEC.where("sex!=F", "sex in F|M").rows[0].tolist() == [
        BLANK,
        BLANK,
        CODEC.fields[2].values.index("M"),
        BLANK,
    ]


def test_a_missing_value_passes_no_test_but_that_it_is_missing():
    income = CODEC.fields[1]
    assert income.missing == ""
    for test in ("income>0", "income!=5", "income not missing"):
        assert shares(test)[0] == 0
    assert CODEC.where("income missing").rows[0, 1] == 0
    assert written("income missing", name="income", num=5) == [None] * 5


def test_a_test_that_leaves_one_token_gives_it():
    wanted = CODEC.where("sex=F", "age=40")
    assert not wanted.ranges
    assert (wanted.rows[0] != BLANK).tolist() == [True, False, True, False]


def test_a_number_is_written_as_it_was_given():
    assert written("age=40", num=3) == [40] * 3
    texts = CODEC.where("income=1234.5").codec.decode(TOKENS.index_fill(1, torch.tensor([1]), 9)[:2])
    assert [row[1] for row in texts] == ["1234.5"] * 2


def test_given_rows_are_written_as_they_were_given_and_the_rest_is_drawn():
    given = CODEC.given(["income", "sex"], [[50, None, 2.25], [None, "M", "F"]], "age>=90")
    assert (given.rows != BLANK).tolist() == [
        [False, True, False, False],
        [False, False, True, False],
        [False, True, True, False],
    ]
    assert len(given.condition.values) == 3
    table = given.codec.table(
        torch.where(given.rows == BLANK, CODEC.fields[0].size - 1, given.rows) % torch.tensor(CODEC.sizes)
    )
    assert (table["income"][0], table["income"][2]) == (50, 2.25)
    assert table["source"] == ["web"] * 3
    with pytest.raises(ValueError, match="3 rows were given, but there are 2 samples"):
        given.codec.table(TOKENS[:2])


def test_a_condition_file_may_be_csv_parquet_or_tokens(tmp_path):
    given = CODEC.given(["age", "sex"], [[30, None], ["F", None]])
    (tmp_path / "c.csv").write_text("sex,age,source\nF,30,web\n,?,web\n")
    np.save(tmp_path / "c.npy", given.rows.numpy())
    small = Columns.of(["sex", "age"], [["F", "M", ""], [30, None, 7]], {"sex": "category"})
    small.codec.write(torch.from_numpy(small.tokens[:2].astype(np.int64)), tmp_path / "c.parquet")
    assert torch.equal(CODEC.where(condition=tmp_path / "c.csv").rows, given.rows)
    assert torch.equal(CODEC.where(condition=tmp_path / "c.npy").rows, given.rows)
    assert CODEC.where(condition=tmp_path / "c.parquet").rows[0, 2] == given.rows[0, 2]
    assert torch.equal(CODEC.read_condition(tmp_path / "c.csv", 4), given.rows)


def test_samples_of_the_exact_model_that_pass_tests_are_distributed_as_the_rows_that_do():
    """The oracle of a small table, whose numbers are drawn evenly inside their bins: by chi-square, over the values."""
    codec = Columns(["n", "c"], [sddm.codecs.Number([0, 10, 20], [9, 19, 29]), ["x", "y"]])
    joint = torch.tensor([[0.3, 0.05], [0.1, 0.2], [0.05, 0.3]], dtype=torch.float64)
    model = Diffusion(Absorbing(3, SqrtCosine()).leaving(0.02), Oracle.from_joint(joint), codec)
    wanted = codec.where("n>=7", "n<23")
    tokens = model.sample(8_000, steps=50, condition=wanted.condition, seed=0, progress=False)
    table = wanted.codec.table(tokens)
    kept = joint[torch.arange(7, 23) // 10] / 10
    counts = torch.zeros(16, 2)
    for number, letter in zip(table["n"], table["c"], strict=True):
        counts[number - 7, "xy".index(letter)] += 1
    assert p_value(counts.flatten(), (kept / kept.sum()).flatten()) > 1e-4


BAD = [
    (
        "weight>3",
        r"where: 'weight>3' is no test of a column\. Write a column, of 'age', 'income', 'sex', 'day', and what",
    ),
    ("age", "is no test of a column"),
    ("age~3", "is no test of a column"),
    ("", "where: '' is no test of a column"),
    ("agemissing", "is no test of a column"),
    ("age>", "where: 'age>' cannot be tested, as column 'age' holds numbers, but '' is none"),
    ("age>old", "holds numbers, but 'old' is none"),
    ("age>1,000", "holds numbers, but '1,000' is none"),
    ("age=nan", "holds numbers, but 'nan' is none"),
    ("age in 3|old", "holds numbers, but 'old' is none"),
    ("age>100", r"no value of column 'age' satisfies 'age>100'\. It holds 0 to 99"),
    ("age missing", "where: column 'age' is never missing"),
    ("sex=X", "as column 'sex' has no value 'X'. Its values are"),
    ("sex<F", "as column 'sex' holds categories, which have no order. Use =, != or in"),
    ("source=web", "column 'source' has the same value in every row. Leave it out"),
    ("day>=2000", "holds dates of the form %Y-%m-%d, but '2000' is none"),
    ("day>2000-13-01", "but '2000-13-01' is none"),
    ("day>2099-01-01", "no value of column 'day' satisfies"),
]


@pytest.mark.parametrize(("test", "match"), BAD)
def test_a_test_that_means_nothing_is_answered_by_one_sentence(test, match):
    with pytest.raises(ValueError, match=match) as caught:
        CODEC.where(test)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tests", "match"),
    [
        (["age>50", "age<40"], "no value of column 'age' satisfies 'age>50' and 'age<40'"),
        (["age=50", "age=51"], "satisfies 'age=50' and 'age=51'"),
        (["age=50", "age<50"], "satisfies 'age=50' and 'age<50'"),
        (["sex=F", "sex=M"], "satisfies 'sex=F' and 'sex=M'"),
        (["sex=F", "sex missing"], "satisfies 'sex=F' and 'sex missing'"),
        (["income>0", "income missing"], "satisfies 'income>0' and 'income missing'"),
    ],
)
def test_tests_that_contradict_each_other_are_refused(tests, match):
    with pytest.raises(ValueError, match=match):
        CODEC.where(*tests)


@pytest.mark.parametrize(
    ("columns", "tests", "match"),
    [
        (
            {"age": [30, 50]},
            ["age>=40"],
            "row 1 of the condition gives column 'age' a value that does not satisfy 'age>=40'",
        ),
        ({"sex": [None, "M"]}, ["sex=F"], "row 2 of the condition gives column 'sex' a value"),
        ({"income": [7.5]}, ["income=7"], "row 1 of the condition gives column 'income'"),
        ({"income": ["NA"]}, ["income>7"], "row 1 of the condition gives column 'income'"),
        ({"town": ["Bern"]}, [], "has a column 'town', which the data do not have"),
        ({"age": [None, "old"]}, [], "Column 'age' holds numbers, but 'old' is none"),
        ({"age": ["NA"]}, [], "Column 'age' has no missing values, but 'NA' stands for one"),
        ({"age": [[1]]}, [], "Column 'age' holds"),
        ({"age": [1], "sex": ["F", "M"]}, [], "columns must hold a sequence of values for each of the 2 names"),
        ({}, [], "names has no columns"),
    ],
)
def test_given_fields_that_mean_nothing_are_answered_by_one_sentence(columns, tests, match):
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        CODEC.given(list(columns), list(columns.values()), *tests)
    assert "\n" not in str(caught.value)


def test_a_given_number_beyond_the_data_belongs_to_the_outermost_bin():
    assert CODEC.where("age=130").rows[0, 0] == CODEC.sizes[0] - 1
    assert written("age=130", num=2) == [130] * 2
