"""A learned sampler of bits that writes a first draft and then corrects it, one bit at a time.

    x^0 ~ q_0,    then at each x^{i-1} either stop, or choose a position d ~ q_A(d | x^{i-1}) and turn the bit there

    q(x^0, ..., x^t) = q_0(x^0) prod_{i=1..t} q_A(d_i | x^{i-1}) . q_A(stop | x^t)

With two values a position, choosing the position chooses the new value too; stopping is one more choice beside the D
positions. After `max_edits` edits the sampler always stops. The probability q(x) that it ends in x is a sum over all
trajectories to x. The inverse proposal q' draws such trajectories backwards, starting from x:

    t is geometric, cut off at max_edits;   then t times a position not yet used, uniformly, and its bit is turned back

    q'(x^0, ..., x^{t-1} | x^t = x) = P(t) / (D (D - 1) ... (D - t + 1))

It leaves out trajectories that turn a bit forth and back, so what it estimates is q(x) less the share of these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sddm import _checks
from sddm.randomness import Stream, categorical


class BlockLinear(nn.Linear):
    """A linear layer from D blocks of `inputs` numbers to D blocks of `outputs`: block d reads the blocks before d and,
    unless `strict`, block d.
    """

    mask: Tensor

    def __init__(self, length: int, inputs: int, outputs: int, strict: bool = False) -> None:
        super().__init__(length * inputs, length * outputs)
        self.inputs, self.outputs, self.strict = inputs, outputs, strict
        reads = torch.ones(length, length).tril(-1 if strict else 0)
        mask = reads.repeat_interleave(outputs, dim=0).repeat_interleave(inputs, dim=1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, h: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch outputs"]:
        return F.linear(h, self.weight * self.mask, self.bias)

    def block(self, h: Float[Tensor, "batch inputs"], d: int) -> Float[Tensor, "batch outputs"]:
        """Block d of the result, for which h need not be known beyond what the block reads."""
        seen, rows = self.inputs * (d if self.strict else d + 1), slice(d * self.outputs, (d + 1) * self.outputs)
        return F.linear(h[:, :seen], self.weight[rows, :seen], self.bias[rows])


class Draft(nn.Module):
    """q_0(x) = prod_d q_0(x^d | x^{<d}): a network with two hidden layers, masked so that the output for each position
    sees only the positions before it.

    Hidden layers have D blocks of `units`, and block d is a function of x^{<d}. So one pass gives log q_0 of whole
    rows. A draw goes through the positions in order and computes
    only the blocks of each: together this is the work of one pass.
    """

    def __init__(self, length: int, units: int) -> None:
        super().__init__()
        self.length, self.units = length, units
        self.first = BlockLinear(length, 1, units, strict=True)
        self.middle = BlockLinear(length, units, units)
        self.last = BlockLinear(length, units, 1)

    def forward(self, x: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """The logit of x^d = 1 given x^{<d}, for every d."""
        return self.last(F.elu(self.middle(F.elu(self.first(_signs(x))))))

    def log_prob(self, x: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch"]:
        """log q_0(x)."""
        return F.logsigmoid(_signs(x) * self(x)).sum(1)

    @torch.no_grad()
    def sample(self, num: int, generator: torch.Generator) -> Int[Tensor, "num dim"]:
        """Draw `num` rows."""
        like = self.first.weight
        uniforms = Stream(generator).uniform((num, self.length), like.device)
        x = torch.zeros(num, self.length, dtype=torch.int64, device=like.device)
        signs = like.new_zeros(num, self.length)
        lower, upper = like.new_zeros(2, num, self.length * self.units)
        for d in range(self.length):
            block = slice(d * self.units, (d + 1) * self.units)
            lower[:, block] = F.elu(self.first.block(signs, d))
            upper[:, block] = F.elu(self.middle.block(lower, d))
            logit = self.last.block(upper, d).squeeze(1)
            x[:, d] = uniforms[:, d] < logit.double().sigmoid()
            signs[:, d] = _signs(x[:, d])
        return x


class Trajectories(NamedTuple):
    """Ways to a row x, as drawn by the inverse proposal: `num` of them for each of `batch` rows."""

    edits: Int[Tensor, "batch num"]
    """t, how many edits lie between x^0 and x."""
    order: Int[Tensor, "batch num dim"]
    """Each position's number, from 0, in the order of turning back: those below t were turned back."""
    log_proposal: Float[Tensor, "batch num"]
    """log q'(x^0, ..., x^{t-1} | x)."""


