"""sddm evaluate: how well a trained model knows data that it was not trained on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch.nn.functional import pad

from sddm import _checks, _files
from sddm.commands import runs
from sddm.data import Dataset, TokenArray, load
from sddm.data.decoders import Characters, Columns, Decoder
from sddm.diffusion import Diffusion
from sddm.likelihood import bound
from sddm.metrics import cramers_v, hamming_mmd
from sddm.samplers import sample
from sddm.training.batches import generator_of
from sddm.training.config import MAX_SEED

MOST = {"num_times": 10_000, "samples": 1_000_000, "steps": 1_000_000, "seed": MAX_SEED}
"""Numbers beyond which a slip of the finger is likelier than a wish, or memory ends."""


@dataclass(frozen=True)
class EvaluateCommand:
    """Score a trained model: likelihood bound, and its samples against data.

    Without --data the held-out rows of the run are used, which the model has not been trained on.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run or of a saved model, or a repository of the hub."""
    data: str | None = None
    """A file or a toy to score on; with a saved model, which has no held-out rows, it is needed."""
    window: int | None = None
    """Cut a .txt file into windows of this many characters."""
    key: str | None = None
    """Which array of an .npz file."""
    rows: int = 500
    """At most this many rows enter the bound."""
    num_times: int = 32
    """Times at which the bound is evaluated for each row (an even number)."""
    samples: int = 1_000
    """How many samples to compare with the data; 0 for none."""
    steps: int = 100
    """Steps of the reverse process for these samples."""
    seed: int = 0
    """Seed of the times, the noise and the samples."""
    out: Path | None = None
    """A .json file for the figures."""

    def __post_init__(self) -> None:
        for name, least in (("rows", 2), ("num_times", 2), ("samples", 0), ("steps", 1), ("seed", 0)):
            _checks.whole(getattr(self, name), name, least, MOST.get(name))
        _checks.require(self.num_times % 2 == 0, f"num_times must be even, but it is {self.num_times}.")
        _checks.require(
            self.samples == 0 or self.samples >= 4, f"samples must be 0 or at least 4, but it is {self.samples}."
        )
        _checks.require(
            self.data is not None or (self.window is None and self.key is None),
            "window and key say how a file is read. Name the file with --data.",
        )
        _checks.require(
            self.out is None or self.out.suffix == ".json", f"out must end in .json, but it is {str(self.out)!r}."
        )


def run(command: EvaluateCommand) -> dict[str, Any]:
    if command.out is not None:
        runs.check_file_place(command.out)
    diffusion = runs.trained(command.run).to(runs.device_of_this_machine())
    tokens = _tokens(command, diffusion)
    _checks.require(len(tokens) >= 2, "There is one row to score, but an error bar needs two. Name more with --data.")
    rows = tokens[:: max(1, len(tokens) // command.rows)][: command.rows].to(diffusion.device)
    scores = bound(diffusion, rows, command.num_times, generator=generator_of(command.seed, "bound", 0)).nats
    per_bit = tokens.shape[1] * torch.log(torch.tensor(2.0, dtype=torch.float64))
    bits = (scores / per_bit).cpu()
    figures: dict[str, Any] = {
        "bits_per_dim": float(bits.mean()),
        "bits_per_dim_standard_error": float(bits.std() / len(bits) ** 0.5),
        "nats_per_row": float(scores.mean()),
        "rows": len(rows),
    }
    print(f"bound on held-out data  {_with_error(figures, 'bits_per_dim')} bits per dimension ({len(rows)} rows)")
    if command.samples:
        figures |= _compare(command, diffusion, tokens)
    if command.out is not None:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        _files.write_json(command.out, figures)
        print(f"Figures in {command.out}", file=sys.stderr)
    return figures


def _compare(command: EvaluateCommand, diffusion: Diffusion, tokens: TokenArray) -> dict[str, Any]:
    generator = generator_of(command.seed, "samples", 0)
    made = sample(diffusion, command.samples, steps=command.steps, generator=generator, length=tokens.shape[1]).cpu()
    figures: dict[str, Any] = {"samples": command.samples}
    if len(tokens) >= 4:
        mmd = hamming_mmd(made, tokens[: command.samples])
        figures |= {"mmd": mmd.value, "mmd_standard_error": mmd.standard_error}
        print(f"MMD of samples and data {_with_error(figures, 'mmd')} ({command.samples} samples)")
    if isinstance(diffusion.decoder, Columns) and len(tokens) > 1:
        gap = (cramers_v(made) - cramers_v(tokens[:])).abs().max()
        figures["association_gap"] = float(gap)
        print(f"largest gap in pairwise association (Cramer's V)  {float(gap):.4f}")
    return figures


def _with_error(figures: dict[str, Any], name: str) -> str:
    return f"{figures[name]:.6g} +- {figures[name + '_standard_error']:.2g}"


def _tokens(command: EvaluateCommand, diffusion: Diffusion) -> TokenArray:
    """Held-out rows of the run, or all rows of another file in the tokens of this model."""
    folder = Path(command.run)
    if command.data is None:
        _checks.require(
            (folder / runs.RUN_FILE).is_file(),
            "data must be given with --data: this model does not know what was held out.",
        )
        value = runs.recorded(folder)
        options = value["options"]
        seed = options["training"]["seed"]
        data = load(options["data"], window=options["window"], key=options["key"], seed=seed)
        _checks.require(
            data.fingerprint() == value["data"]["fingerprint"],
            f"{options['data']!r} is not what it was when the run was started. Name the data with --data.",
        )
        return data.split(options["held_out"], seed)[1].tokens
    data = load(command.data, window=command.window, key=command.key, seed=command.seed + 1_000_000)
    return _in_tokens_of(data, diffusion)


def _in_tokens_of(data: Dataset, diffusion: Diffusion) -> TokenArray:
    decoder, tokens = diffusion.decoder, data.tokens
    if decoder is not None and data.decoder != decoder:
        tokens = TokenArray(_translated(data, decoder))
    if diffusion.length is not None and isinstance(decoder, Characters) and decoder.padded:
        missing = max(0, diffusion.length - tokens.shape[1])
        tokens = TokenArray(pad(tokens[:], (0, missing), value=decoder.pad)) if missing else tokens
    _checks.require(
        diffusion.length in (None, tokens.shape[1]),
        f"{data.name} has {tokens.shape[1]} positions a row, but the model was built for {diffusion.length}. "
        "Name data of that length with --data.",
    )
    return tokens


def _translated(data: Dataset, decoder: Decoder) -> torch.Tensor:
    kind, other = (type(d).__name__.lower() for d in (decoder, data.decoder))
    _checks.require(
        kind == other,
        f"{data.name} holds {other}, but the model was trained on {kind}. Name data of that kind with --data.",
    )
    if isinstance(decoder, Columns) and isinstance(data.decoder, Columns):
        _checks.require(
            data.decoder.names == decoder.names,
            f"{data.name} has the columns {', '.join(data.decoder.names)}, but the model was trained on "
            f"{', '.join(decoder.names)}. Name a table with these, in this order.",
        )
    try:
        return decoder.encode(data.decoder.decode(data.tokens[:]))
    except ValueError as error:
        raise ValueError(
            f"{data.name} holds what the model was not trained on: {error} Name other data with --data."
        ) from error
