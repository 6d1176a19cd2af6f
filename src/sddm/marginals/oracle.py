"""The truth: exact conditionals of a distribution that can be enumerated."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sddm import _checks
from sddm.config import as_float64
from sddm.marginals.base import MarginalModel, Marginals
from sddm.processes import Process
from sddm.query import Query, at_positions


class Oracle(MarginalModel):
    """Exact conditionals when the data law puts probability p_n on the row x_n, n = 1 .. N:

        p_{0|t}(X_0^d = c | x_t^{\\d})  is proportional to  sum_n p_n [x_n^d = c] prod_{e != d} q_{t|0}(x_t^e | x_n^e).

    The rows may be all of a small space or the rows of a data set (then it is the exact model of that data set, which
    memorises it). Given positions count as seen without noise. Where x_t^{\\d} is impossible the answer is uniform.
    """

    def __init__(self, states: Tensor | list[list[int]], probabilities: Tensor | list[float]) -> None:
        super().__init__()
        try:
            states = torch.as_tensor(states).clone()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError("states must be a tensor or a list of rows of the same length.") from error
        law = as_float64(probabilities, "probabilities")
        _checks.require(
            states.ndim == 2 and states.dtype == torch.int64 and states.numel() > 0,
            f"states must be int64 tokens of shape (rows, dim), but have {tuple(states.shape)} of {states.dtype}.",
        )
        _checks.require(int(states.min()) >= 0, f"states must not be negative, but they hold {int(states.min())}.")
        self._probabilities = law
        self.register_buffer("states", states, persistent=False)
        normalised = _checks.law(law, len(states), "probabilities")
        self.register_buffer("probabilities", normalised, persistent=False)
        self.states: Tensor
        self.probabilities: Tensor
        self.length = states.shape[1]
        self.implicit = True
        self.largest_token = int(states.max())

    @classmethod
    def from_joint(cls, joint: Float[Tensor, "*states"]) -> Oracle:
        """From a table of probabilities with one axis a position: joint[x^1, ..., x^D]."""
        joint = _checks.tensor(joint, "joint")
        _checks.require(joint.ndim >= 1, "joint must have an axis for each position, but it has none.")
        states = torch.cartesian_prod(*[torch.arange(n) for n in joint.shape]).reshape(-1, joint.ndim)
        return cls(states, joint.reshape(-1))

    @property
    def num_labels(self) -> int:
        return 0

    def check(self, process: Process) -> None:
        _checks.require(
            self.largest_token < process.num_states,
            f"states of the oracle hold tokens up to {self.largest_token}, but the process has only "
            f"{process.num_states} states. Build both for the same number.",
        )

    def forward(self, process: Process, query: Query) -> Marginals:
        xt = query.xt
        _checks.require(query.padding is None, "padding: the Oracle knows rows of one length only.")
        likelihood = process.likelihood_by(xt, process.tau(0.0, query.t), torch.float64)
        if query.given is not None:
            exactly = torch.zeros_like(likelihood).scatter_(-1, xt[..., None], 1)
            likelihood = torch.where(query.given[..., None], exactly, likelihood)
        rows = self.states.T[None].expand(xt.shape[0], -1, -1)
        fit = likelihood.gather(-1, rows).transpose(1, 2)  # (batch, rows, dim): q_{t|0}(x_t^e | x_n^e)
        weights = self.probabilities[:, None] * _product_of_others(fit)
        law = torch.zeros(*xt.shape, process.num_symbols, dtype=torch.float64, device=xt.device)
        law.scatter_add_(-1, rows, weights.transpose(1, 2))
        data = law[..., : process.num_states]
        total = data.sum(-1, keepdim=True)
        data.copy_(torch.where(total > 0, data / total, 1 / process.num_states))
        return Marginals.from_x0(at_positions(law, query.positions).log(), process, query.t)


def _product_of_others(values: Float64[Tensor, "batch rows dim"]) -> Float64[Tensor, "batch rows dim"]:
    """prod over e != d, from products up to d and from d on, so that no zero is divided out."""
    one = torch.ones_like(values[..., :1])
    before = torch.cat([one, values[..., :-1]], dim=-1).cumprod(-1)
    after = torch.cat([values[..., 1:], one], dim=-1).flip(-1).cumprod(-1).flip(-1)
    return before * after
