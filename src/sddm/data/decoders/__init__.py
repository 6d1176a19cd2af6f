"""From tokens back to what the user's file held, and from the user's conditions to tokens."""

from sddm.data.decoders.base import BLANK, Decoder
from sddm.data.decoders.characters import Characters
from sddm.data.decoders.columns import Columns
from sddm.data.decoders.integers import Integers
from sddm.data.decoders.points import Points

DECODERS: dict[str, type[Decoder]] = {
    "integers": Integers,
    "characters": Characters,
    "columns": Columns,
    "points": Points,
}
"""The decoders by the names under which they are saved."""

__all__ = ["BLANK", "DECODERS", "Characters", "Columns", "Decoder", "Integers", "Points"]