class EditingSampler(nn.Module):
    """The learned sampler: a draft and an editor.

    length: D, the number of bits.
    width: of the editor's two hidden layers; the draft's have as many units, rounded up to whole blocks.
    max_edits: the most edits a draft gets.
    inverse_stop: the probability with which the inverse proposal stops after each edit.
    """

    def __init__(self, length: int, width: int, max_edits: int = 16, inverse_stop: float = 0.5) -> None:
        super().__init__()
        self.length = _checks.whole(length, "length", 1)
        _checks.whole(width, "width", 1)
        # The inverse proposal turns each position back at most once.
        self.max_edits = min(_checks.whole(max_edits, "max_edits", 0), length)
        self.inverse_stop = _checks.positive(inverse_stop, "inverse_stop")
        _checks.require(inverse_stop < 1, f"inverse_stop must be below 1, but it is {inverse_stop:g}.")
        self.draft = Draft(length, units=-(-width // length))
        last = nn.Linear(width, length + 1)
        with torch.no_grad():
            # Untrained, the editor stops about as soon as the inverse proposal does.
            last.bias[-1] = math.log(length * inverse_stop / (1 - inverse_stop))
        self.editor = nn.Sequential(nn.Linear(length, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), last)

    def choices(self, x: Int[Tensor, "batch dim"]) -> Float[Tensor, "batch choices"]:
        """log q_A(. | x): the D positions, and last to stop."""
        return F.log_softmax(self.editor(_signs(x)), dim=1)

    @torch.no_grad()
    def sample(self, num: int, generator: torch.Generator) -> Int[Tensor, "num dim"]:
        """Draw `num` rows: drafts, edited until each stops."""
        x = self.draft.sample(num, generator)
        active = torch.arange(num, device=x.device)
        for _ in range(self.max_edits):
            choice = categorical(self.choices(x[active]).exp(), Stream(generator))
            going = choice < self.length
            active, position = active[going], choice[going]
            if not len(active):
                break
            x[active, position] = 1 - x[active, position]
        return x

    def inverse(self, batch: int, num: int, generator: torch.Generator) -> Trajectories:
        """Draw `num` trajectories for each of `batch` rows from the inverse proposal q', which looks at no row."""
        device = self.draft.first.weight.device
        stream = Stream(generator)
        # P(t >= k) = (1 - inverse_stop)^k, by inverting it at one uniform.
        edits = (1 - stream.uniform((batch, num), device)).log().div(math.log1p(-self.inverse_stop))
        edits = edits.floor().clamp(max=self.max_edits).long()
        order = stream.uniform((batch, num, self.length), device).argsort(dim=-1)
        ways = torch.arange(self.length, 0, -1, device=device).double().log()
        log_orders = F.pad(-ways.cumsum(0), (1, 0))[edits]
        stopped = (edits < self.max_edits) * math.log(self.inverse_stop)
        log_proposal = edits * math.log1p(-self.inverse_stop) + stopped + log_orders
        return Trajectories(edits, order, log_proposal.float())

    def log_joint(self, x: Int[Tensor, "batch dim"], ways: Trajectories) -> Float[Tensor, "batch num"]:
        """log q(x^0, ..., x^t = x) of each trajectory."""
        edits, order = ways.edits, ways.order
        drafts = x[:, None] ^ (order < edits[..., None])
        log_joint = self.draft.log_prob(drafts.flatten(0, 1)).unflatten(0, edits.shape)
        stop = self.choices(x)[:, -1:]
        log_joint = log_joint + stop.masked_fill(edits == self.max_edits, 0.0)
        # State x with n positions turned back, n = 1 .. t, was left by turning the n-th of them forth again.
        back = torch.arange(1, self.max_edits + 1, device=x.device)
        row, way, n = (back <= edits[..., None]).nonzero(as_tuple=True)
        states = x[row] ^ (order[row, way] < n[:, None] + 1)
        position = (order[row, way] == n[:, None]).long().argmax(dim=1, keepdim=True)
        steps = self.choices(states).gather(1, position).squeeze(1)
        return log_joint.index_put((row, way), steps, accumulate=True)

    def bound(self, x: Int[Tensor, "batch dim"], num: int, generator: torch.Generator) -> Float[Tensor, "batch"]:
        """A lower bound, in expectation, on log q(x), where q is the law of what `sample` draws:

            log 1/K sum_{k=1..K} q(x^0, ..., x^t = x) / q'(x^0, ..., x^{t-1} | x)  at K trajectories from q'

        Its gradient is that of the log-probabilities of the K trajectories, weighted by their normalised ratios q / q'.
        """
        ways = self.inverse(len(x), num, generator)
        return (self.log_joint(x, ways) - ways.log_proposal).logsumexp(1) - math.log(num)


def _signs(x: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Bits as -1 and 1."""
    return (2 * x - 1).float()
