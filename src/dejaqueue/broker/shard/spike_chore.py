"""What is due in a spike is leased ahead of it, by as much as the topic allows: it is found here.

Room: broker. On the partition's worker, as a chore.
Holds: a topic without `spike_ahead_ms` costs nothing; a spike that was begun is sent to its end.
See: spike.py; partition/leasing.py, which leases it; docs/adr/0112-a-spike-is-sent-ahead.md.
"""

from __future__ import annotations

from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.spike import SECOND_MS, spike_in

# Between two looks; one takes far less than a millisecond for ten million messages.
LOOK_MS = 1_000


class SpikeChore(Chore):
    """Looks for the next spike of a partition, or of a view of it."""

    def __init__(self) -> None:
        self._next_ms = 0

    def configured(self, core: PartitionCore) -> None:
        """Begin to look, or end it."""
        core.spike = None
        self._next_ms = 0

    def step(self, core: PartitionCore) -> None:
        """Look, if it is time."""
        ahead_ms, now_ms = _ahead_ms(core), core.now_ms()
        if not ahead_ms or self._next_ms - LOOK_MS <= now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LOOK_MS
        if core.spike is not None and core.spike.begins_ms <= now_ms < core.spike.until_ms:
            return  # what is left of it may be no spike any more, and is to be in time as well
        first_s, seconds = now_ms // SECOND_MS, ahead_ms // SECOND_MS + 2
        counts, _ = core.engine.tally_index(
            first_s * SECOND_MS, (first_s + seconds) * SECOND_MS, SECOND_MS, seconds
        )
        core.spike = spike_in(counts, first_s, core.settings.dispatch.partition_rows_per_s)

    def next_us(self, core: PartitionCore) -> int | None:
        """When to look again, or a spike has to begin, clock µs; None = nothing is due for long."""
        ahead_ms = _ahead_ms(core)
        head_ms = core.engine.next_due_ms() if ahead_ms else None
        if head_ms is None:
            return None
        at_ms = max(self._next_ms, head_ms - ahead_ms - LOOK_MS)
        if core.spike is not None and core.spike.begins_ms > core.now_ms():
            at_ms = min(at_ms, core.spike.begins_ms)
        return wake_us(core, at_ms)


def _ahead_ms(core: PartitionCore) -> int:
    """How far ahead a spike may be leased; 0 = not at all, also where another order than time
    decides among those that are due."""
    topic = core.topic()
    return topic.spike_ahead_ms if topic.kind.is_by_time else 0
