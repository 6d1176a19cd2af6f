"""The folder of a run: what was asked for (run.json), and the model that came of it."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import tyro

from sddm import __version__, _checks, _files
from sddm._pretrained import load_weights
from sddm.codecs.columns import TABLES
from sddm.codecs.kinds import EVERY
from sddm.data import Dataset, Reading
from sddm.diffusion import Diffusion
from sddm.errors import BadCheckpointError
from sddm.noised_classifier import NoisedClassifier
from sddm.tokenizers import VQGAN
from sddm.training import checkpoints
from sddm.training.config import RunConfig
from sddm.training.loop import CHECKPOINTS, MODEL

if TYPE_CHECKING:
    from sddm.commands.train import TrainCommand
    from sddm.commands.train_classifier import TrainClassifierCommand
    from sddm.commands.train_tokenizer import TrainTokenizerCommand

    Command: TypeAlias = TrainCommand | TrainTokenizerCommand | TrainClassifierCommand
    """What starts a run."""

Result = Diffusion | VQGAN | NoisedClassifier
Made = TypeVar("Made", Diffusion, VQGAN, NoisedClassifier)
"""What a run trains."""
KINDS: dict[type, tuple[str, str, str]] = {
    Diffusion: ("diffusion", "average", "sddm train"),
    VQGAN: ("tokenizer", "average.tokenizer", "sddm train-tokenizer"),
    NoisedClassifier: ("classifier", "average", "sddm train-classifier"),
}
"""Under what name it stands in run.json, where its weights stand in a checkpoint, and the command."""

Flat = tyro.conf.arg(name="")
"""The options of a part of a command stand among those of the command."""
RUN_FILE = "run.json"
FORMAT = 1
ADVICE = "Name the folder that `sddm train` printed, or one made by save_pretrained."


def record(
    folder: Path,
    command: Command,
    fingerprint: str,
    data: Dataset,
    made: Result,
) -> None:
    """Write down what this run is."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = {"sddm": __version__, **{name: version(name) for name in ("torch", "numpy", "accelerate")}}
    options = json.loads(json.dumps(asdict(command), default=str))
    value = {
        "format": FORMAT,
        "options": {name: value for name, value in options.items() if name != "resume"},
        "data": {"name": data.name, "rows": len(data), "length": data.length, "fingerprint": fingerprint},
        KINDS[type(made)][0]: made.config(),
        "versions": {"python": platform.python_version(), **packages},
    }
    _files.write_json(folder / RUN_FILE, {**value, "digest": _files.digest(value)})


