"""What `stats` answers: counts per topic and partition.

Room: broker. Asks each partition's worker; numbers only.
See: docs/reference/metrics.md.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from dejaqueue.broker.calls.look_ahead import HORIZONS, look_ahead
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.maintenance import Maintenance
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.engine.records import Counts

_OF_ITS_OWN = (
    "next_due_ms",
    "retained_from_ms",
    "position",
    "ahead_ms",
    "set_by_ms",
    "overdue_ms",
    "lateness_max_us",
)
"""Numbers of a partition that make no sum."""
_OF_A_PARTITION = (
    "times_set",
    "ready",
    "retained",
    "retained_bytes",
    "journal_bytes",
    "inbox_bytes",
    "appends",
    "append_us",
    "entries",
    "snapshots",
    "copied_rows",
)
"""Numbers beside those of its engine's counts."""


def partition_stats(
    core: PartitionCore, inbox: Inbox, maintenance: Maintenance, now_ms: int
) -> dict[str, int]:
    """The numbers of one partition; on its worker."""
    engine = core.engine
    core.counting.pace.tell()
    head_ms = engine.next_due_ms()
    numbers = {
        "ahead_ms": max(0, engine.now_ms - core.clock.utc_ms()),
        "times_set": core.time.set_count,
        "set_by_ms": core.time.set_by_ms,
        "ready": engine.due_count(now_ms),
        **_retained(core),
        **_due_within(core),
        "next_due_ms": -1 if head_ms is None else head_ms,
        "overdue_ms": 0 if head_ms is None else max(0, now_ms - head_ms),
        "lateness_max_us": core.counting.pace.late_us_max(now_ms),
        "position": core.position,
        "journal_bytes": core.journal.byte_count(),
        "inbox_bytes": inbox.byte_count,
        "appends": core.commits.append_count,
        "append_us": core.commits.append_us,
        "entries": core.commits.entry_count,
    }
    numbers["snapshots"] = maintenance.snapshot_count
    numbers["copied_rows"] = maintenance.copied_rows
    return asdict(engine.counts) | numbers


def _unused_stats() -> dict[str, int]:
    """The numbers of a partition in which nothing was ever stored; it is not read for them."""
    return (
        asdict(Counts())
        | dict.fromkeys(_OF_ITS_OWN, 0)
        | dict.fromkeys(_OF_A_PARTITION, 0)
        | dict.fromkeys((f"due_within_{name}" for name in HORIZONS), 0)
        | {"next_due_ms": -1, "retained_from_ms": -1, "lateness_max_us": -1}
    )


def _retained(core: PartitionCore) -> dict[str, int]:
    """What is retained; bytes by the mean payload."""
    kept = core.views.retained
    count = 0 if kept is None else kept.count
    if kept is None or not count:
        return {"retained": 0, "retained_bytes": 0, "retained_from_ms": -1}
    oldest = kept.oldest(core.engine.next_sequence, 1)
    return {
        "retained": count,
        "retained_bytes": kept.engine.backlog(core.mean_payload_bytes)[1],
        "retained_from_ms": int(kept.arrivals.spans(oldest)[0][0]),
    }


def _due_within(core: PartitionCore) -> dict[str, int]:
    """What falls due soon, of the order index: a little too high after moves and cancels."""
    within = look_ahead(core).due_within
    return {f"due_within_{name}": n for name, n in zip(HORIZONS, within, strict=True)}


def topic_stats(topic: ServedView, now_ms: int) -> dict[str, Any]:
    """The numbers of a topic: sums, and each partition's own."""
    futures = [
        topic.look(
            partition.number,
            partial(
                partition_stats,
                inbox=partition.inbox,
                maintenance=partition.maintenance,
                now_ms=now_ms,
            ),
        )
        if topic.has_journal(partition.number)
        else None
        for partition in topic.partitions
    ]
    unused = _unused_stats()
    partitions = [unused.copy() if future is None else future.result(60) for future in futures]
    sums = {
        name: sum(numbers[name] for numbers in partitions)
        for name in partitions[0]
        if name not in _OF_ITS_OWN
    }
    room = topic.dispatcher.credits(topic.partitions.numbers)
    for numbers, credit in zip(partitions, room, strict=True):
        numbers["credit"] = credit
    return {
        "topic": topic.topic.name,
        **sums,
        "next_due_ms": _first(partitions, "next_due_ms"),
        "retained_from_ms": _first(partitions, "retained_from_ms"),
        **topic.counting.pace.read(now_ms),
        "consumers": topic.dispatcher.describe(),
        "partitions": partitions,
    }


def _first(partitions: list[dict[str, int]], name: str) -> int:
    """The earliest of these times of partitions; -1 = none has one."""
    return min((numbers[name] for numbers in partitions if numbers[name] >= 0), default=-1)
