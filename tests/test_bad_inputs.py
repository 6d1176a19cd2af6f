"""Bad input, one by one: each is answered by a sentence of the library that names the argument, not by torch."""

import json
import math
import traceback
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

import sddm
from sddm import Condition, Diffusion, sample
from sddm.codecs import GrayCode
from sddm.data import Toy
from sddm.likelihood import bound
from sddm.losses import conditional_ratio_matching, ct_elbo, ratio_matching, x0_cross_entropy
from sddm.marginals import MarginalModel, Marginals, Oracle
from sddm.metrics import hamming_mmd
from sddm.processes import Absorbing, BirthDeath, CustomRate, DiscretizedGaussian, Uniform
from sddm.samplers import (
    Analytical,
    Corrector,
    Euler,
    Exact,
    Sweep,
    TauLeaping,
    uniform_in_log_share,
    uniform_in_share,
    uniform_in_time,
)
from sddm.schedules import Constant, Exponential, LogSquare, SqrtCosine

pytestmark = pytest.mark.usefixtures("without_annotation_checks")


class Explicit(MarginalModel):
    """The smallest model that predicts x_t directly: every state is equally likely. It takes any length."""

    def __init__(self):
        super().__init__()
        self.length, self.implicit = None, False

    def forward(self, process, query):
        return Marginals(torch.zeros(*query.here.shape, process.num_symbols).log_softmax(-1))


C, D, B = 3, 2, 2
CONSTANT = Constant(1.0)
UNIFORM = Uniform(C, CONSTANT)
ORACLE = Oracle([[0, 1], [1, 2], [2, 0]], [0.2, 0.3, 0.5])
DIFFUSION = Diffusion(UNIFORM, ORACLE)
X = torch.tensor([[0, 1], [2, 2]])
T = torch.tensor([0.2, 0.5])
S = torch.zeros(B)
LAW = torch.full((B, D, C), 1 / C)
MASK = torch.tensor([[True, False], [False, False]])
FLIP = [[-1.0, 1.0], [1.0, -1.0]]
TWO_CLASSES = [[-1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0], [0.0, 0.0, 1.0, -1.0]]
FIRST = Condition.from_blanks(torch.tensor([1, -1]))
NAN = math.nan


def bad(name, error, mentions, call):
    return pytest.param(call, error, mentions, id=name)


