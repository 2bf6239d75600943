"""How much the consumers of a topic will have to do soon, as one number.

Room: broker. Asks each partition's worker.
Holds: the order index is read and nothing is walked; what it counts too much is said with it. A
partition in which nothing was ever stored is not read for it.
See: look_ahead.py for fixed times, which are in stats; docs/guides/kubernetes.md for who asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.calls.browse import answer_of, whole
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_view import ServedView

WITHIN_MS = 60_000
"""Where nothing is said."""


def due_soon(topic: ServedView, values: dict[str, Any]) -> dict[str, Any]:
    """How many messages of a topic are ready, or fall due within a time: what its consumers will
    have to do by then. Cost: 20 to 200 µs for each partition, however many messages there are.

    Args:
        values: `within_ms`, 0 = what is ready alone.

    Returns:
        `due` = `ready` + `scheduled`; `leased`, of which `due` has none; `error_max`: by how much
        `due` may be too high.
    """
    within_ms = whole(values, "within_ms", WITHIN_MS, limits.INSTANT_MS_MAX)

    def look(core: PartitionCore) -> tuple[int, int, int, int]:
        now_ms, counts = core.now_ms(), core.engine.counts
        instants_ms = np.array((now_ms + 1, now_ms + 1 + within_ms), dtype=np.int64)
        dues, excess = core.engine.due_before(instants_ms)
        is_due, by_then = dues.tolist()
        ready, excess = core.engine.ready_count(is_due, excess)
        return ready, min(by_then - is_due, counts.scheduled), counts.leased, max(0, excess)

    looks = [
        topic.look(number, look) for number in topic.partitions.numbers if topic.has_journal(number)
    ]
    found = [(0, 0, 0, 0), *map(answer_of, looks)]
    ready, scheduled, leased, excess = map(sum, zip(*found, strict=True))
    return {
        "topic": topic.topic.name,
        "within_ms": within_ms,
        "due": ready + scheduled,
        "ready": ready,
        "scheduled": scheduled,
        "leased": leased,
        "error_max": excess,
    }
