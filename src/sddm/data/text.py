"""Files and the text in them: UTF-8 without exception, as one line a sequence or cut into windows."""

from __future__ import annotations

import errno
from pathlib import Path

from sddm import _checks

MAX_LINE = 4_096
"""The longest line that is read as a sequence of its own."""


def readable(path: Path, advice: str = "") -> None:
    """Check that there is a file with something in it; `advice` is what to say if there is none."""
    shown = repr(str(path))
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{shown} is a directory. Give the path of a file in it.")
        with path.open("rb") as file:
            empty = file.read(1) == b""
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {shown}. {advice}".strip()) from None
    except IsADirectoryError:
        raise
    except OSError as error:
        reason = error.strerror or "unknown reason"
        kind = FileNotFoundError if error.errno == errno.ENAMETOOLONG else type(error)
        raise kind(f"{shown} cannot be read ({reason}). Check its name and your permissions.") from None
    _checks.require(not empty, f"{shown} is empty. Give a file that holds data.")


def read_text(path: Path) -> str:
    """The text of a file without its byte-order mark, every character as it stands."""
    try:
        return path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{str(path)!r} is not UTF-8: the byte at offset {error.start} cannot be decoded. "
            "Convert the file, for example with iconv -f latin1 -t utf-8."
        ) from None


def read_lines(path: Path) -> list[str]:
    """The lines that are not empty; Unix, Windows and old Macintosh files read alike."""
    found = [line for line in _unix_newlines(read_text(path)).split("\n") if line]
    _checks.require(len(found) > 0, f"{str(path)!r} holds empty lines only. Give at least one line of text.")
    return found


def read_sequences(path: Path) -> list[str]:
    """The lines of a file in which every line is a sequence of its own."""
    found = read_lines(path)
    longest = max(map(len, found))
    _checks.require(
        longest <= MAX_LINE,
        f"The longest line of {str(path)!r} has {longest} characters, but a line may have at most {MAX_LINE}. "
        "Pass --window N to cut the text into windows of N characters.",
    )
    return found


def read_windows(path: Path, window: int) -> list[str]:
    """The whole text, newlines included, as consecutive windows; the remainder is dropped."""
    _checks.whole(window, "window", 1)
    stream = _unix_newlines(read_text(path))
    num = len(stream) // window
    _checks.require(
        num >= 2,
        f"{str(path)!r} has {len(stream)} characters, too few for two windows of {window}. "
        f"Choose a window of at most {len(stream) // 2}, or give more text.",
    )
    return [stream[i * window : (i + 1) * window] for i in range(num)]


def _unix_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
