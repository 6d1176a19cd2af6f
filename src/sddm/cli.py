"""The command line: argument parsing, and errors as one line with an exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import importlib
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_type_hints

import tyro
from tyro import _errors as errors  # why a command line was refused, as data; else it could only be printed

from sddm import __version__, _memory
from sddm.errors import BAD_FILE_SYSTEM, BAD_USAGE, LostProcessError, RunError

COMMANDS: dict[str, tuple[str, str, str]] = {
    "train": ("sddm.commands.train", "TrainCommand", "train a model of your data"),
    "sample": ("sddm.commands.sample", "SampleCommand", "generate samples from a trained model"),
    "evaluate": ("sddm.commands.evaluate", "EvaluateCommand", "score a trained model on held-out data"),
    "train-tokenizer": (
        "sddm.commands.train_tokenizer",
        "TrainTokenizerCommand",
        "train a network that turns your pictures into tokens",
    ),
    "train-classifier": (
        "sddm.commands.train_classifier",
        "TrainClassifierCommand",
        "train a classifier that guides a model to labels it does not know",
    ),
    "encode": ("sddm.commands.encode", "EncodeCommand", "turn pictures into the tokens of such a network"),
    "reproduce": ("sddm.commands.reproduce", "ReproduceCommand", "fill a table of the paper"),
    "demo": ("sddm.experiments.demo", "DemoConfig", "train, sample, measure and draw a toy: two minutes on a laptop"),
}
"""The module of each command, which is imported when called, the dataclass of its options there, and its purpose."""
RESUMED = ("train", "train-tokenizer", "train-classifier")
"""Commands that go on with --resume: their module has a function `resumed`, the options of the run in a folder."""
USAGE = "usage: sddm COMMAND [OPTIONS]      (sddm COMMAND --help explains its options; sddm --version)\n\n" + "\n".join(
    f"  {name:17s}{purpose}" for name, (_, _, purpose) in COMMANDS.items()
)
CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
COMPLETION = "--tyro-print-completion"
"""Prints the script by which a shell completes our commands and options."""
SHELLS = ("bash", "zsh", "fish")
EXCLUSIVE = (("--steps", "--minutes"),)
"""Options of which a command takes one."""
DEBUG = "--debug"
NO_READER = 128 + signal.SIGPIPE
"""The exit code of a command whose output goes into a pipe that was closed."""
NO_MEMORY = re.compile("out of memory|allocate memory", re.IGNORECASE)
"""How torch says so, in an error of no class of its own."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `sddm COMMAND ...`. With --debug an error shows where it came from."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    debug = DEBUG in given
    given = [argument for argument in given if argument != DEBUG]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module=r"sddm\.")
            warnings.showwarning = _one_line
            _run(given)
        sys.stdout.flush()
        _leave_other_processes()
    except BrokenPipeError:
        _drop_output()
        sys.exit(NO_READER)
    except (RunError, ValueError, TypeError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not NO_MEMORY.search(str(error)):
            raise
        if debug:
            traceback.print_exc()
        _say(_first_sentences(error))
        if not isinstance(error, LostProcessError):
            _leave_other_processes()
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        _say("stopped.")
        sys.exit(130)


def _run(given: list[str]) -> None:
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        return
    if given[0] == "--version":
        print(f"sddm {__version__}")
        return
    if given[0] == COMPLETION:
        _print_completion(given[1:])
        return
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        raise ValueError(f"There is no command {name!r}. The commands are: {', '.join(COMMANDS)}.")
    place, options, _ = COMMANDS[name]
    module = importlib.import_module(place)
    _memory.keep_freed_memory()
    module.run(_parse(name, getattr(module, options), rest))


def _parse(name: str, options: Any, rest: list[str]) -> Any:
    named = {part.split("=", 1)[0] for part in rest}
    for one in EXCLUSIVE:
        if named.issuperset(one):
            raise ValueError(f"Give {' or '.join(one)}, not both.")
    default = _resumed(name, rest) if name in RESUMED and "--resume" in rest else tyro.MISSING_NONPROP

    def refuse(event: errors.ParseErrorEvent) -> None:
        if isinstance(event, errors.InstantiationFailure) and event.argument is None:  # a check of our own
            raise ValueError(event.message)
        raise ValueError(f"{_reason(event, options)} `sddm {name} --help` explains all options.")

    try:
        with errors.on_parse_error(refuse):
            return tyro.cli(options, prog=f"sddm {name}", args=rest, default=default, config=CONFIG)
    except SystemExit:  # after --help
        sys.stdout.flush()
        raise


def _print_completion(shell: list[str]) -> None:
    """The script for one shell, of all commands."""
    if len(shell) != 1 or shell[0] not in SHELLS:
        raise ValueError(f"{COMPLETION} needs the name of a shell after it: {', '.join(SHELLS)}.")
    kinds: Any = tuple(
        Annotated[getattr(importlib.import_module(place), options), tyro.conf.subcommand(name, description=purpose)]
        for name, (place, options, purpose) in COMMANDS.items()
    )
    try:
        tyro.cli(Union[kinds], prog="sddm", args=[COMPLETION, *shell], config=CONFIG)  # noqa: UP007
    finally:
        sys.stdout.flush()


def _reason(event: errors.ParseErrorEvent, options: Any) -> str:
    """Why tyro refuses a command line, in a sentence."""
    match event:
        case errors.MissingArgs():
            missing = [argument.arg for argument in event.missing_arguments]
            names = [str(a.lowered.metavar) if a.is_positional() else a.display_name() for a in missing]
            return f"Missing from {event.prog}: {', '.join(names)}."
        case errors.UnrecognizedArgs():
            known = [f"--{name.replace('_', '-')}" for name in _options(options)]
            alike = [near for token in event.tokens for near in difflib.get_close_matches(token, known, 1, 0.7)]
            guess = f" Perhaps you meant: {', '.join(alike)}." if alike else ""
            return f"Unrecognized options: {', '.join(event.tokens)}.{guess}"
        case errors.InvalidChoice():
            choices = ", ".join(sorted(set(event.choices) - {"None"}))
            return f"{event.argument.display_name()}: {event.value!r} is unknown. Choose one of {choices}."
        case errors.BadValue(reason="too_few_values"):
            return f"Missing value for argument {event.argument.display_name()!r}: give one after it."
        case errors.InstantiationFailure(argument=argument) if argument is not None:
            form = str(argument.lowered.metavar).removeprefix("{None}|")
            kind = {"INT": "a whole number", "FLOAT": "a number"}.get(form)
            told = f"{event.message.rpartition(': ')[2]} is not {kind}" if kind else f"expected {form}"
            return f"{argument.display_name()}: {told}."
    return "These arguments do not fit together."


def _options(config: Any) -> Iterator[str]:
    """The names of all options."""
    for name, kind in get_type_hints(config).items():
        yield from _options(kind) if dataclasses.is_dataclass(kind) else [name]


def _resumed(name: str, rest: list[str]) -> Any:
    """The options of the run that goes on, which take the place of the defaults."""
    joined = [part for each in rest for part in (each.split("=", 1) if each.startswith("--") else [each])]
    if "--out" not in joined[:-1]:
        raise ValueError("--resume needs --out with the folder of the run that should go on.")
    folder = Path(joined[joined.index("--out") + 1])
    if not (folder / "run.json").exists():  # the run ended before it wrote anything, or never began
        return tyro.MISSING_NONPROP
    return importlib.import_module(COMMANDS[name][0]).resumed(folder)


def _open_closed_streams() -> None:
    """Give a process that was started without standard output or error (>&-) a place to write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _drop_output() -> None:
    """Forget what could not be printed, which Python would else try once more at the end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _leave_other_processes() -> None:
    """End the group of processes while all of them are there; torch aborts if its threads run to the very end."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _exit_code(error: BaseException) -> int:
    if isinstance(error, RunError):
        return error.exit_code
    bad_name = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
    if isinstance(error, bad_name) or (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG):
        return BAD_USAGE
    return BAD_FILE_SYSTEM if isinstance(error, OSError) else BAD_USAGE


def _first_sentences(error: BaseException) -> str:
    """The message on one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename!r}" if error.filename else ""
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return f"cannot read or write{where}: {reason}. What was good is kept; make room or name another folder."
    if isinstance(error, (MemoryError, RuntimeError)):
        return "out of memory. Use a smaller --batch-size, --accumulate to compute it in pieces, or a smaller model."
    return " ".join(str(error).split()) or type(error).__name__


def _one_line(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    _say(f"warning: {message}")


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it
        print(f"sddm: {sentence}", file=sys.stderr)
