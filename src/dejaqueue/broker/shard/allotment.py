"""Allotment: how much of a topic's backlog the partitions that are served here may hold together.

Room: broker. Any thread; the lock, which others use with it, is held for a few lines.
Holds: together they never hold more, whatever comes to several of them at one moment; a shard goes
by what its home gave it, and by nothing before that.
See: partition/admission.py, which asks; topic/allotment_queue.py, which fetches more of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dejaqueue.broker.shard.backlog import RETRY_MS, Backlog, check_backlog
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic


class Allotment:
    """What is let in.

    Args:
        backlog: what is live in all partitions that are here, as of their last steps.
        is_shard: the topic's limits are those of all shards; this one has what it is given.

    Attributes:
        lock: over `part`.
        part: of a shard what it may hold; None = that is not known yet, and it takes nothing.
    """

    def __init__(self, backlog: Callable[[], Backlog], *, is_shard: bool = False) -> None:
        self._backlog = backlog
        self._is_shard = is_shard
        self.lock = threading.Lock()
        self.part: Backlog | None = None

    def let_in(self, core: PartitionCore, rows: int, byte_count: int) -> None:
        """Note that so much more comes into a partition. On its worker.

        Raises:
            ResourceExhausted: it does not fit.
        """
        topic = core.topic()
        if not has_limit(topic):
            return
        with self.lock:
            before, here = core.backlog, core.live()
            live = self._backlog() - before + here
            if not self._is_shard:
                check_backlog(topic, live, rows, byte_count, core.fullest)
            elif not self._fits(topic, live + Backlog(rows, byte_count)):
                raise ResourceExhausted(
                    f"topic {topic.name}: max_backlog_count is {topic.max_backlog_count} and "
                    f"max_backlog_bytes {topic.max_backlog_bytes} over all shards, and what is "
                    f"left for this one is used up; retry when some are done",
                    RETRY_MS,
                )
            core.backlog = here + Backlog(rows, byte_count)

    def lacks(self, topic: Topic, rows: int, byte_count: int) -> bool:
        """True if a shard should ask for more before so much comes."""
        if not self._is_shard or not has_limit(topic):
            return False
        return not self._fits(topic, self._backlog() + Backlog(rows, byte_count))

    def _fits(self, topic: Topic, live: Backlog) -> bool:
        part = self.part
        if part is None:
            return False
        fits = not topic.max_backlog_count or live.count <= part.count
        return fits and (not topic.max_backlog_bytes or live.byte_count <= part.byte_count)

    def lower(self, by: Backlog) -> None:
        """Keep so much less of a part, but not less than what is live. Under the lock."""
        live, part = self._backlog(), self.part
        if part is not None:
            count = max(live.count, part.count - by.count)
            byte_count = max(live.byte_count, part.byte_count - by.byte_count)
            self.part = Backlog(min(part.count, count), min(part.byte_count, byte_count))


def has_limit(topic: Topic) -> bool:
    """True if a topic's backlog is bounded."""
    return bool(topic.max_backlog_count or topic.max_backlog_bytes)
