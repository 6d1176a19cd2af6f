"""Guidance by a classifier of noised data, proven on enumerated laws p(y, x), and the training of one."""

import json

import pytest
import torch
import torch.nn.functional as F

from enumerated import (
    ROUNDING,
    UNLIKELY,
    absorbing,
    analytical_laws,
    counts_of,
    euler_laws,
    index_of,
    law_after,
    law_at,
    log_log_slope,
    on_data_states,
    oracle,
    p_value,
    position_rates,
    process_named,
    seeded,
    start_law,
    states_of,
    times,
    total_variation,
    uniform,
)
from labelled import JOINT, NOISES, C, D, T, Told, of_label
from sddm import Diffusion, NoisedClassifier, sample
from sddm.codecs import Integers
from sddm.data import Dataset
from sddm.marginals import Classified, Hollow, Masked
from sddm.networks import Classifier, Places, Sizes
from sddm.noising import Batch
from sddm.query import Query
from sddm.samplers import Analytical, Euler, TauLeaping, uniform_in_share
from sddm.training import ClassifierLearner, TrainingConfig, train_classifier

SMALL = Sizes(width=8, layers=1, heads=2, mlp=8)


class TrueClassifier(torch.nn.Module):
    """log p(y | x_t, t) of an enumerated law."""

    num_labels = 2

    def __init__(self, process):
        super().__init__()
        self.process = process

    def forward(self, query):
        law = torch.stack([law_at(self.process, joint, D, float(query.t[0])) for joint in JOINT], dim=-1)
        return (law / law.sum(-1, keepdim=True)).log()[index_of(query.xt, self.process.num_symbols)]


class Linear(torch.nn.Module):
    """log p(y | x): a smooth function of numbers that are linear in the one-hot x and small as `scale` is."""

    num_labels = 2

    def __init__(self, num_symbols, scale):
        super().__init__()
        self.num_symbols, self.scale = num_symbols, scale
        self.weights = torch.randn(D, num_symbols, 2, generator=seeded(0), dtype=torch.float64)

    def forward(self, query):
        x = query.xt if query.xt.is_floating_point() else F.one_hot(query.xt, self.num_symbols).double()
        return F.log_softmax(self.scale * torch.einsum("bdc,dcy->by", x, self.weights), dim=-1)


def classified(process, gamma=1.0, label=1, **options):
    model = Classified(of_label(process, None).model, TrueClassifier(process), gamma, **options)
    return Diffusion(process, Told(model, label))


