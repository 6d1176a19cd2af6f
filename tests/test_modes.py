"""Whatever evaluates a model leaves each of its parts in the mode in which it was."""

import pytest
import torch

from enumerated import TableModel, Watched, seeded, uniform
from sddm import Diffusion, sample
from sddm.likelihood import bound


def sampled(diffusion, **options):
    sample(diffusion, 2, 2, generator=seeded(0), **options)


EVALUATIONS = {
    "sample": sampled,
    "sample at a temperature": lambda diffusion: sampled(diffusion, temperature=0.5),
    "bound": lambda diffusion: bound(diffusion, torch.zeros(2, 2, dtype=torch.int64), 8, generator=seeded(0)),
}


@pytest.mark.parametrize("evaluate", EVALUATIONS.values(), ids=EVALUATIONS)
def test_a_submodule_that_was_in_evaluation_mode_stays_in_it(evaluate):
    watched = Watched(TableModel(uniform(), 2))
    diffusion = Diffusion(uniform(), watched).train()
    watched.inner.eval()
    evaluate(diffusion)
    assert watched.training
    assert not watched.inner.training
    assert watched.asked
    assert not any(call["training"] for call in watched.asked)
