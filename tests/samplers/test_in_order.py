"""Sampling from left to right, its exact likelihood, and what makes one pass of a hollow transformer enough for it."""

import pytest
import torch

import sddm
from enumerated import UNLIKELY, counts_of, p_value, seeded
from sddm import Condition, Diffusion, likelihood, losses
from sddm.marginals import MODELS, Hollow, Masked, Oracle, Restricted
from sddm.noising import Batch, noise_batch
from sddm.processes import Absorbing, Uniform
from sddm.query import Query, at_positions
from sddm.samplers import Confident, InOrder, Trajectory
from sddm.schedules import SqrtCosine

STATES, DIM = 3, 4
PROCESS = Absorbing(STATES, SqrtCosine(1.0)).leaving(0.02)
ROWS = torch.cartesian_prod(*[torch.arange(STATES)] * DIM)
LAW = torch.rand([STATES] * DIM, generator=seeded(0), dtype=torch.float64).pow(3)
LAW /= LAW.sum()
SMALL = {"width": 8, "layers": 2, "heads": 2, "mlp": 16, "input_gain": 50.0}


def oracle():
    return Diffusion(PROCESS, Oracle.from_joint(LAW))


def hollow(seed=0, **options):
    torch.manual_seed(seed)
    return Hollow.for_process(PROCESS, length=DIM, **SMALL, **options)


def test_the_nats_in_order_of_the_oracle_are_those_of_the_law():
    torch.testing.assert_close(likelihood.in_order(oracle(), ROWS), -LAW.flatten().log())


def test_given_positions_are_seen_by_those_before_them_too():
    given = torch.tensor([False, False, True, False]).expand(len(ROWS), -1)
    joint = LAW.flatten() / LAW.sum((0, 1, 3))[ROWS[:, 2]]
    torch.testing.assert_close(likelihood.in_order(oracle(), ROWS, given=given), -joint.log())


@pytest.mark.parametrize("sampler", [InOrder(), Confident()])
def test_samples_of_the_oracle_with_a_step_for_each_position_have_the_law(sampler):
    samples = sddm.sample(oracle(), 20_000, sampler=sampler, generator=seeded(1))
    assert p_value(counts_of(samples, STATES), LAW.flatten()) > UNLIKELY


@pytest.mark.parametrize("sampler", [InOrder(), Confident()])
def test_samples_around_given_positions_have_the_conditional_law(sampler):
    values = torch.tensor([-1, -1, 2, -1])
    condition = Condition.from_blanks(values)
    samples = sddm.sample(oracle(), 20_000, sampler=sampler, condition=condition, generator=seeded(2))
    assert bool((samples[:, 2] == 2).all())
    law = torch.zeros_like(LAW)
    law[:, :, 2] = LAW[:, :, 2] / LAW[:, :, 2].sum()
    assert p_value(counts_of(samples, STATES), law.flatten()) > UNLIKELY


def test_the_likelihood_sums_to_one_for_any_weights():
    diffusion = Diffusion(PROCESS, hollow()).eval()
    assert float((-likelihood.in_order(diffusion, ROWS)).exp().sum()) == pytest.approx(1, abs=1e-5)


def test_samples_have_the_likelihood_that_is_stated():
    diffusion = Diffusion(PROCESS, hollow())
    samples = sddm.sample(diffusion, 20_000, sampler=InOrder(), generator=seeded(3))
    assert p_value(counts_of(samples, STATES), (-likelihood.in_order(diffusion, ROWS)).exp()) > UNLIKELY


def test_positions_are_drawn_from_the_left_as_many_a_step_as_the_grid_asks_for():
    path = Trajectory()
    sddm.sample(oracle(), 3, steps=2, sampler=InOrder(), generator=seeded(0), callback=path)
    hidden = path.tokens == STATES
    expected = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    assert torch.equal(hidden, expected[:, None].expand(-1, 3, -1))


def test_the_most_certain_position_is_drawn_first():
    """The third position is almost known, the others are not."""
    law = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    certain = torch.tensor([0.98, 0.01, 0.01], dtype=torch.float64)
    joint = torch.einsum("a,b,c,d->abcd", law, law, certain, law)
    path = Trajectory()
    diffusion = Diffusion(PROCESS, Oracle.from_joint(joint))
    sddm.sample(diffusion, 5, steps=DIM, sampler=Confident(), generator=seeded(0), callback=path)
    assert torch.equal(path.tokens[1] == STATES, torch.tensor([True, True, False, True]).expand(5, -1))


