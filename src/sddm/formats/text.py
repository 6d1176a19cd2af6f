"""Text files, always UTF-8: each line is a sequence, or the text is cut into windows."""

from __future__ import annotations

import codecs
import errno
import os
import stat
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
    if window is not None:
        return _windows(path, window, least)
    found = read_lines(path)
    lengths = [len(line) for line in found]
    longest, padded = max(lengths), max(lengths) * len(found)
    advice = "--window N to cut the text into windows of N characters."
    if longest > MAX_LINE:
        raise ValueError(
            f"{_longest_line(path)} has {longest} characters, but lines have at most {MAX_LINE}. Pass {advice}"
        )
    if padded > max(MOST_PADDED, 2 * sum(lengths)):
        raise ValueError(
            f"{_longest_line(path)} has {longest} characters. With all {len(found)} lines of the file padded to its "
            f"length, there would be {padded} tokens, most of them padding. Cut the longest lines, or pass {advice}"
        )
    return found


def _longest_line(path: Path) -> str:
    lengths = [len(line) for line in _stream(path).split("\n")]
    return f"Line {lengths.index(max(lengths)) + 1} of {str(path)!r}"


def _windows(path: Path, window: int, least: int) -> list[str]:
    """The whole text, newlines included; the remainder is dropped."""
    _checks.whole(window, "window", 1)
    stream = _stream(path)
    num = len(stream) // window
    _checks.require(
        num >= least,
        f"{str(path)!r} has {len(stream)} characters, too few for {least} windows of {window}. "
        f"Choose a window of at most {len(stream) // least}, or give more text.",
    )
    return [stream[i * window : (i + 1) * window] for i in range(num)]


def _stream(path: Path) -> str:
    """The text with the line ends of Unix, where it has those of Windows or of old Macintosh systems."""
    return read_text(path).replace("\r\n", "\n").replace("\r", "\n")
