"""Exact mathematics on small spaces, for tests: every state, every matrix, every law written out in float64.

The states of C^D stand in lexicographic order, the first position slowest, so that a law of the whole is a vector of
C^D numbers, and the matrix of D independent positions is a Kronecker product.
"""

import math
from functools import reduce

import numpy as np
import torch
from scipy import stats

from sddm import Diffusion
from sddm.marginals import MarginalModel, Marginals, Oracle
from sddm.marginals.wrappers import Wrapper
from sddm.processes import PROCESSES, Absorbing, CustomRate, Uniform
from sddm.query import Query, at_positions
from sddm.randomness import Stream
from sddm.samplers.jumps import reverse_rates
from sddm.schedules import Constant, Exponential, LogSquare

ROUNDING = 1e-12
"""Sums of up to a few thousand float64 products of numbers of order 1."""

ONE_WAY = [[-1.3, 1.0, 0.3], [0.2, -0.9, 0.7], [1.1, 0.1, -1.2]]
"""Rates that prefer to go round in one direction, 0 -> 1 -> 2 -> 0: not symmetric and not reversible."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# ---- processes, data and models ------------------------------------------------------------------------------------


def uniform(share=0.1, num_states=3):
    return Uniform(num_states, LogSquare(1.0)).leaving(share)


def absorbing(share=0.1, num_states=3):
    return Absorbing(num_states, Constant(1.0)).leaving(share)


def one_way(share=0.1):
    return CustomRate(ONE_WAY, Exponential(0.5, 1.5)).leaving(share)


def process_named(name, share=0.1, num_states=3):
    """A member of the family of processes by the name under which it is listed."""
    if PROCESSES[name] is CustomRate:
        return one_way(share)
    return PROCESSES[name](num_states, LogSquare(1.0)).leaving(share)


ENUMERABLE = {"uniform": uniform, "absorbing": absorbing, "not reversible": one_way}
"""One process of each kind, by name."""


def random_law(num_states, dim, seed, impossible=0):
    """A law on C^D without any independence; `impossible` states have probability 0."""
    generator = seeded(seed)
    law = torch.rand(num_states**dim, generator=generator, dtype=torch.float64) ** 2 + 0.02
    law[torch.randperm(len(law), generator=generator)[:impossible]] = 0
    return law / law.sum()


def oracle(process, law, dim):
    return Diffusion(process, Oracle.from_joint(law.reshape([process.num_states] * dim)))


class TableModel(MarginalModel):
    """A model that is not the truth: its logits at d are a table over x^{\\d}, moving smoothly with t.

    With a `base` model the table is added to the logarithms that this predicts, so that it is a perturbation of it.
    With `sees_own_token` the table at d is one over all of x.
    """

    def __init__(self, process, length, implicit=True, scale=1.0, seed=0, base=None, sees_own_token=False):
        super().__init__()
        self.length, self.implicit, self.base, self.sees_own_token = length, implicit, base, sees_own_token
        self.num_symbols = process.num_symbols
        num_classes = process.num_states if implicit else process.num_symbols
        shape = (2, length, process.num_symbols**length, num_classes)
        table = scale * torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)
        self.table = torch.nn.Parameter(table)

    def forward(self, process, query):
        xt, t, positions = query.xt, query.t, query.positions
        place = self.num_symbols ** torch.arange(self.length - 1, -1, -1)
        own = 0 if self.sees_own_token else xt * place
        seen = (xt * place).sum(1, keepdim=True).expand_as(xt) - own
        where = torch.arange(self.length).expand_as(xt)
        rows = self.table[:, at_positions(where, positions), at_positions(seen, positions)]
        logits = rows[0] + rows[1] * torch.cos(3 * t).to(rows.dtype)[:, None, None]
        if self.base is not None:
            truth = self.base(process, query)
            log_p = truth.log_x0 if self.implicit else truth.log_xt
            logits = logits + log_p[..., : logits.shape[-1]]
        return self.from_logits(logits, process, t)


def table(process, dim, **options):
    return Diffusion(process, TableModel(process, dim, **options))


class Watched(MarginalModel):
    """Passes everything on to another model and remembers what was asked, and in which mode it was."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.length, self.implicit, self.sees_own_token = inner.length, inner.implicit, inner.sees_own_token
        self.asked = []

    def forward(self, process, query):
        self.asked.append({**query._asdict(), "training": self.training})
        return self.inner(process, query)

    @property
    def times(self):
        return [float(call["t"][0]) for call in self.asked]


class OfXt(Wrapper):
    """The same model, which does not say what it knows of x_0."""

    def __init__(self, model):
        super().__init__(model)
        self.implicit = False

    def changed(self, marginals, process, query):
        return Marginals(marginals.log_xt)