def test_more_steps_than_positions_ask_the_model_no_more_often():
    diffusion, calls = oracle(), []
    diffusion.model.register_forward_hook(lambda *_: calls.append(1))
    sddm.sample(diffusion, 2, steps=50, sampler=InOrder(), generator=seeded(0))
    assert len(calls) == DIM


@pytest.mark.parametrize("sampler", [InOrder(), Confident()])
def test_samples_do_not_depend_on_the_batch_or_on_what_is_given_in_other_rows(sampler):
    diffusion = Diffusion(PROCESS, hollow())
    given = torch.tensor([[False] * 4, [True, False, False, False], [False, True, True, False]])
    condition = Condition(given, torch.ones(3, DIM, dtype=torch.int64))
    one, three = (
        sddm.sample(diffusion, 3, sampler=sampler, condition=condition, generator=seeded(0), batch_size=size)
        for size in (1, 3)
    )
    assert torch.equal(one, three)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("length", [DIM, None])
def test_one_pass_with_a_row_ahead_equals_a_row_for_each_position(joint, length):
    torch.manual_seed(0)
    model = Hollow.for_process(PROCESS, length=length, **SMALL, joint_attention=joint).eval()
    x, ahead = (torch.randint(STATES + 1, (5, DIM), generator=seeded(seed)) for seed in (1, 2))
    ahead[3] = ahead[1]  # rows that share a pass
    padding = torch.zeros(5, DIM, dtype=torch.bool)
    padding[2, 3:] = True
    t = torch.full((5,), 0.7, dtype=torch.float64)
    query = Query(x, t, None, None, padding, None, ahead)
    with torch.no_grad():
        once = model(PROCESS, query).log_x0
        each = model(PROCESS, query.one_by_one()).log_x0.view_as(once)
    torch.testing.assert_close(once, each, rtol=1e-5, atol=1e-5)
    positions = torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1], [2, 2]])
    with torch.no_grad():
        some = model(PROCESS, query.at(positions)).log_x0
    torch.testing.assert_close(some, at_positions(once, positions), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].architecture is not None])
def test_every_model_is_asked_from_left_to_right_as_if_each_position_were_a_row(name):
    torch.manual_seed(0)
    diffusion = Diffusion(PROCESS, MODELS[name].for_process(PROCESS, length=DIM, **SMALL)).eval()
    rows, ones = ROWS[::9], torch.ones(9, dtype=torch.bool)
    nats = likelihood.in_order(diffusion, rows)
    total = torch.zeros(len(rows), dtype=torch.float64)
    with torch.no_grad():
        for d in range(DIM):
            seen = torch.where(torch.arange(DIM) < d, rows, STATES)
            law = diffusion.marginals(seen, ones.double()).log_x0[:, d]
            total -= law.gather(1, rows[:, d : d + 1])[:, 0].double()
    torch.testing.assert_close(nats, total, rtol=1e-5, atol=1e-5)


def test_the_prediction_sees_nothing_of_its_own_and_later_tokens():
    diffusion, ones = Diffusion(PROCESS, hollow()).eval(), torch.ones(len(ROWS), dtype=torch.bool)

    def laws(x0):
        with torch.no_grad():
            return diffusion(noise_batch(diffusion, Batch(x0), t=ones.double(), in_order=ones).query).log_x0

    first = laws(ROWS)
    for d in range(DIM):
        changed = ROWS.clone()
        changed[:, d] = (changed[:, d] + 1) % STATES
        assert torch.equal(laws(changed)[:, : d + 1], first[:, : d + 1])


def test_the_oracle_minimises_the_loss_of_rows_in_order():
    ones = torch.ones(len(ROWS), dtype=torch.bool)

    def loss(diffusion):
        batch = noise_batch(diffusion, Batch(ROWS), t=ones.double(), in_order=ones)
        with torch.no_grad():
            return float((LAW.flatten() * losses.x0_cross_entropy.at(diffusion, batch).sum(1)).sum())

    entropy = -float((LAW * LAW.log()).sum())
    assert loss(oracle()) == pytest.approx(entropy, rel=1e-12)
    for seed in range(5):
        other = torch.rand(LAW.shape, generator=seeded(seed), dtype=torch.float64)
        assert loss(Diffusion(PROCESS, Oracle.from_joint(other / other.sum()))) > entropy


