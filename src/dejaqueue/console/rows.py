"""Rows: what a line says of a topic, out of its stats.

Room: console. Pure functions; `dejaq top` has the same rows.
See: problems.py, which looks at them.
"""

from __future__ import annotations

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
