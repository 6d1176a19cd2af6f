"""One conformance suite over every kind of model of the conditionals, with every kind of process.

The models have random weights: all of this must hold whatever they have learnt.
"""

import copy
import inspect
import itertools
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from enumerated import ONE_WAY, all_states, random_law, seeded, states_of, times, transition
from made import made
from sddm import Condition, Diffusion, noising, sample
from sddm.losses import (
    conditional_ratio_matching,
    ct_elbo,
    denoising_cross_entropy,
    ratio_matching,
    x0_cross_entropy,
)
from sddm.marginals import MODELS, Energy, Hollow, LeaveOneOut, Masked, Oracle, Restricted
from sddm.networks import NETWORKS, Denoiser, HollowTransformer, MLPEnergy, Places, Sizes, TransformerEnergy
from sddm.networks.embeddings import TokenEmbedding
from sddm.processes import Absorbing, BirthDeath, CustomRate, Uniform
from sddm.query import Query
from sddm.schedules import Constant, Exponential, LogSquare

DIM = 4
ROUNDING = 1e-12
"""Networks below have float64 weights and logits of order 1 to 10, from sums of some hundred terms."""
STANDARD_ERRORS = 4

# ---- the families --------------------------------------------------------------------------------------------------

PROCESSES = {
    "uniform": lambda: Uniform(3, LogSquare(1.0)).leaving(0.1),
    "absorbing": lambda: Absorbing(3, Constant(1.0)).leaving(0.1),
    "birth-death": lambda: BirthDeath(3, LogSquare(1.0)).leaving(0.1),
    "one-way": lambda: CustomRate(ONE_WAY, Exponential(0.5, 1.5)).leaving(0.1),
}
BINARY_PROCESSES = {
    "uniform": lambda: Uniform(2, LogSquare(1.0)).leaving(0.1),
    "birth-death": lambda: BirthDeath(2, LogSquare(1.0)).leaving(0.1),
    "lopsided": lambda: CustomRate([[-0.2, 0.2], [1.0, -1.0]], Constant(1.0)).leaving(0.1),
}
"""Two symbols leave no room for a MASK, nor for going round one way; the last has unequal rates."""

SMALL = {"width": 8, "layers": 2, "heads": 2, "mlp": 12}
GRID = {"grid": (2, 2)}
LENGTH = {"length": DIM}
ROTARY = {"length": None}


def energy(process, implicit, dropout=0.0, **places):
    return Energy.for_process(process, **places, implicit=implicit, **SMALL, dropout=dropout)


def mlp_energy(process, implicit, **sizes):
    return Energy.mlp(process, DIM, implicit, width=10, **sizes)


def masked(process, implicit, dropout=0.0, **options):
    return Masked.for_process(process, **options, implicit=implicit, **SMALL, dropout=dropout)


def hollow(process, implicit, dropout=0.0, **options):
    return Hollow.for_process(process, **options, implicit=implicit, **SMALL, dropout=dropout)


def leave_one_out(process, implicit, dropout=0.0, **places):
    assert implicit
    return LeaveOneOut.for_process(process, **places, **SMALL, dropout=dropout)


BINARY_KINDS = {"energy-mlp-binary": (mlp_energy, {})}
HOLLOW_KINDS = {
    f"hollow-{readout}-{name}": (hollow, {**places, **options})
    for readout, options in {"concatenated": {}, "joint": {"joint_attention": True}}.items()
    for name, places in {"learned": LENGTH, "rotary": ROTARY, "grid": GRID}.items()
}
MASKED_KINDS = {
    "masked-film": (masked, {**LENGTH, "film_blocks": 2}),
    "masked-plain": (masked, {**LENGTH, "film_blocks": 0}),
    "masked-rotary": (masked, ROTARY),
    "masked-grid": (masked, GRID),
}
ENERGY_KINDS = {
    "energy-mlp": (mlp_energy, {"learned_time": True}),
    "energy-transformer": (energy, LENGTH),
    "energy-rotary": (energy, ROTARY),
}
BLIND_KINDS = {**BINARY_KINDS, **ENERGY_KINDS, **MASKED_KINDS, **HOLLOW_KINDS}
"""Models whose prediction at d cannot look at x_t^d."""
SEEING_KINDS = {"leave-one-out": (leave_one_out, LENGTH), "leave-one-out-rotary": (leave_one_out, ROTARY)}
KINDS = {**BLIND_KINDS, **SEEING_KINDS}


@dataclass(frozen=True)
class Case:
    """A kind of model, a process, and whether the model predicts x_0."""

    kind: str
    process: str
    implicit: bool

    def __str__(self):
        return f"{self.kind}-{self.process}-{'implicit' if self.implicit else 'explicit'}"

    def build(self, **options):
        """The diffusion with random weights, in eval mode and in float64."""
        make, own = KINDS[self.kind]
        process = (BINARY_PROCESSES if self.kind in BINARY_KINDS else PROCESSES)[self.process]()
        return with_random_weights(Diffusion(process, make(process, self.implicit, **own, **options))).double().eval()


def cases_of(kinds, processes=None):
    """Every kind with these processes. By default every kind, predicting x_0 or x_t, has the process with a MASK, which
    a network has to have room for, and one of the others in turn: these look alike to a network."""
    cases = []
    for number, kind in enumerate(kinds):
        names = list(BINARY_PROCESSES if kind in BINARY_KINDS else PROCESSES)
        plain = [name for name in names if name != "absorbing"]
        for implicit in (True,) if kind in SEEING_KINDS else (True, False):
            chosen = {"absorbing", plain[(number + implicit) % len(plain)]} if processes is None else processes
            cases += [Case(kind, name, implicit) for name in names if name in chosen]
    return cases


def over(cases):
    return pytest.mark.parametrize("case", cases, ids=str)


every_case = over(cases_of(KINDS))
every_blind_case = over(cases_of(BLIND_KINDS))
every_kind = over(cases_of(KINDS, ("uniform",)))


