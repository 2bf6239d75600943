"""The chore that notes how fast a partition is: in each step, and of its own accord never.

Room: broker. On the partition's worker.
Holds: it wants no step, changes nothing, and reads two numbers of the engine.
See: broker/pace.py.
"""

from __future__ import annotations

from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore


class PaceChore(Chore):
    """A partition's part in the pace of its topic."""

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read: begin."""
        core.counting.pace.begin(core.engine.counts, core.now_ms())

    def before_append(self, core: PartitionCore) -> None:
        """Note what the step did; what it delivers is not counted before it is durable."""
        engine = core.engine
        core.counting.pace.note(engine.counts, engine.now_ms)
