"""The command line: argument parsing, and errors as one line with an exit code."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tyro

from sddm.commands import evaluate, sample, train
from sddm.errors import BAD_FILE_SYSTEM, BAD_USAGE, RunError
from sddm.experiments import demo

COMMANDS: dict[str, tuple[Any, Callable[[Any], object], str]] = {
    "train": (train.TrainCommand, train.run, "train a model of your data"),
    "sample": (sample.SampleCommand, sample.run, "generate samples from a trained model"),
    "evaluate": (evaluate.EvaluateCommand, evaluate.run, "score a trained model on held-out data"),
    "demo": (demo.DemoConfig, demo.run, "train, sample, measure and draw a toy: two minutes on a laptop"),
}
USAGE = "usage: sddm COMMAND [OPTIONS]      (sddm COMMAND --help explains its options)\n\n" + "\n".join(
    f"  {name:10s}{purpose}" for name, (_, _, purpose) in COMMANDS.items()
)
DEBUG = "--debug"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `sddm COMMAND ...`. With --debug an error shows where it came from."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    given = [argument for argument in given if argument != DEBUG]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module=r"sddm\.")
            warnings.showwarning = _one_line
            _run(given)
    except (RunError, ValueError, TypeError, OSError, MemoryError) as error:
        if debug:
            traceback.print_exc()
        print(f"sddm: {_first_sentences(error)}", file=sys.stderr)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        print("sddm: stopped.", file=sys.stderr)
        sys.exit(130)


def _run(given: list[str]) -> None:
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        return
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        raise ValueError(f"There is no command {name!r}. The commands are: {', '.join(COMMANDS)}.")
    options, run, _ = COMMANDS[name]
    run(_parse(name, options, rest))


def _parse(name: str, options: Any, rest: list[str]) -> Any:
    default = _resumed(rest) if name == "train" and "--resume" in rest else tyro.MISSING_NONPROP
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(options, prog=f"sddm {name}", args=rest, default=default, config=config)
    except SystemExit as stop:
        if stop.code:
            text = re.sub(r"[^\S ]*[─│╭╮╰╯]+[^\S ]*", "\n", said.getvalue())
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            reason = " ".join(lines[1:]).split("For full helptext")[0].strip()
            raise ValueError(f"{reason} `sddm {name} --help` explains all options.") from None
        raise


def _resumed(rest: list[str]) -> Any:
    """The options of the run that goes on, which take the place of the defaults."""
    joined = [part for argument in rest for part in argument.split("=", 1)]
    if "--out" not in joined[:-1]:
        raise ValueError("--resume needs --out with the folder of the run that should go on.")
    folder = Path(joined[joined.index("--out") + 1])
    if not (folder / "run.json").exists():  # the run ended before it wrote anything, or never began
        return tyro.MISSING_NONPROP
    return train.resumed(folder)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, RunError):
        return error.exit_code
    bad_name = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
    return BAD_FILE_SYSTEM if isinstance(error, OSError) and not isinstance(error, bad_name) else BAD_USAGE


def _first_sentences(error: BaseException) -> str:
    """The message on one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename!r}" if error.filename else ""
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return f"cannot read or write{where}: {reason}. What was good is kept; make room or name another folder."
    if isinstance(error, MemoryError):
        return "out of memory. Use a smaller --batch-size, or --accumulate to compute it in pieces."
    return " ".join(str(error).split()) or type(error).__name__


def _one_line(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    print(f"sddm: warning: {message}", file=sys.stderr)
