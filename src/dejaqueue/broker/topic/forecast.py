"""Forecast: how much is due when, and partitions for instants that are hotter than one serves.

Room: broker. Partitions report on their workers; the topic is raised on a thread that may wait.
Holds: only topics with `auto_partitions` are looked at, and never raised beyond the setting.
See: growth.py for what a raise means; docs/guides/growing.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError
from dejaqueue.model import Topic
from dejaqueue.settings import DispatchSettings

log = logging.getLogger("dejaqueue.broker")

# How far ahead is looked: a raise helps only messages that come after it, so it has to come early.
HORIZON_S = 3_600
# Between two looks; one takes about a millisecond for 10 million messages.
LOOK_MS = 2_000


class Forecast:
    """What is due in each second of the next hour, in all partitions of a topic served here.

    Args:
        grow: raise the topic to so many partitions; may be called on any thread, must not wait.
        shards: of how many these partitions are one. As many partitions as one shard wants, all
            get: keys and batches go to them alike.
        spread: of the topic; it has a multiple of that.
    """

    def __init__(
        self,
        settings: DispatchSettings,
        grow: Callable[[int], None],
        *,
        shards: int = 1,
        spread: int = 1,
    ) -> None:
        self._settings = settings
        self._grow = grow
        self._shards = shards
        self._spread = spread
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[int, Int64s]] = {}
        self._asked = 0

    def report(self, partition: int, first_s: int, counts: Int64s, partition_count: int) -> None:
        """Take what is due in a partition: messages by second, from `first_s` on."""
        with self._lock:
            self._seen[partition] = (first_s, counts)
            begin_s = max(first for first, _ in self._seen.values())
            total = np.zeros(HORIZON_S, dtype=np.int64)
            for first, some in self._seen.values():
                part = some[begin_s - first :]
                total[: part.size] += part
            serves = self._settings.partition_rows_per_s
            most = self._settings.auto_partitions_max
            wanted = -(-int(total.max()) // serves) * self._shards
            wanted = min(-(-wanted // self._spread), most // self._spread) * self._spread
            if wanted <= max(partition_count, self._asked):
                return
            self._asked = wanted
        self._grow(wanted)


class BrokerPort(Protocol):
    """A broker, as far as topics grow by it."""

    def topic(self, name: str) -> Topic:
        """The topic of this name."""
        ...

    def alter_topic(self, name: str, changes: dict[str, Any]) -> Topic:
        """Change settings of a topic."""
        ...


def grow(broker: BrokerPort, name: str, count: int) -> None:
    """Give a topic so many partitions, unless it has them. Blocks."""
    try:
        if broker.topic(name).partitions < count:
            broker.alter_topic(name, {"partitions": count})
            text = "topic %s has %d partitions now: an instant is hot"
            log.info(text, name, count, extra={"topic": name})
    except DejaQError as error:
        text = "topic %s can't get %d partitions: %s"
        log.warning(text, name, count, error, extra={"topic": name})


class ForecastChore(Chore):
    """A partition's part in the forecast of its topic."""

    def __init__(self, forecast: Forecast) -> None:
        self._forecast = forecast
        self._next_ms = 0

    def next_us(self, core: PartitionCore) -> int | None:
        """When to look again, clock µs; None = not at all."""
        return wake_us(core, self._next_ms) if core.topic().auto_partitions else None

    def step(self, core: PartitionCore) -> None:
        """Look, if it is time."""
        now_ms, topic = core.now_ms(), core.topic()
        if not topic.auto_partitions or self._next_ms - LOOK_MS <= now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LOOK_MS
        first_s = now_ms // 1_000
        counts, _ = core.engine.tally_index(
            first_s * 1_000, (first_s + HORIZON_S) * 1_000, 1_000, HORIZON_S
        )
        self._forecast.report(core.number, first_s, counts, topic.partitions)
