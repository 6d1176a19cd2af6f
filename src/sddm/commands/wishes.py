"""What samples should be like: their label, the classifier that leads to it, and a reward that steers to them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from sddm import _checks
from sddm.codecs import Codec
from sddm.commands import runs
from sddm.diffusion import Diffusion
from sddm.formats.text import readable
from sddm.marginals import Classified
from sddm.noised_classifier import NoisedClassifier
from sddm.recipe import SamplingConfig
from sddm.samplers import Steered
from sddm.samplers.rewards import Function
from sddm.training.diffusion import codec_of

if TYPE_CHECKING:
    from sddm.commands.sample import SampleCommand

PARTICLES, MOST_PARTICLES = 16, 100_000
"""How many particles a sample has unless a number is given; above the second, a typing error is more likely."""
FORM = "Name it as FILE.py:FUNCTION."


@dataclass(frozen=True)
class Wish:
    """What is sampled, and how."""

    diffusion: Diffusion
    """With the classifier that guides it, if there is one."""
    sampling: SamplingConfig
    label: int | None = None
    classifier: NoisedClassifier | None = None
    reward: Function | None = None
    particles: int = PARTICLES
    configs: tuple[Any, ...] = ()
    """What beside the options and the model decides the samples."""

    def to(self, device: torch.device) -> Wish:
        """The same on a device."""
        return replace(self, diffusion=self.diffusion.to(device))

    def sampled(self, num: int, **options: Any) -> Int[Tensor, "num dim"]:
        """Samples; options are those of `sddm.sample`."""
        return self.sampling.sample(self.diffusion, num, labels=self._labels(num), **options)

    def steered(self, num: int, **options: Any) -> Steered:
        """Samples that the reward steers to."""
        assert self.reward is not None
        options |= {"labels": self._labels(num), "particles": self.particles}
        return self.sampling.steer(self.diffusion, num, self.reward, **options)

    def said(self, effective: Float64[Tensor, "num steps"]) -> str:
        """What is to be said of the particles at the end."""
        return (
            f"Effective sample size, of {self.particles} particles: {float(effective.mean()):.1f} on average over "
            f"steps and samples, {float(effective.min()):.1f} at the least."
        )

    def _labels(self, num: int) -> Int[Tensor, "num"] | None:
        return None if self.label is None else torch.full((num,), self.label)


def wished(command: SampleCommand, diffusion: Diffusion) -> Wish:
    """What the options of `sddm sample` ask for, checked."""
    sampling, codec = command.sampling, codec_of(diffusion)
    configs: list[Any] = []
    classifier: NoisedClassifier | None = None
    if command.classifier is not None:
        _checks.require(
            command.label is not None,
            "classifier was given, but there is no label that it should lead to. Name one with --label.",
        )
        classifier = runs.trained_classifier(command.classifier)
        configs.append(classifier.config())
        guided = Classified(diffusion.model, classifier, sampling.guidance, command.first_order)
        # Guidance of another strength than 1 changes rates, which this step takes as they are.
        sampling = replace(sampling, guidance=1.0, sampler=sampling.sampler or "euler")
        diffusion = Diffusion(diffusion.process, guided, diffusion.codec, classifier.label_names, diffusion.lengths)
    sampling.check(diffusion)
    label, reward = _label(command, sampling, diffusion), None
    if command.reward is not None:
        text, reward = read_reward(command.reward, codec if command.decoded else None)
        _checks.require(
            diffusion.model.implicit,
            "reward is asked about the most likely x0 on the way, which this model does not predict"
            + (" under a classifier. Leave one of the two out." if classifier else ". Train one that does."),
        )
        configs.append(text)
    particles = PARTICLES if command.particles is None else command.particles
    return Wish(diffusion, sampling, label, classifier, reward, particles, tuple(configs))


def _label(command: SampleCommand, sampling: SamplingConfig, diffusion: Diffusion) -> int | None:
    """The number of the label that was asked for."""
    names, known = diffusion.label_names or [], diffusion.model.num_labels
    if command.label is None:
        _checks.require(
            sampling.guidance == 1.0,
            f"guidance is {sampling.guidance:g}, but there is no label to follow. Name one with --label.",
        )
        return None
    _checks.require(
        bool(known),
        "label was given, but this model was trained without labels. Leave it out, or guide the model by a classifier: "
        "`sddm train-classifier`.",
    )
    number = names.index(command.label) if command.label in names else -1
    if number < 0 and command.label.isdecimal():
        number = int(command.label)
    who = "model" if command.classifier is None else "classifier"
    _checks.require(
        0 <= number < (known or 0),
        f"label is {command.label!r}, but the {who} knows 0 to {(known or 1) - 1}"
        + (f", called {_checks.shown(names)}." if names else "."),
    )
    return number


def read_reward(place: str, codec: Codec | None) -> tuple[str, Function]:
    """The text of the file in FILE.py:FUNCTION, and its function of tokens. The file is run.

    codec: decodes the tokens before the function gets them, if it is given.
    """
    file, colon, name = place.rpartition(":")
    _checks.require(bool(file and colon and name), f"reward is {place!r}, which does not name a function. {FORM}")
    path = Path(file)
    _checks.require(path.suffix == ".py", f"reward: {file!r} is not a file of Python, which ends in .py. {FORM}")
    readable(path, FORM)
    try:
        text = path.read_text(encoding="utf-8")
        module = ModuleType("sddm_reward")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        exec(compile(text, str(path), "exec"), module.__dict__)
    except Exception as error:  # whatever the user's file does
        raise ValueError(f"{file!r} cannot be run: {_short(error)}. Correct the file.") from error
    found = getattr(module, name, None)
    _checks.require(callable(found), f"{file!r} has no function {name!r}. {FORM}")
    return text, _checked(found, place, codec)  # type: ignore[arg-type]


def _checked(function: Callable[[Any], Any], place: str, codec: Codec | None) -> Function:
    """The function, with errors that name it, and lists and arrays of numbers as tensors."""

    def reward(tokens: Tensor) -> Tensor:
        asked = tokens if codec is None else codec.decode(tokens.cpu())
        try:
            value = function(asked)
        except Exception as error:  # whatever the user's function does
            raise ValueError(f"The reward {place} failed: {_short(error)}. Correct the function.") from error
        try:
            return torch.as_tensor(value)
        except Exception as error:
            raise ValueError(
                f"The reward {place} must return a number for each row, but it returned a {type(value).__name__} that "
                "is none of a list of numbers, an array or a tensor."
            ) from error

    return reward


def _short(error: Exception) -> str:
    """The kind of an error and its message, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": .")
