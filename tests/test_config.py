import json
from collections import OrderedDict

import pytest
import torch

from sddm.config import Configurable, as_float64, build, describe
from sddm.diffusion import saved_types
from sddm.processes import PROCESSES, Absorbing, BirthDeath, CustomRate, DiscretizedGaussian, Uniform
from sddm.schedules import SCHEDULES, Constant, Exponential, LogSquare, SqrtCosine

CYCLE = [[-2.0, 2.0, 0.0], [0.25, -1.25, 1.0], [1.0, 0.1, -1.1]]
TYPES = {**SCHEDULES, **PROCESSES}
NAMES = {cls: name for name, cls in TYPES.items()}

EXAMPLES = [
    Constant(0.1),
    LogSquare(scale=2.0),
    SqrtCosine(1 / 3),
    Exponential(0.1, high=20.0),
    Uniform(5, Constant(1.0)),
    Uniform(129, LogSquare(1.0)).leaving(0.02),
    Absorbing(num_states=4, schedule=SqrtCosine(2.0)),
    BirthDeath(6, Exponential(0.3, 1.5)),
    DiscretizedGaussian(6, Constant(1.0)),
    DiscretizedGaussian(6, Constant(1.0), target_width=2.5),
    CustomRate(CYCLE, Constant(1.0)),
    CustomRate(torch.tensor(CYCLE, dtype=torch.float64), LogSquare(1.0), prior=torch.tensor([0.2, 0.3, 0.5])),
]


class Point(Configurable):
    def __init__(self, x, y=0, *, label=None):
        self.x, self.y, self.label = x, y, label


class Named(Point):
    def __init__(self, name):
        super().__init__(len(name), y=7)
        self._name = name

    def name(self):
        """A method that is called as the argument is."""
        return self._name


class Silent(Point):
    """Has no constructor of its own."""


class Empty(Configurable):
    """Has no arguments."""


POINTS = {Point: "point", Named: "named", Silent: "silent"}
POINT_TYPES = {name: cls for cls, name in POINTS.items()}


def through_json(value, names, types):
    return build(json.loads(json.dumps(describe(value, names))), types)


# ---- what is remembered ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "remembered"),
    [
        (lambda: Point(1), {"x": 1, "y": 0, "label": None}),
        (lambda: Point(y=2, x=1, label="a"), {"x": 1, "y": 2, "label": "a"}),
        (lambda: Named("abc"), {"name": "abc"}),
        (lambda: Silent(3), {"x": 3, "y": 0, "label": None}),
        (lambda: Empty(), {}),
    ],
)
def test_the_arguments_are_those_of_the_class_s_own_constructor_under_their_names(made, remembered):
    assert made().arguments == remembered


def test_an_object_that_does_not_keep_an_argument_says_which():
    class Forgetful(Configurable):
        def __init__(self, x):
            pass

    with pytest.raises(TypeError, match=r"^Forgetful does not keep its argument 'x'\. Set self\.x to it\.$"):
        describe(Forgetful(1), {Forgetful: "forgetful"})


def test_repr_shows_the_arguments_and_tensors_by_their_shape():
    assert repr(Point(1, label="a")) == "Point(x=1, y=0, label='a')"
    assert repr(Point(torch.zeros(2, 3))) == "Point(x=tensor(2, 3), y=0, label=None)"
    assert repr(Point(Named("ab"))) == "Point(x=Named(name='ab'), y=0, label=None)"


# ---- to JSON and back -----------------------------------------------------------------------------------------------


def test_every_schedule_and_process_is_among_the_examples():
    assert {type(example) for example in EXAMPLES} == set(TYPES.values())


@pytest.mark.parametrize("example", EXAMPLES, ids=repr)
def test_a_round_trip_through_json_gives_the_same_object(example):
    again = through_json(example, NAMES, TYPES)
    assert type(again) is type(example)
    assert describe(again, NAMES) == describe(example, NAMES)
    s, t = torch.zeros(3), torch.tensor([0.1, 0.5, 1.0])
    if isinstance(example, tuple(SCHEDULES.values())):
        assert torch.equal(again.integral(s, t), example.integral(s, t))
    else:
        assert torch.equal(again.transition(s, t), example.transition(s, t))
        assert torch.equal(again.prior_law(), example.prior_law())