BAD_INPUTS = [
    # ---- schedules
    bad("constant rate zero", ValueError, "rate", lambda: Constant(0.0)),
    bad("constant rate a string", TypeError, "rate", lambda: Constant("fast")),
    bad("constant rate a bool", TypeError, "rate", lambda: Constant(True)),
    bad("log-square scale negative", ValueError, "scale", lambda: LogSquare(-1.0)),
    bad("log-square scale NaN", ValueError, "scale", lambda: LogSquare(NAN)),
    bad("sqrt-cosine scale infinite", ValueError, "scale", lambda: SqrtCosine(math.inf)),
    bad("sqrt-cosine scale None", TypeError, "scale", lambda: SqrtCosine(None)),
    bad("exponential low above high", ValueError, "low", lambda: Exponential(2.0, 1.0)),
    bad("exponential low zero", ValueError, "low", lambda: Exponential(0.0, 1.0)),
    bad("schedule rate at a string", TypeError, "t must", lambda: CONSTANT.rate("noon")),
    bad("schedule rate at NaN", ValueError, "t must", lambda: LogSquare(1.0).rate(NAN)),
    bad("schedule integral beyond the end", ValueError, "t must", lambda: SqrtCosine(1.0).integral(0.0, 1.5)),
    bad("schedule integral from before the start", ValueError, "s must", lambda: CONSTANT.integral(-0.5, 1.0)),
    bad("schedule scaled by zero", ValueError, "factor", lambda: LogSquare(1.0).scaled(0)),
    bad("schedule scaled by a negative", ValueError, "factor", lambda: Exponential(0.1, 1.0).scaled(-1.0)),
    bad("schedule inverse of a float", TypeError, "integral", lambda: CONSTANT.inverse(0.5)),
    # ---- building processes
    bad("uniform with one state", ValueError, "num_states", lambda: Uniform(1, CONSTANT)),
    bad("uniform states a float", TypeError, "num_states", lambda: Uniform(3.0, CONSTANT)),
    bad("uniform states a bool", TypeError, "num_states", lambda: Uniform(True, CONSTANT)),
    bad("uniform schedule a string", TypeError, "schedule", lambda: Uniform(3, "constant")),
    bad("absorbing with no state", ValueError, "num_states", lambda: Absorbing(0, CONSTANT)),
    bad("absorbing schedule a number", TypeError, "schedule", lambda: Absorbing(3, 1.0)),
    bad("birth-death with one state", ValueError, "num_states", lambda: BirthDeath(1, CONSTANT)),
    bad("birth-death schedule a class", TypeError, "schedule", lambda: BirthDeath(3, Constant)),
    bad("gaussian width zero", ValueError, "width", lambda: DiscretizedGaussian(4, CONSTANT, width=0)),
    bad("gaussian width too narrow", ValueError, "width", lambda: DiscretizedGaussian(4, CONSTANT, width=0.01)),
    bad("gaussian target NaN", ValueError, "target_width", lambda: DiscretizedGaussian(4, CONSTANT, target_width=NAN)),
    bad("rate matrix a string", TypeError, "rate_matrix", lambda: CustomRate("flip", CONSTANT)),
    bad("rate matrix ragged", TypeError, "rate_matrix", lambda: CustomRate([[0.0], [1.0, -1.0]], CONSTANT)),
    bad("rate matrix not square", ValueError, "rate_matrix", lambda: CustomRate(torch.zeros(2, 3), CONSTANT)),
    bad("rate matrix a vector", ValueError, "rate_matrix", lambda: CustomRate([1.0, -1.0], CONSTANT)),
    bad("rate matrix of one state", ValueError, "rate_matrix", lambda: CustomRate([[0.0]], CONSTANT)),
    bad("rate matrix NaN", ValueError, "rate_matrix", lambda: CustomRate([[NAN, 1.0], [1.0, -1.0]], CONSTANT)),
    bad("rate matrix zero", ValueError, "rate_matrix", lambda: CustomRate(torch.zeros(2, 2), CONSTANT)),
    bad(
        "rate matrix negative off the diagonal",
        ValueError,
        "rate from 1 to 0 is -1",
        lambda: CustomRate([[-1.0, 1.0], [-1.0, 1.0]], CONSTANT),
    ),
    bad(
        "rate matrix rows do not sum to zero",
        ValueError,
        "row 1 sums to 0.5",
        lambda: CustomRate([[-1.0, 1.0], [1.0, -0.5]], CONSTANT),
    ),
    bad("rate matrix with two stationary laws", ValueError, "prior", lambda: CustomRate(TWO_CLASSES, CONSTANT)),
    bad("prior of the wrong length", ValueError, "prior", lambda: CustomRate(FLIP, CONSTANT, prior=[1.0])),
    bad("prior that does not sum to one", ValueError, "prior", lambda: CustomRate(FLIP, CONSTANT, prior=[0.5, 0.6])),
    bad("prior NaN", ValueError, "prior", lambda: CustomRate(FLIP, CONSTANT, prior=[NAN, 1.0])),
    bad("with_schedule of a float", TypeError, "schedule", lambda: UNIFORM.with_schedule(2.0)),
    bad("leaving all of the data", ValueError, "share", lambda: UNIFORM.leaving(1.0)),
    bad("leaving none of the data", ValueError, "share", lambda: UNIFORM.leaving(0.0)),
    bad("leaving a string", TypeError, "share", lambda: UNIFORM.leaving("little")),
    # ---- methods of processes
    bad("noise of a list", TypeError, "x0", lambda: UNIFORM.noise([[0, 1]], T)),
    bad("noise of int32 tokens", TypeError, "x0", lambda: UNIFORM.noise(X.int(), T)),
    bad("noise of probabilities", TypeError, "class indices", lambda: UNIFORM.noise(LAW, T)),
    bad("noise of one row without its batch", ValueError, "x0", lambda: UNIFORM.noise(X[0], T)),
    bad("noise of an empty batch", ValueError, "x0", lambda: UNIFORM.noise(X[:0], T[:0])),
    bad("noise of tokens out of range", ValueError, "x0", lambda: UNIFORM.noise(X + C, T)),
    bad("noise of negative tokens", ValueError, "x0", lambda: UNIFORM.noise(X - 1, T)),
    bad("noise of MASK, which is no data", ValueError, "x0", lambda: Absorbing(2, CONSTANT).noise(X, T)),
    bad("noise at a float", TypeError, "t must", lambda: UNIFORM.noise(X, 0.5)),
    bad("noise at whole numbers", TypeError, "t must", lambda: UNIFORM.noise(X, torch.tensor([0, 1]))),
    bad("noise at too few times", ValueError, "t must", lambda: UNIFORM.noise(X, T[:1])),
    bad("noise at a column of times", ValueError, "t must", lambda: UNIFORM.noise(X, T[:, None])),
    bad("noise at NaN", ValueError, "t holds NaN", lambda: UNIFORM.noise(X, torch.tensor([0.5, NAN]))),
    bad("noise after the end", ValueError, "t must", lambda: UNIFORM.noise(X, 3 * T)),
    bad("noise before the start", ValueError, "t must", lambda: UNIFORM.noise(X, -T)),
    bad("noise at times without values", ValueError, "t is on", lambda: UNIFORM.noise(X, T.to("meta"))),
    bad("noise with a seed for a generator", TypeError, "generator", lambda: UNIFORM.noise(X, T, 0)),
    bad("prior of a number", ValueError, "shape", lambda: UNIFORM.prior(5)),
    bad("prior of three axes", ValueError, "shape", lambda: UNIFORM.prior((2, 3, 4))),
    bad("prior of no rows", ValueError, "shape", lambda: UNIFORM.prior((0, 4))),
    bad("prior of a bool", ValueError, "shape", lambda: UNIFORM.prior((True, 4))),
    bad("prior with some object for a generator", TypeError, "generator", lambda: UNIFORM.prior((2, 2), object())),
    bad("transition backwards", ValueError, "s must", lambda: UNIFORM.transition(T, S)),
    bad("transition between unequal numbers", ValueError, "s and t", lambda: UNIFORM.transition(S[:1], T)),
    bad("transition from NaN", ValueError, "s holds NaN", lambda: UNIFORM.transition(S * NAN, T)),
    bad("push of negative numbers", ValueError, "p must", lambda: UNIFORM.push(-LAW, S, T)),
    bad("push of NaN", ValueError, "p holds NaN", lambda: UNIFORM.push(LAW * NAN, S, T)),
    bad("push of tokens", TypeError, "p must", lambda: UNIFORM.push(X, S, T)),
    bad("push of too few states", ValueError, "p must", lambda: UNIFORM.push(LAW[..., :2], S, T)),
    bad("push of data states without MASK", ValueError, "p must", lambda: Absorbing(C, CONSTANT).push(LAW, S, T)),
    bad("push of an empty batch", ValueError, "p is empty", lambda: UNIFORM.push(LAW[:0], S, T)),
    bad("push for another number of rows", ValueError, "t must", lambda: UNIFORM.push(LAW[:1], S, T)),
    bad("likelihood out of range", ValueError, "x must", lambda: UNIFORM.likelihood(X + 1, S, T)),
    bad("likelihood in whole numbers", TypeError, "dtype", lambda: UNIFORM.likelihood(X, S, T, torch.int64)),
    bad("likelihood in a string's dtype", TypeError, "dtype", lambda: UNIFORM.likelihood(X, S, T, "float32")),
    bad("rate_to out of range", ValueError, "x must", lambda: UNIFORM.rate_to(X + 1, T)),
    bad("rate_from at a late time", ValueError, "t must", lambda: UNIFORM.rate_from(X, T + 1)),
    bad("remaining at a list", TypeError, "t must", lambda: UNIFORM.remaining([0.5])),
    bad("remaining at a single number", ValueError, "t must", lambda: UNIFORM.remaining(torch.tensor(0.5))),
    # ---- the oracle
    bad("oracle states a string", TypeError, "states", lambda: Oracle("abc", [1.0])),
    bad("oracle states ragged", TypeError, "states", lambda: Oracle([[0], [0, 1]], [0.5, 0.5])),
    bad("oracle states not whole", ValueError, "states", lambda: Oracle([[0.5]], [1.0])),
    bad("oracle states negative", ValueError, "states", lambda: Oracle([[-1]], [1.0])),
    bad("oracle states without a batch", ValueError, "states", lambda: Oracle([0, 1], [0.5, 0.5])),
    bad("oracle probabilities too few", ValueError, "probabilities", lambda: Oracle([[0], [1]], [1.0])),
    bad("oracle probabilities above one", ValueError, "probabilities", lambda: Oracle([[0], [1]], [0.6, 0.6])),
    bad("oracle probabilities negative", ValueError, "probabilities", lambda: Oracle([[0], [1]], [-0.5, 1.5])),
    bad("oracle probabilities a string", TypeError, "probabilities", lambda: Oracle([[0], [1]], "half")),
    bad("oracle joint a list", TypeError, "joint", lambda: Oracle.from_joint([0.5, 0.5])),
    bad("oracle joint without an axis", ValueError, "joint", lambda: Oracle.from_joint(torch.tensor(1.0))),
    bad(
        "oracle of more states than the process",
        ValueError,
        "states of the oracle",
        lambda: Diffusion(Uniform(2, CONSTANT), ORACLE).marginals(X % 2, T),
    ),
    bad("marginals of nothing", ValueError, "log_xt", lambda: Marginals(None)),
    # ---- Diffusion
    bad("diffusion process a string", TypeError, "process", lambda: Diffusion("uniform", ORACLE)),
    bad("diffusion process a class", TypeError, "process", lambda: Diffusion(Uniform, ORACLE)),
    bad("diffusion model a plain network", TypeError, "model", lambda: Diffusion(UNIFORM, torch.nn.Linear(2, 2))),
    bad("diffusion the wrong way round", TypeError, "process", lambda: Diffusion(ORACLE, UNIFORM)),
    bad(
        "marginals of rows too long", ValueError, "xt has 3 positions", lambda: DIFFUSION.marginals(X[:, [0, 0, 1]], T)
    ),
    bad("marginals of floats", TypeError, "xt", lambda: DIFFUSION.marginals(X.float(), T)),
    bad("marginals of tokens out of range", ValueError, "xt", lambda: DIFFUSION.marginals(X + 1, T)),
    bad(
        "marginals of tokens elsewhere",
        ValueError,
        "xt is on device meta",
        lambda: DIFFUSION.marginals(X.to("meta"), T),
    ),
    bad(
        "marginals at times elsewhere", ValueError, "t is on device meta", lambda: DIFFUSION.marginals(X, T.to("meta"))
    ),
    bad("marginals at NaN", ValueError, "t holds NaN", lambda: DIFFUSION.marginals(X, T * NAN)),
    bad("marginals at repeated positions", ValueError, "positions", lambda: DIFFUSION.marginals(X, T, X * 0)),
    bad(
        "marginals at positions out of range", ValueError, "positions", lambda: DIFFUSION.marginals(X, T, X[:, :1] + 5)
    ),
    bad("marginals at float positions", TypeError, "positions", lambda: DIFFUSION.marginals(X, T, X.float())),
    bad("marginals at no positions", ValueError, "positions", lambda: DIFFUSION.marginals(X, T, X[:, :0])),
    bad("marginals at positions of one row", ValueError, "positions", lambda: DIFFUSION.marginals(X, T, X[:1, :1])),
    bad("marginals given whole numbers", TypeError, "given", lambda: DIFFUSION.marginals(X, T, None, X)),
    bad("marginals given a short mask", ValueError, "given", lambda: DIFFUSION.marginals(X, T, None, MASK[:, :1])),
    # ---- losses
    bad("loss of no diffusion", TypeError, "diffusion", lambda: ratio_matching(ORACLE, X)),
    bad("loss of an empty batch", ValueError, "x0", lambda: ratio_matching(DIFFUSION, X[:0])),
    bad("loss of tokens out of range", ValueError, "x0", lambda: conditional_ratio_matching(DIFFUSION, X + 1)),
    bad("loss of rows too short", ValueError, "x0 has 1 positions", lambda: ct_elbo(DIFFUSION, X[:, :1])),
    bad("loss of data elsewhere", ValueError, "x0 is on device meta", lambda: ct_elbo(DIFFUSION, X.to("meta"))),
    bad("loss at late times", ValueError, "t must", lambda: ratio_matching(DIFFUSION, X, t=T + 1)),
    bad("loss at a single time", ValueError, "t must", lambda: ratio_matching(DIFFUSION, X, t=T[0])),
    bad("loss with other noise", ValueError, "xt must", lambda: ratio_matching(DIFFUSION, X, xt=X[:1])),
    bad("loss with noise elsewhere", ValueError, "xt is on", lambda: ratio_matching(DIFFUSION, X, xt=X.to("meta"))),
    bad("loss given a row of mask", ValueError, "given", lambda: ratio_matching(DIFFUSION, X, given=MASK[0])),
    bad("loss given a float mask", TypeError, "given", lambda: ratio_matching(DIFFUSION, X, given=MASK.float())),
    bad("loss at no positions", ValueError, "num_positions", lambda: ratio_matching(DIFFUSION, X, num_positions=0)),
    bad(
        "loss at too many positions", ValueError, "num_positions", lambda: ratio_matching(DIFFUSION, X, num_positions=3)
    ),
    bad("loss at half a position", TypeError, "num_positions", lambda: ratio_matching(DIFFUSION, X, num_positions=0.5)),
    bad("loss with a number for a weight", TypeError, "weight", lambda: ratio_matching(DIFFUSION, X, weight=2.0)),
    bad("loss weight of a number", TypeError, "weight", lambda: ratio_matching(DIFFUSION, X, weight=lambda t: 2.0)),
    bad(
        "loss weight of a shape",
        ValueError,
        "weight",
        lambda: ratio_matching(DIFFUSION, X, weight=lambda t: t[:, None]),
    ),
    bad("loss with a seed for a generator", TypeError, "generator", lambda: ratio_matching(DIFFUSION, X, generator=1)),
    bad("x0 loss of a model of x_t", ValueError, "x0", lambda: x0_cross_entropy(Diffusion(UNIFORM, Explicit()), X)),
    # ---- sampling
    bad("sample of a model", TypeError, "diffusion", lambda: sample(ORACLE, 2)),
    bad("sample of nothing", ValueError, "num", lambda: sample(DIFFUSION, 0)),
    bad("sample number a bool", TypeError, "num", lambda: sample(DIFFUSION, True)),
    bad("sample in no steps", ValueError, "steps", lambda: sample(DIFFUSION, 2, steps=0)),
    bad("sample in a string's steps", TypeError, "steps", lambda: sample(DIFFUSION, 2, steps="many")),
    bad("sampler of no name", ValueError, "sampler", lambda: sample(DIFFUSION, 2, sampler="oiler")),
    bad("sampler a class", TypeError, "sampler", lambda: sample(DIFFUSION, 2, sampler=Euler)),
    bad("corrector a number", TypeError, "corrector", lambda: sample(DIFFUSION, 2, corrector=3)),
    bad("callback a list", TypeError, "callback", lambda: sample(DIFFUSION, 2, callback=[])),
    bad("sample with a seed for a generator", TypeError, "generator", lambda: sample(DIFFUSION, 2, generator=7)),
    bad("sample in batches of none", ValueError, "batch_size", lambda: sample(DIFFUSION, 2, batch_size=0)),
    bad("sample of another length", ValueError, "length", lambda: sample(DIFFUSION, 2, length=5)),
    bad("sample without a length", ValueError, "length", lambda: sample(Diffusion(UNIFORM, Explicit()), 2)),
    bad("grid a list", TypeError, "grid", lambda: sample(DIFFUSION, 2, grid=[1.0, 0.0])),
    bad("grid a name", TypeError, "grid", lambda: sample(DIFFUSION, 2, grid="time")),
    bad("grid of one time", ValueError, "grid", lambda: sample(DIFFUSION, 2, grid=torch.ones(1))),
    bad("grid that ascends", ValueError, "grid", lambda: sample(DIFFUSION, 2, grid=torch.tensor([0.0, 1.0]))),
    bad("grid that stops early", ValueError, "grid", lambda: sample(DIFFUSION, 2, grid=torch.tensor([1.0, 0.1]))),
    bad("grid with NaN", ValueError, "grid", lambda: sample(DIFFUSION, 2, grid=torch.tensor([1.0, NAN, 0.0]))),
    bad("grid rule that ascends", ValueError, "grid", lambda: sample(DIFFUSION, 2, grid=lambda p, n: T)),
    bad("grid rule for no process", TypeError, "process", lambda: uniform_in_time("uniform", 5)),
    bad("grid rule of no steps", ValueError, "steps", lambda: uniform_in_share(UNIFORM, 0)),
    bad("grid rule of half a step", TypeError, "steps", lambda: uniform_in_log_share(UNIFORM, 0.5)),
    bad(
        "analytical sampler for a model of x_t",
        ValueError,
        "sampler",
        lambda: sample(Diffusion(BirthDeath(C, CONSTANT), Explicit()), 2, sampler=Analytical(), length=2),
    ),
    bad("sweep of no groups", ValueError, "groups", lambda: Sweep(groups=0)),
    bad("sweep of an exact step", TypeError, "step", lambda: Sweep(Exact())),
    bad("sweep of a class", TypeError, "step", lambda: Sweep(Analytical)),
    bad(
        "ordinal tau-leaping of categories",
        ValueError,
        "sampler",
        lambda: sample(DIFFUSION, 2, sampler=TauLeaping(ordinal=True)),
    ),
    bad("tau-leaping ordinal a string", TypeError, "ordinal", lambda: TauLeaping(ordinal="yes")),
    bad("corrector in no rounds", ValueError, "rounds", lambda: Corrector(rounds=0)),
    bad("corrector rounds a float", TypeError, "rounds", lambda: Corrector(rounds=1.5)),
    bad("corrector factor negative", ValueError, "factor", lambda: Corrector(factor=-1.0)),
    bad("corrector entry beyond the end", ValueError, "entry", lambda: Corrector(entry=2.0)),
    bad("corrector entry zero", ValueError, "entry", lambda: Corrector(entry=0.0)),
    bad("corrector entry a string", TypeError, "entry", lambda: Corrector(entry="late")),
    bad("exact floor zero", ValueError, "floor", lambda: Exact(floor=0.0)),
    bad("exact floor a string", TypeError, "floor", lambda: Exact(floor="low")),
    # ---- conditions
    bad("condition of lists", TypeError, "condition mask", lambda: Condition([True], [1])),
    bad("condition mask of floats", TypeError, "condition mask", lambda: Condition(MASK.float(), X)),
    bad("condition mask too short", ValueError, "condition mask", lambda: Condition(MASK[:, :1], X)),
    bad("condition values of floats", TypeError, "condition values", lambda: Condition(MASK, X.float())),
    bad("condition values a number", ValueError, "condition values", lambda: Condition(MASK[0, 0], X[0, 0])),
    bad("condition blank a string", TypeError, "blank", lambda: Condition.from_blanks(X, "_")),
    bad("condition prefix a list", TypeError, "prefix", lambda: Condition.from_prefix([1, 2], 3)),
    bad("condition prefix a number", ValueError, "prefix", lambda: Condition.from_prefix(torch.tensor(1), 3)),
    bad("condition prefix of everything", ValueError, "prefix", lambda: Condition.from_prefix(X, 2)),
    bad("condition length a string", TypeError, "length", lambda: Condition.from_prefix(X, "3")),
    bad("conditions that clash", ValueError, "clash", lambda: FIRST | Condition.from_blanks(torch.tensor([2, -1]))),
    bad("conditions of unequal lengths", ValueError, "lengths", lambda: FIRST | Condition.from_blanks(X[0, :1])),
    bad("conditions of unequal rows", ValueError, "rows", lambda: Condition(MASK, X) | Condition(MASK[:1], X[:1])),
    bad("condition joined with a tensor", TypeError, "condition", lambda: FIRST | X),
    bad("sample under a mask", TypeError, "condition", lambda: sample(DIFFUSION, 2, condition=MASK)),
    bad(
        "sample under another length",
        ValueError,
        "condition has 3 positions",
        lambda: sample(DIFFUSION, 2, condition=Condition.from_prefix(torch.tensor([1]), 3)),
    ),
    bad(
        "sample under too many rows",
        ValueError,
        "condition has 2 rows",
        lambda: sample(DIFFUSION, 5, condition=Condition(MASK, X)),
    ),
    bad(
        "sample under values out of range",
        ValueError,
        "condition values",
        lambda: sample(DIFFUSION, 2, condition=Condition.from_blanks(torch.tensor([C, -1]))),
    ),
    bad(
        "sample under negative values",
        ValueError,
        "condition values",
        lambda: sample(DIFFUSION, 2, condition=Condition(MASK, X - 5)),
    ),
    # ---- the bound
    bad("bound of a model", TypeError, "diffusion", lambda: bound(ORACLE, X)),
    bad("bound of tokens out of range", ValueError, "x0", lambda: bound(DIFFUSION, X + 1)),
    bad("bound at a number of times without replicates", ValueError, "num_times", lambda: bound(DIFFUSION, X, 12)),
    bad("bound given of another shape", ValueError, "given", lambda: bound(DIFFUSION, X, given=X[:1] > 0)),
    bad("bound with padding that is no mask", TypeError, "padding", lambda: bound(DIFFUSION, X, padding=X)),
    bad("bound at no times", ValueError, "num_times", lambda: bound(DIFFUSION, X, num_times=0)),
    bad("bound in batches of none", ValueError, "batch_size", lambda: bound(DIFFUSION, X, batch_size=0)),
    bad("bound with a seed for a generator", TypeError, "generator", lambda: bound(DIFFUSION, X, generator=0)),
    # ---- metrics and data
    bad("mmd of floats", TypeError, "x must", lambda: hamming_mmd(X.float(), X)),
    bad("mmd of one row", ValueError, "y must", lambda: hamming_mmd(X, X[:1])),
    bad("mmd of unequal lengths", ValueError, "positions", lambda: hamming_mmd(X, X[:, :1])),
    bad("mmd of negative tokens", ValueError, "x must", lambda: hamming_mmd(X - 1, X)),
    bad("mmd with no bandwidth", ValueError, "bandwidth", lambda: hamming_mmd(X, X, bandwidth=0)),
    bad("mmd in chunks of none", ValueError, "chunk", lambda: hamming_mmd(X, X, chunk=0)),
    bad("toy of an unknown name", ValueError, "name", lambda: Toy("spiral")),
    bad("toy of a list", ValueError, "name", lambda: Toy(["moons"])),
    bad("toy points of none", ValueError, "num", lambda: Toy("moons").points(0)),
    bad("toy tokens with a seed", TypeError, "generator", lambda: Toy("moons").tokens(2, 1)),
    bad("gray code of no scale", ValueError, "scale", lambda: GrayCode(0.0)),
    bad("gray code of points in space", ValueError, "points", lambda: GrayCode(1.0).encode(torch.zeros(2, 3))),
    bad("gray code of NaN", ValueError, "points", lambda: GrayCode(1.0).encode(torch.full((2, 2), NAN))),
    bad("gray code of whole numbers", TypeError, "points", lambda: GrayCode(1.0).encode(X)),
    bad("gray decoding of too few bits", ValueError, "tokens", lambda: GrayCode(1.0).decode(X % 2)),
    bad("gray decoding of digits", ValueError, "tokens", lambda: GrayCode(1.0).decode(torch.full((1, 32), 7))),
]


