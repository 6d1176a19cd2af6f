"""Objects with gaps, filled: tensors and arrays with -1, lists with None, strings with a blank, tables.

One function for each kind of object turns it into tokens with blanks, and tells how tokens are put into its gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from sddm import _checks
from sddm.codecs import BLANK, Characters, Codec, Integers, Pixels
from sddm.codecs.base import Tokens
from sddm.data.cells import cells, known_cells, present
from sddm.data.frames import columns_of_frame, filled, is_frame, names_of
from sddm.diffusion import Diffusion
from sddm.formats.arrays import INTEGERS
from sddm.marginals import Within
from sddm.samplers.ragged import padding_of


class Gaps(NamedTuple):
    """An object as tokens."""

    tokens: Tokens
    """Its rows, blank in the gaps."""
    restored: Callable[[Tokens], list[Any]]
    """The object with what these tokens stand for in its gaps, once for each time that they hold its rows."""
    padding: Bool[Tensor, "num dim"] | None = None
    """Positions that do not exist."""
    support: Bool[Tensor, "dim states"] | None = None
    """What may be put into a gap, if not all that the data hold."""


def fill(diffusion: Diffusion, data: Any, num: int = 1, *, seed: int | None = None, **options: Any) -> Any:
    """See `Diffusion.fill`."""
    _checks.whole(num, "num", 1)
    codec = diffusion.codec or Integers(diffusion.process.num_states)
    gaps = gaps_of(data, codec, diffusion.length)
    if gaps.support is not None and not bool(gaps.support.all()):
        diffusion = diffusion.with_model(Within(diffusion.model, gaps.support))
    rows = len(gaps.tokens)
    labels = options.pop("labels", None)
    if labels is not None:
        labels = _checks.labels(labels, rows, known=diffusion.model.num_labels).repeat(num)
    made, padding = gaps.tokens.repeat(num, 1), None if gaps.padding is None else gaps.padding.repeat(num, 1)
    unknown = made == BLANK
    some = unknown.any(dim=1)
    if bool(some.any()):
        options |= {"labels": None if labels is None else labels[some]}
        options |= {"padding": None if padding is None else padding[some]}
        if diffusion.length is None:
            options.setdefault("length", made.shape[1])
        known = _not_padding(made, padding)
        drawn = diffusion.sample(int(some.sum()), condition=known[some], seed=seed, **options)
        made[some] = torch.where(unknown[some], drawn.cpu(), made[some])
    objects = gaps.restored(made)
    return objects[0] if num == 1 else objects


def gaps_of(data: Any, codec: Codec, length: int | None) -> Gaps:
    """The gaps of an object, for a model of rows of this length."""
    if is_frame(data):
        return of_frame(data, codec)
    if isinstance(data, str):
        one = of_strings([data], codec, length)
        return one._replace(restored=lambda made: [texts[0] for texts in one.restored(made)])
    if isinstance(data, (np.ndarray, Tensor)):
        return of_array(data, codec, length)
    if isinstance(data, (list, tuple)):
        return of_list(data, codec, length)
    raise TypeError(
        f"data is a {type(data).__name__}, whose gaps sddm cannot fill. Give an array or a tensor with {BLANK} in its "
        "gaps, lists with None, strings, or a DataFrame of pandas or polars."
    )


def of_frame(frame: Any, codec: Codec) -> Gaps:
    """A table, in which values are missing."""
    tokens = known_cells(codec, names_of(frame), columns_of_frame(frame))

    def restored(made: Tokens) -> list[Any]:
        columns, rows = cells(codec, made), len(tokens)  # all at once: numbers are drawn by the place of a row
        starts = range(0, len(made), rows)
        return [filled(frame, {name: column[i : i + rows] for name, column in columns.items()}) for i in starts]

    return Gaps(tokens, restored, support=present(codec))


def _apart(rows: int, restored: Callable[[Tokens], Any]) -> Callable[[Tokens], list[Any]]:
    """Each filling of so many rows by itself."""
    return lambda made: [restored(part) for part in made.split(rows)]


def of_strings(texts: Sequence[str], codec: Codec, length: int | None) -> Gaps:
    """Lines in which the blank of the codec stands for an unknown character. They keep their lengths."""
    if not isinstance(codec, Characters):
        raise _other_kind("text", codec)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"String {number} of data is {_checks.shown(text)}, no text. Give strings alone.")
    longest = max(map(len, texts)) if length is None else length
    rows = [codec.known(text, text) for text in texts]
    for number, row in enumerate(rows, start=1):
        _checks.require(
            0 < len(row) <= longest and (codec.end is not None or len(row) == longest),
            f"String {number} of data has {len(row)} characters, but the model makes "
            f"{'at most ' * (codec.end is not None)}{longest}. An unknown character is written {codec.blank!r}.",
        )
    behind = 0 if codec.ragged else codec.pad
    tokens = torch.tensor([row + [behind] * (longest - len(row)) for row in rows])
    support = torch.ones(longest, codec.num_states, dtype=torch.bool)
    support[:, len(codec.alphabet) :] = False

    def restored(made: Tokens) -> list[str]:
        return [
            "".join(codec.alphabet[token] for token in row[: len(text)])
            for row, text in zip(made.tolist(), texts, strict=True)
        ]

    padding = padding_of(torch.tensor([len(row) for row in rows]), longest) if codec.ragged else None
    return Gaps(tokens, _apart(len(tokens), restored), padding, support)


def of_array(array: np.ndarray | Tensor, codec: Codec, length: int | None) -> Gaps:
    """Rows, or one row, of numbers, tokens or pictures, with -1 in the gaps. The type and the device are kept."""
    whole = array.dtype in INTEGERS if isinstance(array, Tensor) else array.dtype.kind in "biu"
    if not whole:
        raise TypeError(
            f"data must hold whole numbers, and {BLANK} in its gaps, but it is of {array.dtype}. Convert it, for "
            "example with numpy.where(numpy.isnan(data), -1, data).astype(int)."
        )
    values = torch.as_tensor(np.asarray(array.detach().cpu() if isinstance(array, Tensor) else array, np.int64))
    _checks.require(values.numel() > 0, f"data is empty: it has shape {tuple(values.shape)}. Give at least one row.")
    pictures, padding = isinstance(codec, Pixels) and values.ndim > 2, None
    if isinstance(codec, Pixels) and pictures:
        shape = (codec.height, codec.width, codec.channels)
        _checks.require(
            tuple(values.shape[1:]) == shape,
            f"data has shape {tuple(values.shape)}, but the model makes {codec.shape}: (num, "
            f"{', '.join(map(str, shape))}).",
        )
        blank = values == BLANK
        known = codec.encode(values.clamp(min=0).numpy().astype(np.uint8)).reshape(values.shape)
        tokens = torch.where(blank, BLANK, known).reshape(len(values), -1)
    else:
        rows = values[None] if values.ndim == 1 else values
        _checks.require(
            rows.ndim == 2, f"data must have shape (num, dim), one sample a row, but it has {tuple(values.shape)}."
        )
        rows, padding = _up_to_ends(rows, codec, length)
        tokens = _tokens(rows, codec, length)
    width = tokens.shape[1] if pictures else values.shape[-1]

    def restored(made: Tokens) -> Any:
        made, gaps = made[:, :width], tokens[:, :width] == BLANK
        stand_for = np.asarray(codec.decode(made)) if pictures or isinstance(codec, Integers) else made
        found = torch.where(gaps.reshape(values.shape), torch.as_tensor(stand_for).reshape(values.shape), values)
        if isinstance(array, Tensor):
            return found.to(array.dtype).to(array.device)
        return found.numpy().astype(array.dtype)

    return Gaps(tokens, _apart(len(tokens), restored), padding)


def of_list(rows: list[Any] | tuple[Any, ...], codec: Codec, length: int | None) -> Gaps:
    """Strings, or rows of numbers with None in the gaps; one row stands for itself."""
    _checks.require(len(rows) > 0, "data is empty. Give at least one row.")
    if any(isinstance(row, str) for row in rows):
        return of_strings(rows, codec, length)
    if not any(isinstance(row, (list, tuple)) for row in rows):
        one = of_list([list(rows)], codec, length)
        return one._replace(restored=lambda made: [type(rows)(found[0]) for found in one.restored(made)])
    if not isinstance(codec, Integers):
        raise _other_kind("lists of numbers", codec)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, (list, tuple)):
            raise TypeError(
                f"Row {number} of data is {_checks.shown(row)}, but the others are lists. Give lists alone."
            )
        for value in row:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(
                    f"Row {number} of data holds {_checks.shown(value)}. Give whole numbers, and None in gaps."
                )
    lengths = torch.tensor([len(row) for row in rows])
    _checks.require(int(lengths.min()) > 0, "data has a row without positions. Leave it out.")
    ragged = codec.ragged or int(lengths.min()) < int(lengths.max())
    longest = int(lengths.max()) if length is None or not ragged else length
    _checks.require(
        int(lengths.max()) <= longest, f"data has a row of {int(lengths.max())} positions, but the model has {length}."
    )
    values = torch.tensor(
        [[codec.blank if v is None else v for v in row] + [codec.offset] * (longest - len(row)) for row in rows]
    )
    tokens = _tokens(values, codec, length)

    def restored(made: Tokens) -> Any:
        return type(rows)(
            type(row)(new if old is None else old for old, new in zip(row, numbers.tolist(), strict=False))
            for row, numbers in zip(rows, codec.decode(made), strict=True)
        )

    padding = padding_of(lengths, longest) if ragged else None
    return Gaps(tokens, _apart(len(tokens), restored), padding)


def _up_to_ends(
    rows: Int[Tensor, "num dim"], codec: Codec, length: int | None
) -> tuple[Int[Tensor, "num wide"], Bool[Tensor, "num wide"] | None]:
    """Rows as wide as those of the model, if these have different lengths, and which positions do not exist."""
    if not codec.ragged:
        return rows, None
    first = codec.offset if isinstance(codec, Integers) else 0
    end = first + codec.num_states
    wide = F.pad(rows, (0, max(0, (length or 0) - rows.shape[1])), value=end)
    padding = (wide == end).cumsum(1) > 0
    behind = (padding & (wide != end)).any(1)
    _checks.require(
        not bool(behind.any()),
        f"Row {int(behind.long().argmax()) + 1} of data goes on behind its end, which is {end}. Fill it up with {end}.",
    )
    return wide.masked_fill(padding, first), padding


def _tokens(values: Int[Tensor, "num dim"], codec: Codec, length: int | None) -> Tokens:
    """Numbers as tokens, and blanks."""
    _checks.require(
        length in (None, values.shape[1]),
        f"data has {values.shape[1]} positions a row, but the model has {length}. Where nothing is known, give "
        f"{BLANK} or, in lists, None.",
    )
    offset, blank = (codec.offset, codec.blank) if isinstance(codec, Integers) else (0, BLANK)
    tokens = torch.where(values == blank, BLANK, values - offset)
    sizes = torch.tensor(codec.sizes or [codec.num_states] * values.shape[1])
    wrong = ((tokens < 0) & (values != blank)) | (tokens >= sizes)
    if bool(wrong.any()):
        row, place = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"Row {row + 1} of data holds {int(values[row, place])} at position {place}, but the model knows {offset} "
            f"to {int(sizes[place]) - 1 + offset} there, and {blank} is a gap."
        )
    return tokens


def _not_padding(tokens: Tokens, padding: Bool[Tensor, "num dim"] | None) -> Tokens:
    """What is known: nothing of positions that do not exist."""
    return tokens if padding is None else tokens.masked_fill(padding, BLANK)


def _other_kind(kind: str, codec: Codec) -> ValueError:
    return ValueError(
        f"data is {kind}, but the model was trained on {type(codec).__name__.lower()}. Give data of that kind, or "
        f"tokens in a tensor with {BLANK} in its gaps."
    )