def with_random_weights(module, scale=0.4):
    """All weights drawn anew, so that none is zero or one by construction."""
    generator = seeded(0)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            centre = 1.0 if weight.ndim == 1 and name.endswith("weight") else 0.0  # the gain of a norm
            weight.copy_(centre + scale * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return module


# ---- what is asked of them -----------------------------------------------------------------------------------------

BATCH = 3 * DIM
OWN = torch.arange(BATCH) % DIM
"""Row b is asked about position b mod D."""
SPREAD = torch.linspace(0.02, 1, BATCH, dtype=torch.float64)
LENGTHS = DIM - torch.arange(BATCH) // DIM
"""A third of the rows each is whole, one and two shorter."""
PADDING = torch.arange(DIM) >= LENGTHS[:, None]
OWN_WITH_PADDING = torch.arange(BATCH) % LENGTHS


def tokens(process, seed=0):
    return torch.randint(process.num_symbols, (BATCH, DIM), generator=seeded(seed))


def marks(seed=1):
    return torch.rand(BATCH, DIM, generator=seeded(seed)) < 0.5


def own(values, positions=OWN):
    """The values at each row's own position."""
    return values[torch.arange(BATCH), positions]


def with_own(x, value, positions=OWN):
    return x.scatter(1, positions[:, None], value)


def predictions(diffusion, x, t=SPREAD, given=None, padding=None, positions=None):
    """All that a model says, on the last axis: log_xt, and log_x0 where it has it."""
    marginals = diffusion.marginals(x, t, positions, given, padding)
    return torch.cat([marginals.log_xt] + ([] if marginals.log_x0 is None else [marginals.log_x0]), dim=-1)


def predictions_for_each_own_value(diffusion, positions=OWN, given=None, padding=None, seed=None):
    """What is predicted at each row's own position, for every value that this position can hold: (values, rows, ...).

    Each value is a separate evaluation of the same batch, so that nothing but the value differs, and with a seed
    dropout drops the same.
    """
    x, rows = tokens(diffusion.process), []
    for value in range(diffusion.process.num_symbols):
        if seed is not None:
            torch.manual_seed(seed)
        with torch.no_grad():
            everything = predictions(diffusion, with_own(x, value, positions), given=given, padding=padding)
        rows.append(own(everything, positions))
    return torch.stack(rows)


def assert_all_the_same(values, tolerance):
    """Along the first axis; -inf is equal to itself."""
    if tolerance == 0:
        assert all(torch.equal(value, values[0]) for value in values[1:])
    for value in values[1:]:
        torch.testing.assert_close(value, values[0].clone(), rtol=tolerance, atol=tolerance)


def tolerance_of(case):
    """Hollow and masked models compute the very same numbers whatever x^d is. An energy adds up the same sequences,
    but which of them is x itself, and so the order of summation and the row of a matrix product, depends on x^d."""
    return ROUNDING if case.kind.startswith("energy") else 0


# ---- (a) the prediction at d does not look at x^d ------------------------------------------------------------------


@every_blind_case
def test_the_prediction_at_d_does_not_move_when_the_token_at_d_does(case):
    diffusion = case.build()
    assert not diffusion.model.sees_own_token
    assert_all_the_same(predictions_for_each_own_value(diffusion), tolerance_of(case))


@every_case
def test_the_prediction_at_d_moves_when_any_other_token_does_and_with_the_time(case):
    diffusion = case.build()
    x = tokens(diffusion.process)
    with torch.no_grad():
        here = own(predictions(diffusion, x)).nan_to_num(neginf=0)
        for shift in range(1, DIM):
            elsewhere = (OWN + shift) % DIM
            value = (own(x, elsewhere)[:, None] + 1) % diffusion.process.num_symbols
            moved = own(predictions(diffusion, x.scatter(1, elsewhere[:, None], value))).nan_to_num(neginf=0)
            assert ((moved - here).abs().amax(-1) > 1e-9).all()
        later = own(predictions(diffusion, x, 0.9 * SPREAD)).nan_to_num(neginf=0)
        assert ((later - here).abs().amax(-1) > 1e-9).all()


@every_blind_case
def test_the_prediction_at_d_does_not_look_at_d_when_positions_are_given(case):
    """Neither if d itself is given nor if others are."""
    diffusion = case.build()
    assert_all_the_same(predictions_for_each_own_value(diffusion, given=marks()), tolerance_of(case))


PADDED_KINDS = [k for k in BLIND_KINDS if not k.startswith("energy-mlp")]


@over(cases_of(PADDED_KINDS))
def test_the_prediction_at_d_does_not_look_at_d_in_rows_of_different_lengths(case):
    diffusion = case.build()
    each = predictions_for_each_own_value(diffusion, OWN_WITH_PADDING, marks(), PADDING)
    assert_all_the_same(each, tolerance_of(case))


@over(cases_of({**MASKED_KINDS, **HOLLOW_KINDS}, ("uniform",)))
def test_the_prediction_at_d_does_not_look_at_d_while_dropout_drops(case):
    diffusion = case.build(dropout=0.3).train()
    each = predictions_for_each_own_value(diffusion, given=marks(), seed=7)
    assert_all_the_same(each, 0)
    again = predictions_for_each_own_value(diffusion, given=marks(), seed=8)
    assert not torch.equal(each, again), "dropout was not on"


@pytest.mark.parametrize("implicit", [True, False], ids=["implicit", "explicit"])
def test_the_law_of_an_energy_under_dropout_does_not_depend_on_the_token_at_d(implicit):
    """Each sequence that an energy compares drops by itself, and x itself is the first of them, so the draws differ
    with x^d. Their law does not: the mean over many rows is the same within its error."""
    diffusion = Case("energy-transformer", "uniform", implicit).build(dropout=0.3).train()
    draws, d = 4000, 1
    x = tokens(diffusion.process)[:1].repeat(draws, 1)
    torch.manual_seed(0)
    means, variances = [], []
    for value in range(3):
        x[:, d] = value
        with torch.no_grad():
            predicted = predictions(diffusion, x, times(0.5, draws), positions=torch.full((draws, 1), d))[:, 0]
        means.append(predicted.mean(0))
        variances.append(predicted.var(0))
    for one, other in itertools.combinations(range(3), 2):
        error = torch.sqrt((variances[one] + variances[other]) / draws)
        assert (error > 0).all()
        assert ((means[one] - means[other]).abs() <= STANDARD_ERRORS * error).all()


def embeddings_of(diffusion, x, given=None):
    """What the model says of x, and the embedded tokens that it used, with gradients."""
    (embedding,) = (m for m in diffusion.modules() if isinstance(m, TokenEmbedding))
    embedded = []

    def keep(module, inputs, output):
        output.retain_grad()
        embedded.append(output)

    hook = embedding.register_forward_hook(keep)
    marginals = diffusion.marginals(x, SPREAD, None, given)
    hook.remove()
    return marginals.log_x0 if diffusion.model.implicit else marginals.log_xt, embedded


@over(cases_of(HOLLOW_KINDS, ("uniform", "absorbing")))
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_jacobian_of_a_hollow_transformer_has_a_hollow_diagonal(case, mode):
    """The derivative of each logarithm at d with respect to the embedding of x^d is exactly 0, and to no other is."""
    diffusion = case.build(dropout=0.2 if mode == "train" else 0.0).train(mode == "train")
    states = diffusion.process.num_states
    torch.manual_seed(0)
    log_p, (embedded,) = embeddings_of(diffusion, tokens(diffusion.process), marks())
    assert embedded.shape == (BATCH, DIM, SMALL["width"])
    weights = torch.randn(states, generator=seeded(2), dtype=torch.float64)
    for d in range(DIM):
        (gradient,) = torch.autograd.grad((log_p[:, d, :states] * weights).sum(), embedded, retain_graph=True)
        assert torch.equal(gradient[:, d], torch.zeros_like(gradient[:, d]))
        others = gradient[:, [e for e in range(DIM) if e != d]]
        assert (others.abs().sum((0, 2)) > 0).all()
        if mode == "eval":
            assert (others.abs().amax(-1) > 0).all()


@over(cases_of(MASKED_KINDS, ("uniform", "absorbing")))
def test_a_masked_model_embeds_a_hidden_token_in_place_of_the_one_it_predicts(case):
    """The logarithms at d come from one copy of the row. There position d holds HIDDEN, unmarked whatever x^d and its
    mark are, and the derivative with respect to the embeddings of all other copies is exactly 0."""
    diffusion = case.build()
    states, table = diffusion.process.num_states, diffusion.model.network.body.embed.tokens.weight
    log_p, (embedded,) = embeddings_of(diffusion, tokens(diffusion.process), marks())
    assert embedded.shape == (BATCH * DIM, DIM, SMALL["width"])
    copies = torch.arange(DIM).repeat(BATCH)
    assert torch.equal(embedded[torch.arange(BATCH * DIM), copies], table[-1].expand(BATCH * DIM, -1))
    weights = torch.randn(states, generator=seeded(2), dtype=torch.float64)
    for d in range(DIM):
        (gradient,) = torch.autograd.grad((log_p[:, d, :states] * weights).sum(), embedded, retain_graph=True)
        assert torch.equal(gradient[copies != d], torch.zeros_like(gradient[copies != d]))
        assert (gradient[copies == d].abs().amax(-1) > 0).all()


@pytest.mark.parametrize("process", PROCESSES)
def test_an_energy_compares_the_same_sequences_whatever_the_token_at_d_is(process):
    """By definition the energy at d replaces x^d by every value, so there is no embedding of x^d to differentiate by;
    instead, the set of sequences that the network is shown for d must not depend on x^d."""
    diffusion = Case("energy-transformer", process, True).build()
    x, symbols, d = tokens(diffusion.process)[:1], diffusion.process.num_symbols, 2
    shown = []
    hook = diffusion.model.network.body.embed.register_forward_pre_hook(lambda m, inputs: shown.append(inputs[0]))
    for value in range(symbols):
        x[:, d] = value
        diffusion.marginals(x, SPREAD[:1], torch.tensor([[d]]))
    hook.remove()
    expected = x.repeat(symbols, 1)
    expected[:, d] = torch.arange(symbols)
    for sequences in shown:
        assert torch.equal(sequences[sequences[:, d].argsort()], expected)


# ---- compiled, and in half precision -------------------------------------------------------------------------------

TINY = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
COMPILED = {
    "hollow": (lambda p: Hollow.for_process(p, DIM, **TINY, film_blocks=1), "inductor"),
    "hollow-joint": (lambda p: Hollow.for_process(p, DIM, **TINY, joint_attention=True), "aot_eager"),
    "masked": (lambda p: Masked.for_process(p, DIM, **TINY), "aot_eager"),
    "energy": (lambda p: Energy.for_process(p, DIM, **TINY), "aot_eager"),
    "energy-mlp": (lambda p: Energy.mlp(p, DIM, width=8), "aot_eager"),
    "leave-one-out": (lambda p: LeaveOneOut.for_process(p, DIM, **TINY), "aot_eager"),
}


@pytest.fixture
def quick_compiler():
    """No processes to compile in, and no test programs for the vector instructions that the processor says it has."""
    from torch._inductor import config  # slow to import

    with config.patch({"compile_threads": 1, "cpp.vec_isa_ok": True}):
        yield


def compiled(diffusion, backend):
    """The same diffusion with a compiled network; an energy is compiled where the models call it."""
    other = copy.deepcopy(diffusion)
    network = other.model.network
    if isinstance(other.model, Energy):
        network.replaced = torch.compile(network.replaced, backend=backend, fullgraph=True)
    else:
        network.compile(backend=backend, fullgraph=True)
    return other


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_says_the_same_and_does_not_look_at_the_token_either(
    without_annotation_checks, quick_compiler, monkeypatch, name
):
    """One kind goes through the whole compiler, the others through its tracing and its gradients."""
    torch._dynamo.reset()
    for attribute, checked in list(vars(Query).items()):  # as users have it: what checks annotations cannot be traced
        if inspect.isfunction(checked):
            monkeypatch.setattr(Query, attribute, inspect.unwrap(checked))
        elif isinstance(checked, property):
            monkeypatch.setattr(Query, attribute, property(inspect.unwrap(checked.fget)))
    make, backend = COMPILED[name]
    process = PROCESSES["uniform"]()
    eager = with_random_weights(Diffusion(process, make(process))).eval()
    fast = compiled(eager, backend)
    x = tokens(process)
    with torch.no_grad():
        expected, predicted = predictions(eager, x), predictions(fast, x)
    # Sums of up to 16 products of order 1, three deep; compiled, they may be added in another order.
    rounding = 16 * 3 * torch.finfo(torch.float32).eps * float(expected.abs().max())
    torch.testing.assert_close(predicted, expected, rtol=0, atol=rounding)
    if not eager.model.sees_own_token:
        exact = not isinstance(eager.model, Energy)
        assert_all_the_same(predictions_for_each_own_value(fast), 0 if exact else rounding)


def root_mean_square(values):
    return float(values.square().mean().sqrt())


@every_kind
def test_in_bfloat16_the_prediction_at_d_does_not_look_at_d_and_is_that_of_float32_rounded(case):
    """How much rounding should move it is measured by rounding the weights alone; autocast rounds the weights and,
    twice a layer, what they are multiplied with and what comes out, independently. Energies are rounded themselves,
    before their differences are taken, and differ by as much between values of x^d, because which sums are rounded
    depends on it; the others remain exact."""
    diffusion = case.build().float()
    x = tokens(diffusion.process)
    coarse = copy.deepcopy(diffusion).bfloat16().float()
    with torch.no_grad():
        single, rounded = predictions(diffusion, x), predictions(coarse, x)
        with torch.autocast("cpu", torch.bfloat16):
            half = predictions(diffusion, x)
            each = None if diffusion.model.sees_own_token else predictions_for_each_own_value(diffusion)
        scale = root_mean_square(rounded - single)
        if isinstance(diffusion.model, Energy):
            scale += 2**-8 * root_mean_square(diffusion.model.network(Query(x, SPREAD)))
    assert 0 < root_mean_square(half - single) <= STANDARD_ERRORS * scale
    assert half.dtype == torch.float32
    symbols = diffusion.process.num_symbols
    for law in half.exp().split(symbols, dim=-1):
        torch.testing.assert_close(law.sum(-1), torch.ones(BATCH, DIM), rtol=0, atol=8 * 2**-23)
    if each is not None and not case.kind.startswith("energy"):
        assert_all_the_same(each, 0)
    elif each is not None:
        assert root_mean_square(each[1:] - each[:1]) <= STANDARD_ERRORS * scale


# ---- (b) what they say ---------------------------------------------------------------------------------------------


@every_case
def test_predictions_are_normalised_logarithms_of_probabilities(case):
    diffusion = case.build()
    process = diffusion.process
    with torch.no_grad():
        marginals = diffusion.marginals(tokens(process), SPREAD)
    assert marginals.log_xt.shape == (BATCH, DIM, process.num_symbols)
    total = torch.ones(BATCH, DIM, dtype=torch.float64)
    torch.testing.assert_close(marginals.log_xt.exp().sum(-1), total, rtol=0, atol=ROUNDING)
    assert (marginals.log_xt > -float("inf")).all()
    assert diffusion.model.implicit == case.implicit
    if not case.implicit:
        assert marginals.log_x0 is None
        return
    assert marginals.log_x0.shape == marginals.log_xt.shape
    torch.testing.assert_close(marginals.log_x0.exp().sum(-1), total, rtol=0, atol=ROUNDING)
    # p_t = p_{0|t} P_{0->t}
    pushed = process.push(marginals.log_x0.exp(), torch.zeros_like(SPREAD), SPREAD)
    torch.testing.assert_close(marginals.log_xt.exp(), pushed, rtol=ROUNDING, atol=ROUNDING)


@over(cases_of(KINDS, ("absorbing",)))
def test_a_mask_is_possible_in_noise_and_impossible_in_data(case):
    diffusion = case.build()
    mask = diffusion.process.mask
    marginals = diffusion.marginals(tokens(diffusion.process), SPREAD)
    if case.implicit:
        assert (marginals.log_x0[..., mask] == -float("inf")).all()
        assert torch.isfinite(marginals.log_x0[..., :mask]).all()
        gone = 1 - diffusion.process.remaining(SPREAD)
        expected = gone[:, None].expand(-1, DIM)
        torch.testing.assert_close(marginals.log_xt[..., mask].exp(), expected, rtol=ROUNDING, atol=0)
    else:
        assert torch.isfinite(marginals.log_xt).all()


@every_case
def test_predictions_at_some_positions_are_all_predictions_indexed(case):
    diffusion = case.build()
    x, given = tokens(diffusion.process), marks()
    order = torch.rand(BATCH, DIM, generator=seeded(4)).argsort(1)
    padding = None if case.kind.startswith("energy-mlp") else PADDING
    with torch.no_grad():
        everything = predictions(diffusion, x, given=given, padding=padding)
        for positions in (order[:, :1], order[:, :3]):
            some = predictions(diffusion, x, given=given, padding=padding, positions=positions)
            expected = torch.stack([row[where] for row, where in zip(everything, positions, strict=True)])
            torch.testing.assert_close(some, expected, rtol=ROUNDING, atol=ROUNDING)


@over(cases_of([k for k in KINDS if k.endswith("rotary")], ("uniform", "absorbing")))
def test_a_padded_row_is_predicted_as_the_shorter_row(case):
    diffusion = case.build()
    x, given = tokens(diffusion.process), marks()
    with torch.no_grad():
        together = predictions(diffusion, x, given=given, padding=PADDING)
        for row, length in enumerate(LENGTHS.tolist()):
            one = slice(row, row + 1)
            alone = predictions(diffusion, x[one, :length], SPREAD[one], given=given[one, :length])
            # Angles of up to 4, counted from another end, are made in float32.
            torch.testing.assert_close(together[one, :length], alone, rtol=1e-5, atol=1e-5)


def test_every_listed_model_and_network_is_in_this_suite():
    """The Oracle, which has no weights, is tested against enumeration elsewhere, and models made of models in
    test_wrappers.py."""
    built = [case.build() for case in cases_of(KINDS, ("uniform",))]
    assert {type(d.model) for d in built} == set(MODELS.values()) - {Oracle, Restricted}
    assert {type(d.model.network) for d in built} == set(NETWORKS.values())
    assert set(NETWORKS.values()) == {MLPEnergy, TransformerEnergy, HollowTransformer, Denoiser}


# ---- (c) by brute force --------------------------------------------------------------------------------------------


def logarithms(diffusion, x, given=None):
    marginals = diffusion.marginals(x, SPREAD, None, given)
    return marginals.log_x0 if diffusion.model.implicit else marginals.log_xt


@over(cases_of(MASKED_KINDS))
def test_a_masked_model_is_one_copy_with_a_hidden_token_for_each_position(case):
    diffusion = case.build()
    network, x, given = diffusion.model.network, tokens(diffusion.process), marks()
    hidden = network.num_tokens - 1
    assert hidden == diffusion.process.num_symbols
    rows = []
    with torch.no_grad():
        for d in range(DIM):
            copied, still_given = x.clone(), given.clone()
            copied[:, d], still_given[:, d] = hidden, False
            rows.append(network(Query(copied, SPREAD, given=still_given))[:, d])
        expected = torch.stack(rows, dim=1).log_softmax(-1)
        predicted = logarithms(diffusion, x, given)[..., : expected.shape[-1]]
    torch.testing.assert_close(predicted, expected, rtol=ROUNDING, atol=ROUNDING)


@over([Case("masked-film", "uniform", True), Case("masked-grid", "absorbing", False)])
@pytest.mark.parametrize("chunk_tokens", [1, 37, 100])
def test_the_chunk_size_of_a_masked_model_does_not_matter(case, chunk_tokens):
    """37 tokens are seven copies of a row and its time, 100 are twenty."""
    whole, chunked = case.build(), case.build()
    chunked.model.chunk_tokens = chunk_tokens
    x = tokens(whole.process)
    weights = list(whole.parameters()), list(chunked.parameters())
    results = [logarithms(diffusion, x, marks())[..., : whole.process.num_states] for diffusion in (whole, chunked)]
    torch.testing.assert_close(*results, rtol=ROUNDING, atol=ROUNDING)
    gradients = [torch.autograd.grad(r.sum(), w) for r, w in zip(results, weights, strict=True)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)  # sums of some hundred terms of up to 10


@over(cases_of({**BINARY_KINDS, **ENERGY_KINDS}))
def test_an_energy_model_is_one_energy_for_each_value_of_each_position(case):
    """p(c) is proportional to exp(-f([c, x^{\\d}], t)), over the data states for x_0 and all symbols for x_t."""
    diffusion = case.build()
    network, x, process = diffusion.model.network, tokens(diffusion.process), diffusion.process
    classes = process.num_states if case.implicit else process.num_symbols
    weights = torch.zeros(BATCH, DIM, classes, dtype=torch.float64)
    with torch.no_grad():
        for d, c in itertools.product(range(DIM), range(classes)):
            copied = x.clone()
            copied[:, d] = c
            weights[:, d, c] = torch.exp(-network(Query(copied, SPREAD, given=marks())))
        predicted = logarithms(diffusion, x, marks())[..., :classes]
    expected = weights.log() - weights.sum(-1, keepdim=True).log()
    torch.testing.assert_close(predicted, expected, rtol=ROUNDING, atol=10 * ROUNDING)


# ---- (d) marks of what is given ------------------------------------------------------------------------------------

MARKED_KINDS = [k for k in KINDS if not k.startswith("energy-mlp")]


@over(cases_of(MARKED_KINDS, ("uniform", "absorbing")))
def test_being_told_that_a_position_is_given_moves_the_predictions_of_others(case):
    diffusion = case.build()
    x = tokens(diffusion.process) % diffusion.process.num_states
    nothing = torch.zeros(BATCH, DIM, dtype=torch.bool)
    elsewhere = (OWN + 1) % DIM
    with torch.no_grad():
        before = own(logarithms(diffusion, x, nothing))
        after = own(logarithms(diffusion, x, nothing.scatter(1, elsewhere[:, None], True)))
        assert torch.equal(before, own(logarithms(diffusion, x)))
    assert ((after - before).nan_to_num().abs().amax(-1) > 1e-9).all()


@over(cases_of({**MASKED_KINDS, **HOLLOW_KINDS}, ("uniform", "absorbing")))
def test_whether_a_position_is_itself_given_does_not_move_its_prediction(case):
    diffusion = case.build()
    x, given = tokens(diffusion.process), marks()
    with torch.no_grad():
        before = own(logarithms(diffusion, x, given))
        after = own(logarithms(diffusion, x, given.scatter(1, OWN[:, None], ~own(given)[:, None])))
    assert torch.equal(before, after)


@over(cases_of([k for k in KINDS if k.startswith("energy-mlp")], ("uniform",)))
def test_an_mlp_energy_takes_given_tokens_as_they_are(case):
    """It has no input for the marks; it may still be conditioned, as the tokens themselves are held."""
    diffusion = case.build()
    x = tokens(diffusion.process)
    assert torch.equal(logarithms(diffusion, x, marks()), logarithms(diffusion, x))


# ---- (e) leave-one-out ---------------------------------------------------------------------------------------------

STATES, PLACES = 3, 3
LAW = random_law(STATES, PLACES, seed=11)


class ExactDenoiser(Denoiser):
    """Logits that are the exact logarithm of p(x_0^d | x_t) for an enumerated law or, as a quotient, of
    p(x_0^d | x_t) / q_{t|0}(x_t^d | x_0^d)."""

    def __init__(self, process, quotient=False):
        super().__init__(
            process.num_symbols, process.num_states, Places(PLACES), Sizes(width=4, layers=1, heads=2, mlp=4)
        )
        self.process, self.quotient = process, quotient
        self.x0 = all_states(STATES, PLACES)

    def likelihoods(self, x, t):
        """q_{t|0}(x_t^d | c): (batch, dim, states)."""
        matrices = self.process.transition(torch.zeros_like(t), t)
        columns = [[matrices[b, :STATES, x[b, d]] for d in range(PLACES)] for b in range(len(x))]
        return torch.stack([torch.stack(row) for row in columns])

    def forward(self, query):
        x, t, positions = query.xt, query.t, query.positions
        likelihoods = self.likelihoods(x, t)
        fits = [likelihoods[:, e, self.x0[:, e]] for e in range(PLACES)]  # each (batch, rows of the law)
        posterior = torch.zeros(len(x), PLACES, STATES, dtype=torch.float64)
        for d in range(PLACES):
            used = [fit for e, fit in enumerate(fits) if e != d or not self.quotient]
            weights = LAW * torch.stack(used).prod(0)
            for c in range(STATES):
                posterior[:, d, c] = weights[:, self.x0[:, d] == c].sum(1)
        logits = torch.log(posterior / posterior.sum(-1, keepdim=True))
        if positions is not None:
            logits = torch.stack([row[where] for row, where in zip(logits, positions, strict=True)])
        return logits


def exact(process, ordinary):
    network = ExactDenoiser(process, quotient=not ordinary)
    return Diffusion(process, LeaveOneOut(network, ordinary=ordinary)).eval()


def truth(process):
    return Diffusion(process, Oracle.from_joint(LAW.reshape([STATES] * PLACES)))


@pytest.fixture(params=PROCESSES)
def process(request):
    return PROCESSES[request.param]()


@pytest.fixture(params=[True, False], ids=["ordinary", "quotient"])
def ordinary(request):
    return request.param


def tells_nothing_of_itself(process, x):
    """Where an ordinary denoiser's quotient is 0/0: an absorbing process that did not mask has shown x_0^d itself, the
    denoiser is certain of it, and what the other positions said of it is lost. No rate leads back from such a position,
    so neither a sampler nor a loss asks. Everywhere else the quotient is exact."""
    if isinstance(process, Absorbing):
        return x != process.mask
    return torch.zeros_like(x, dtype=torch.bool)


@pytest.mark.parametrize("t", [0.01, 0.3, 1.0])
def test_an_exact_denoiser_knows_the_conditionals_that_do_not_look_at_the_token(process, ordinary, t):
    x = states_of(process, PLACES)
    with torch.no_grad():
        ours = exact(process, ordinary).marginals(x, times(t, len(x)))
        theirs = truth(process).marginals(x, times(t, len(x)))
    known = ~tells_nothing_of_itself(process, x) if ordinary else torch.ones_like(x, dtype=torch.bool)
    assert known.any()
    # The quotient divides by likelihoods of down to 1e-4, which multiplies the rounding of the posterior.
    for one, other in ((ours.log_x0, theirs.log_x0), (ours.log_xt, theirs.log_xt)):
        torch.testing.assert_close(one[known].exp(), other[known].exp(), rtol=1e-9, atol=1e-9)
    if ordinary:
        certain = tells_nothing_of_itself(process, x)
        assert torch.equal(ours.log_x0[certain].argmax(-1), x[certain])
        assert (ours.log_x0[certain].amax(-1) == 0).all()


@pytest.mark.parametrize("t", [0.01, 0.3, 1.0])
def test_the_quotient_of_an_exact_denoiser_does_not_move_with_the_token(process, ordinary, t):
    x = states_of(process, PLACES)
    with torch.no_grad():
        log_x0 = exact(process, ordinary).marginals(x, times(t, len(x))).log_x0
    symbols = process.num_symbols
    cube, tokens_cube = (
        log_x0.exp().reshape(*[symbols] * PLACES, PLACES, symbols),
        x.reshape(*[symbols] * PLACES, PLACES),
    )
    for d in range(PLACES):
        each, own_token = cube[..., d, :].movedim(d, 0), tokens_cube[..., d].movedim(d, 0)
        known = ~tells_nothing_of_itself(process, own_token) if ordinary else torch.ones_like(own_token).bool()
        values = [value for value in range(symbols) if known[value].all()]
        assert values
        for value in values[1:]:
            torch.testing.assert_close(each[value], each[values[0]], rtol=1e-9, atol=1e-9)


def test_leave_one_out_says_that_it_sees_the_token_and_predicts_the_data():
    for kind in SEEING_KINDS:
        model = Case(kind, "uniform", True).build().model
        assert model.sees_own_token
        assert model.implicit


@over(cases_of(SEEING_KINDS))
def test_an_untrained_denoiser_does_move_with_the_token(case):
    """Which is why only the losses made for that may train it."""
    each = predictions_for_each_own_value(case.build()).nan_to_num(neginf=0)
    assert ((each[1:] - each[:1]).abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize(
    "loss", [ratio_matching, conditional_ratio_matching, x0_cross_entropy], ids=lambda x: x.__name__
)
def test_losses_that_hide_the_token_refuse_a_model_that_sees_it(loss):
    diffusion = Case("leave-one-out", "uniform", True).build()
    sentence = (
        f"{loss.__name__} needs a model whose prediction at d does not look at x_t\\^d, but this one does. "
        "Train it with denoising_cross_entropy or ct_elbo."
    )
    with pytest.raises(ValueError, match=sentence):
        loss(diffusion, tokens(diffusion.process))


def noised(process, dim=PLACES, batch=200, seed=0):
    x0 = torch.randint(process.num_states, (batch, dim), generator=seeded(seed))
    t = torch.linspace(0.02, 1, batch, dtype=torch.float64)
    return x0, process.noise(x0, t, seeded(seed + 1)), t


def test_the_denoising_loss_of_an_ordinary_denoiser_is_its_own_cross_entropy(process):
    """Division by the likelihood and multiplication with it again change nothing. (A denoiser that is not sure of a
    token that was not masked is corrected: there x_0^d = x_t^d, and the loss is 0.)"""
    network = with_random_weights(
        Denoiser(process.num_symbols, STATES, Places(PLACES), Sizes(width=4, layers=1, heads=2, mlp=4))
    ).double()
    diffusion = Diffusion(process, LeaveOneOut(network, ordinary=True))
    x0, xt, t = noised(process)
    with torch.no_grad():
        loss = denoising_cross_entropy(diffusion, x0, t=t, xt=xt)
        own_loss = F.cross_entropy(network(Query(xt, t)).mT, x0, reduction="none")
    own_loss[tells_nothing_of_itself(process, xt)] = 0
    torch.testing.assert_close(loss, own_loss, rtol=1e-9, atol=1e-9)


def test_the_denoising_loss_of_a_quotient_is_the_cross_entropy_of_its_product_with_the_likelihood(process):
    network = with_random_weights(
        Denoiser(process.num_symbols, STATES, Places(PLACES), Sizes(width=4, layers=1, heads=2, mlp=4))
    ).double()
    diffusion = Diffusion(process, LeaveOneOut(network))
    x0, xt, t = noised(process)
    likelihood = process.likelihood(xt, torch.zeros_like(t), t)[..., :STATES]
    with torch.no_grad():
        loss = denoising_cross_entropy(diffusion, x0, t=t, xt=xt)
        product = network(Query(xt, t)).softmax(-1) * likelihood
    denoiser = product / product.sum(-1, keepdim=True)
    expected = -denoiser.gather(-1, x0[..., None]).squeeze(-1).log()
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)


def test_the_denoising_loss_of_an_exact_denoiser_is_that_of_the_exact_posterior(process, ordinary):
    x0, xt, t = noised(process)
    with torch.no_grad():
        loss = denoising_cross_entropy(exact(process, ordinary), x0, t=t, xt=xt)
        expected = F.cross_entropy(ExactDenoiser(process)(Query(xt, t)).mT, x0, reduction="none")
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)