def assert_answered(call, error, mentions):
    """The error is of this type, raised by the library itself, and is a sentence that names what was wrong."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error
    assert mentions in message
    assert message.endswith(".")
    raised_in = Path(traceback.extract_tb(caught.value.__traceback__)[-1].filename)
    assert Path(sddm.__file__).parent in raised_in.parents
    # raised on purpose: the failing line is a raise, not an operation that happened to fail
    assert "raise" in traceback.extract_tb(caught.value.__traceback__)[-1].line


@pytest.mark.parametrize(("call", "error", "mentions"), BAD_INPUTS)
def test_bad_input_is_answered_by_a_sentence(call, error, mentions):
    assert_answered(call, error, mentions)


def test_the_good_inputs_that_these_were_made_from_are_accepted():
    UNIFORM.noise(X, T)
    UNIFORM.push(LAW, S, T)
    UNIFORM.likelihood(X, S, T, torch.float32)
    DIFFUSION.marginals(X, T, X[:, :1] * 0, MASK)
    ratio_matching(DIFFUSION, X, t=T, xt=X, given=MASK, num_positions=1, weight=lambda t: 1 + t)
    sample(DIFFUSION, 2, steps=2, corrector=Corrector(), condition=Condition(MASK, X), grid=uniform_in_share)
    sample(Diffusion(UNIFORM, Explicit()), 2, steps=2, length=2)
    bound(DIFFUSION, X, num_times=8)
    hamming_mmd(X, X)


# ---- saved models ----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    DIFFUSION.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def rewrite(directory, **changes):
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    (directory / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")


def uniform_config(**changes):
    return {"type": "uniform", "num_states": C, "schedule": {"type": "constant", "rate": 1.0}, **changes}


DAMAGES = [
    bad("cut off", ValueError, "config.json", lambda d: (d / "config.json").write_text('{"format": 1, "proc')),
    bad("empty", ValueError, "config.json", lambda d: (d / "config.json").write_text("")),
    bad("not text", ValueError, "config.json", lambda d: (d / "config.json").write_bytes(b"\xff\xfe\x00")),
    bad("a list", ValueError, "config.json", lambda d: (d / "config.json").write_text("[1, 2]")),
    bad(
        "of another library", ValueError, "config.json", lambda d: (d / "config.json").write_text('{"model_type": "x"}')
    ),
    bad("of another version", ValueError, "format", lambda d: rewrite(d, format=99)),
    bad("of an unknown process", ValueError, "'warp'", lambda d: rewrite(d, process={"type": "warp"})),
    bad("of a process without a type", ValueError, "unknown type", lambda d: rewrite(d, process={"num_states": 3})),
    bad("of a process that is a list", ValueError, "process", lambda d: rewrite(d, process=[1])),
    bad(
        "of a schedule for a process", ValueError, "process", lambda d: rewrite(d, process=uniform_config()["schedule"])
    ),
    bad(
        "of a missing argument",
        ValueError,
        "schedule",
        lambda d: rewrite(d, process={"type": "uniform", "num_states": C}),
    ),
    bad("of an unknown argument", ValueError, "colour", lambda d: rewrite(d, process=uniform_config(colour="red"))),
    bad("of a wrong argument", ValueError, "num_states", lambda d: rewrite(d, process=uniform_config(num_states="3"))),
    bad("of a process for a model", ValueError, "model", lambda d: rewrite(d, model=uniform_config())),
    bad("missing", FileNotFoundError, "config.json", lambda d: (d / "config.json").unlink()),
    bad("without weights", FileNotFoundError, "model.safetensors", lambda d: (d / "model.safetensors").unlink()),
    bad("with broken weights", ValueError, "model.safetensors", lambda d: (d / "model.safetensors").write_bytes(b"ab")),
]


@pytest.mark.parametrize(("damage", "error", "mentions"), DAMAGES)
def test_a_damaged_model_is_answered_by_a_sentence(saved, damage, error, mentions):
    damage(saved)
    assert_answered(lambda: Diffusion.from_pretrained(saved), error, mentions)


def test_weights_of_another_model_are_refused(saved):
    from safetensors.torch import save_file

    save_file({"layer.weight": torch.zeros(2)}, saved / "model.safetensors")
    assert_answered(lambda: Diffusion.from_pretrained(saved), ValueError, "model.safetensors")


@pytest.mark.parametrize("device", ["warp", "cuda:99", "", 3.5, None])
def test_an_unknown_device_is_refused(saved, device):
    assert_answered(lambda: Diffusion.from_pretrained(saved, device=device), ValueError, "device")


def test_a_missing_directory_is_reported(tmp_path):
    missing = tmp_path / "no" / "such" / "model"
    assert_answered(lambda: Diffusion.from_pretrained(missing), FileNotFoundError, "neither a directory")


def test_a_repository_that_cannot_be_fetched_is_reported(monkeypatch):
    def fail(*args, **kwargs):
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr("sddm._pretrained.snapshot_download", fail)
    assert_answered(lambda: Diffusion.from_pretrained("owner/name"), FileNotFoundError, "owner/name")


@pytest.mark.parametrize("source", [None, 3, ["model"]])
def test_a_source_that_is_no_path_is_refused(source):
    assert_answered(lambda: Diffusion.from_pretrained(source), TypeError, "source")


def test_saving_to_what_is_no_directory_is_refused(saved):
    assert_answered(lambda: DIFFUSION.save_pretrained(7), TypeError, "directory")
    assert_answered(lambda: DIFFUSION.save_pretrained(saved / "config.json"), ValueError, "directory")


def test_saving_a_model_that_no_table_names_is_refused(tmp_path):
    assert_answered(lambda: Diffusion(UNIFORM, Explicit()).save_pretrained(tmp_path), TypeError, "Explicit")
