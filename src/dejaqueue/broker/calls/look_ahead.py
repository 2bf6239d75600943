"""What is due when in a partition, by its order index.

Room: broker. On the partition's worker.
Holds: the index is read and nothing is walked, so a look costs 20 to 200 µs; what it counts too
much is said with it.
See: observation.py and stats.py, which show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dejaqueue.broker.shard.core import PartitionCore

HORIZONS = {"1s": 1, "10s": 10, "1m": 60, "10m": 600, "1h": 3_600}
"""How far ahead is looked, seconds, by the name where people read it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a partition's order index says.

    Attributes:
        ready: messages that are due and not leased.
        due_within: scheduled messages that fall due within each of HORIZONS.
        excess: by how much these may be too high: messages moved, cancelled or leased since.
    """

    ready: int = 0
    due_within: tuple[int, ...] = (0,) * len(HORIZONS)
    excess: int = 0

    def __add__(self, other: Outlook) -> Outlook:
        within = tuple(a + b for a, b in zip(self.due_within, other.due_within, strict=True))
        return Outlook(self.ready + other.ready, within, self.excess + other.excess)


def look_ahead(core: PartitionCore) -> Outlook:
    """What is due when; on the partition's worker. Cost: 20 to 200 µs."""
    now_ms, counts = core.now_ms(), core.engine.counts
    instants_ms = now_ms + 1 + 1_000 * np.array((0, *HORIZONS.values()), dtype=np.int64)
    dues, excess = core.engine.due_before(instants_ms)
    is_due, *by_then = dues.tolist()
    ready, excess = core.engine.ready_count(is_due, excess)
    within = tuple(min(due - is_due, counts.scheduled) for due in by_then)
    return Outlook(ready, within, max(0, excess))
