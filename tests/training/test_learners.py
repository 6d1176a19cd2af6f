"""What holds for every learner of the library, whatever it learns: the loop can stop it and go on."""

import inspect

import pytest
import torch

from sddm import Diffusion, NoisedClassifier
from sddm.baselines import ALOE, D3PM, EBGFN, PCD, Autoregressive, AutoregressiveLearner, D3PMLearner, UniformChain
from sddm.codecs import Pixels
from sddm.experiments.recogniser import Recogniser, RecogniserLearner
from sddm.marginals import Hollow, LeaveOneOut
from sddm.networks import Classifier, Places, Sizes
from sddm.noising import Batch
from sddm.processes import Uniform
from sddm.schedules import Constant
from sddm.tokenizers import VQGAN
from sddm.tokenizers.config import TokenizerConfig
from sddm.tokenizers.learner import TokenizerLearner
from sddm.training import DiffusionLearner, Learner, RunConfig, TrainingConfig, checkpoints, learn
from sddm.training.batches import generator_of
from sddm.training.classifier import ClassifierLearner

LENGTH = 6
SMALL = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
PROCESS, CHAIN = Uniform(2, Constant(1.0)).leaving(0.1), UniformChain(2, steps=8)


def config(steps):
    return TrainingConfig(steps, batch_size=16, decay="constant")


# Its learning rate depends on the number of steps, which is the same for all.
TOKENIZER = TokenizerConfig(8, filters=4, multipliers=(1, 2), blocks=1, codes=5, code_width=4, adversarial_start=0.0)

LEARNERS = {
    DiffusionLearner: lambda steps: DiffusionLearner(
        Diffusion(PROCESS, Hollow.for_process(PROCESS, LENGTH, **SMALL)), config(steps)
    ),
    D3PMLearner: lambda steps: D3PMLearner(D3PM(CHAIN, LeaveOneOut.for_process(CHAIN, LENGTH, **SMALL)), config(steps)),
    AutoregressiveLearner: lambda steps: AutoregressiveLearner(
        Autoregressive(2, LENGTH, Sizes(**SMALL)), config(steps)
    ),
    PCD: lambda steps: PCD(LENGTH, width=16, layers=2, chains=32, moves=2, decay_steps=8, sampling_moves=12),
    ALOE: lambda steps: ALOE(LENGTH, energy_width=16, dual_width=16, max_edits=2),
    EBGFN: lambda steps: EBGFN(LENGTH, energy_width=16, energy_layers=2, policy_width=16, decay_steps=8),
    ClassifierLearner: lambda steps: ClassifierLearner(
        NoisedClassifier(PROCESS, Classifier(PROCESS.num_symbols, 3, Places(LENGTH), Sizes(**SMALL))), config(steps)
    ),
    RecogniserLearner: lambda steps: RecogniserLearner(Recogniser(Pixels(2, 3, 1, 2), 3, 4, 8), config(steps)),
    TokenizerLearner: lambda steps: TokenizerLearner(VQGAN(TOKENIZER.sizes(channels=3)), TOKENIZER),
}


def pictures(step):
    return torch.randint(256, (4, 4, 4, 3), generator=generator_of(0, "rows", step), dtype=torch.uint8)


def rows(step):
    """Rows whose first half equals their second."""
    half = torch.randint(2, (16, LENGTH // 2), generator=generator_of(0, "rows", step))
    return torch.cat([half, half], dim=1)


def labelled(step):
    return Batch(rows(step), labels=torch.randint(3, (16,), generator=generator_of(1, "rows", step)))


OTHER_ROWS = {TokenizerLearner: pictures, ClassifierLearner: labelled, RecogniserLearner: labelled}


def derived(kind):
    for other in kind.__subclasses__():
        yield from (other, *derived(other))


def test_every_learner_of_the_library_is_tested():
    ours = {kind for kind in derived(Learner) if kind.__module__.startswith("sddm.") and not inspect.isabstract(kind)}
    assert ours == LEARNERS.keys()


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_a_learner_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(kind, tmp_path, at_full_speed):
    def trained(name, *until):
        """All that the last checkpoint holds: weights, averages, buffers, and what the optimizers remember."""
        for steps in until:
            torch.manual_seed(0)
            run = RunConfig(steps, 16, seed=3)
            batches = OTHER_ROWS.get(kind, rows)
            learn(LEARNERS[kind](steps), batches, run, out=tmp_path / name, resume=True, progress=False)
        return checkpoints.newest(tmp_path / name / "checkpoints").tensors

    def equal(one, other):
        return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())

    straight = trained("straight", 8)
    assert equal(straight, trained("in two parts", 5, 8))
    assert not equal(straight, trained("shorter", 5))
