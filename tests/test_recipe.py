"""A recipe expresses what the commands and the experiments train and sample."""

import pytest
import torch

from enumerated import seeded
from sddm import Diffusion
from sddm.codecs import Characters
from sddm.data import Dataset
from sddm.experiments.enumerated import Bits, exact_law
from sddm.experiments.samplers import distance
from sddm.marginals import MODELS, Energy, Masked
from sddm.networks import MLPEnergy
from sddm.processes import PROCESSES, Absorbing, Uniform
from sddm.recipe import ModelConfig, Recipe, SamplingConfig, choices, suited
from sddm.samplers import (
    GRIDS,
    SAMPLERS,
    Analytical,
    Corrector,
    Informed,
    Lazy,
    sample,
    uniform_in_share,
    uniform_in_time,
)
from sddm.schedules import SCHEDULES, Constant
from sddm.training import TrainingConfig, train

TINY = {"width": 8, "layers": 1}


def bits(step):
    return torch.randint(2, (6, 5), generator=seeded(step))


def test_an_mlp_energy_that_fades_is_a_model_like_any_other():
    model = ModelConfig(model="mlp-energy", fading=True, time_scale=10.0, input_gain=4.0, **TINY).diffusion(3, 5).model
    assert isinstance(model, Energy)
    assert (model.fading, model.implicit, type(model.network), model.network.time_scale) == (
        True,
        False,
        MLPEnergy,
        10.0,
    )
    plain = ModelConfig(model="mlp-energy", time_scale=10.0, **TINY).diffusion(3, 5).model.network
    assert torch.equal(model.network.first.weight, 4 * plain.first.weight)  # the same seed


def test_a_transformer_takes_the_scales_and_the_blocks_of_its_readout():
    config = ModelConfig(model="hollow", heads=2, mlp=8, time_scale=10.0, input_gain=25.0, film_blocks=1, **TINY)
    network = config.diffusion(2, 5).model.network
    assert (network.sizes.time_scale, network.sizes.input_gain) == (10.0, 25.0)
    more = ModelConfig(model="hollow", heads=2, mlp=8, film_blocks=2, **TINY).diffusion(2, 5).model.network
    assert sum(p.numel() for p in more.parameters()) > sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "hollow", "fading": True}, "fading is for the models energy and mlp-energy, but model is hollow"),
        ({"model": "mlp-energy", "heads": 2}, "heads, mlp, dropout and grid are options of a transformer"),
        ({"time_scale": 0.0}, "time_scale must be above 0"),
        ({"input_gain": -1.0}, "input_gain must be above 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        ModelConfig(**options)


def test_settings_of_sampling_are_the_arguments_of_sample():
    diffusion = ModelConfig(model="hollow", heads=2, mlp=8, **TINY).diffusion(2, 5)
    settings = SamplingConfig(steps=7, sampler="lazy", grid="time", temperature=0.5)
    mine = settings.sample(diffusion, 9, generator=seeded(0))
    assert torch.equal(
        mine, sample(diffusion, 9, 7, Lazy(), grid=uniform_in_time, temperature=0.5, generator=seeded(0))
    )
    mine = SamplingConfig(steps=3, corrector=2, corrector_factor=0.5).sample(diffusion, 9, generator=seeded(0))
    assert torch.equal(mine, sample(diffusion, 9, 3, None, Corrector(2, 0.5), generator=seeded(0)))
    mine = SamplingConfig(steps=3, corrector=2, informed=2).sample(diffusion, 9, generator=seeded(0))
    informed = Informed(positions=2, rounds=2)
    assert torch.equal(mine, sample(diffusion, 9, 3, None, informed, generator=seeded(0)))


@pytest.mark.usefixtures("without_annotation_checks")
def test_a_pilot_grid_of_the_settings_is_nearer_to_the_data_than_the_rule():
    """Exactly: the total variation is that of the law of the samples."""
    diffusion = Bits("uniform, oracle").diffusion()
    settings = SamplingConfig(steps=8, grid="pilot")
    piloted, ruled = (
        distance(exact_law(diffusion, Analytical(), None, grid))
        for grid in (settings.times(diffusion), uniform_in_share(diffusion.process, 8))
    )
    assert piloted < 0.8 * ruled


def test_a_pilot_grid_follows_from_the_seed_and_samples_are_drawn_on_it():
    diffusion = ModelConfig(model="hollow", heads=2, mlp=8, **TINY).diffusion(2, 5)
    settings = SamplingConfig(steps=6, grid="pilot")
    grid = settings.times(diffusion)
    assert torch.equal(grid, settings.times(diffusion, seed=0))
    assert not torch.equal(grid, settings.times(diffusion, seed=1))
    expected = sample(diffusion, 9, grid=grid, generator=seeded(0))
    assert torch.equal(expected, settings.sample(diffusion, 9, generator=seeded(0)))
    other = settings.times(diffusion, seed=1)
    expected = sample(diffusion, 9, grid=other, generator=seeded(0))
    assert torch.equal(expected, settings.sample(diffusion, 9, generator=seeded(0), grid=other))


def test_a_pilot_run_of_a_model_of_any_length_has_the_length_of_the_samples():
    process = Uniform(3, Constant(1.0)).leaving(0.02)
    diffusion = Diffusion(process, Masked.for_process(process, width=8, layers=1, heads=2, mlp=8))
    settings = SamplingConfig(steps=2, grid="pilot")
    assert settings.sample(diffusion, 3, length=4, generator=seeded(0)).shape == (3, 4)
    with pytest.raises(ValueError, match="length must be given"):
        settings.times(diffusion)


@pytest.mark.parametrize(("ordered", "sampler"), [(True, None), (False, "in-order"), (False, "first-hitting")])
def test_steps_that_follow_from_no_grid_are_refused_a_pilot_run(ordered, sampler):
    config = ModelConfig(model="hollow", process="absorbing", ordered=ordered, heads=2, mlp=8, **TINY)
    with pytest.raises(ValueError, match=r"^sampler: \w+ does not take its steps .* or leave the grid out\.$"):
        SamplingConfig(sampler=sampler, grid="pilot").check(config.diffusion(2, 5))


def test_a_training_goes_on_and_another_seed_is_another_training(tmp_path):
    recipe = Recipe(ModelConfig(model="hollow", heads=2, mlp=8, **TINY), TrainingConfig(steps=3, batch_size=6))
    one = recipe.trained(bits, 2, 5, tmp_path / "one").state_dict()
    again = recipe.trained(lambda step: 1 / 0, 2, 5, tmp_path / "one").state_dict()  # is finished: no row is drawn
    other = recipe.but(training={"seed": 1}).trained(bits, 2, 5).state_dict()
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("option", ["model", "process", "schedule"])
def test_every_choice_of_the_tables_can_be_trained_and_sampled(option):
    assert len(choices()[option]) >= 4
    for name in choices()[option]:
        sizes = {"width": 4, "layers": 1} | ({} if name == "mlp-energy" else {"heads": 1, "mlp": 4})
        diffusion = ModelConfig(**{option: name}, **sizes).diffusion(2, 5)
        train(diffusion, bits, TrainingConfig(steps=1, batch_size=6), progress=False)
        assert SamplingConfig(steps=2).sample(diffusion, 3, generator=seeded(0)).max() < 2


def test_the_choices_are_those_of_the_tables():
    assert set(choices()["model"]) == MODELS.keys() - {"oracle", "restricted"} | {"mlp-energy"}
    assert set(choices()["process"]) == PROCESSES.keys() - {"custom-rate"}
    assert [set(choices()[option]) for option in ("schedule", "sampler", "grid")] == [
        {*SCHEDULES},
        {*SAMPLERS},
        {*GRIDS, "pilot"},
    ]


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("config", "options"),
    [
        *((ModelConfig, {option: "x"}) for option in ("model", "process", "schedule")),
        *((SamplingConfig, {option: "x"}) for option in ("sampler", "grid")),
        (TrainingConfig, {"optimizer": "x"}),
    ],
)
def test_a_name_that_no_table_has_is_refused(config, options):
    (option,) = options
    with pytest.raises(ValueError, match=rf"^{option} must be one of .*, but it is 'x'\.$"):
        config(**options)