# ---- the whole space -----------------------------------------------------------------------------------------------


def all_states(num_symbols, dim):
    return torch.cartesian_prod(*[torch.arange(num_symbols)] * dim).reshape(-1, dim)


def states_of(process, dim):
    return all_states(process.num_symbols, dim)


def index_of(x, num_symbols):
    """Where each row of x stands among all states."""
    place = num_symbols ** torch.arange(x.shape[1] - 1, -1, -1)
    return (x * place).sum(1)


def times(t, rows):
    return torch.full((rows,), float(t), dtype=torch.float64)


def kron(matrices):
    return reduce(torch.kron, matrices)


def on_all_symbols(process, law, dim):
    """The same law of x_0 on the larger space that includes MASK."""
    whole = torch.zeros(process.num_symbols**dim, dtype=torch.float64)
    whole[index_of(all_states(process.num_states, dim), process.num_symbols)] = law
    return whole


def on_data_states(process, law, dim):
    """The part of a law that has no MASK."""
    return law[index_of(all_states(process.num_states, dim), process.num_symbols)]


def base_rates(process):
    """Q of one position, row = from, written out without the library."""
    n = process.num_symbols
    if isinstance(process, Uniform):
        return torch.ones(n, n, dtype=torch.float64) - n * torch.eye(n, dtype=torch.float64)
    if isinstance(process, Absorbing):
        Q = -torch.eye(n, dtype=torch.float64)
        Q[:, -1] += 1
        return Q
    return process.rate_matrix


def forward_rates(process, dim, t):
    """Q_t on the whole space: one position at a time jumps."""
    Q, one = base_rates(process), torch.eye(process.num_symbols, dtype=torch.float64)
    whole = sum(kron([Q if e == d else one for e in range(dim)]) for d in range(dim))
    return float(process.schedule.rate(t)) * whole


def transition(process, dim, s, t):
    """P_{s->t} on the whole space: every position by itself."""
    return kron([process.transition(times(s, 1), times(t, 1))[0]] * dim)


def law_at(process, law, dim, t):
    """q_t on the whole space, from the law of the data."""
    return on_all_symbols(process, law, dim) @ transition(process, dim, 0, t)


def reverse_transition(process, law, dim, t, s):
    """q_{s|t}, row = the state at the later time t:  q_s(x_s) q_{t|s}(x_t | x_s) / q_t(x_t)."""
    q_s, q_t = law_at(process, law, dim, s), law_at(process, law, dim, t)
    return (q_s[:, None] * transition(process, dim, s, t)).T / q_t[:, None]


def conditionals(law, num_symbols, dim):
    """pi(X^d = c | x^{\\d}) for every state x, of shape (states, dim, symbols)."""
    joint = law.reshape([num_symbols] * dim)
    states = all_states(num_symbols, dim)
    rows = torch.stack([joint.movedim(d, -1)[tuple(_without(states, d).T)] for d in range(dim)], dim=1)
    return rows / rows.sum(-1, keepdim=True)


def _without(states, d):
    return torch.cat([states[:, :d], states[:, d + 1 :]], dim=1)


def single_changes(x, num_symbols):
    """For each state x, position d and symbol c: the index of x with x^d replaced by c."""
    place = num_symbols ** torch.arange(x.shape[1] - 1, -1, -1)
    change = (torch.arange(num_symbols) - x[..., None]) * place[:, None]
    return index_of(x, num_symbols)[:, None, None] + change


def as_generator_matrix(rates, states, num_symbols):
    """Rates of single changes (..., states, dim, symbols), as matrices whose rows sum to zero."""
    n = len(states)
    matrix = torch.zeros(*rates.shape[:-3], n, n, dtype=torch.float64)
    target = single_changes(states, num_symbols).reshape(n, -1).expand(*rates.shape[:-3], -1, -1)
    matrix.scatter_add_(-1, target, rates.flatten(-2).double())
    return matrix - torch.diag_embed(matrix.sum(-1))


def model_rates(diffusion, t, dim):
    """The model's reverse rate matrices on the whole space at the times t: (times, states, states)."""
    process = diffusion.process
    states = states_of(process, dim)
    x = states.repeat(len(t), 1)
    each = t.double().repeat_interleave(len(states))
    with torch.no_grad():
        rates = reverse_rates(diffusion, Query(x, each))
    rates = rates * process.speed(each, rates.dtype)
    return as_generator_matrix(rates.reshape(len(t), len(states), dim, -1), states, process.num_symbols)


# ---- exact laws of one reverse step, position by position ----------------------------------------------------------


def _predictions(diffusion, t, dim):
    states = states_of(diffusion.process, dim)
    with torch.no_grad():
        marginals = diffusion.marginals(states, times(t, len(states)))
    return states, marginals


