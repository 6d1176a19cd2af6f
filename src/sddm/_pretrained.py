"""Folders that `save_pretrained` writes and `from_pretrained` reads: a config.json, and weights with their digest."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from torch import Tensor, nn

from sddm import _checks, _files

FORMAT = 1
"""The first format of a config; of all kinds but the diffusion it is the only one."""
Made = TypeVar("Made", bound=nn.Module)
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"


def save(directory: str | Path, config: dict[str, Any], weights: Mapping[str, Tensor], card: str) -> None:
    """Write the three files of a folder, which is created if needed."""
    directory = checked_path(directory, "directory")
    _checks.require(not directory.is_file(), f"directory {str(directory)!r} is a file. Name a directory.")
    directory.mkdir(parents=True, exist_ok=True)
    _files.save_tensors(directory / WEIGHTS_FILE, weights)
    _files.write_json(directory / CONFIG_FILE, config)
    _files.write_text(directory / CARD_FILE, card)


def load(
    build: Callable[[dict[str, Any], str], Made],
    kind: str,
    parts: Collection[str],
    source: str | Path,
    device: str | torch.device = "cpu",
    revision: str | None = None,
) -> Made:
    """A saved object of this kind ("tokenizer"), all of whose weights are in its state dict.

    build: makes it, with fresh weights, from its config and the name of the file that holds that.
    """
    device = _checks.available_device(device)
    directory = locate(source, revision)
    path = directory / CONFIG_FILE
    made = build(read_config(path, kind, (FORMAT,), parts), str(path))
    read_weights(directory, made.state_dict())
    return made.to(device).eval()


def locate(source: str | Path, revision: str | None = None) -> Path:
    """The folder itself, or that of a repository fetched from the hub."""
    if checked_path(source, "source").is_dir():
        _checks.require(revision is None, f"{str(source)!r} is a directory: it has no revisions. Leave it out.")
        return Path(source)
    try:
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=[CONFIG_FILE, WEIGHTS_FILE]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"{str(source)!r} is neither a directory nor a repository that could be fetched from the hub"
            + (f" at revision {revision!r}." if revision else ".")
        ) from error


def checked_path(value: Any, name: str) -> Path:
    if not isinstance(value, (str, Path)):
        raise TypeError(f"{name} must be a path, but it is a {type(value).__name__}.")
    return Path(value)


def read_config(path: Path, kind: str, formats: Collection[int], parts: Collection[str]) -> dict[str, Any]:
    """The config of a saved object of this kind ("diffusion"), in one of these formats and with these parts."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path.parent} holds no {path.name}: it is not a saved {kind}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}. The file is damaged; save the model again.") from error
    if not isinstance(config, dict) or config.get("format") not in formats or not set(parts) <= config.keys():
        raise ValueError(f"{path} is not the config of a {kind} saved by this version (format {max(formats)}).")
    return config


def read_weights(directory: Path, own: Mapping[str, Tensor]) -> None:
    """Copy the weights of a saved folder into these tensors."""
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {WEIGHTS_FILE}: its weights are missing.")
    load_weights(own, _files.load_tensors(path)[1], str(path))


@torch.no_grad()
def load_weights(own: Mapping[str, Tensor], found: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors of the same names, shapes and kinds; `where` they were found is named if they are others."""
    for name in sorted(own.keys() | found.keys()):
        old, new = own.get(name), found.get(name)
        if old is None or new is None or old.shape != new.shape or old.is_floating_point() != new.is_floating_point():
            raise ValueError(
                f"{where} does not hold the weights of the model: {name} is {_form(new)} there, but {_form(old)} in "
                "the model. Save the model again."
            )
        old.copy_(new)


def _form(value: Tensor | None) -> str:
    return "missing" if value is None else f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def reason(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
