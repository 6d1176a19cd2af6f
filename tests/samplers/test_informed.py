"""The informed corrector: which choices of positions leave q_s invariant, by exact kernels on small spaces."""

import itertools
import math

import pytest
import torch

from enumerated import (
    ENUMERABLE,
    UNLIKELY,
    Watched,
    absorbing,
    fit,
    index_of,
    law_at,
    oracle,
    random_law,
    seeded,
    states_of,
    table,
    times,
    total_variation,
    uniform,
)
from sddm import Condition, Diffusion, sample
from sddm.samplers import Analytical, Informed, uniform_in_time

DIM, S = 3, 0.3


def choices(certainty, shown, num, temperature):
    """Every set of positions in the order of its choice, and its probability: one by one, without replacement."""
    open_positions = [d for d in range(len(shown)) if shown[d]]
    if not open_positions:
        return [((), 1.0)]
    weight = {d: math.exp(-float(certainty[d]) / temperature) for d in open_positions}
    found = []
    for order in itertools.permutations(open_positions, min(num, len(open_positions))):
        chance, left = 1.0, sum(weight.values())
        for d in order:
            chance *= weight[d] / left
            left -= weight[d]
        found.append((order, chance))
    return found


def kernel(diffusion, s, dim, corrector):
    """From every state to every other in one round."""
    process = diffusion.process
    states = states_of(process, dim)
    with torch.no_grad():
        law = diffusion.marginals(states, times(s, len(states))).log_xt.double().exp()[..., : process.num_states]
    law = law / law.sum(-1, keepdim=True)
    shown = states < process.num_states
    own = states.clamp(max=process.num_states - 1)[..., None]
    certainty = law.gather(-1, own).squeeze(-1).log() - law.scatter(-1, own, 0).amax(-1).log()
    options = [choices(c, w, corrector.positions, corrector.temperature) for c, w in zip(certainty, shown, strict=True)]
    matrix = torch.zeros(len(states), len(states), dtype=torch.float64)
    for n, x in enumerate(states):
        for order, chance in options[n]:
            for values in itertools.product(range(process.num_states), repeat=len(order)):
                y, drawn = x.clone(), chance
                for d, value in zip(order, values, strict=True):
                    y[d], drawn = value, drawn * float(law[n, d, value])
                to = int(index_of(y[None], process.num_symbols))
                accepted = 1.0
                if corrector.accept and order:
                    accepted = min(1.0, dict(options[to])[order] / chance)
                matrix[n, to] += drawn * accepted
                matrix[n, n] += drawn * (1 - accepted)
    return matrix


def moved(make, corrector, rounds=1):
    """How far q_s is from itself after some rounds, with an oracle."""
    process, law = make(), random_law(3, DIM, seed=2)
    q = law_at(process, law, DIM, S)
    matrix = kernel(oracle(process, law, DIM), S, DIM, corrector)
    return total_variation(q @ torch.linalg.matrix_power(matrix, rounds), q)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
def test_one_position_chosen_blindly_or_with_a_test_leaves_the_law_invariant(make):
    assert moved(make, Informed(temperature=math.inf)) < 1e-12
    assert moved(make, Informed(temperature=0.5, accept=True)) < 1e-12


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("make", [uniform, absorbing])
def test_a_choice_by_certainty_does_not_nor_do_several_positions_at_once(make):
    """The more the certainty decides, the farther; of a choice that is blind, only drawing together is wrong."""
    blind, warm, cold = (moved(make, Informed(temperature=t)) for t in (math.inf, 2.0, 0.2))
    assert blind < 1e-12 < 1e-4 < warm < cold
    assert moved(make, Informed(positions=2, temperature=math.inf)) > 1e-4
    assert moved(make, Informed(positions=2, temperature=0.2)) > 1e-4


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("make", ENUMERABLE.values(), ids=ENUMERABLE)
@pytest.mark.parametrize(
    "corrector", [Informed(temperature=0.7), Informed(positions=2), Informed(temperature=0.5, accept=True)], ids=repr
)
def test_the_library_draws_from_this_kernel(make, corrector):
    diffusion = table(make(), 2)
    assert fit(diffusion, corrector, kernel(diffusion, S, 2, corrector), S, 0.5, 2) > UNLIKELY


@pytest.mark.usefixtures("without_annotation_checks")
def test_it_repairs_a_wrong_law_with_few_rounds():
    process, law = uniform(), random_law(3, DIM, seed=2)
    q, wrong = law_at(process, law, DIM, S), random_law(3, DIM, seed=9)
    matrix = kernel(oracle(process, law, DIM), S, DIM, Informed(accept=True))
    assert total_variation(wrong @ torch.linalg.matrix_power(matrix, 10), q) < total_variation(wrong, q) / 10


@pytest.mark.parametrize(("accept", "calls"), [(False, 1), (True, 2)])
def test_a_round_costs_one_evaluation_and_with_a_test_two(accept, calls):
    watched = Watched(oracle(uniform(), random_law(3, 2, seed=0), 2).model)
    corrector = Informed(accept=accept, rounds=2, entry=0.6)
    sample(Diffusion(uniform(), watched), 5, 4, Analytical(), corrector, grid=uniform_in_time, generator=seeded(0))
    assert watched.times == [1.0, 0.75, 0.5, *[0.5] * 2 * calls, 0.25, *[0.25] * 2 * calls]


def test_what_is_given_is_kept_and_samples_do_not_depend_on_the_batch():
    blanks = torch.where(torch.rand(6, DIM, generator=seeded(0)) < 0.4, 1, -1)
    blanks[0] = torch.tensor([1, 2, 0])  # nothing is left to draw
    for make in (uniform, absorbing):
        options = {"corrector": Informed(positions=5), "condition": Condition.from_blanks(blanks), "steps": 3}
        together, apart = (
            sample(table(make(), DIM), 6, generator=seeded(1), batch_size=size, **options) for size in (6, 2)
        )
        assert torch.equal(together, apart)
        assert bool((together == blanks)[blanks >= 0].all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": 0}, r"positions must be at least 1"),
        ({"temperature": 0.0}, r"temperature must be above 0"),
        ({"rounds": 0}, r"rounds must be at least 1"),
        ({"entry": 0.0}, r"entry must lie in \(0, 1\]"),
        ({"positions": 2, "accept": True}, r"accept=True tests one position at a time, but positions is 2"),
    ],
    ids=str,
)
def test_a_corrector_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Informed(**options)