def position_rates(diffusion, t, dim):
    """All states, and the paper's R_t^d(x, c) = p_t(c | x^{\\d}) / p_t(x^d | x^{\\d}) Q(c, x^d), 0 at c = x^d."""
    states, marginals = _predictions(diffusion, t, dim)
    p = marginals.log_xt.double().exp()
    Q = base_rates(diffusion.process)
    rates = p / p.gather(-1, states[..., None]) * Q.T[states]
    return states, rates.scatter(-1, states[..., None], 0)


def elapsed(diffusion, s, t):
    """How far the clock runs between two times: the integral of the speed."""
    return float(diffusion.process.schedule.integral(s, t))


def jump_or_stay(states, hazard):
    """To c with probability hazard[c], else stay; clipped and normalised."""
    stay = (1 - hazard.sum(-1, keepdim=True)).clamp(min=0)
    law = hazard.scatter(-1, states[..., None], stay)
    return law / law.sum(-1, keepdim=True)


def euler_laws(diffusion, t, s, dim):
    """Section 4.2."""
    states, rates = position_rates(diffusion, t, dim)
    return jump_or_stay(states, elapsed(diffusion, s, t) * rates)


def analytical_laws(diffusion, t, s, dim):
    """Section 4.3: the sum over x_0^d of p_{0|t}(x_0^d) q_{t|s}(x_t^d | c) q_{s|0}(c | x_0^d), normalised over c."""
    states, marginals = _predictions(diffusion, t, dim)
    p0 = marginals.log_x0.double().exp()
    process = diffusion.process
    to_s = process.transition(times(0, 1), times(s, 1))[0]
    s_to_t = process.transition(times(s, 1), times(t, 1))[0]
    weights = torch.einsum("xda,ac,xdc->xdc", p0, to_s, s_to_t.T[states])
    return weights / weights.sum(-1, keepdim=True)


def single_leap_laws(diffusion, t, s, dim):
    """Poisson counts for every target; kept if there is exactly one jump."""
    states, rates = position_rates(diffusion, t, dim)
    mean = elapsed(diffusion, s, t) * rates
    once = mean * torch.exp(-mean.sum(-1, keepdim=True))
    return once.scatter(-1, states[..., None], 1 - once.sum(-1, keepdim=True))


def summed_leap_laws(diffusion, t, s, dim):
    """Poisson counts for every target whose distances add up, clipped; by convolution of the laws of the counts."""
    states, rates = position_rates(diffusion, t, dim)
    mean = (elapsed(diffusion, s, t) * rates).numpy()
    symbols, most = mean.shape[-1], 60
    span = symbols * most  # sums of at most `most` jumps in each direction of each length
    laws = np.zeros_like(mean)
    for n, d in np.ndindex(*mean.shape[:2]):
        x = int(states[n, d])
        total = np.zeros(2 * span + 1)
        total[span] = 1
        for c in range(symbols):
            if c == x:
                continue
            counts = stats.poisson.pmf(np.arange(most), mean[n, d, c])
            total = sum(counts[k] * np.roll(total, k * (c - x)) for k in range(most) if counts[k] > 1e-18)
        target = np.clip(x + np.arange(-span, span + 1), 0, symbols - 1)
        np.add.at(laws[n, d], target, total)
    return torch.from_numpy(laws)


def corrector_laws(diffusion, s, tau, dim):
    """Jumps with the rates R_s + Q for a short time of the clock."""
    states, rates = position_rates(diffusion, s, dim)
    forward = base_rates(diffusion.process)[states]
    rates = rates + forward.scatter(-1, states[..., None], 0)
    return jump_or_stay(states, tau * rates)


def finishing_laws(diffusion, t, dim):
    """Whatever is still MASK after the last step, from t to 0, is drawn from its conditional at t."""
    states, marginals = _predictions(diffusion, t, dim)
    num_states, num_symbols = diffusion.process.num_states, diffusion.process.num_symbols
    own = torch.nn.functional.one_hot(states, num_symbols).double()
    return torch.where((states == num_states)[..., None], marginals.log_x0.double().exp(), own)


def as_kernel(laws, num_symbols):
    """The kernel on the whole space when every position draws from its law by itself, row = from."""
    states = all_states(num_symbols, laws.shape[1])
    chosen = (
        laws[:, None].expand(-1, len(states), -1, -1).gather(-1, states[None, :, :, None].expand(len(laws), -1, -1, 1))
    )
    return chosen.squeeze(-1).prod(-1)


def law_after(laws_of, diffusion, start, grid, dim):
    """The law at the end of the grid, of a chain that has law `start` at its beginning and takes these steps."""
    law = start
    for t, s in zip(grid[:-1].tolist(), grid[1:].tolist(), strict=True):
        law = law @ as_kernel(laws_of(diffusion, t, s, dim), diffusion.process.num_symbols)
    return law