def recorded(folder: Path, kind: type[Result] = Diffusion) -> dict[str, Any]:
    """What `record` wrote of a run of this kind."""
    path = folder / RUN_FILE
    _checks.require(path.is_file(), f"{str(folder)!r} holds no {RUN_FILE}: it is not the folder of a run.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        _checks.require(value["format"] == FORMAT, f"{path} was written by another version of sddm.")
        for other, (part, _, command) in KINDS.items():
            _checks.require(
                other is kind or part not in value, f"{str(folder)!r} holds a run of `{command}`. Name another."
            )
        value["options"]["training"]["seed"], value["data"]["fingerprint"], value[KINDS[kind][0]]["format"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
        raise BadCheckpointError(f"{path} is damaged: {error}. Train again from the start.") from error
    rest = {name: part for name, part in value.items() if name != "digest"}
    if value.get("digest") not in (None, _files.digest(rest)):  # older versions wrote none
        raise BadCheckpointError(f"{path} is damaged: it does not hold what was written. Train again from the start.")
    return value


def reading(options: dict[str, Any]) -> Reading:
    """How the data of a run were read, from its options; older versions kept `window` and `key` among them, and took
    all columns of tables for categories."""
    older = {name: options[name] for name in ("window", "key") if name in options}
    read = dict(options.get("reading", older))
    if "kinds" not in read and Path(options["data"]).suffix.lower() in TABLES:
        read["kinds"] = f"{EVERY}=category"
    return Reading(**read)


def check_same(folder: Path, fingerprint: str, data: Dataset, made: Result, training: RunConfig) -> None:
    """Check that a run that goes on has the data, the model and the options that it was started with."""
    value, part = recorded(folder, type(made)), KINDS[type(made)][0]
    started = f"that the run in {str(folder)!r} was started with"
    _checks.require(
        value["data"]["fingerprint"] == fingerprint,
        f"The data are not those {started}: {value['data']['rows']} rows of {value['data']['length']} then, "
        f"{len(data)} of {data.length} now, or other contents. "
        "Bring the file back, or start a new run with another --out.",
    )
    now = made.config()
    _checks.require(
        value[part] == json.loads(json.dumps(now)) or type(made).from_config(value[part]).config() == now,
        f"The model is not the one {started}. "
        "Leave out the options that change it, or start a new run with another --out.",
    )
    before = replace(training, **value["options"]["training"]).lasting
    for name, now in training.lasting.items():
        _checks.require(
            before[name] == now,
            f"{name} is {now}, but the run in {str(folder)!r} was started with {before[name]}. "
            f"Leave out --{name.replace('_', '-')}, or start a new run with another --out.",
        )


def begin(
    folder: Path,
    command: Command,
    fingerprint: str,
    data: Dataset,
    made: Result,
) -> None:
    """Record a run that begins in this folder, or check that one that goes on there is the same."""
    if command.resume and (folder / RUN_FILE).exists():
        check_same(folder, fingerprint, data, made, command.training)
        return
    _checks.require(
        not (folder / RUN_FILE).exists(),
        f"{str(folder)!r} already holds a run. Go on with it by --resume, or name another folder with --out.",
    )
    record(folder, replace(command, out=folder), fingerprint, data, made)


def check_folder(folder: Path) -> None:
    """Check that a run can have this folder."""
    check_place(folder)
    _checks.require(not folder.is_file(), f"{str(folder)!r} is a file. Name a folder for the run with --out.")


def check_place(path: Path) -> None:
    """Check that the folders on the way to a path are folders, as far as they exist."""
    above = next((parent for parent in path.parents if parent.exists()), Path())
    if not above.is_dir():
        raise ValueError(f"{str(path)!r} cannot be made, as {str(above)!r} is a file. Name another place with --out.")


def check_file_place(path: Path) -> None:
    """Check that a file can be put there."""
    check_place(path)
    _checks.require(not path.is_dir(), f"{str(path)!r} is a directory. Name a file with --out.")


def trained(source: str) -> Diffusion:
    """The model of a run (so far, if it is not finished), of a folder made by save_pretrained, or from the hub."""
    return _result(source, Diffusion)


def trained_tokenizer(source: str) -> VQGAN:
    """The same for a tokenizer."""
    return _result(source, VQGAN)


def trained_classifier(source: str) -> NoisedClassifier:
    """The same for a classifier."""
    return _result(source, NoisedClassifier)


def _result(source: str, kind: type[Made]) -> Made:
    folder = Path(source)
    if (folder / MODEL).is_dir():
        return kind.from_pretrained(folder / MODEL)
    if (folder / RUN_FILE).is_file():
        checkpoint = checkpoints.newest(folder / CHECKPOINTS)
        if checkpoint is None:
            raise BadCheckpointError(f"The run in {str(folder)!r} has no checkpoint yet. Wait for its first one.")
        part, place, _ = KINDS[kind]
        made = kind.from_config(recorded(folder, kind)[part])
        weights: dict[str, Any] = dict(made.named_parameters())
        if isinstance(made, Diffusion):
            weights |= made.codec_weights()
        load_weights(weights, checkpoint.part(place), str(folder / CHECKPOINTS))
        return made.eval()
    beside_runs = any(folder.parent.glob(f"*/{RUN_FILE}"))  # a typing error in the name of one, and no repository
    if folder.exists() or source.count("/") != 1 or source.startswith((".", "/")) or beside_runs:
        _checks.require(folder.is_dir(), f"There is no run {source!r}. {ADVICE}")
    try:
        return kind.from_pretrained(source)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} {ADVICE}") from error
