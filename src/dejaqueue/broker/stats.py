"""What `stats` answers: counts per topic and partition.

Room: broker. Asks each partition's worker; numbers only.
See: docs/reference/metrics.md.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dejaqueue.broker.look_ahead import HORIZONS, look_ahead
from dejaqueue.broker.partition import Partition
from dejaqueue.broker.runtime import TopicRuntime

_OF_ITS_OWN = ("next_due_ms", "position", "ahead_ms", "set_by_ms")
"""Numbers of a partition that make no sum."""


def partition_stats(place: Partition, now_ms: int) -> dict[str, int]:
    """The numbers of one partition; on its worker."""
    engine, counts = place.engine, place.engine.counts
    head_ms = engine.next_due_ms()
    numbers = {
        "ahead_ms": max(0, engine.now_ms - place.clock.utc_ms()),
        "times_set": place.time.set_count,
        "set_by_ms": place.time.set_by_ms,
        "ready": engine.due_count(now_ms),
        **_due_within(place),
        "next_due_ms": -1 if head_ms is None else head_ms,
        "position": place.position,
        "journal_bytes": place.journal.byte_count(),
        "inbox_bytes": place.inbox_bytes,
        "appends": place.commits.append_count,
        "append_us": place.commits.append_us,
        "entries": place.commits.entry_count,
    }
    if place.maintenance is not None:
        numbers["snapshots"] = place.maintenance.snapshot_count
        numbers["copied_rows"] = place.maintenance.copied_rows
    return asdict(counts) | numbers


def _due_within(place: Partition) -> dict[str, int]:
    """What falls due soon, of the order index: a little too high after moves and cancels."""
    found = look_ahead(place).due_within
    return {f"due_within_{name}": n for name, n in zip(HORIZONS, found, strict=True)}


def topic_stats(topic: TopicRuntime, now_ms: int) -> dict[str, Any]:
    """The numbers of a topic: sums, and each partition's own."""
    futures = [
        topic.look(number, lambda place: partition_stats(place, now_ms))
        for number in topic.partitions.numbers
    ]
    partitions = [future.result(60) for future in futures]
    sums = {
        name: sum(numbers[name] for numbers in partitions)
        for name in partitions[0]
        if name not in _OF_ITS_OWN
    }
    dues = [numbers["next_due_ms"] for numbers in partitions if numbers["next_due_ms"] >= 0]
    return {
        "topic": topic.topic.name,
        **sums,
        "next_due_ms": min(dues, default=-1),
        "consumers": topic.dispatcher.describe(),
        "partitions": partitions,
    }
