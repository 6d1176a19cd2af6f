"""What tokens mean, both ways: from files to tokens, and from tokens back to what the user's file held."""

from sddm.codecs.base import MAX_LABELS, MAX_LENGTH, MAX_STATES, Codec, Encoded, Readers
from sddm.codecs.characters import Characters
from sddm.codecs.codes import Codes
from sddm.codecs.columns import Columns
from sddm.codecs.excerpt import BLANK, Excerpt
from sddm.codecs.fields import Category, Date, Number
from sddm.codecs.integers import Integers
from sddm.codecs.kinds import Constant
from sddm.codecs.notes import Notes
from sddm.codecs.pixels import Pixels
from sddm.codecs.points import GrayCode, Points
from sddm.tokenizers.sizes import VQGANSizes

CODECS: dict[str, type[Codec]] = {
    "integers": Integers,
    "characters": Characters,
    "columns": Columns,
    "points": Points,
    "notes": Notes,
    "pixels": Pixels,
    "codes": Codes,
}
"""The codecs by the names under which they are saved. What is listed here is read, written and saved."""
PARTS: dict[str, type] = {
    "vqgan-sizes": VQGANSizes,
    "category": Category,
    "number": Number,
    "date": Date,
    "constant-column": Constant,
}
"""What codecs are made of, by the names under which it is saved."""


def saved_names() -> dict[type, str]:
    """The names of codecs and of their parts in a config."""
    return {kind: name for name, kind in {**CODECS, **PARTS}.items()}


def file_readers() -> Readers:
    """How a file is read, by its ending."""
    return {ending: read for codec in CODECS.values() for ending, read in codec.files().items()}


def folder_readers() -> Readers:
    """How a folder is read, by the ending of the files in it."""
    return {ending: read for codec in CODECS.values() for ending, read in codec.folders().items()}


__all__ = [
    "BLANK",
    "CODECS",
    "MAX_LABELS",
    "MAX_LENGTH",
    "MAX_STATES",
    "PARTS",
    "Category",
    "Characters",
    "Codec",
    "Codes",
    "Columns",
    "Constant",
    "Date",
    "Encoded",
    "Excerpt",
    "GrayCode",
    "Integers",
    "Notes",
    "Number",
    "Pixels",
    "Points",
    "file_readers",
    "folder_readers",
    "saved_names",
]
