"""Retention: what a topic retains goes when it is older than the topic says.

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
        cutoff_ms = now_ms - core.topic().retention_ms
        before = kept.arrivals.came_by(cutoff_ms, core.engine.next_sequence)
        oldest = kept.oldest(before, ROWS_MAX)
        self._next_ms = now_ms + LOOK_MS
        if oldest.size == ROWS_MAX:
            before, self._next_ms = int(oldest[-1]) + 1, now_ms
        if oldest.size or before > kept.arrivals.firsts[0]:
            core.apply(Forget(now_ms, before))

    def next_us(self, core: PartitionCore) -> int | None:
        """When the oldest messages are old enough, clock µs; None = there are none."""
        kept = core.views.retained
        if kept is None or not kept.count:
            return None
        old_ms = kept.arrivals.first_end_ms() + core.topic().retention_ms
        return wake_us(core, max(old_ms, self._next_ms))
