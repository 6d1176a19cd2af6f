"""Enumerated laws p(y, x) of labels and rows, for tests of guidance: everything about them is known exactly."""

import torch

from enumerated import oracle, random_law
from sddm.marginals import MarginalModel, Marginals, Oracle
from sddm.marginals.wrappers import Wrapper
from sddm.query import NO_LABEL, at_positions


def random_joint(num_labels, num_states, dim, seed):
    """p(y, x) as a table (labels, C^D), without any independence."""
    each = torch.stack([random_law(num_states, dim, seed + label) for label in range(num_labels)])
    prior = torch.arange(1, num_labels + 1, dtype=torch.float64)
    return each * (prior / prior.sum())[:, None]


C, D, T = 3, 2, 0.4
"""States, positions, and a time on the way."""
JOINT = random_joint(2, C, D, seed=3)
NOISES = ["uniform", "absorbing", "birth-death", "discretized-gaussian"]


def of_label(process, label, joint=JOINT, dim=D):
    """The exact model of p(x | y), or of p(x) if there is no label."""
    law = joint.sum(0) if label is None else joint[label]
    return oracle(process, law / law.sum(), dim)


class LabelledOracle(MarginalModel):
    """The exact conditionals of p(y, x): given the label of each row, or of all data where a row has none."""

    implicit = True

    def __init__(self, joint, num_states, dim):
        super().__init__()
        laws = [*joint, joint.sum(0)]
        self.each = torch.nn.ModuleList(Oracle.from_joint((p / p.sum()).reshape([num_states] * dim)) for p in laws)
        self.length = dim

    @property
    def num_labels(self):
        return len(self.each) - 1

    def forward(self, process, query):
        label = torch.full_like(query.xt[:, 0], NO_LABEL) if query.label is None else query.label
        laws = torch.stack([one(process, query.at(None)).log_x0 for one in self.each])
        chosen = laws[label % len(self.each), torch.arange(len(label))]
        return Marginals.from_x0(at_positions(chosen, query.positions), process, query.t)


class Told(Wrapper):
    """A model that is told the same label for every row."""

    def __init__(self, model, label):
        super().__init__(model)
        self.label = label

    def forward(self, process, query):
        return self.model(process, query._replace(label=torch.full_like(query.xt[:, 0], self.label)))

    def changed(self, marginals, process, query):
        return marginals
