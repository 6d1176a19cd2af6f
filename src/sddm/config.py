"""Objects that keep the arguments of their constructors, so that they can be written to JSON and built again.

`describe` turns a `Configurable`, and those inside it, into plain JSON; `build` turns that back, with one table that
maps names to classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

LATER = "later"
"""Marks a field of a dataclass that was added after models had been saved. It is left out of a description while it has
its default, so that what was saved before is described as it was."""


class Configurable:
    """Keeps each argument of its constructor under the same name, or under _NAME where a method is called NAME.

    >>> class Line(Configurable):
    ...     def __init__(self, slope: float) -> None:
    ...         self.slope = slope
    """

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that build the same object again."""
        kept = {}
        for name, parameter in list(inspect.signature(type(self).__init__).parameters.items())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                place = f"_{name}" if hasattr(self, f"_{name}") else name
                if not hasattr(self, place):
                    raise TypeError(
                        f"{type(self).__name__} does not keep its argument {name!r}. Set self.{name} to it."
                    )
                kept[name] = getattr(self, place)
        return kept

    def __repr__(self) -> str:
        short = {k: f"tensor{tuple(v.shape)}" if isinstance(v, Tensor) else repr(v) for k, v in self.arguments.items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in short.items())})"


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
        kept = {f.name: getattr(value, f.name) for f in fields(value)}
        unused = {f.name for f in fields(value) if f.metadata.get(LATER) and kept[f.name] == f.default}
        return {"type": names[type(value)], **{n: describe(v, names) for n, v in kept.items() if n not in unused}}
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
            raise ValueError(f"The config names an unknown type {name!r}. Known are: {', '.join(sorted(classes))}.")
        return classes[name](**{k: build(v, classes) for k, v in description.items() if k != "type"})
    return description


def as_float64(value: Any, name: str) -> Tensor:
    """A float64 tensor from a tensor, an array or nested lists."""
    try:
        return torch.as_tensor(value, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a tensor, an array or nested lists of numbers.") from error
