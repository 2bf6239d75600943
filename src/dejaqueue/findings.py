"""Finding: what a check of `dejaq doctor`, or of a running broker, came to.

Room: vocabulary. Looks at nothing itself.
See: cli/doctor/; broker/watching/findings.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    FINE = "fine"
    LOOK = "look"
    """It may be meant so, or this machine does not say."""
    HURTS = "hurts"
    """Messages will be late, lost or readable by others, or the broker does not start."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer.

    Attributes:
        check: what was looked at, in a word or two.
        text: what was seen.
        mend: the command or setting that changes it; "" = nothing needs to.
    """

    check: str
    level: Level
    text: str
    mend: str = ""

    def to_dict(self) -> dict[str, str]:
        """As one line of JSON."""
        return {
            "check": self.check,
            "level": str(self.level),
            "text": self.text,
            "mend": self.mend,
        }


def fine(check: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Level.FINE, text)


def look(check: str, text: str, mend: str) -> Finding:
    """Somebody should look at it."""
    return Finding(check, Level.LOOK, text, mend)


def hurts(check: str, text: str, mend: str) -> Finding:
    """Somebody should change it."""
    return Finding(check, Level.HURTS, text, mend)