# ---- the exact law of what a model generates -----------------------------------------------------------------------


def start_law(diffusion, dim):
    """The law of x_T that sampling starts from, on the whole space: the prior or, with a MASK, the model's own."""
    process = diffusion.process
    if not isinstance(process, Absorbing):
        return kron([process.prior_law()] * dim)
    with torch.no_grad():
        all_mask = torch.full((1, dim), process.mask)
        p = diffusion.marginals(all_mask, times(1, 1)).log_xt[0].exp()
    return kron(list(p))


def generated_law(diffusion, dim, start=None, intervals=400, end=1e-7):
    """The law at time 0 of the model's reverse process: its master equation, solved on the clock log B(0, t).

    Per unit of this clock the rates, which may be of order 1/t, are bounded. Magnus' method of order 4 with all rates
    evaluated at once. The clock stops at B(0, t) = `end`; an implicit model takes one analytical step from there, which
    errs by the square of (dim * end), and any other stops (its rates are bounded, so it errs by `end` times these).
    """
    process = diffusion.process
    law = start_law(diffusion, dim) if start is None else start
    noise = float(process.schedule.integral(0.0, 1.0))
    clock = torch.linspace(math.log(noise), math.log(end), intervals + 1, dtype=torch.float64)
    h = float(clock[0] - clock[1])
    middle = (clock[1:] + clock[:-1]) / 2
    nodes = torch.stack([middle + h * math.sqrt(3) / 6, middle - h * math.sqrt(3) / 6]).exp()
    t = process.schedule.inverse(nodes.flatten())
    rates = model_rates(diffusion, t, dim) * (nodes.flatten() / process.schedule.rate(t))[:, None, None]
    first, second = rates.reshape(2, intervals, *rates.shape[1:])
    # dp/du = p A(u), for row vectors p, from the noise to the data
    exponent = h / 2 * (first + second) + math.sqrt(3) / 12 * h**2 * (first @ second - second @ first)
    for propagator in torch.linalg.matrix_exp(exponent):
        law = law @ propagator
    if diffusion.model.implicit:
        last = float(process.schedule.inverse(torch.tensor(end, dtype=torch.float64)))
        law = law @ as_kernel(analytical_laws(diffusion, last, 0.0, dim), process.num_symbols)
    return law


# ---- tests of draws ------------------------------------------------------------------------------------------------

UNLIKELY = 1e-4
"""Draws are doubted when a true law gives worse ones less often than this; seeds are fixed, so no test is flaky."""


def counts_of(x, num_symbols):
    return torch.bincount(index_of(x, num_symbols), minlength=num_symbols ** x.shape[1])


def chi_square(counts, law):
    """The chi-square statistic and its degrees of freedom; the rarest states are taken together to expect 5 of them."""
    counts, expected = counts.double(), law * counts.sum()
    assert counts[law <= 0].sum() == 0, "an impossible state was drawn"
    expected, order = expected.sort()
    counts = counts[order]
    together = int((expected.cumsum(0) < 5).sum()) + 1
    seen = torch.cat([counts[:together].sum()[None], counts[together:]])
    hoped = torch.cat([expected[:together].sum()[None], expected[together:]])
    return float(((seen - hoped) ** 2 / hoped).sum()), len(hoped) - 1


def p_value(counts, laws):
    """How often draws from these laws fit worse than these counts. Several rows: independent experiments."""
    rows = [chi_square(c, law) for c, law in zip(torch.atleast_2d(counts), torch.atleast_2d(laws), strict=True)]
    return float(stats.chi2.sf(sum(r[0] for r in rows), sum(r[1] for r in rows)))


def fit(diffusion, step, law, t, s, dim, each=2000, seed=0):
    """How well draws of a step from t to s, from every possible state, fit its law: that of each position from each
    state, if positions are independent, or the matrix of all transitions."""
    symbols = diffusion.process.num_symbols
    x = states_of(diffusion.process, dim).repeat_interleave(each, dim=0)
    with torch.no_grad():
        drawn = step(diffusion, Query(x, times(t, len(x))), times(s, len(x)), Stream(seeded(seed)))
    counts = torch.stack([counts_of(y, symbols) for y in drawn.split(each)])
    return p_value(counts, law if law.ndim == 2 else as_kernel(law, symbols))


def draw_states(law, num, num_symbols, dim, seed):
    """Independent states from a law on the whole space, without the library's own randomness."""
    index = np.random.default_rng(seed).choice(len(law), size=num, p=(law / law.sum()).numpy())
    return all_states(num_symbols, dim)[torch.from_numpy(index)]


def total_variation(p, q):
    return float((p - q).abs().sum()) / 2


def log_log_slope(x, y):
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
