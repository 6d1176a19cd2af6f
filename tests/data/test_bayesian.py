"""Bayesian networks: files are read as they are meant, and the law is the product that one can write by hand."""

import random
from itertools import product

import pytest
import torch

from enumerated import UNLIKELY, all_states, p_value, seeded
from sddm.data.bayesian import BayesianNetwork
from sddm.formats.bif import Variable, read_bif

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
# A child before its parents, three states beside two, a zero, comments, properties and a name with signs.
GARDEN = """
network garden { property "made by hand"; }
// the grass is looked at first
variable wet { type discrete [ 2 ] { no, yes }; property place = (1, 2); }
variable sky { type discrete [ 3 ] { clear, <5mm, storm }; }
variable "sprinkler" { type discrete[2] {off, on}; }
/* a child of both,
   in an order of its own */
probability ( wet | sprinkler, sky ) {
  (off, clear) 1.0, 0.0;
  (on, clear) 0.25, 0.75;
  (off, <5mm) 0.5, 0.5; (on, <5mm) 0.1, 0.9;
  (off, storm) 0.05, 0.95;
  (on, storm) 1e-2, 0.99;
}
probability ( sky ) { property p; table 0.6, 0.3, 0.1; }
probability ( sprinkler | sky ) { (clear) 0.5, 0.5; (<5mm) 0.8, 0.2; (storm) 0.9, 0.1; }
"""
SKY = [0.6, 0.3, 0.1]
ON = [0.5, 0.2, 0.1]
WET = {(0, 0): 0.0, (1, 0): 0.75, (0, 1): 0.5, (1, 1): 0.9, (0, 2): 0.95, (1, 2): 0.99}


def garden():
    return BayesianNetwork(read_bif(GARDEN, "'garden.bif'"))


def by_hand():
    """The probability of every row (wet, sky, sprinkler), written out."""
    law = {}
    for wet, sky, on in product(range(2), range(3), range(2)):
        of_wet = WET[on, sky] if wet else 1 - WET[on, sky]
        law[wet, sky, on] = SKY[sky] * (ON[sky] if on else 1 - ON[sky]) * of_wet
    return law


def test_names_states_and_parents_are_those_of_the_file_in_its_order():
    network = garden()
    assert network.names == ["wet", "sky", "sprinkler"]
    assert network.states == [["no", "yes"], ["clear", "<5mm", "storm"], ["off", "on"]]
    assert network.sizes == [2, 3, 2]
    assert network.parents == [[2, 1], [], [1]]


def test_the_probability_of_every_row_is_the_product_and_all_sum_to_one():
    law = by_hand()
    rows = torch.tensor(list(law))
    found = garden().log_prob(rows)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.exp(), torch.tensor(list(law.values()), dtype=torch.float64), rtol=1e-13, atol=0)
    assert float(found.exp().sum()) == pytest.approx(1, abs=1e-14)
    assert found[rows.tolist().index([1, 0, 0])] == -torch.inf


def test_rows_are_drawn_as_often_as_they_are_probable():
    law = torch.tensor([by_hand().get(tuple(row), 0.0) for row in all_states(3, 3).tolist()], dtype=torch.float64)
    rows = garden().sample(20_000, seeded(0))
    counts = torch.bincount(rows @ torch.tensor([9, 3, 1]), minlength=27)
    assert int(counts[law == 0].sum()) == 0
    assert p_value(counts[law > 0], law[law > 0]) > UNLIKELY


def test_the_first_rows_are_the_same_whatever_their_number():
    assert torch.equal(garden().sample(7, seeded(3)), garden().sample(1_000, seeded(3))[:7])
    assert not torch.equal(garden().sample(50, seeded(3)), garden().sample(50, seeded(4)))


@pytest.mark.parametrize("kept", [[], [1], [0, 2], [2, 0], [2, 1, 0]])
@pytest.mark.parametrize("given", [{}, {1: 2}, {0: 1, 2: 0}])
def test_joint_laws_are_the_sums_over_all_rows(kept, given):
    kept = [d for d in kept if d not in given]
    expected = torch.zeros([garden().sizes[d] for d in kept], dtype=torch.float64)
    for row, chance in by_hand().items():
        if all(row[d] == token for d, token in given.items()):
            expected[tuple(row[d] for d in kept)] += chance
    torch.testing.assert_close(garden().joint(kept, given), expected, rtol=1e-13, atol=1e-15)


def test_joint_laws_of_a_larger_network_are_those_of_its_rows():
    """Ten variables with up to three parents, of which some are summed out and some do not matter."""
    choice, states = random.Random(0), ["x", "y", "z"]
    variables = []
    for d in range(10):
        parents = choice.sample(range(d), min(d, 3))
        cases = product(states, repeat=len(parents))
        generator = seeded(d)
        table = {case: torch.softmax(2 * torch.randn(3, generator=generator), 0).tolist() for case in cases}
        variables.append(Variable(str(d), states, [str(parent) for parent in parents], table))
    network = BayesianNetwork(variables)
    rows = network.sample(50_000, seeded(1))
    found = network.joint([7, 2], {4: 1})
    counts = torch.bincount(3 * rows[:, 7] + rows[:, 2], (rows[:, 4] == 1).double(), minlength=9)
    error = (found * (1 - found) / len(rows)).sqrt().flatten()
    assert bool(((counts / len(rows) - found.flatten()).abs() < 4.5 * error).all())


