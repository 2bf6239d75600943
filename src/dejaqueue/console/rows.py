"""Rows: what a line says of a topic, out of its stats.

Room: console. Pure functions; `dejaq top` has the same rows.
See: problems.py, which looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN = (
    "scheduled", "leased", "ready", "dead", "enqueued", "delivered", "acked", "nacked", "expired",
    "buried", "next_due_ms", "ahead_ms",
)  # fmt: skip
"""Numbers that are taken as they are."""


def row_of(stats: dict[str, Any]) -> dict[str, int]:
    """The numbers of SHOWN, `consumers` (how many) and `credit`, of a topic's stats."""
    consumers = stats.get("consumers") or []
    row = {name: int(stats.get(name, 0)) for name in SHOWN}
    partitions = stats.get("partitions") or []
    row["ahead_ms"] = max((int(one.get("ahead_ms", 0)) for one in partitions), default=0)
    row["consumers"] = len(consumers)
    row["credit"] = sum(int(one.get("credit", 0)) for one in consumers)
    return row


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a topic is, as its brokers kept it.

    Attributes:
        rate_in, rate_out: messages that came in, and were done, a second, lately.
        rate_most: those done in the best ten seconds of the last hour; 0 = none were.
        line_in, line_out: the rates of the last five minutes, the oldest first; empty = none.
        late_us: 99 of 100 were pushed at most so late in that time; -1 = none were.
    """

    rate_in: float = 0.0
    rate_out: float = 0.0
    rate_most: float = 0.0
    line_in: tuple[float, ...] = ()
    line_out: tuple[float, ...] = ()
    late_us: int = -1


def pace_of(stats: Mapping[str, Any]) -> Pace:
    """That of a topic's stats; an older broker does not say it."""
    return Pace(
        float(stats.get("enqueued_per_s", 0)),
        float(stats.get("acked_per_s", 0)),
        float(stats.get("acked_per_s_most", 0)),
        _rates(stats.get("enqueued_10s")),
        _rates(stats.get("acked_10s")),
        int(stats.get("lateness_p99_us", -1)),
    )


def _rates(counts: Any) -> tuple[float, ...]:
    """Nothing, where nothing happened: a longer line of zeros is no news."""
    rates = tuple(count / 10 for count in counts or ())
    return rates if any(rates) else ()
