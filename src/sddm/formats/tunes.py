"""Tunes in ABC notation (.abc), each as what makes its melody: metre, unit of length, key and notes.

    M:6/8
    L:1/8
    K:D
    A|d>edfga|g>afecA|

Left out are titles and other fields, comments, quoted texts, and all that says how a note is played: spaces (they join
beams), slurs, grace notes, ornaments, bowing. The ends of lines stay: in some collections they are those of phrases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from sddm import _checks

FIELD = re.compile(r"([A-Za-z]):(?![|:])(.*)")
"""A field of a tune; what begins with "A|:" or "A::" are notes."""
INLINE = re.compile(r"\[([A-Za-z]):[^]|]*\]")
"""A field within a line of notes."""
METRE, UNIT, KEY = re.compile(r"\d+/\d+|C\|?|none"), re.compile(r"1/\d+"), re.compile(r"([A-G][#b]?) ?([A-Za-z]*)")
MODES = {"": "", "m": "m", "maj": "", "min": "m", **{mode: mode for mode in ("dor", "phr", "lyd", "mix", "loc")}}
"""How a mode is written, by the first three letters of its name."""
PLAYING = re.compile(r'"[^"]*"|![^!\s|]+!|\{[^}]*\}|\((?!\d)|[)~.`!h-wyH-Y$*\s]')
"""Quoted texts, named decorations, grace notes, slurs (not the bracket of a triplet, "(3"), and single signs."""
NOTES = re.compile(r"[A-Ga-gxz^_=',/0-9|:<>()\[\]-]+")
"""What a line of notes is made of."""


class Tunes(NamedTuple):
    """The tunes that were kept, and how many were not, by reason."""

    kept: list[str]
    dropped: Counter[str]


def read_tunes(texts: Iterable[str], longest: int) -> Tunes:
    """The melodies of all tunes in some files, each once, if they have at most `longest` characters."""
    _checks.whole(longest, "longest", 1)
    kept: dict[str, None] = {}
    dropped: Counter[str] = Counter()
    for text in texts:
        for tune in re.split(r"^(?=X:)", text.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]:
            melody, reason = _melody(tune)
            if not reason and len(melody) > longest:
                reason = f"more than {longest} characters"
            elif not reason and melody in kept:
                reason = "there already"
            if reason:
                dropped[reason] += 1
            else:
                kept[melody] = None
    return Tunes(list(kept), dropped)


def _melody(tune: str) -> tuple[str, str]:
    """What is kept of a tune, and the reason if it cannot be kept."""
    head: dict[str, str] = {}
    lines: list[str] = []
    for line in re.sub(r"\\\s*\n", "", tune).splitlines():  # a backslash joins two lines
        content = line.partition("%")[0].strip()
        field = FIELD.match(content)
        if "K" not in head:
            if field is not None:
                head.setdefault(field[1], field[2].strip())
        elif set("KLMV") & {*INLINE.findall(content), "" if field is None else field[1]}:
            return "", "another key, metre, unit or voice within the tune"
        elif not line.strip():
            break  # an empty line ends a tune
        elif field is None:
            lines.append(PLAYING.sub("", INLINE.sub("", content)))
    key = KEY.fullmatch(head.get("K", ""))
    mode = None if key is None else MODES.get(key[2] if len(key[2]) < 2 else key[2][:3].lower())
    if key is None or mode is None or not METRE.fullmatch(head.get("M", "")) or not UNIT.fullmatch(head.get("L", "")):
        return "", "no metre, unit or key that is known"
    notes = "\n".join(filter(None, lines))
    if not all(NOTES.fullmatch(line) for line in notes.splitlines()) or not notes:
        return "", "no notes, or other signs than those of one melody"
    return f"M:{head['M']}\nL:{head['L']}\nK:{key[1]}{mode}\n{notes}", ""
