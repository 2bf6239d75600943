"""What a case of the load comes to, and when its messages are to be sent.

Room: bench. Numbers alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """What a case came to: messages, seconds, and seconds of this program's processor time."""

    rows: int
    seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Taken(Said):
    """The same of messages that were taken; `late_us`: when each came, after what it said."""

    late_us: list[int]


def pauses(start: float, per_second: int, rows: int) -> Iterator[float]:
    """Before each of so many, how long to wait for an even rate; not above 0 = it is late."""
    for number in range(rows):
        yield start + number / per_second - time.perf_counter()
