"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a header."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def with_error(value: float, error: float, digits: int = 3) -> str:
    return f"{value:.{digits}f} ± {error:.{digits}f}"
