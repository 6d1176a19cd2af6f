"""Checks of the arguments of public functions: each error is a sentence that names the argument.

Private functions assume that these checks were made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Kind = TypeVar("Kind")
INTEGER_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def require(condition: bool, message: str) -> None:
    """Raise `ValueError(message)` unless the condition holds."""
    if not condition:
        raise ValueError(message)


def shown(values: Any, most: int = 8) -> str:
    """The first few of some values, on one line."""
    if isinstance(values, str):
        return repr(values) if len(values) <= 80 else f"{values[:80]!r}..."
    if isinstance(values, list):
        return ", ".join(map(repr, values[:most])) + (", ..." if len(values) > most else "")
    return repr(values)


def tensor(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, but it is a {type(value).__name__}. Use torch.as_tensor.")
    return value


def instance(value: Kind, kind: type, name: str) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an sddm {kind.__name__}, but it is a {type(value).__name__}.")
    return value


def floating_dtype(dtype: Any, name: str = "dtype") -> torch.dtype:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating-point dtype such as torch.float32, but it is {dtype!r}.")
    return dtype


def batch_shape(shape: Any, name: str) -> Sequence[int]:
    sizes = shape if isinstance(shape, (tuple, list)) else ()
    if len(sizes) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in sizes):
        raise ValueError(f"{name} must be (batch, dim), two whole numbers of at least 1, but it is {shape!r}.")
    return sizes


def tokens(
    x: Any, num_states: int, name: str, *, length: int | None = None, shorter: bool = False, device: Any = None
) -> Tensor:
    """Check that x holds int64 tokens (batch, dim) in 0 .. num_states - 1, in rows of this length, or up to it."""
    x = tensor(x, name)
    if x.dtype != torch.int64:
        hint = " Use x.long()." if x.dtype in INTEGER_TYPES else " Tokens are class indices, not probabilities."
        raise TypeError(f"{name} must be of dtype torch.int64, but it is of {x.dtype}.{hint}")
    require(x.ndim == 2, f"{name} must have shape (batch, dim), but it has shape {tuple(x.shape)}.")
    require(x.numel() > 0, f"{name} is empty: it has shape {tuple(x.shape)}. Give at least one row and one position.")
    if length is not None:
        require(
            x.shape[1] == length or (shorter and x.shape[1] < length),
            f"{name} has {x.shape[1]} positions, but the model was built for {'at most ' * shorter}{length}. "
            "Cut or pad the rows.",
        )
    same_device(x, device, name)
    if x.device.type != "meta":
        low, high = (int(v) for v in torch.aminmax(x))
        require(
            low >= 0 and high < num_states,
            f"{name} must hold tokens from 0 to {num_states - 1}, but it holds values from {low} to {high}.",
        )
    return x


def groups(value: Any, rows: Tensor, name: str = "groups") -> Tensor:
    """Check that each row has the number of its group, and that there are at least two groups."""
    value = tensor(value, name)
    require(
        value.dtype == torch.int64 and value.shape == rows.shape[:1],
        f"{name} must hold one int64 number a row, {len(rows)} in all, but it is of {value.dtype} and of shape "
        f"{tuple(value.shape)}.",
    )
    require(int(value.min()) != int(value.max()), f"{name} must name at least two groups, but all rows are in one.")
    return value


def same_device(x: Tensor, device: Any, name: str, owner: str = "the model") -> None:
    """Check that x is on this device, if one is named."""
    device = x.device if device is None else torch.device(device)
    if x.device.type != device.type or (None not in (x.device.index, device.index) and x.device.index != device.index):
        raise ValueError(f"{name} is on device {x.device}, but {owner} is on {device}. Use {name}.to('{device}').")


def available_device(value: Any, name: str = "device") -> torch.device:
    """Turn a name such as 'cuda:1' into a device that exists on this machine."""
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{name}={value!r} is not a device. Use 'cpu', 'cuda', 'cuda:1' or 'mps'.") from error
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"{name}={value!r} is not available here. Use 'cpu' or a device that is.") from error
    return device


def times(
    t: Any, batch: int | None, name: str, horizon: float = 1.0, *, device: Any = None, owner: str = "the model"
) -> Tensor:
    """Check that t holds one finite time in [0, T] for each row and return it in float64."""
    t = tensor(t, name)
    same_device(t, device, name, owner)
    require(t.device.type != "meta", f"{name} is on the meta device, which holds no values. Move it to another.")
    if not t.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor of times, but is of {t.dtype}. Use {name}.double().")
    require(t.ndim == 1 and t.numel() > 0, f"{name} must have shape (batch,), but it has shape {tuple(t.shape)}.")
    if batch is not None:
        require(t.shape[0] == batch, f"{name} must hold one time for each of the {batch} rows, but holds {t.shape[0]}.")
    t = t.double()
    require(bool(torch.isfinite(t).all()), f"{name} holds NaN or infinite values; times lie in [0, {horizon:g}].")
    low, high = float(t.min()), float(t.max())
    require(
        low >= 0 and high <= horizon,
        f"{name} must lie in [0, {horizon:g}] (0 is data, {horizon:g} is noise), but it spans [{low:g}, {high:g}].",
    )
    return t


def ordered_times(s: Any, t: Any, batch: int | None, *, device: Any = None, owner: str = "t") -> tuple[Tensor, Tensor]:
    """Check two vectors of times with s <= t."""
    t = times(t, batch, "t", device=device, owner=owner)
    s = times(s, batch, "s", device=t.device, owner="t")
    require(s.shape == t.shape, f"s and t must have the same shape, but have {tuple(s.shape)} and {tuple(t.shape)}.")
    require(bool((s <= t).all()), "s must not be later than t: a transition goes from s to t with s <= t.")
    return s, t


def probabilities(p: Any, num_states: int, name: str) -> Tensor:
    """Check that p has shape (batch, dim, states) and holds finite, non-negative numbers."""
    p = tensor(p, name)
    if not p.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor of probabilities, but it is of {p.dtype}.")
    if p.ndim != 3 or p.shape[-1] != num_states:
        raise ValueError(f"{name} must have shape (batch, dim, {num_states}), but it has shape {tuple(p.shape)}.")
    require(p.numel() > 0, f"{name} is empty: it has shape {tuple(p.shape)}. Give at least one row and one position.")
    low, total = float(p.detach().min()), float(p.detach().sum())
    require(total == total and abs(total) != float("inf"), f"{name} holds NaN or infinite values.")
    require(low >= 0, f"{name} must not be negative, but its smallest value is {low:g}.")
    return p


def law(p: Tensor, num: int, name: str) -> Tensor:
    """Check `num` probabilities that sum to 1, and remove what rounding left of the sum."""
    require(tuple(p.shape) == (num,), f"{name} must have shape ({num},), but it has shape {tuple(p.shape)}.")
    if not (p >= 0).all() or abs(float(p.sum()) - 1) >= 1e-6:
        raise ValueError(f"{name} must be a probability law: numbers of at least 0 that sum to 1.")
    return p / p.sum()


def boolean_mask(mask: Any, shape: Sequence[int], name: str, *, device: Any = None) -> Tensor:
    mask = tensor(mask, name)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} must be of dtype torch.bool, but it is of {mask.dtype}. Use {name}.bool().")
    require(mask.shape == tuple(shape), f"{name} must have shape {tuple(shape)}, but has shape {tuple(mask.shape)}.")
    same_device(mask, device, name)
    return mask


def labels(value: Any, rows: int, name: str = "labels", *, known: int | None = None) -> Tensor:
    """Check the classes of the rows: whole numbers from 0, as many as the model knows."""
    value = tensor(value, name)
    if value.dtype != torch.int64:
        raise TypeError(f"{name} must be of dtype torch.int64, but they are of {value.dtype}.")
    require(tuple(value.shape) == (rows,), f"{name} must have shape ({rows},), but they have {tuple(value.shape)}.")
    require(int(value.min()) >= 0, f"{name} must not be negative, but they hold {int(value.min())}.")
    require(known != 0, f"{name} were given, but the model was trained without labels. Leave them out.")
    require(
        known is None or int(value.max()) < known,
        f"{name} must lie between 0 and {(known or 1) - 1}, the labels that the model knows, but they hold "
        f"{int(value.max())}.",
    )
    return value


def positions(value: Any, batch: int, length: int, name: str = "positions", *, device: Any = None) -> Tensor:
    """Check (batch, k) distinct position indices."""
    value = tensor(value, name)
    if value.dtype != torch.int64:
        raise TypeError(f"{name} must be of dtype torch.int64, but it is of {value.dtype}. Use {name}.long().")
    require(
        value.ndim == 2 and value.shape[0] == batch and value.shape[1] > 0,
        f"{name} must have shape ({batch}, k) with k >= 1, but it has shape {tuple(value.shape)}.",
    )
    same_device(value, device, name)
    low, high = (int(v) for v in torch.aminmax(value))
    require(low >= 0 and high < length, f"{name} must lie in 0 .. {length - 1}, but they span {low} to {high}.")
    if value.shape[1] > 1:
        ordered = value.sort(dim=1).values
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise ValueError(f"{name} repeats a position within a row; draw them without replacement.")
    return value


def whole(value: Any, name: str, least: int, most: int | None = None) -> int:
    """Check an integer that is at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, but it is {value!r} of type {type(value).__name__}.")
    require(value >= least, f"{name} must be at least {least}, but it is {value}.")
    require(most is None or value <= most, f"{name} must be at most {most}, but it is {value}.")
    return value


def one_of(value: Any, name: str, table: Collection[str]) -> None:
    require(value in table, f"{name} must be one of {', '.join(table)}, but it is {value!r}.")


def positive(value: Any, name: str) -> float:
    number = finite(value, name)
    require(number > 0, f"{name} must be above 0, but it is {number:g}.")
    return number


def finite(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, but it is {value!r} of type {type(value).__name__}.")
    number = float(value)
    require(number == number and abs(number) != float("inf"), f"{name} must be finite, but it is {number}.")
    return number


def share(value: Any, name: str) -> float:
    """Check a number in [0, 1)."""
    number = finite(value, name)
    require(0 <= number < 1, f"{name} must lie in [0, 1), but it is {value}.")
    return number


def generator(value: Any, name: str = "generator") -> torch.Generator | None:
    if value is not None and not isinstance(value, torch.Generator):
        raise TypeError(
            f"{name} must be a torch.Generator or None, but it is a {type(value).__name__}. "
            "Make one with torch.Generator().manual_seed(0)."
        )
    return value
