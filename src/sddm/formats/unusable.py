"""Files of a collection that cannot be used, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


class UnusableError(ValueError):
    """A file that cannot be used. `reason` says why in a few words, the same for all files of the kind."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass
class LeftOut:
    """How many files were left out for which reason."""

    left_out: Counter[str] = field(default_factory=Counter)
    """Files, by reason."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first file left out for each reason."""

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out[reason] += 1
        self.examples.setdefault(reason, name)

    @property
    def reasons(self) -> str:
        """Why files were left out, the most frequent reason first."""
        return ", ".join(
            f"{number} {reason} (such as {self.examples[reason]!r})" for reason, number in self.left_out.most_common()
        )
