"""The objectives of other papers are the bound: identities, summed over every x_t of a small space."""

import pytest
import torch

from enumerated import ROUNDING, absorbing, all_states, one_way, random_law, seeded, states_of, table, times, uniform
from sddm import Diffusion, fit
from sddm.losses import ct_elbo
from sddm.marginals import Hollow
from sddm.objectives import LOSSES, mdlm, score_entropy, udlm
from sddm.training import TrainingConfig

DIM, T = 2, (0.05, 0.4, 1.0)
FORMS = [(mdlm, absorbing), (udlm, uniform)]


def pairs(process):
    """Every x_0 with every x_t."""
    x0, xt = all_states(process.num_states, DIM), states_of(process, DIM)
    return x0.repeat_interleave(len(xt), dim=0), xt.repeat(len(x0), 1)


def likelihoods(process, t):
    """q(x_t^d | x_0^d) of every pair: (pairs, dim)."""
    x0, xt = pairs(process)
    return process.likelihood(xt, times(0, len(xt)), times(t, len(xt))).gather(-1, x0[..., None]).squeeze(-1)


def bound(diffusion, t):
    """ct_elbo at every pair; 0 at d where the other positions are impossible."""
    x0, xt = pairs(diffusion.process)
    others = likelihoods(diffusion.process, t).flip(-1) > 0  # of two positions
    return torch.where(others, ct_elbo(diffusion, x0, t=times(t, len(x0)), xt=xt), 0)


def means_over_own_token(loss, diffusion, t):
    """At every pair and d, the mean of a loss over x_t^d given x_0^d; 0 where the other positions are impossible."""
    process = diffusion.process
    x0, xt = pairs(process)
    law = likelihoods(process, t)
    possible = (law > 0).all(-1)
    found = loss(diffusion, x0[possible], t=times(t, int(possible.sum())), xt=xt[possible])
    each = torch.zeros_like(law).masked_scatter(possible[:, None], law[possible] * found)
    each = each.reshape(-1, *[process.num_symbols] * DIM, DIM)
    means = [each[..., d].sum(1 + d, keepdim=True).expand(each.shape[:-1]) for d in range(DIM)]
    return torch.stack(means, dim=-1).reshape(-1, DIM)


@pytest.mark.parametrize("t", T)
@pytest.mark.parametrize(("form", "make"), FORMS)
def test_the_bound_is_the_mean_of_the_published_form_over_the_own_token(form, make, t):
    diffusion = table(make(), DIM)
    ours, theirs = bound(diffusion, t), means_over_own_token(form, diffusion, t)
    torch.testing.assert_close(theirs, ours, rtol=ROUNDING, atol=ROUNDING)
    assert float(ours.detach().std()) > 0.01


@pytest.mark.parametrize("t", T)
@pytest.mark.parametrize(("form", "make"), FORMS)
def test_for_a_model_that_sees_its_own_token_the_bound_is_the_published_form(form, make, t):
    diffusion = table(make(), DIM, sees_own_token=True)
    x0, xt = (part[(likelihoods(diffusion.process, t) > 0).all(-1)] for part in pairs(diffusion.process))
    ours, theirs = (loss(diffusion, x0, t=times(t, len(x0)), xt=xt) for loss in (ct_elbo, form))
    torch.testing.assert_close(theirs, ours, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("t", T)
@pytest.mark.parametrize("make", [uniform, absorbing, one_way])
def test_score_entropy_is_the_bound_up_to_terms_without_parameters(make, t):
    one, other = (table(make(), DIM, seed=seed) for seed in (0, 1))
    differences = [means_over_own_token(score_entropy, d, t) - bound(d, t) for d in (one, other)]
    size = float(differences[0].detach().abs().max())
    torch.testing.assert_close(*differences, rtol=ROUNDING, atol=ROUNDING * (1 + size))
    if make is not absorbing:
        assert size > 0.01  # the terms are there
    gradients = [
        torch.autograd.grad(loss_values.sum(), one.model.table)[0]
        for loss_values in (means_over_own_token(score_entropy, one, t), bound(one, t))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=ROUNDING * (1 + float(gradients[1].abs().max())))


def test_the_bound_has_less_variance_than_the_published_forms():
    for form, make in FORMS:
        diffusion = table(make(), DIM)
        x0 = all_states(3, DIM)[torch.multinomial(random_law(3, DIM, 3), 4_000, True, generator=seeded(0))]
        spreads = [
            float(loss(diffusion, x0, t=times(0.3, len(x0)), generator=seeded(1)).sum(-1).var().detach())
            for loss in (ct_elbo, form)
        ]
        assert spreads[0] < 0.7 * spreads[1]


@pytest.mark.parametrize(("form", "make"), [(mdlm, uniform), (udlm, absorbing)])
def test_a_form_for_other_noise_is_refused(form, make):
    with pytest.raises(ValueError, match=f"{form.__name__} is for the process"):
        form(table(make(), DIM), torch.zeros(1, DIM, dtype=torch.int64))


def test_training_takes_a_loss_by_its_name_and_refuses_one_that_does_not_fit_before_it_starts(
    tmp_path, without_annotation_checks
):
    rows = torch.randint(3, (40, DIM), generator=seeded(0))
    sizes = {"width": 8, "layers": 1, "heads": 1, "mlp": 8, "steps": 2, "progress": False}
    made = [fit(rows, process="absorbing", loss=loss, **sizes) for loss in (None, "mdlm", "mdlm")]
    one, two, three = ([*m.parameters()][1] for m in made)
    assert torch.equal(two, three)
    assert not torch.equal(one, two)
    for options, match in (
        ({"loss": "mdlm"}, "mdlm is for the process Absorbing"),
        ({"loss": "ct-elbo", "pool": 64}, "ct_elbo cannot take its mean over a pool"),
        ({"loss": "x0-cross-entropy", "model": "leave-one-out"}, "needs a model whose prediction at d does not look"),
    ):
        with pytest.raises(ValueError, match=match):
            fit(rows, out=tmp_path / "run", **options, **sizes)
        assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="loss must be one of conditional-ratio-matching, "):
        TrainingConfig(loss="crm")


@pytest.mark.parametrize("name", LOSSES)
def test_every_listed_loss_has_finite_values_and_gradients_of_a_network(name):
    process = absorbing() if name == "mdlm" else uniform()
    torch.manual_seed(0)
    diffusion = Diffusion(process, Hollow.for_process(process, DIM, width=8, heads=2, layers=1, mlp=8))
    loss = LOSSES[name](diffusion, all_states(3, DIM), generator=seeded(0)).sum(-1).mean()
    loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in diffusion.parameters() if p.grad is not None)
    assert float(sum(p.grad.abs().sum() for p in diffusion.parameters() if p.grad is not None)) > 0


@pytest.mark.parametrize("t", [1e-9, 1e-5, 1e-3])
@pytest.mark.parametrize(("form", "make"), [*FORMS, (ct_elbo, uniform), (score_entropy, uniform)])
def test_the_published_forms_have_finite_gradients_where_hardly_anything_is_noised(form, make, t):
    process = make()
    torch.manual_seed(0)
    diffusion = Diffusion(process, Hollow.for_process(process, length=4, width=8, layers=1, heads=2, mlp=8))
    rows = torch.randint(3, (16, 4), generator=seeded(0))
    form(diffusion, rows, t=torch.full((16,), t, dtype=torch.float64), generator=seeded(1)).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in diffusion.parameters() if p.grad is not None)