MALFORMED = [
    ("cut", GARDEN[:-8], r"'garden\.bif' ends where .* should stand\. Is the file whole\?"),
    ("no network", "// nothing\n", "'garden.bif' declares no variables"),
    ("another block", "graph g { }", "Line 1 of 'garden.bif' has 'graph' where 'network', 'variable' or 'probability'"),
    ("a word too many", GARDEN.replace("discrete[2]", "real[2]"), "Line 6 .* has 'real' where 'discrete' should stand"),
    ("a wrong count", GARDEN.replace("[ 3 ]", "[ 4 ]"), "Line 5 .* has 3 states of 'sky', but 4 are announced"),
    ("no type", GARDEN.replace("type discrete[2] {off, on};", ""), "Line 6 .* has no 'type' of 'sprinkler'"),
    ("no comma", GARDEN.replace("clear, <5mm", "clear <5mm"), "Line 5 .* has '<5mm' where ',' or '}' should stand"),
    ("no bar", GARDEN.replace("wet | sprinkler", "wet sprinkler"), r"Line 9 .* has 'sprinkler' where '\|' or '\)'"),
    ("no number", GARDEN.replace("1e-2", "rare"), "Line 14 .* has 'rare, 0.99' where numbers should stand"),
    ("a default", GARDEN.replace("(off, clear)", "default"), "Line 10 .* has 'default' in the law of 'wet', which is"),
    ("rows without parents", GARDEN.replace("table", "(x)"), "Line 16 .* 'sky', which is read from one row 'table"),
    ("a row twice", GARDEN.replace("(storm) 0.9", "(clear) 0.9"), r"Line 17 .* has \('clear',\) a second time"),
    ("a law twice", GARDEN + "probability ( sky ) { table 1, 0, 0; }", "Line 18 .* has 'sky' a second time"),
    ("a variable twice", GARDEN + "variable sky { type discrete [1] {a}; }", "Line 18 .* has 'sky' a second time"),
    ("no law", GARDEN + "variable c { type discrete [1] {a}; }", "has no block 'probability' for 'c'"),
    ("no variable", GARDEN + "probability ( c ) { table 1.0; }", "has no block 'variable' for 'c'"),
    (
        "an unknown parent",
        GARDEN.replace("sprinkler | sky", "sprinkler | sea"),
        "'sprinkler' has a parent 'sea', which",
    ),
    ("a missing row", GARDEN.replace("(storm) 0.9, 0.1;", ""), "law of 'sprinkler' has 2 rows, but .* 3 combinations"),
    ("an unknown state", GARDEN.replace("(storm) 0.9", "(hail) 0.9"), "law of 'sprinkler' given storm is missing"),
    ("no law at all", GARDEN.replace("0.6, 0.3", "0.6, 0.5"), "The law of 'sky' must be a probability law"),
    ("a number too few", GARDEN.replace("0.6, 0.3, 0.1", "0.9, 0.1"), r"The law of 'sky' must have shape \(3,\)"),
    ("a state twice", GARDEN.replace("{off, on}", "{on, on}"), "The states of 'sprinkler' must differ: 'on', 'on'"),
    (
        "a cycle",
        GARDEN.replace(
            "sky ) { property p; table 0.6, 0.3, 0.1; }",
            "sky | sky ) { (clear) 1, 0, 0; (<5mm) 1, 0, 0; (storm) 1, 0, 0; }",
        ),
        "depend on themselves: 'wet', 'sky', 'sprinkler'",
    ),
]


@pytest.mark.parametrize(("text", "match"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_a_malformed_file_is_answered_by_a_sentence(text, match):
    with pytest.raises(ValueError, match=match):
        BayesianNetwork(read_bif(text, "'garden.bif'"))


def test_bad_arguments_are_answered_by_sentences():
    with pytest.raises(ValueError, match="tokens holds 2 for 'wet', whose tokens are 0 to 1"):
        garden().log_prob(torch.tensor([[2, 2, 1]]))
    with pytest.raises(ValueError, match="kept and given must name variables once, but are"):
        garden().joint([1], {1: 0})
    with pytest.raises(ValueError, match="a variable must be at most 2, but it is 3"):
        garden().joint([3])
    with pytest.raises(ValueError, match="the token of 'wet' must be at most 1, but it is 2"):
        garden().joint([1], {0: 2})
    with pytest.raises(ValueError, match="tokens has 2 positions"):
        garden().log_prob(torch.tensor([[0, 0]]))
    with pytest.raises(ValueError, match="num must be at least 1"):
        garden().sample(0)
    with pytest.raises(ValueError, match="variables must hold at least one variable"):
        BayesianNetwork([])
    with pytest.raises(ValueError, match="Names of variables must differ: 'a', 'a'"):
        BayesianNetwork([Variable("a", ["x"], [], {(): [1.0]})] * 2)
