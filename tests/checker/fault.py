"""What a judge finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that was broken, and how; `id` is of the message, -1 = more than one."""

    rule: int
    text: str
    id: int = -1

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.text}"