def test_a_description_is_a_type_and_its_arguments():
    process = Uniform(5, schedule=Exponential(0.1, high=20.0))
    assert describe(process, NAMES) == {
        "type": "uniform",
        "num_states": 5,
        "schedule": {"type": "exponential", "low": 0.1, "high": 20.0},
    }


def test_float64_tensors_keep_every_bit():
    Q = torch.tensor(CYCLE, dtype=torch.float64) / 3
    Q -= torch.diag(Q.sum(1))
    again = through_json(CustomRate(Q, Constant(1.0)), NAMES, TYPES)
    assert torch.equal(again.rate_matrix, CustomRate(Q, Constant(1.0)).rate_matrix)


@pytest.mark.parametrize("value", [None, True, 3, 0.1, "text", [1, [2.5, None]], []])
def test_plain_values_stay_as_they_are(value):
    assert describe(value, {}) == value
    assert build(value, {}) == value


def test_objects_are_found_inside_lists():
    points = Point([Named("a"), Named("bc")], y=(1, 2))
    again = through_json(points, POINTS, POINT_TYPES)
    assert [type(p) for p in again.x] == [Named, Named]
    assert [p.name() for p in again.x] == ["a", "bc"]
    assert again.y == [1, 2]


def test_a_tensor_that_requires_a_gradient_is_written_as_numbers():
    assert describe(torch.ones(2, requires_grad=True), {}) == [1.0, 1.0]


def test_what_was_changed_later_is_what_is_saved():
    process = Uniform(5, Constant(1.0)).with_schedule(LogSquare(2.0))
    assert describe(process, NAMES)["schedule"] == {"type": "log-square", "scale": 2.0}


def test_names_of_all_families_are_distinct():
    """One table reads every config, so that no name may stand for two classes."""
    assert saved_types().items() >= TYPES.items()
    assert len(set(saved_types().values())) == len(saved_types())


# ---- what cannot be -------------------------------------------------------------------------------------------------


def test_a_class_without_a_name_cannot_be_saved():
    with pytest.raises(TypeError, match=r"Point cannot be saved: no table has a name for it\."):
        describe(Point(1), {})
    with pytest.raises(TypeError, match="Named cannot be saved"):  # the name of its parent is not enough
        describe(Named("a"), {Point: "point"})


@pytest.mark.parametrize("value", [object(), {1, 2}, OrderedDict(), 1j, lambda: 0], ids=lambda v: type(v).__name__)
def test_a_value_that_json_does_not_know_cannot_be_saved(value):
    with pytest.raises(TypeError, match=rf"type {type(value).__name__} cannot be written to a JSON config\.$"):
        describe(Point(value), POINTS)


@pytest.mark.parametrize(
    "description", [{"type": "warp"}, {"type": None}, {"type": 3}, {"type": ["point"]}, {}, {"x": 1}]
)
def test_an_unknown_type_is_named_together_with_the_known_ones(description):
    with pytest.raises(ValueError, match=r"unknown type .*\. Known are: named, point, silent\."):
        build(description, POINT_TYPES)


def test_an_unknown_type_deep_inside_is_found():
    with pytest.raises(ValueError, match="unknown type 'warp'"):
        build({"type": "point", "x": {"type": "warp"}}, POINT_TYPES)


@pytest.mark.parametrize("value", ["text", None, [[1.0], [1.0, 2.0]], object()])
def test_what_is_no_array_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"^weights must be a tensor, an array or nested lists of numbers\.$"):
        as_float64(value, "weights")


def test_as_float64_makes_a_copy_without_a_gradient():
    given = torch.ones(2, dtype=torch.float64, requires_grad=True)
    copy = as_float64(given, "given")
    assert not copy.requires_grad
    copy += 1
    assert given.tolist() == [1, 1]
    assert as_float64(torch.ones(1).numpy(), "given").dtype == torch.float64
