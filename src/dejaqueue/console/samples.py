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

from dejaqueue.console.api import Api
from dejaqueue.console.rows import row_of

PERIOD_MS = 2_000
"""A sample is good for so long."""
KEPT = 90
"""Rates of each total: three minutes, while somebody looks."""
TOTALS = ("enqueued", "acked")
"""Whose rates are kept."""
_GAP_MS = 30_000
"""Between samples that lie further apart nobody looked, and a line through them says nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers at one instant.

    Attributes:
        at_ms: when.
        topics: by name, as rows.py has them.
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
        self._newest: Sample | None = None
        self._rates: dict[tuple[str, str], deque[float]] = {}
        self._lock = asyncio.Lock()

    async def newest(self, api: Api) -> Sample:
        """The numbers as of now, for a viewer who may look at the broker. Raises ApiError."""
        async with self._lock:
            now_ms = self.now_ms()
            if self._newest is not None and 0 <= now_ms - self._newest.at_ms < PERIOD_MS:
                return self._newest
            stats = await api.get("/v1/stats")
            sample = Sample(now_ms, {n: row_of(r) for n, r in stats["topics"].items()})
            if self._newest is not None and 0 < now_ms - self._newest.at_ms < _GAP_MS:
                self._grow(self._newest, sample)
            else:
                self._rates.clear()
            self._newest = sample
            return sample

    def rates(self, topic: str, name: str) -> list[float]:
        """How fast a total grew between samples, a second; the oldest first."""
        return list(self._rates.get((topic, name), ()))

    def recent_rate(self, topic: str, name: str) -> float:
        """The same over the last few samples together."""
        rates = self.rates(topic, name)[-5:]
        return sum(rates) / len(rates) if rates else 0.0

    def _grow(self, before: Sample, after: Sample) -> None:
        """Keep how fast totals grew; topics that are gone are forgotten."""
        far_ms = after.at_ms - before.at_ms
        rates: dict[tuple[str, str], deque[float]] = {}
        for topic, now in after.topics.items():
            was = before.topics.get(topic)
            for name in TOTALS:
                grown = 0 if was is None else max(0, now[name] - was[name])
                line = self._rates.get((topic, name)) or deque(maxlen=KEPT)
                line.append(grown * 1_000 / far_ms)
                rates[topic, name] = line
        self._rates = rates