@pytest.mark.parametrize("noise", NOISES)
def test_exact_guidance_by_the_true_classifier_is_the_reverse_process_given_the_label(noise):
    process = process_named(noise)
    for label in (0, 1):
        diffusion, truth = classified(process, label=label), of_label(process, label)
        for t in (0.1, T, 0.9):
            (_, made), (_, expected) = (position_rates(model, t, D) for model in (diffusion, truth))
            torch.testing.assert_close(made, expected, rtol=1e-9, atol=1e-12)
        grid = uniform_in_share(process, 5)
        one, other = (law_after(euler_laws, each, start_law(truth, D), grid, D) for each in (diffusion, truth))
        assert total_variation(one, other) < ROUNDING
    _, plain = position_rates(of_label(process, None), T, D)
    _, none = position_rates(classified(process, gamma=0.0), T, D)
    torch.testing.assert_close(none, plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("make", [uniform, absorbing])
def test_it_can_be_sampled_by_analytical_steps_where_the_noise_can_be_undone(make):
    process, s, x = make(), 0.15, states_of(make(), D)
    laws = []
    for diffusion in (classified(process), of_label(process, 1)):
        weights = Analytical().weights(diffusion, Query(x, times(T, len(x))), times(s, len(x)), times(T, len(x)))
        laws.append(weights / weights.sum(-1, keepdim=True))
    torch.testing.assert_close(*laws, rtol=0, atol=1e-10)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("gamma", [-1.0, 3.0])
def test_the_rates_are_multiplied_by_a_power_of_the_ratio_of_the_classifier(noise, gamma):
    process = process_named(noise)
    (x, made), (_, plain) = (position_rates(d, T, D) for d in (classified(process, gamma), of_label(process, None)))
    classifier = TrueClassifier(process)

    def p(rows):
        return classifier(Query(rows, times(T, len(rows))))[:, 1].exp()

    for d in range(D):
        for c in range(process.num_symbols):
            changed = x.clone()
            changed[:, d] = c
            expected = plain[:, d, c] * (p(changed) / p(x)) ** gamma
            torch.testing.assert_close(made[:, d, c], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("at_full_speed")
def test_samples_have_the_law_of_the_label():
    process = uniform()
    diffusion = Diffusion(process, Classified(of_label(process, None).model, TrueClassifier(process)))
    labels = torch.arange(4000) % 2
    x = sample(diffusion, len(labels), 4, generator=seeded(0), labels=labels)
    grid, truths = uniform_in_share(process, 4), [of_label(process, y) for y in (0, 1)]
    laws = [law_after(analytical_laws, truth, start_law(truth, D), grid, D) for truth in truths]
    counts = torch.stack([counts_of(x[labels == y], C) for y in (0, 1)])
    assert p_value(counts, torch.stack([on_data_states(process, law, D) for law in laws])) > UNLIKELY


def test_at_some_positions_and_in_any_pieces_the_answers_are_the_same():
    process = absorbing()
    x, labels = states_of(process, D), torch.arange((C + 1) ** D) % 3 - 1
    query = Query(x, times(T, len(x)), label=labels)
    model = of_label(process, None).model
    whole = Classified(model, TrueClassifier(process))(process, query).log_xt
    pieces = Classified(model, TrueClassifier(process), chunk_tokens=60)(process, query).log_xt
    torch.testing.assert_close(whole, pieces, rtol=0, atol=ROUNDING)
    some = Classified(model, TrueClassifier(process))(process, query.at(torch.ones_like(x[:, :1]))).log_xt
    torch.testing.assert_close(some[:, 0], whole[:, 1], rtol=0, atol=ROUNDING)
    unguided = model(process, query).log_xt
    torch.testing.assert_close(whole[labels < 0], unguided[labels < 0], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("make", [uniform, absorbing])
def test_first_order_guidance_errs_by_the_square_of_the_scale_of_a_smooth_classifier(make):
    """The exact logarithm of the ratio is of the first power, so that the relative error falls as the scale."""
    process = make()
    model, x = of_label(process, None).model, states_of(process, D)
    query = Query(x, times(T, len(x)), label=torch.ones(len(x), dtype=torch.int64))
    scales, errors, sizes = [0.1, 0.05, 0.025, 0.0125], [], []
    for scale in scales:
        classifier = Linear(process.num_symbols, scale)
        exact, slopes = (
            Classified(model, classifier, first_order=first).log_ratio(query, process.num_symbols)
            for first in (False, True)
        )
        exact, slopes = (values - values.gather(-1, x[..., None]) for values in (exact, slopes))
        errors.append(float((exact - slopes).abs().max()))
        sizes.append(float(exact.abs().max()))
    assert log_log_slope(scales, errors) == pytest.approx(2, abs=0.05)
    assert log_log_slope(scales, sizes) == pytest.approx(1, abs=0.05)


def test_first_order_guidance_asks_the_classifier_once_for_each_row_also_while_sampling(at_full_speed):
    process, asked = absorbing(), []
    classifier = Linear(process.num_symbols, 1.0)
    classifier.register_forward_hook(lambda module, arguments, output: asked.append(len(output)))
    model = Classified(of_label(process, None).model, classifier, 2.0, first_order=True)
    assert model.sees_own_token
    options = {"labels": torch.arange(6) % 2, "sampler": Euler()}
    one, other = (sample(Diffusion(process, model), 6, 3, generator=seeded(0), batch_size=n, **options) for n in (6, 2))
    assert torch.equal(one, other)
    assert set(asked) == {6, 2}
    assert asked.count(6) <= 1 + 3 + 1  # at the start, in each step, and where the last one has left a MASK


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("make", [Hollow, Masked])
def test_a_network_guides_a_network(make, first_order, at_full_speed):
    process = absorbing()
    torch.manual_seed(0)
    classifier = Classifier(process.num_symbols, 2, Places(length=4), SMALL)
    model = Classified(make.for_process(process, 4, sizes=SMALL), classifier, 1.5, first_order)
    labels = torch.arange(4) % 2
    for sampler in (None, TauLeaping()):
        x = sample(Diffusion(process, model), 4, 2, sampler, generator=seeded(0), labels=labels)
        assert 0 <= int(x.min()) <= int(x.max()) < C
    assert all(weight.grad is None for weight in model.parameters())


def test_one_hot_vectors_and_their_tokens_are_one_question():
    torch.manual_seed(0)
    classifier = Classifier(3, 2, Places(length=4), SMALL).eval()
    x, padding = (
        torch.randint(3, (5, 4), generator=seeded(0)),
        torch.arange(4) >= torch.tensor([4, 3, 2, 1, 4])[:, None],
    )
    query = Query(x, times(T, 5), padding=padding)
    with torch.no_grad():
        tokens, vectors = (classifier(query._replace(xt=each)) for each in (x, F.one_hot(x, 3).float()))
        other = classifier(query._replace(xt=torch.where(padding, 2 - x, x)))
    torch.testing.assert_close(tokens, vectors, rtol=0, atol=1e-6)
    torch.testing.assert_close(tokens, other, rtol=0, atol=1e-6)  # what is padded does not count
    torch.testing.assert_close(tokens.exp().sum(1), torch.ones(5))


# ---- training ------------------------------------------------------------------------------------------------------


def data(num=400):
    labels = torch.arange(num) % 2
    return Dataset(labels[:, None].expand(-1, 4).clone() + 1, Integers(3), labels=labels)


@pytest.mark.usefixtures("at_full_speed")
def test_a_classifier_learns_from_noised_rows_and_guides_a_model_to_the_rows_of_a_label():
    """The model is the oracle of all rows. Unguided, half of the samples are of the other label."""
    process = uniform(0.02)
    torch.manual_seed(0)
    network = Classifier(3, 2, Places(length=4), Sizes(width=16, layers=1, heads=2, mlp=16))
    config = TrainingConfig(steps=80, batch_size=64, learning_rate=1e-2)
    trained = train_classifier(NoisedClassifier(process, network), data(), config, progress=False)
    learner = ClassifierLearner(trained, config, data())
    with torch.no_grad():
        assert learner.evaluate()["accuracy"] == 1
    law = torch.zeros(3, 3, 3, 3, dtype=torch.float64)
    law[1, 1, 1, 1] = law[2, 2, 2, 2] = 0.5
    model = oracle(process, law.flatten(), 4).model
    labels = torch.arange(200) % 2
    for first_order in (False, True):
        made = sample(Diffusion(process, Classified(model, trained, 1.0, first_order)), 200, 20, labels=labels)
        right = float((made == labels[:, None] + 1).all(1).double().mean())
        assert right > 0.5 + 4 * (0.25 / 200) ** 0.5


def test_a_classifier_draws_the_noise_of_the_whole_batch_and_refuses_rows_without_labels():
    classifier = NoisedClassifier(uniform(), Classifier(3, 2, Places(length=4), SMALL))
    learner = ClassifierLearner(classifier, TrainingConfig(1, 8))
    batch = Batch(data(8).tokens[:8], labels=torch.arange(8) % 2)
    drawn, again = (learner.draw(batch, seeded(0)) for _ in range(2))
    assert torch.equal(drawn.query.xt, again.query.xt)
    assert torch.equal(drawn.rows(slice(2, 4)).query.label, batch.labels[2:4])
    with pytest.raises(ValueError, match="A classifier learns from labels, but the data have none"):
        learner.draw(Batch(batch.x0), seeded(0))
    with pytest.raises(ValueError, match="labels must lie between 0 and 1"):
        learner.draw(Batch(batch.x0, labels=torch.arange(8)), seeded(0))
    unlabelled = Dataset(batch.x0, Integers(3))
    with pytest.raises(ValueError, match=r"learns from labels, but tokens has none\. Name other data\."):
        train_classifier(classifier, unlabelled, progress=False)


@pytest.mark.parametrize("options", [{"known": "prefix"}, {"pool": 64}, {"label_dropout": 0.5}, {"compile": True}])
def test_options_of_a_diffusion_are_refused(options):
    classifier = NoisedClassifier(uniform(), Classifier(3, 2, Places(length=4), SMALL))
    with pytest.raises(ValueError, match=f"{next(iter(options))} is an option of the training of a diffusion"):
        ClassifierLearner(classifier, TrainingConfig(**options))


# ---- saving --------------------------------------------------------------------------------------------------------


def saved_classifier(process, names=None, length=4):
    torch.manual_seed(0)
    return NoisedClassifier(process, Classifier(process.num_symbols, 2, Places(length), SMALL), names).eval()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("names", [None, ["cat", "dog"]])
def test_a_saved_classifier_is_loaded_with_its_noise_its_names_and_its_answers(noise, names, tmp_path):
    classifier = saved_classifier(process_named(noise), names)
    classifier.save_pretrained(tmp_path)
    again = NoisedClassifier.from_pretrained(tmp_path)
    assert again.label_names == names
    again.check(classifier.process)
    query = Query(torch.randint(C, (5, 4), generator=seeded(1)), times(T, 5))
    with torch.no_grad():
        assert torch.equal(again(query), classifier(query))
    assert "from_pretrained" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda config: config.pop("classifier"), "is not the config of a classifier saved by this version"),
        (lambda config: config["classifier"].update(num_tokens=9), "num_tokens=9, but Uniform of 3 states needs 3"),
        (lambda config: config.update(label_names=["one"]), "has 1 names, but the classifier knows 2 labels"),
        (lambda config: config["classifier"].update(num_labels=3), "does not hold the weights of the model"),
    ],
)
def test_a_damaged_classifier_is_refused_in_a_sentence(damage, message, tmp_path):
    saved_classifier(uniform()).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    damage(config)
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        NoisedClassifier.from_pretrained(tmp_path)


def test_a_classifier_guides_models_of_its_own_noise_states_and_length_alone():
    classifier, hollow = saved_classifier(uniform()), Hollow.for_process(uniform(), 4, sizes=SMALL)
    Diffusion(uniform(), Classified(hollow, classifier))
    with pytest.raises(ValueError, match=r"learnt rows noised by Uniform\(.*, but the diffusion has Uniform\(.*Train"):
        Diffusion(uniform(0.3), Classified(hollow, classifier))
    with pytest.raises(ValueError, match="classifier has num_tokens=3, but Absorbing of 3 states needs 4"):
        Diffusion(absorbing(), Classified(Hollow.for_process(absorbing(), 4, sizes=SMALL), classifier))
    with pytest.raises(ValueError, match="is for rows of 4 positions, but those of the model have 5"):
        Classified(Hollow.for_process(uniform(), 5, sizes=SMALL), classifier)
    with pytest.raises(ValueError, match=r"num_tokens=3, but Absorbing of 3 states needs 4\. Build it with"):
        NoisedClassifier(absorbing(), classifier.network)
