"""Samples: the numbers of all topics as the pages last saw them.

Room: console. On the event loop.
Holds: however many pages are open, the broker is asked once in PERIOD_MS; while nobody looks, it is
not asked at all; who may not look at the broker is told so by the API, not by what others saw.
See: overview.py; rates come from the brokers, which keep them (rows.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.rows import Pace, pace_of, row_of

PERIOD_MS = 2_000
"""A sample is good for so long."""
NODES_PERIOD_MS = 10_000
"""What other brokers of the cluster say of themselves is asked less often: it names all topics."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers at one instant.

    Attributes:
        at_ms: when.
        topics: by name, as rows.py has them.
        paces: how fast each is, by name.
        silent: nodes of the cluster that did not answer.
        nodes: the brokers of the cluster, as the API tells of them; none of one that is alone.
        refusals: by quotas, in the last minutes, as the API tells of them.
    """

    at_ms: int
    topics: dict[str, dict[str, int]]
    paces: dict[str, Pace] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()
    refusals: tuple[dict[str, Any], ...] = ()


def sample_of(at_ms: int, topics: dict[str, Any]) -> Sample:
    """The sample of topics' stats, by name."""
    rows = {name: row_of(stats) for name, stats in topics.items()}
    return Sample(at_ms, rows, {name: pace_of(stats) for name, stats in topics.items()})


class Samples:
    """What was seen lately.

    Args:
        now_ms: the broker's time, UTC milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._newest: Sample | None = None
        self._nodes: tuple[dict[str, Any], ...] = ()
        self._nodes_at_ms: int | None = None
        self._lock = asyncio.Lock()

    async def newest(self, api: Api) -> Sample:
        """The numbers as of now, for a viewer who may look at the broker. Raises ApiError."""
        async with self._lock:
            now_ms = self.now_ms()
            if self._newest is not None and 0 <= now_ms - self._newest.at_ms < PERIOD_MS:
                return self._newest
            stats = await api.get("/v1/stats")
            if "silent" in stats:  # what a cluster says, and a broker that is alone does not
                await self._learn_nodes(api, now_ms)
            self._newest = replace(
                sample_of(now_ms, stats["topics"]),
                silent=tuple(stats.get("silent", ())),
                nodes=self._nodes,
                refusals=tuple(stats.get("refused_lately", ())),
            )
            return self._newest

    async def _learn_nodes(self, api: Api, now_ms: int) -> None:
        if self._nodes_at_ms is not None and 0 <= now_ms - self._nodes_at_ms < NODES_PERIOD_MS:
            return
        self._nodes_at_ms = now_ms
        try:
            self._nodes = tuple((await api.get("/v1/cluster"))["nodes"])
        except ApiError:
            self._nodes = ()