def text(rows=("abc", "cab", "bb")):
    codec = Characters("abc", padded=True)
    return Dataset(codec.encode(list(rows)), codec)


def test_a_hollow_model_of_text_is_ordered_and_trained_by_muon_and_what_was_given_stays():
    model, training = suited(ModelConfig(), TrainingConfig(), text())
    assert (model.ordered, training.optimizer, training.learning_rate) == (True, "muon", 5e-3)
    built = model.build(text())
    assert isinstance(built.process, Absorbing)
    assert built.model.ordered
    for given in (ModelConfig(process="uniform"), ModelConfig(model="masked"), ModelConfig(ordered=False)):
        model, training = suited(given, TrainingConfig(), text())
        assert (model.ordered, training.optimizer, training.learning_rate) == (False, "adamw", 1e-3)
    assert not suited(ModelConfig(), TrainingConfig(loss="ct-elbo"), text())[0].ordered
    given = TrainingConfig(optimizer="adamw", learning_rate=2e-3)
    assert suited(ModelConfig(), given, text())[1] == given
    assert suited(ModelConfig(), TrainingConfig(shard=True), text())[1].optimizer == "adamw"


def test_rows_that_are_no_text_are_learnt_under_uniform_noise_as_before():
    model, training = suited(ModelConfig(), TrainingConfig(), Dataset.from_tokens(torch.tensor([[0, 1], [1, 0]])))
    assert (model.ordered, training.optimizer, training.learning_rate) == (False, "adamw", 1e-3)
    assert isinstance(model.diffusion(2, 2).process, Uniform)


def test_what_was_chosen_for_the_data_is_chosen_once():
    chosen = suited(ModelConfig(), TrainingConfig(), text())
    assert suited(*chosen, text()) == chosen
