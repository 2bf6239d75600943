"""Samples: the numbers of all topics as the pages last saw them, and how they came to be so.

Room: console. On the event loop.
Holds: however many pages are open, the broker is asked once in PERIOD_MS; while nobody looks, it is
not asked at all; who may not look at the broker is told so by the API, not by what others saw.
See: overview.py and topics.py, which show rates and sparklines from here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dejaqueue.console.api import Api

PERIOD_MS = 2_000
"""A sample is good for so long."""
KEPT = 90
"""Samples: three minutes, while somebody looks."""
_GAP_MS = 30_000
"""Between samples that lie further apart nobody looked, and a line through them says nothing."""
SHOWN = (
    "scheduled", "leased", "ready", "dead", "enqueued", "delivered", "acked", "nacked", "expired",
    "buried", "next_due_ms", "ahead_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers at one instant.

    Attributes:
        at_ms: when.
        topics: by name: the numbers of SHOWN, `consumers` (how many) and `credit`.
    """

    at_ms: int
    topics: dict[str, dict[str, int]]


class Samples:
    """What was seen lately.

    Args:
        now_ms: the broker's time, UTC milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._kept: deque[Sample] = deque(maxlen=KEPT)
        self._lock = asyncio.Lock()

    async def newest(self, api: Api) -> Sample:
        """The numbers as of now, for a viewer who may look at the broker. Raises ApiError."""
        async with self._lock:
            now_ms = self.now_ms()
            if self._kept and 0 <= now_ms - self._kept[-1].at_ms < PERIOD_MS:
                return self._kept[-1]
            stats = await api.get("/v1/stats")
            if self._kept and not 0 <= now_ms - self._kept[-1].at_ms < _GAP_MS:
                self._kept.clear()
            self._kept.append(Sample(now_ms, {n: row_of(r) for n, r in stats["topics"].items()}))
            return self._kept[-1]

    def rates(self, topic: str, name: str) -> list[float]:
        """How fast a total grew between samples, a second; the oldest first."""
        kept = list(self._kept)
        rates = []
        for before, after in pairwise(kept):
            was, now = before.topics.get(topic), after.topics.get(topic)
            if was is None or now is None or after.at_ms <= before.at_ms:
                rates.append(0.0)
            else:
                grown = max(0, now.get(name, 0) - was.get(name, 0))
                rates.append(grown * 1_000 / (after.at_ms - before.at_ms))
        return rates

    def recent_rate(self, topic: str, name: str) -> float:
        """The same over the last few samples together."""
        rates = self.rates(topic, name)[-5:]
        return sum(rates) / len(rates) if rates else 0.0


def row_of(stats: dict[str, Any]) -> dict[str, int]:
    """What is kept of a topic's stats."""
    consumers = stats.get("consumers") or []
    row = {name: int(stats.get(name, 0)) for name in SHOWN}
    partitions = stats.get("partitions") or []
    row["ahead_ms"] = max((int(one.get("ahead_ms", 0)) for one in partitions), default=0)
    row["consumers"] = len(consumers)
    row["credit"] = sum(int(one.get("credit", 0)) for one in consumers)
    return row
