"""Objects that remember how they were built, so that they can be written to JSON and built again.

Whatever derives from `Configurable` records the arguments of its constructor. `describe` turns such an object, and
those inside it, into plain JSON; `build` turns that back, with one table that maps names to classes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


class Configurable:
    """Remembers the arguments it was constructed with in `self.arguments`; its repr shows them."""

    arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            setattr(cls, "__init__", _recording(cls.__dict__["__init__"]))  # noqa: B010

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={_short(v)}" for k, v in self.arguments.items())
        return f"{type(self).__name__}({inside})"


def _recording(init: Any) -> Any:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapper(self: Configurable, *args: Any, **kwargs: Any) -> None:
        outermost = "arguments" not in self.__dict__
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            names = ", ".join(list(signature.parameters)[1:])
            raise TypeError(f"{type(self).__name__}({names}) cannot be built: {error}.") from None
        if outermost:
            # A tensor is copied, so that what the caller does to it later does not change what is saved.
            given = {
                name: value.detach().clone() if isinstance(value, Tensor) else value
                for name, value in list(bound.arguments.items())[1:]
            }
            object.__setattr__(self, "arguments", given)
        init(self, *args, **kwargs)

    return wrapper


def _short(value: Any) -> str:
    return f"tensor{tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def describe(value: Any, names: Mapping[type, str]) -> Any:
    """Turn a Configurable (or a plain value) into JSON; `names` gives the name under which each class is saved."""
    if isinstance(value, Configurable):
        if type(value) not in names:
            raise TypeError(
                f"{type(value).__name__} cannot be saved: no table has a name for it. "
                "Add it to the table of its family, such as sddm.marginals.MODELS."
            )
        return {"type": names[type(value)], **{k: describe(v, names) for k, v in value.arguments.items()}}
    if is_dataclass(value) and type(value) in names:
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"type": names[type(value)], **{k: describe(v, names) for k, v in parts.items()}}
    if isinstance(value, Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, (list, tuple)):
        return [describe(v, names) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"A value of type {type(value).__name__} cannot be written to a JSON config.")


def build(description: Any, classes: Mapping[str, type]) -> Any:
    """The inverse of `describe`: build the object that a JSON config names."""
    if isinstance(description, list):
        return [build(v, classes) for v in description]
    if isinstance(description, Mapping):
        name = description.get("type")
        if not isinstance(name, str) or name not in classes:
            known = ", ".join(sorted(classes))
            raise ValueError(f"The config names an unknown type {name!r}. Known are: {known}.")
        arguments = {k: build(v, classes) for k, v in description.items() if k != "type"}
        return classes[name](**arguments)
    return description


def as_float64(value: Any, name: str) -> Tensor:
    """A float64 tensor from a tensor, an array or nested lists."""
    try:
        return torch.as_tensor(value, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a tensor, an array or nested lists of numbers.") from error