def test_the_elbo_of_a_model_that_sees_the_token_is_the_sum_at_the_drawn_token(process):
    """sum over y != x of R - R^ + R^ log(R^ / R), with R = Q_t(y, x) p(y) / p(x) and R^ = Q_t(y, x) q(y) / q(x)."""
    network = with_random_weights(
        Denoiser(process.num_symbols, STATES, Places(PLACES), Sizes(width=4, layers=1, heads=2, mlp=4))
    ).double()
    diffusion = Diffusion(process, LeaveOneOut(network))
    x0, xt, t = noised(process, batch=60)
    with torch.no_grad():
        values = ct_elbo(diffusion, x0, t=t, xt=xt)
        p = diffusion.marginals(xt, t).log_xt.exp()
    q = process.transition(torch.zeros_like(t), t)
    rates = process.rate_to(xt, t)
    for b, d in itertools.product(range(60), range(PLACES)):
        x, expected = int(xt[b, d]), 0.0
        for y in range(process.num_symbols):
            rate = float(rates[b, d, y])
            if rate > 0:
                model = rate * float(p[b, d, y] / p[b, d, x])
                true = rate * float(q[b, x0[b, d], y] / q[b, x0[b, d], x])
                expected += model - true
                if true > 0:
                    expected += true * torch.log(torch.tensor(true / model, dtype=torch.float64)).item()
        assert float(values[b, d]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("t", [0.1, 0.7])
def test_the_elbo_at_the_drawn_token_has_the_mean_of_the_one_that_sums_over_it_for_an_exact_model(process, ordinary, t):
    """Summed over every x_0 and x_t: the exact model sees the token but does not use it."""
    x0, xt = all_states(STATES, PLACES), states_of(process, PLACES)
    place = process.num_symbols ** torch.arange(PLACES - 1, -1, -1)
    joint = LAW[:, None] * transition(process, PLACES, 0, t)[(x0 * place).sum(1)]
    pairs = (joint > 0).nonzero()
    first, second, weight = x0[pairs[:, 0]], xt[pairs[:, 1]], joint[pairs[:, 0], pairs[:, 1]]
    with torch.no_grad():
        means = [
            weight @ ct_elbo(diffusion, first, t=times(t, len(first)), xt=second)
            for diffusion in (exact(process, ordinary), truth(process))
        ]
    torch.testing.assert_close(means[0], means[1], rtol=1e-8, atol=1e-8)
    assert (means[0] > 1e-3).all()


# ---- (f) saved and loaded ------------------------------------------------------------------------------------------


@every_case
def test_a_saved_model_says_the_same_when_loaded(case, tmp_path):
    diffusion = case.build().float()
    diffusion.save_pretrained(tmp_path)
    loaded = Diffusion.from_pretrained(tmp_path)
    assert not loaded.training
    assert (loaded.model.implicit, loaded.model.sees_own_token) == (case.implicit, diffusion.model.sees_own_token)
    assert loaded.length == diffusion.length
    x = tokens(diffusion.process)
    assert torch.equal(predictions(loaded, x, given=marks()), predictions(diffusion, x, given=marks()))


def test_options_of_a_model_are_saved_with_it(tmp_path):
    process = PROCESSES["uniform"]()
    network = made(Denoiser, 3, 3, length=DIM, **SMALL, film_blocks=0, dropout=0.25)
    Diffusion(process, LeaveOneOut(network, ordinary=True)).save_pretrained(tmp_path / "denoiser")
    loaded = Diffusion.from_pretrained(tmp_path / "denoiser").model
    assert loaded.ordinary
    assert loaded.network.body.dropout.p == 0.25
    Diffusion(process, Masked(made(Denoiser, 4, 3, grid=(2, 2), **SMALL), chunk_tokens=99)).save_pretrained(
        tmp_path / "masked"
    )
    loaded = Diffusion.from_pretrained(tmp_path / "masked").model
    assert loaded.chunk_tokens == 99
    assert loaded.network.body.places.tables[0].shape == (2, 8)


# ---- (g) sampled ---------------------------------------------------------------------------------------------------


def draw(diffusion, **options):
    return sample(diffusion, 2, steps=3, generator=seeded(5), length=DIM, **options)


@every_case
def test_every_model_can_be_sampled_and_the_batch_size_does_not_matter(case):
    diffusion = case.build()
    together, apart = draw(diffusion), draw(diffusion, batch_size=1)
    assert together.shape == (2, DIM)
    assert 0 <= int(together.min()) <= int(together.max()) < diffusion.process.num_states
    assert torch.equal(together, apart)


@every_case
def test_every_model_can_continue_a_prefix_and_fill_a_hole(case):
    diffusion = case.build()
    prefix = torch.tensor([[1, 0], [0, 1]])
    continued = draw(diffusion, condition=Condition.from_prefix(prefix, DIM))
    assert torch.equal(continued[:, :2], prefix)
    blanks = torch.tensor([1, -1, 0, -1])
    filled = draw(diffusion, condition=Condition.from_blanks(blanks))
    assert torch.equal(filled[:, [0, 2]], torch.tensor([[1, 0]] * 2))
    assert int(continued.max()) < diffusion.process.num_states
    assert int(filled.max()) < diffusion.process.num_states


@over([case for case in cases_of(KINDS, ("uniform",)) if case.implicit])
@pytest.mark.parametrize("training", [True, False])
def test_sampling_is_done_without_dropout_and_leaves_the_mode_as_it_was(case, training):
    """Also when it fails half way."""
    diffusion = case.build().train(training)
    modes = []
    hook = diffusion.model.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    draw(diffusion)
    assert modes
    assert not any(modes)
    assert all(module.training == training for module in diffusion.modules())

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw(diffusion, callback=stop)
    hook.remove()
    assert all(module.training == training for module in diffusion.modules())


# ---- (h) some of the positions -------------------------------------------------------------------------------------


def mean_over_all_choices(monkeypatch, loss, diffusion, x0, choices, **options):
    """The mean of the loss over these choices of positions, each of which is equally likely to be drawn."""
    values = []
    for choice in choices:
        positions = torch.tensor(choice).expand(len(x0), -1)
        monkeypatch.setattr(noising, "random_positions", lambda *_, chosen=positions: chosen)
        with torch.no_grad():
            values.append(loss(diffusion, x0, num_positions=len(choice), **options))
    return torch.stack(values).mean(0)


PARTIAL_KINDS = ["energy-mlp-binary", "energy-mlp", "energy-transformer", "masked-film", "hollow-joint-learned"]


@over(cases_of(PARTIAL_KINDS, ("uniform", "one-way")))
@pytest.mark.parametrize("num", [1, 2])
def test_a_loss_at_some_positions_has_the_mean_of_the_whole(monkeypatch, case, num):
    """Averaged over all equally likely choices of positions it is the whole loss, position by position."""
    diffusion = case.build()
    x0 = tokens(diffusion.process)
    xt = diffusion.process.noise(x0, SPREAD, seeded(6))
    with torch.no_grad():
        whole = conditional_ratio_matching(diffusion, x0, t=SPREAD, xt=xt)
    choices = list(itertools.combinations(range(DIM), num))
    mean = mean_over_all_choices(monkeypatch, conditional_ratio_matching, diffusion, x0, choices, t=SPREAD, xt=xt)
    torch.testing.assert_close(mean, whole, rtol=ROUNDING, atol=10 * ROUNDING)


@over(cases_of(["energy-transformer", "masked-film"], ("uniform",)))
@pytest.mark.parametrize("num", [1, 2])
def test_a_loss_at_some_of_the_free_positions_has_the_mean_of_the_whole(monkeypatch, case, num):
    """Given positions are drawn last, so that all choices are among the free ones as long as there are enough."""
    diffusion = case.build()
    x0 = tokens(diffusion.process)
    xt = diffusion.process.noise(x0, SPREAD, seeded(6))
    condition = torch.zeros(BATCH, DIM, dtype=torch.bool)
    condition[:, 1] = True
    with torch.no_grad():
        whole = conditional_ratio_matching(diffusion, x0, t=SPREAD, xt=xt, given=condition)
    assert (whole[:, 1] == 0).all()
    choices = list(itertools.combinations([0, 2, 3], num))
    options = {"t": SPREAD, "xt": xt, "given": condition}
    mean = mean_over_all_choices(monkeypatch, conditional_ratio_matching, diffusion, x0, choices, **options)
    torch.testing.assert_close(mean, whole, rtol=ROUNDING, atol=10 * ROUNDING)


@over([Case("energy-mlp", "uniform", True), Case("masked-film", "uniform", True)])
def test_a_loss_at_drawn_positions_has_the_mean_of_the_whole(case, generator):
    """By draws as in training, within the error of their mean."""
    diffusion = case.build()
    draws = 2000
    x0 = tokens(diffusion.process)[:1].expand(draws, -1)
    xt = diffusion.process.noise(x0[:1], SPREAD[5:6], generator).expand(draws, -1)
    t = SPREAD[5:6].expand(draws)
    with torch.no_grad():
        whole = conditional_ratio_matching(diffusion, x0[:1], t=t[:1], xt=xt[:1]).sum()
        values = conditional_ratio_matching(diffusion, x0, t=t, xt=xt, num_positions=2, generator=generator).sum(-1)
    assert float(values.std()) > 1e-3
    assert abs(float(values.mean() - whole)) <= STANDARD_ERRORS * float(values.std()) / draws**0.5