def test_an_ordered_model_is_sampled_in_order_and_keeps_that_when_it_is_saved(tmp_path):
    torch.manual_seed(0)
    network = hollow().network
    ordered = Diffusion(PROCESS, Restricted(Hollow(network, ordered=True), [STATES] * DIM))
    ordered.save_pretrained(tmp_path)
    loaded = Diffusion.from_pretrained(tmp_path)
    assert loaded.model.ordered
    named = sddm.sample(ordered, 8, sampler=InOrder(), generator=seeded(0))
    assert torch.equal(sddm.sample(loaded, 8, generator=seeded(0)), named)


def test_an_ordered_model_learns_both_orders_of_asking():
    data = ROWS[torch.multinomial(LAW.flatten(), 4_000, replacement=True, generator=seeded(0))]
    options = {"process": "absorbing", "width": 32, "layers": 1, "film_blocks": 0, "input_gain": 25.0}
    training = {"steps": 300, "optimizer": "muon", "learning_rate": 1e-2, "progress": False}
    model = sddm.fit(data, num_states=STATES, ordered=True, **options, **training)
    law, independent = LAW.flatten(), float((LAW * LAW.log()).sum())
    for d in range(DIM):
        alone = LAW.sum([e for e in range(DIM) if e != d])
        independent -= float((alone * alone.log()).sum())
    above = float((law * (likelihood.in_order(model, ROWS) + law.log())).sum())
    assert above < 0.25 * independent  # what a model of independent positions is above the entropy
    anyhow = float((law * (likelihood.bound(model, ROWS, 64, generator=seeded(0)).nats + law.log())).sum())
    assert anyhow < 0.75 * independent


@pytest.mark.parametrize(
    ("process", "implicit"), [(Uniform(STATES, SqrtCosine(1.0)).leaving(0.02), True), (PROCESS, False)]
)
def test_it_needs_absorbing_noise_and_a_model_of_the_data(process, implicit):
    model = Masked.for_process(process, length=DIM, implicit=implicit, **SMALL)
    diffusion = Diffusion(process, model)
    with pytest.raises(ValueError, match=r"sampler: InOrder needs a model of x_0 under Absorbing noise"):
        sddm.sample(diffusion, 2, sampler=InOrder())
    with pytest.raises(ValueError, match=r"in_order needs a model of x_0 under Absorbing noise"):
        likelihood.in_order(diffusion, ROWS)


def test_an_ordered_model_refuses_other_noise():
    uniform = Uniform(STATES, SqrtCosine(1.0)).leaving(0.02)
    network = Hollow.for_process(uniform, length=DIM, **SMALL).network
    with pytest.raises(ValueError, match=r"ordered needs a model of x_0 under Absorbing noise"):
        Diffusion(uniform, Hollow(network, ordered=True))


def asked_in_order(diffusion, x, given, positions, memory):
    ahead = torch.where(given, x, torch.tensor(STATES))
    query = Query(x, torch.ones(len(x), dtype=torch.float64), positions, given, ahead=ahead, memory=memory)
    return diffusion(query).require_x0("test")


@pytest.mark.parametrize("positional", ["learned", "rotary"])
def test_what_is_kept_between_questions_changes_no_answer(positional):
    """Questions that go on, jump ahead, go back after a token has changed, and are about other rows ahead."""
    length, rows = 9, 5
    torch.manual_seed(0)
    model = Hollow.for_process(PROCESS, None if positional == "rotary" else length, **SMALL)
    diffusion = Diffusion(PROCESS, model).eval().double()
    x = torch.randint(STATES + 1, (rows, length), generator=seeded(0))
    given = (torch.rand(rows, length, generator=seeded(1)) < 0.3) & (x < STATES)
    memory = {}
    with torch.inference_mode():
        for number, asked in enumerate([[0, 1], [1, 2], [3, 7], [4, 5], [2, 8], [8, 0]]):
            if number == 4:
                x[1, 3] = (x[1, 3] + 1) % STATES
            if number == 5:
                given = torch.zeros_like(given)
            positions = torch.tensor(asked).expand(rows, -1)
            kept = asked_in_order(diffusion, x, given, positions, memory)
            torch.testing.assert_close(kept, asked_in_order(diffusion, x, given, positions, None))
    assert len(memory) == 1


def test_a_step_in_order_computes_one_place_of_the_left_stream_alone():
    diffusion, places = Diffusion(PROCESS, hollow()), []
    network = diffusion.model.network
    for stream in (network.left, network.right):
        stream.blocks[0].norm_mlp.register_forward_pre_hook(lambda module, inputs: places.append(inputs[0].shape[1]))
    sddm.sample(diffusion, 3, sampler=InOrder(), generator=seeded(0))
    assert places == [DIM, *[1] * DIM]  # the right stream once
