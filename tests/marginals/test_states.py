"""A model and a process of different numbers of states do not meet."""

import pytest
import torch
from torch import nn

from enumerated import TableModel, Watched, uniform
from sddm import Diffusion
from sddm.marginals import Energy, Hollow, LeaveOneOut, MarginalModel, Masked, Oracle, Restricted, Tempered
from sddm.networks import Denoiser, HollowTransformer, MLPEnergy, Places, Sizes, TransformerEnergy
from sddm.processes import Absorbing, Uniform
from sddm.schedules import Constant

TINY = Sizes(width=8, layers=1, heads=2, mlp=8)
PLACES = Places(4)
FOUR, FIVE = Uniform(4, Constant(1.0)), Uniform(5, Constant(1.0))
MASKING = Absorbing(4, Constant(1.0))
X, T = torch.zeros(2, 4, dtype=torch.int64), torch.full((2,), 0.5)


class Plain(MarginalModel):
    """A model of the user's own, which says nothing of what it was built for."""

    def __init__(self, num_states, implicit=True):
        super().__init__()
        self.length, self.implicit = 4, implicit
        self.table = nn.Parameter(torch.zeros(4, num_states))

    def forward(self, process, query):
        return self.from_logits(self.table.expand(len(query.xt), -1, -1), process, query.t)


FITTING = {
    "mlp energy": (FOUR, lambda: Energy(MLPEnergy(4, 4, width=8))),
    "explicit energy with a mask": (MASKING, lambda: Energy(TransformerEnergy(5, PLACES, TINY), implicit=False)),
    "hollow with a mask": (MASKING, lambda: Hollow(HollowTransformer(5, 4, PLACES, TINY))),
    "explicit hollow with a mask": (MASKING, lambda: Hollow(HollowTransformer(5, 5, PLACES, TINY), implicit=False)),
    "masked": (FOUR, lambda: Masked(Denoiser(5, 4, PLACES, TINY))),
    "masked with a mask": (MASKING, lambda: Masked(Denoiser(6, 4, PLACES, TINY))),
    "leave one out": (FOUR, lambda: LeaveOneOut(Denoiser(4, 4, PLACES, TINY))),
    "of fewer values than states": (FIVE, lambda: Restricted(Hollow(HollowTransformer(5, 5, PLACES, TINY)), [2] * 4)),
    "the user's own": (MASKING, lambda: Plain(4)),
    "the user's own of x_t": (MASKING, lambda: Plain(5, implicit=False)),
}


@pytest.mark.parametrize(("process", "make"), FITTING.values(), ids=list(FITTING))
def test_a_model_for_the_states_of_its_process_is_taken(process, make):
    log_xt = Diffusion(process, make()).marginals(X, T).log_xt
    assert log_xt.shape == (2, 4, process.num_symbols)


REFUSED = {
    "mlp energy": (FIVE, lambda: Energy(MLPEnergy(4, 4, width=8)), "num_tokens=4.* needs 5"),
    "energy without the mask": (MASKING, lambda: Energy(MLPEnergy(4, 4, width=8)), "num_tokens=4.* needs 5"),
    "energy of more": (FOUR, lambda: Energy(TransformerEnergy(5, PLACES, TINY)), "num_tokens=5.* needs 4"),
    "hollow of fewer": (FIVE, lambda: Hollow(HollowTransformer(4, 4, PLACES, TINY)), "num_tokens=4.* needs 5"),
    "hollow that gives more": (FOUR, lambda: Hollow(HollowTransformer(4, 5, PLACES, TINY)), "num_classes=5.* needs 4"),
    "hollow that predicts masks": (
        MASKING,
        lambda: Hollow(HollowTransformer(5, 5, PLACES, TINY)),
        "num_classes=5.* needs 4",
    ),
    "masked without the hidden token": (FOUR, lambda: Masked(Denoiser(4, 4, PLACES, TINY)), "num_tokens=4.* needs 5"),
    "leave one out": (FIVE, lambda: LeaveOneOut(Denoiser(4, 4, PLACES, TINY)), "num_tokens=4.* needs 5"),
    "a wrapped one": (FIVE, lambda: Tempered(LeaveOneOut(Denoiser(4, 4, PLACES, TINY)), 0.5), "num_tokens=4.* needs 5"),
    "restricted to more values": (
        FOUR,
        lambda: Restricted(Hollow(HollowTransformer(4, 4, PLACES, TINY)), [2, 5, 2, 2]),
        "sizes of Restricted go up to 5",
    ),
    "oracle": (FOUR, lambda: Oracle.from_joint(torch.full((5, 5), 0.04)), "tokens up to 4.* only 4 states"),
}


@pytest.mark.parametrize(("process", "make", "sentence"), REFUSED.values(), ids=list(REFUSED))
def test_a_model_for_other_states_is_refused_before_it_is_used(process, make, sentence):
    model = make()
    with pytest.raises(ValueError, match=sentence):
        Diffusion(process, model)


@pytest.mark.parametrize(("process", "made_for", "implicit"), [(FIVE, 4, True), (FOUR, 5, True), (MASKING, 4, False)])
def test_a_model_that_does_not_say_what_it_was_built_for_is_refused_when_it_is_asked(process, made_for, implicit):
    diffusion = Diffusion(process, Plain(made_for, implicit))
    with pytest.raises(ValueError, match=f"Plain gives {made_for} logits a position, .* needs"):
        diffusion.marginals(X, T)
    with pytest.raises(ValueError, match="Plain gives"):
        diffusion.sample(2, steps=2)


def test_models_without_a_network_are_not_asked_for_one():
    Diffusion(uniform(), Watched(TableModel(uniform(), 2)))
