"""Text files, always UTF-8: each line is a sequence, or the text is cut into windows."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from sddm import _checks

MAX_LINE = 4_096
"""The longest line that may be a sequence."""
MOST_PADDED = 1 << 30
"""The most tokens that padded lines may have, if more than half of them would be padding."""
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""How files in other encodings than UTF-8 begin."""


def readable(path: Path, advice: str = "") -> None:
    """Check that there is a file with something in it; `advice` ends the message if there is none."""
    shown = repr(str(path))
    if os.path.isdir(path):  # also False if the name is too long
        raise IsADirectoryError(f"{shown} is a directory. Give the path of a file in it.")
    try:
        mode = path.stat().st_mode  # checked before opening: opening a pipe would block
        _checks.require(
            stat.S_ISREG(mode),
            f"{shown} is not a regular file (a {'pipe' if stat.S_ISFIFO(mode) else 'device'}). "
            "Copy what it gives into a file.",
        )
        with path.open("rb") as file:
            empty = file.read(1) == b""
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {shown}. {advice}".strip()) from None
    except OSError as error:
        reason = error.strerror or "unknown reason"
        kind = FileNotFoundError if error.errno == errno.ENAMETOOLONG else type(error)
        raise kind(f"{shown} cannot be read ({reason}). Check its name and your permissions.") from None
    _checks.require(not empty, f"{shown} is empty. Give a file that holds data.")


def read_text(path: Path) -> str:
    """The text of a file without its byte-order mark, otherwise unchanged."""
    content = path.read_bytes()
    encoding = _other_encoding(content)
    _checks.require(
        encoding is None,
        f"{str(path)!r} is not UTF-8 but {str(encoding)[:6].upper()}. "
        f"Convert the file: iconv -f {encoding} -t utf-8 {path.name} > new{path.suffix}",
    )
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{str(path)!r} is not UTF-8: the byte at offset {error.start} cannot be decoded. "
            "Convert the file, for example with iconv -f latin1 -t utf-8."
        ) from None


def _other_encoding(content: bytes) -> str | None:
    """UTF-16 or UTF-32 by its byte-order mark, or UTF-16 without a mark by a zero in every second byte."""
    for mark, name in MARKS.items():
        if content.startswith(mark):
            return name
    for first, name in enumerate(("utf-16be", "utf-16le")):
        zeros, others = content[first:1_000:2], content[1 - first : 1_000 : 2]
        if len(content) > 3 and 0 not in others and zeros.count(0) > 0.8 * len(zeros):
            return name
    return None


def read_lines(path: Path) -> list[str]:
    """The lines that are not empty."""
    found = [line for line in _stream(path).split("\n") if line]
    _checks.require(len(found) > 0, f"{str(path)!r} holds empty lines only. Give at least one line of text.")
    return found


def read_sequences(path: Path, window: int | None, least: int) -> list[str]:
    """The lines of a file, or its whole text cut into at least `least` windows."""
    source = repr(str(path))
    if window is not None:
        return windows(_stream(path), window, least, source)
    found = read_lines(path)
    places = [number for number, line in enumerate(_stream(path).split("\n"), start=1) if line]
    check_lines(found, source, lambda line: f"Line {places[line]} of {source}", "Pass --window N")
    return found


def check_lines(lines: Sequence[str], source: str, place: Callable[[int], str], window: str) -> None:
    """Check that lines can be padded to one length; `place` names one of them, by its number from 0, and `window` says
    how a text is cut instead."""
    lengths = [len(line) for line in lines]
    longest, padded = max(lengths), max(lengths) * len(lines)
    if longest > MAX_LINE:
        raise ValueError(
            f"{place(lengths.index(longest))} has {longest} characters, but lines have at most {MAX_LINE}. {window} to "
            "cut the text into windows of N characters."
        )
    if padded > max(MOST_PADDED, 2 * sum(lengths)):
        raise ValueError(
            f"{place(lengths.index(longest))} has {longest} characters. With all {len(lines)} lines of {source} padded "
            f"to its length, there would be {padded} tokens, most of them padding. Cut the longest lines, or "
            f"{window[0].lower()}{window[1:]} to cut the text into windows of N characters."
        )


def windows(text: str, window: int, least: int, source: str) -> list[str]:
    """A text, newlines included, cut into windows; the remainder is dropped."""
    _checks.whole(window, "window", 1)
    num = len(text) // window
    _checks.require(
        num >= least,
        f"{source} has {len(text)} characters, too few for {least} windows of {window}. "
        f"Choose a window of at most {len(text) // least}, or give more text.",
    )
    return [text[i * window : (i + 1) * window] for i in range(num)]


def _stream(path: Path) -> str:
    return unix_lines(read_text(path))


def unix_lines(text: str) -> str:
    """The text with the line ends of Unix, where it has those of Windows or of old Macintosh systems."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
