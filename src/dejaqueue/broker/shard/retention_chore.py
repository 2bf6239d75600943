"""Retention: what a topic retains goes when it is older, or more, than the topic says.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: a message is retained for as long as the topic says, at least; what goes, goes by a command
of some thousand messages at most, one a step, so that a replay forgets the same ones and nobody
waits long.
See: engine/retention.py; partition/view.py, where retaining begins and ends; rule 21.
"""

from __future__ import annotations

from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Forget
from dejaqueue.engine.retention import Retention

ROWS_MAX = 16_384
"""Messages that go in one step."""
LOOK_MS = 1_000
"""It is looked for more so often: a command for each message would be more than the message."""


class RetentionChore(Chore):
    """Watches over what a partition retains."""

    def __init__(self) -> None:
        self._next_ms = 0

    def configured(self, core: PartitionCore) -> None:
        """The time that messages are retained for may be another one."""
        self._next_ms = 0

    def step(self, core: PartitionCore) -> None:
        """Forget what is old enough."""
        kept = core.views.retained
        if kept is None or not kept.count:
            return
        now_ms = core.now_ms()
        if now_ms < self._next_ms:
            return
        before = self._old(core, kept, now_ms)
        if core.topic().retention_bytes:
            most = core.topic().retention_bytes
            before = max(before, kept.too_much(most, ROWS_MAX, core.mean_payload_bytes))
        oldest = kept.oldest(before, ROWS_MAX)
        self._next_ms = now_ms + LOOK_MS
        if oldest.size == ROWS_MAX:
            before, self._next_ms = int(oldest[-1]) + 1, now_ms
        if oldest.size or before > kept.arrivals.firsts[0]:
            core.apply(Forget(now_ms, before))

    def _old(self, core: PartitionCore, kept: Retention, now_ms: int) -> int:
        """All below this sequence is old enough."""
        topic = core.topic()
        if not topic.retention_ms:
            return 0
        return kept.arrivals.came_by(now_ms - topic.retention_ms, core.engine.next_sequence)

    def next_us(self, core: PartitionCore) -> int | None:
        """When the oldest messages are old enough, or it is to be looked whether they are too many,
        clock µs; None = there are none."""
        kept, topic = core.views.retained, core.topic()
        if kept is None or not kept.count:
            return None
        most = topic.retention_bytes
        if most and kept.engine.backlog(core.mean_payload_bytes)[1] > most:
            return wake_us(core, self._next_ms)
        if not topic.retention_ms:
            return None
        old_ms = kept.arrivals.first_end_ms() + topic.retention_ms
        return wake_us(core, max(old_ms, self._next_ms))
