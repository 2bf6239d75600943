"""Covers: where the ids of a topic go on that is made again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dejaqueue.broker.topic.given_ids import IDS_FROM_MAX, UNREADABLE_IDS, PartitionReport, left_by
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import SnapshotFile
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic
from dejaqueue.testing.journal_conformance import make_ack, make_enqueue


def row(partitions: int, ids_from: int = 0) -> TopicRow:
    return TopicRow(Topic("t", partitions=partitions), 1, ids_from=ids_from, is_used=True)


def written(store: MemoryStore, partition: int, rows: int) -> int:
    """A journal with so many messages, and other entries between; its tail."""
    random = np.random.default_rng(1)
    store.make("t")
    journal = store.open("t", partition)
    entries = [make_ack(9), make_enqueue(random, rows - 1, 5), make_ack(2)]
    tail = journal.append([*entries, make_enqueue(random, 1, 5)], 0, 1)
    journal.close()
    return tail


def test_what_is_known_counts__and_what_a_journal_says() -> None:
    store = MemoryStore()
    written(store, 2, 40)
    assert (
        left_by(store, row(3), "t", {0: PartitionReport(17), 1: PartitionReport(0)}).ids_from == 40
    )
    assert (
        left_by(store, row(3), "t", {0: PartitionReport(170), 1: PartitionReport(0)}).ids_from
        == 170
    )
    assert left_by(store, row(3, 1_000), "t", {}).ids_from == 1_040
    assert left_by(store, row(2, 1_000), "t", {}).ids_from == 1_000


def test_a_partition_that_was_never_used_is_not_looked_at() -> None:
    assert left_by(MemoryStore(), row(9, 5), "t", {}).ids_from == 5  # there are no journals at all


def test_what_a_snapshot_covers_is_not_counted_again() -> None:
    store = MemoryStore()
    tail = written(store, 0, 40)
    journal = store.open("t", 0)
    meta = json.dumps({"next_sequence": 1_000, "now_ms": 7, "epoch": 2})
    journal.put_snapshot(tail - 2, meta, [SnapshotFile("part", b"")])
    journal.close()
    assert left_by(store, row(1), "t", {}).ids_from == 1_001


def test_a_journal_that_cannot_be_read_has_given_a_great_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    written(store, 0, 4)

    def damaged(*_: Any, **__: Any) -> Any:
        raise JournalDamaged("rotten")

    store.open = damaged  # type: ignore[method-assign]
    assert left_by(store, row(1, 7), "t", {}).ids_from == 7 + UNREADABLE_IDS
    assert "topic t, partition 0: how many ids it gave cannot be read" in caplog.text


def test_after_years_they_begin_anew() -> None:
    store = MemoryStore()
    assert left_by(store, row(1), "t", {0: PartitionReport(IDS_FROM_MAX)}).ids_from == IDS_FROM_MAX
    assert left_by(store, row(1), "t", {0: PartitionReport(IDS_FROM_MAX + 1)}).ids_from == 0
