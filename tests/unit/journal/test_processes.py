"""Covers: the store of one process: which backend has what, and catalogues that follow each other.

Not covered: the segments (tests/unit/journal/segments/test_shared_store.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.catalogue.changes import MadeTopic
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.errors import Locked
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.processes import ProcessStore, prepare, tell_slots
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.registry import open_store
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.shared_store import TopicSlots
from dejaqueue.model import Topic
from dejaqueue.testing.journal_conformance import make_ack, make_enqueue


def opened(root: Path) -> ProcessStore:
    store = open_store(f"shared://{root}", segment_bytes=1 << 13, patience_seconds=5.0)
    assert isinstance(store, ProcessStore)
    store.lies(lambda topic: TopicSlots(1, 1))
    return store


def test_a_directory_is_prepared_once_and_keeps_its_shards(tmp_path: Path) -> None:
    lock, shards = prepare(tmp_path, 8)
    assert shards == 8
    with pytest.raises(Locked):
        prepare(tmp_path, 8)
    lock.release()
    lock, shards = prepare(tmp_path, 32)
    assert shards == 8
    lock.release()


def test_catalogues_of_processes_follow_each_other(tmp_path: Path) -> None:
    prepare(tmp_path, 4)[0].release()
    stores = [opened(tmp_path), opened(tmp_path)]
    one, other = [CatalogueLog(store) for store in stores]
    for number, log in enumerate((one, other, one)):
        log.change(lambda number=number: MadeTopic(Topic(f"t{number}"), 0))  # type: ignore[misc]
    other.read()
    assert list(other.state.rows) == ["t0", "t1", "t2"]
    for log in (one, other):
        log.close()
    for store in stores:
        store.close()


def test_messages_are_in_segments__and_all_else_is_found(tmp_path: Path) -> None:
    prepare(tmp_path, 4)[0].release()
    store: JournalStore = opened(tmp_path)
    store.make("t.7", 7)
    journal = store.open("t.7", 2, only_made=True)
    assert isinstance(journal, SegmentJournal)
    journal.append([make_ack(1)], 0, 1)
    assert store.shard_of("t", 7, 2) == 1
    assert store.was_used("t.7", 2)
    assert store.taken_bytes("t.7", 2) > 0
    assert not isinstance(store.open(JOURNAL, 0), SegmentJournal)
    asked: list[object] = []
    store.ask = asked.append
    store.ask([("t.7", 2)])
    assert asked == [[("t.7", 2)]]
    store.store_document("keys", "{}")
    assert store.load_document("keys") == "{}"
    store.store_data_key(3, "x")
    assert (store.data_key_numbers(), store.load_data_key(3)) == ([3], "x")
    journal.close()
    assert store.made() == ["t.7"]
    store.drop("t.7")
    store.tidy(set())
    assert store.made() == []
    store.close()


def test_a_partition_is_asked_about_what_has_been_dead_for_long(tmp_path: Path) -> None:
    prepare(tmp_path, 4)[0].release()
    store = opened(tmp_path)
    store.make("t.7", 7)
    journal = store.open("t.7", 2, only_made=True)
    random = np.random.default_rng(3)
    journal.append([make_enqueue(random, 2), make_enqueue(random, 2)], 0, 1)
    rows = (1 << limits.ROW_BITS) + np.arange(2)
    journal.adopt(iter([np.concatenate([rows, rows + (1 << limits.ROW_BITS)])]))
    asked: list[tuple[str, int]] = []
    store.ask = asked.extend
    store.press_dead(0, 2_000)
    journal.free(rows)
    store.press_dead(1_000, 2_000)
    assert asked == []
    store.press_dead(3_000, 2_000)
    assert asked == [("t.7", 2)]
    journal.close()
    store.close()


def test_a_store_on_a_server_hears_where_topics_lie__and_they_may_move() -> None:
    store = RecordJournalStore(MemoryRecordStore(1 << 20))
    assert store.slots_of("topic") == ()
    assert not tell_slots(store, lambda topic: TopicSlots(3, 2), 4)
    assert store.slots_of("topic") == (3, 0)
    store.close()


def test_a_store_of_processes_keeps_a_topic_where_it_lies(tmp_path: Path) -> None:
    prepare(tmp_path, 4)[0].release()
    store = opened(tmp_path)
    assert tell_slots(store, lambda topic: TopicSlots(1, 1), store.shards)
    store.close()
