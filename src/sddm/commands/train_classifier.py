"""sddm train-classifier: from data with labels to a classifier that guides a model which knows no labels."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from sddm import _checks
from sddm.commands import runs
from sddm.commands.runs import Flat
from sddm.commands.translated import translated
from sddm.data import Dataset, Reading, load
from sddm.diffusion import Diffusion
from sddm.errors import StoppedError
from sddm.networks import Classifier, Places, Sizes
from sddm.noised_classifier import NoisedClassifier
from sddm.recipe import ModelConfig
from sddm.training import ClassifierLearner, TrainingConfig, train_classifier
from sddm.training.descent import share_of
from sddm.training.devices import accelerator, check_alike, claimed, on_main
from sddm.training.diffusion import codec_of
from sddm.training.heartbeat import noticing_lost_processes


@dataclass(frozen=True)
class ClassifierConfig:
    """The network of a classifier."""

    width: int | None = None
    """Width of the network; sizes that are not given are chosen by how much data there is."""
    layers: int | None = None
    """Layers of the network."""
    heads: int | None = None
    """Attention heads: a head for every 32 of the width unless given."""
    mlp: int | None = None
    """Width of the layers between two attentions: four times the width unless given."""
    dropout: float = 0.0
    """Share of activations dropped in training."""

    def __post_init__(self) -> None:
        self._model()

    def _model(self) -> ModelConfig:
        """A model of the same sizes, which checks them and chooses those that are not given."""
        return ModelConfig(width=self.width, layers=self.layers, heads=self.heads, mlp=self.mlp, dropout=self.dropout)

    def build(self, diffusion: Diffusion, data: Dataset, seed: int) -> NoisedClassifier:
        """A classifier with fresh weights for the noise of a diffusion and these labels."""
        sizes = Sizes(**self._model().sizes(len(data) * data.length), dropout=self.dropout)
        grid = codec_of(diffusion).usual_grid(data.length)
        places = Places() if diffusion.length is None else Places(data.length, grid)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Classifier(diffusion.process.num_symbols, data.num_labels, places, sizes)
        return NoisedClassifier(diffusion.process, network, data.label_names)


@dataclass(frozen=True)
class TrainClassifierCommand:
    """Train a classifier of noised data, which guides a model to labels that it was not trained with.

    `sddm sample RUN --classifier FOLDER --label NAME --guidance 2.0` samples so. Options of training that belong to a
    model, such as --loss and --known, are refused. What the run leaves is in one folder: the classifier, checkpoints,
    metrics.jsonl, and run.json with all options.
    """

    of: str
    """The model that it is to guide: a folder of a run or of a saved model, or a repository of the hub. The classifier
    learns data noised as that model's are, in its tokens."""
    data: str | None = None
    """Data with labels, as for `sddm train`. Unless given, those of the run, of which the same rows are held out."""
    out: Path = Path("runs/classifier")
    """Folder of the run."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the run in --out after its newest checkpoint. Other options are those it was started with; a few, such
    as --steps and --save-every, may be given anew."""
    held_out: float = 0.1
    """Share of the rows of --data that is not trained on: for the loss and the share that is told right."""
    reading: Annotated[Reading, Flat] = field(default_factory=Reading)
    network: Annotated[ClassifierConfig, Flat] = field(default_factory=ClassifierConfig)
    training: Annotated[TrainingConfig, Flat] = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        _checks.require(
            self.data is not None or not self.reading.given,
            f"Options such as {', '.join(self.reading.given)} say how a file is read. Name the file with --data.",
        )


def run(command: TrainClassifierCommand) -> None:
    training, folder = command.training, command.out
    diffusion = runs.trained(command.of)
    rows, apart = _parts(command, diffusion)
    classifier = command.network.build(diffusion, rows, training.seed)
    ClassifierLearner.check(training)
    share_of(training.batch_size, int(os.environ.get("WORLD_SIZE", "1")), training.accumulate)
    runs.check_folder(folder)
    job, fingerprint = accelerator(), rows.fingerprint()

    def begin() -> None:
        runs.begin(folder, command, fingerprint, rows, classifier)
        parameters = sum(p.numel() for p in classifier.parameters())
        lines = [rows.report] * bool(rows.report)
        lines += [
            f"{rows.name}: {len(rows):,} rows to train on and {len(apart):,} held out, {rows.length} positions, "
            f"{rows.num_labels} labels.\nClassifier with {parameters:,} parameters, {training.steps:,} steps of "
            f"{training.batch_size} rows. Folder: {folder}"
        ]
        print("\n".join(lines), file=sys.stderr)

    with noticing_lost_processes(), claimed(job, folder):
        check_alike(job, {"data": fingerprint})
        on_main(job, begin)
        options: dict[str, Any] = {"held_out": apart, "out": folder, "resume": command.resume}
        try:
            train_classifier(classifier, rows, training, **options, fingerprint=fingerprint)
        except StoppedError as stop:
            raise StoppedError(f"{stop} Go on with --resume.", stop.signal) from stop
    if job.is_main_process:
        label = rows.label_names[0] if rows.label_names else 0
        out = "" if rows.codec.text_ending else f" --out samples{rows.codec.default_ending}"
        said = f"sddm sample {command.of} --classifier {folder} --label {label} --guidance 1{out}"
        print(f"Done. Samples of a label: {said}", file=sys.stderr)


def _parts(command: TrainClassifierCommand, diffusion: Diffusion) -> tuple[Dataset, Dataset]:
    """The rows to train on and those held out, in the tokens of the model."""
    if command.data is not None:
        seed, share = command.training.seed, command.held_out
        data = load(command.data, seed=seed, **command.reading.given)
    else:
        folder = Path(command.of)
        _checks.require(
            (folder / runs.RUN_FILE).is_file(),
            "data must be given with --data: this model does not know what it was trained on.",
        )
        options = runs.recorded(folder)["options"]
        seed, share = options["training"]["seed"], options["held_out"]
        data = load(options["data"], seed=seed, **runs.reading(options).given)
    _checks.require(
        data.labels is not None,
        f"{data.name} has no labels, but a classifier learns them. Name data with labels with --data.",
    )
    codec, length = codec_of(diffusion), diffusion.length or data.length
    if data.codec != codec or data.length != length:
        tokens = translated(data, slice(len(data)), diffusion)
        numbers = {"groups": data.groups, "labels": data.labels, "label_names": data.label_names}
        data = Dataset(tokens, codec, **numbers, report=data.report, name=data.name)  # type: ignore[arg-type]
    return data.split(share, seed)


def resumed(folder: Path) -> TrainClassifierCommand:
    """The options with which the run in a folder was started, to go on with."""
    options = runs.recorded(folder, NoisedClassifier)["options"]
    network, training = ClassifierConfig(**options["network"]), TrainingConfig(**options["training"])
    started = TrainClassifierCommand(options["of"], options["data"], folder, False, options["held_out"])
    return replace(started, reading=runs.reading(options), network=network, training=training)
