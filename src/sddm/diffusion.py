"""Diffusion = a forward process and a model of its conditionals: what is trained, saved, loaded and sampled."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import HfApi
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sddm import _checks, _pretrained
from sddm.codecs import CODECS, PARTS, Codec
from sddm.config import build, describe
from sddm.lengths import Lengths
from sddm.marginals import MODELS, MarginalModel, Marginals
from sddm.marginals.base import one_by_one
from sddm.networks import NETWORKS, Places, Sizes
from sddm.processes import PROCESSES, Process
from sddm.query import Query
from sddm.schedules import SCHEDULES

if TYPE_CHECKING:
    import sddm.likelihood

FORMAT = 2
OTHERS: dict[str, type] = {"sizes": Sizes, "places": Places, "lengths": Lengths}
TRANSFORMERS = ("hollow-transformer", "denoiser", "transformer-energy")


class Diffusion(nn.Module):
    """A forward process and a model of its singleton conditionals, and the codec of its tokens if there is one.

    label_names: what the labels that the model was trained with stand for, if they have names.
    lengths: the law of the lengths of rows, if they differ. Rows then end anywhere up to `length`. A tensor of them
        holds `pad` behind their ends.

    >>> diffusion = Diffusion(Uniform(2, Constant(1.0)).leaving(0.02), model)
    >>> diffusion.marginals(xt, t).log_xt            # (batch, dim, symbols)
    >>> diffusion.sample(16, seed=0)                 # (16, dim)
    """

    def __init__(
        self,
        process: Process,
        model: MarginalModel,
        codec: Codec | None = None,
        label_names: Sequence[str] | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        super().__init__()
        _checks.instance(process, Process, "process")
        _checks.instance(model, MarginalModel, "model")
        if codec is not None:
            _checks.instance(codec, Codec, "codec")
            _checks.require(
                codec.num_states == process.num_states,
                f"codec knows {codec.num_states} values, but the process has {process.num_states} states.",
            )
        model.check(process)
        self.process = process
        self.model = model
        self.codec = codec
        self.label_names = None if label_names is None else [*label_names]
        known = model.num_labels
        _checks.require(
            self.label_names is None or known in (None, len(self.label_names)),
            f"label_names has {len(self.label_names or [])} names, but the model knows {known} labels.",
        )
        self.lengths = lengths
        if lengths is not None:
            _checks.instance(lengths, Lengths, "lengths")
            _checks.require(
                model.takes_shorter,
                f"lengths were given, but {type(model).__name__} takes rows of one length. Use a transformer, or leave "
                "out lengths.",
            )
            _checks.require(
                model.length in (None, lengths.most),
                f"lengths go up to {lengths.most}, but the model was built for {model.length} positions.",
            )
        if codec is not None and codec.network is not None:
            codec.network.requires_grad_(False).eval()

    @property
    def length(self) -> int | None:
        """The number of positions of a sample, the largest if there is a law of lengths, or None if any is allowed."""
        return self.model.length if self.lengths is None else self.lengths.most

    @property
    def pad(self) -> int:
        """What stands behind the end of a row, if rows have different lengths: the number after the last state."""
        return self.process.num_states

    def checked(self, x: Tensor, num_tokens: int, name: str) -> Tensor:
        """Check rows of so many tokens, which are as long as the model was built for, or may be shorter."""
        shorter = self.lengths is not None
        return _checks.tokens(x, num_tokens, name, length=self.length, shorter=shorter, device=self.device)

    def with_model(self, model: MarginalModel) -> Diffusion:
        """The same process and lengths with another model, and without a codec."""
        return Diffusion(self.process, model, lengths=self.lengths)

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        for value in (*self.parameters(), *self.buffers()):
            return value.device
        return torch.device("cpu")

    def _apply(self, change: Any, recurse: bool = True) -> Diffusion:
        """Move the codec's network too. Its weights are not parameters of the diffusion, as they are not trained."""
        if self.codec is not None and self.codec.network is not None:
            self.codec.network._apply(change, recurse)
        return super()._apply(change, recurse)  # type: ignore[no-untyped-call]

    def codec_weights(self) -> dict[str, Tensor]:
        """The weights of the codec's network, as they are saved; empty if it has none."""
        network = None if self.codec is None else self.codec.network
        return {} if network is None else {f"codec.{name}": value for name, value in network.state_dict().items()}

    def marginals(
        self,
        xt: Int[Tensor, "batch dim"],
        t: Float[Tensor, "batch"],
        positions: Int[Tensor, "batch num"] | None = None,
        given: Bool[Tensor, "batch dim"] | None = None,
        padding: Bool[Tensor, "batch dim"] | None = None,
        label: Int[Tensor, "batch"] | None = None,
    ) -> Marginals:
        """The conditionals at x_t; `sddm.query.Query` explains the arguments."""
        xt = self.checked(xt, self.process.num_symbols, "xt")
        t = _checks.times(t, xt.shape[0], "t", device=self.device)
        if positions is not None:
            positions = _checks.positions(positions, *xt.shape, device=self.device)
        if given is not None:
            given = _checks.boolean_mask(given, xt.shape, "given", device=self.device)
        if padding is not None:
            padding = _checks.boolean_mask(padding, xt.shape, "padding", device=self.device)
        if label is not None:
            label = _checks.labels(label, xt.shape[0], "label", known=self.model.num_labels)
        return self(Query(xt, t, positions, given, padding, label))

    def forward(self, query: Query) -> Marginals:
        """`marginals` without the checks, for loops that have made them once."""
        if query.ahead is None or self.model.takes_ahead:
            return self.model(self.process, query)
        return one_by_one(self.model, self.process, query)

    def sample(self, num: int, *, seed: int | None = None, **options: Any) -> Int[Tensor, "num dim"]:
        """Generate `num` samples; the options are those of `sddm.sample`, and a seed takes the place of a generator."""
        from sddm.samplers import sample

        if seed is not None:
            _checks.require("generator" not in options, "Give a seed or a generator, not both.")
            options["generator"] = torch.Generator().manual_seed(_checks.whole(seed, "seed", 0))
        return sample(self, num, **options)

    def fill(self, data: Any, num: int = 1, *, seed: int | None = None, **options: Any) -> Any:
        """The same object with its gaps filled; a list of `num` such objects if more than one is asked for.

        data: an array or a tensor with -1 in its gaps, lists with None, strings with "_", or a DataFrame of pandas or
            polars in which values are missing; what is not a gap, and the kind and the types, are kept.
        options: those of `sddm.sample`; labels are one for each row.

        >>> model.fill(torch.tensor([[3, 1, -1, -1, 4]]), seed=0)
        """
        from sddm.fill import fill

        return fill(self, data, num, seed=seed, **options)

    def bound(self, x0: Int[Tensor, "batch dim"], num_times: int = 128, **options: Any) -> sddm.likelihood.Bound:
        """An upper bound on -log p(x_0) of each row in nats; `sddm.likelihood.bound` explains the arguments."""
        from sddm.likelihood import bound

        return bound(self, x0, num_times, **options)

    def decode(self, tokens: Int[Tensor, "num dim"]) -> Any:
        """Tokens as what they stand for: lines of text, rows of a table, points, numbers."""
        if self.codec is None:
            raise ValueError("decode: this diffusion was built without a codec; its tokens stand for themselves.")
        return self.codec.decode(tokens)

    def save_pretrained(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors, all that is needed to build the same diffusion again, and a card."""
        _pretrained.save(directory, self.config(), self.model.state_dict() | self.codec_weights(), model_card(self))

    def config(self) -> dict[str, Any]:
        """What config.json holds: how to build this diffusion, without its weights."""
        names = {cls: name for name, cls in saved_types().items()}
        config = {
            "format": FORMAT,
            "process": describe(self.process, names),
            "model": describe(self.model, names),
            "codec": None if self.codec is None else describe(self.codec, names),
        }
        if self.label_names is not None:
            config["label_names"] = self.label_names
        return config if self.lengths is None else {**config, "lengths": describe(self.lengths, names)}

    @classmethod
    def from_config(cls, config: dict[str, Any], name: str = "The config") -> Diffusion:
        """Build what `config` described, with fresh weights; `name` is for error messages."""
        if config["format"] == 1:
            config = _with_sizes(config)
        types, codec = saved_types(), config.get("codec", config.get("decoder"))  # its former name
        try:
            process, model = build(config["process"], types), build(config["model"], types)
            lengths = build(config["lengths"], types) if "lengths" in config else None
            return cls(process, model, build(codec, types), config.get("label_names"), lengths)
        except Exception as error:  # whatever goes wrong here, the config is to blame
            raise ValueError(f"{name} describes no model that can be built: {_pretrained.reason(error)}.") from error

    @classmethod
    def from_pretrained(
        cls, source: str | Path, device: str | torch.device = "cpu", revision: str | None = None
    ) -> Diffusion:
        """Load from a directory, or from a repository of the Hugging Face hub ("owner/name").

        revision: a branch, a tag or a commit of the repository; the newest state of its main branch if not given.
        """
        device = _checks.available_device(device)
        directory = _pretrained.locate(source, revision)
        path = directory / _pretrained.CONFIG_FILE
        config = _pretrained.read_config(path, "diffusion", (1, FORMAT), ("process", "model"))
        diffusion = cls.from_config(config, str(path))
        _pretrained.read_weights(directory, diffusion.model.state_dict() | diffusion.codec_weights())
        return diffusion.to(device).eval()

    def push_to_hub(self, repository: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload to a repository ("owner/name") of the Hugging Face hub, created if needed; returns its address.

        >>> diffusion.push_to_hub("me/my-melodies")
        >>> Diffusion.from_pretrained("me/my-melodies")
        """
        hub = HfApi(token=token)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            address = hub.create_repo(repository, private=private, exist_ok=True)
            hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload a diffusion")
        return str(address)


def model_card(diffusion: Diffusion) -> str:
    """A README.md in the hub's convention: what the model is, and how to use it."""
    process, model = diffusion.process, diffusion.model
    parameters = sum(p.numel() for p in diffusion.parameters())
    length = "any number of" if model.length is None else model.length
    length = length if diffusion.lengths is None else f"1 to {diffusion.lengths.most}"
    codec = "" if diffusion.codec is None else f"\n- Tokens stand for: {type(diffusion.codec).__name__.lower()}"
    names = "" if diffusion.label_names is None else f": {', '.join(diffusion.label_names)}"
    labels = f"\n- Labels: {model.num_labels}{names}" if model.num_labels else ""
    return f"""---
library_name: sddm
tags: [sddm, discrete-diffusion, categorical-data]
---
# A diffusion model of categorical data

- Data: {length} positions of {process.num_states} states{codec}
- Process: {type(process).__name__}, {type(process.schedule).__name__} schedule
- Model: {type(model).__name__}, {parameters:,} parameters{labels}

```python
import sddm

model = sddm.Diffusion.from_pretrained("this repository or folder")
tokens = model.sample(16, steps=100, seed=0)
```
"""


def saved_types() -> dict[str, type]:
    """The names under which classes stand in a config.json."""
    return {**SCHEDULES, **PROCESSES, **NETWORKS, **MODELS, **CODECS, **PARTS, **OTHERS}


def _with_sizes(part: Any) -> Any:
    """A part of a config of format 1, in which a transformer had its sizes and places among its other arguments."""
    if not isinstance(part, dict):
        return part
    part = {name: _with_sizes(value) for name, value in part.items()}
    if part.get("type") in TRANSFORMERS:
        for family in (Sizes, Places):
            names = {field.name for field in fields(family)} & part.keys()
            part[family.__name__.lower()] = {"type": family.__name__.lower(), **{n: part.pop(n) for n in names}}
    return part
