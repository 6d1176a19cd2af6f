"""A process and a classifier of what it has noised: what is trained, saved and loaded to guide a diffusion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sddm import _checks, _pretrained
from sddm.config import build, describe
from sddm.networks import Classifier, Places, Sizes
from sddm.processes import PROCESSES, Process
from sddm.query import Query
from sddm.schedules import SCHEDULES

PARTS: dict[str, type] = {**SCHEDULES, **PROCESSES, "classifier": Classifier, "sizes": Sizes, "places": Places}
"""The names under which classes stand in a config.json."""


class NoisedClassifier(nn.Module):
    """p(y | x_t, t), where x_t is a row noised by this very process.

    label_names: what the labels stand for, if they have names.

    >>> classifier = NoisedClassifier(process, Classifier(process.num_symbols, num_labels=10, places=Places(length=64)))
    >>> classifier = train_classifier(classifier, data)
    >>> Diffusion(process, Classified(model, classifier, 2.0)).sample(16, labels=torch.full((16,), 3))
    """

    def __init__(self, process: Process, network: Classifier, label_names: Sequence[str] | None = None) -> None:
        super().__init__()
        self.process = _checks.instance(process, Process, "process")
        self.network = _checks.instance(network, Classifier, "network")
        _checks.require(
            network.num_tokens == process.num_symbols,
            f"classifier has num_tokens={network.num_tokens}, but {type(process).__name__} of {process.num_states} "
            f"states needs {process.num_symbols}. Build it with num_tokens=process.num_symbols.",
        )
        self.label_names = None if label_names is None else [*label_names]
        _checks.require(
            self.label_names is None or len(self.label_names) == network.num_labels,
            f"label_names has {len(self.label_names or [])} names, but the classifier knows {network.num_labels} "
            "labels.",
        )
        self.num_labels, self.num_tokens, self.length = network.num_labels, network.num_tokens, network.length

    def check(self, process: Process) -> None:
        """Raise an error unless this is the noise that the classifier has learnt."""
        own, other = self.process, process
        _checks.require(
            describe(own, _names()) == describe(other, _names()),
            f"The classifier has learnt rows noised by {own}, but the diffusion has {other}. Train a classifier of the "
            "noise of this diffusion, or name one.",
        )

    def forward(self, query: Query) -> Float[Tensor, "batch labels"]:
        """The logarithms of the probabilities of all labels."""
        log_p: Tensor = self.network(query)
        return log_p

    def config(self) -> dict[str, Any]:
        """What config.json holds: how to build this classifier, without its weights."""
        parts = {"process": describe(self.process, _names()), "classifier": describe(self.network, _names())}
        return {"format": _pretrained.FORMAT, **parts, "label_names": self.label_names}

    @classmethod
    def from_config(cls, config: dict[str, Any], name: str = "The config") -> NoisedClassifier:
        """Build what `config` described, with fresh weights; `name` is for error messages."""
        try:
            return cls(build(config["process"], PARTS), build(config["classifier"], PARTS), config["label_names"])
        except Exception as error:  # whatever goes wrong here, the config is to blame
            raise ValueError(
                f"{name} describes no classifier that can be built: {_pretrained.reason(error)}."
            ) from error

    def save_pretrained(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors, all that is needed to build it again, and a card."""
        _pretrained.save(directory, self.config(), self.state_dict(), _card(self))

    @classmethod
    def from_pretrained(
        cls, source: str | Path, device: str | torch.device = "cpu", revision: str | None = None
    ) -> NoisedClassifier:
        """Load from a directory, or from a repository of the Hugging Face hub ("owner/name")."""
        return _pretrained.load(
            cls.from_config, "classifier", ("process", "classifier", "label_names"), source, device, revision
        )


def _names() -> dict[type, str]:
    return {kind: name for name, kind in {**PARTS, **SCHEDULES, **PROCESSES}.items()}


def _card(classifier: NoisedClassifier) -> str:
    """A README.md in the hub's convention."""
    process = classifier.process
    names = "" if classifier.label_names is None else f": {', '.join(classifier.label_names)}"
    return f"""---
library_name: sddm
tags: [sddm, discrete-diffusion, classifier]
---
# A classifier of noised rows, to guide a diffusion

- Data: {classifier.length or "any number of"} positions of {process.num_states} states
- Process: {type(process).__name__}, {type(process.schedule).__name__} schedule
- Labels: {classifier.num_labels}{names}

```python
import sddm

classifier = sddm.NoisedClassifier.from_pretrained("this repository or folder")
guided = sddm.Diffusion(model.process, sddm.marginals.Classified(model.model, classifier, 2.0))
```
"""
