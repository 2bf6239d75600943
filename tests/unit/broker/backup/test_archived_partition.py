"""Covers: state and rows of a partition from its copy, what is refused of one, and leases that end.

Not covered: whole backups (test_restoring.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dejaqueue.backup.manifest import ROWS, PartitionCopy
from dejaqueue.broker.backup.archived_partition import ArchivedPartition, void_leases, write
from dejaqueue.engine.commands import Seek
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import MessageState
from tests.backups import state_of
from tests.unit.broker.backup.test_copying import Copied


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    found = Copied(tmp_path)
    yield found
    found.broker.stop()


def archived(copied: Copied, copy: PartitionCopy) -> ArchivedPartition:
    return ArchivedPartition(copied.archive, "store", copy, None)


def source_hash(copied: Copied) -> object:
    return copied.look(lambda core: core.engine.state_hash())


def payloads(of: ArchivedPartition, engine: PartitionViews) -> list[bytes]:
    found = []
    for _, texts in of.rows(engine):
        text = texts["payload"]
        content, offsets = bytes(text.data), text.offsets.tolist()
        found += [content[a:b] for a, b in itertools.pairwise(offsets)]
    return found


def test_state_is_what_it_was__from_entries_rows_and_a_snapshot(copied: Copied) -> None:
    first = copied.send(b"1", b"2", b"3")
    before = copied.copy()
    copied.client.cancel("a", ids=first[:1])
    copied.send(b"4")
    copied.snapshot()
    copied.send(b"5", b"6")
    for copy in (copied.copy(), copied.copy(before)):
        of = archived(copied, copy)
        engine = of.views()
        assert engine.state_hash() == source_hash(copied)
        assert payloads(of, engine) == [b"2", b"3", b"4", b"5", b"6"]
    old = archived(copied, before)
    assert payloads(old, old.views()) == [b"1", b"2", b"3"]  # what came after did not reach it


def test_what_is_leased_comes_at_once__and_nothing_dies_of_it(copied: Copied) -> None:
    copied.client.alter_topic("a", max_attempts=1)
    copied.send(b"1", b"2", delay=0)
    with copied.client.consume("a", prefetch=2, idle_ms=5_000) as messages:
        next(iter(messages))
        of = archived(copied, copied.copy())
    views = of.views()
    engine = views.unnamed
    assert (engine.counts.leased, void_leases(views)) == (2, 2)
    assert (engine.counts.leased, engine.counts.scheduled, engine.dead) == (0, 2, {})
    [sequences] = engine.live_sequences()
    assert engine.attempts(sequences).tolist() == [1, 1]
    assert (engine.dues(sequences) <= engine.now_ms).all()
    assert void_leases(views) == 0


def test_another_journal_has_the_same_messages__and_a_snapshot_of_them(copied: Copied) -> None:
    copied.send(*[b"x%d" % number for number in range(100)])
    copied.client.cancel("a", ids=copied.send(b"gone"))
    of = archived(copied, copied.copy())
    engine, store = of.views(), MemoryStore()
    journal = store.open("b", 0)
    assert write(journal, of, engine) == 100
    journal.close()
    journal = store.open("b", 0)
    again = state_of(journal)
    assert again.state_hash() == engine.state_hash()
    snapshot = journal.latest_snapshot()
    assert snapshot is not None
    assert snapshot.position == journal.tail  # nothing is replayed
    [locators] = again.live_locators()
    found = journal.read(locators, ("payload",)).column(0).to_pylist()
    assert sorted(found) == sorted(b"x%d" % number for number in range(100))
    [sequences] = again.live_sequences()
    assert (again.states(sequences) == MessageState.SCHEDULED).all()


def test_a_copy_that_lacks_something_is_refused_by_name(copied: Copied) -> None:
    copied.send(b"1")
    copy = copied.copy()
    [stretch] = copy.stretches
    for spoilt, text in (
        (replace(copy, stretches=()), "a/0: ends at 0, not at"),
        (replace(copy, position=copy.position + 1), f"a/0: ends at {copy.position}, not at"),
        (replace(copy, stretches=(stretch._replace(kind=ROWS),)), "a/0: no entries behind 0"),
    ):
        with pytest.raises(JournalDamaged, match=text):
            archived(copied, spoilt).views()
    engine = archived(copied, copy).views()
    rows = archived(copied, replace(copy, stretches=(stretch._replace(piece=None),))).rows(engine)
    with pytest.raises(JournalDamaged, match="a/0: 1 messages have no stored row"):
        list(rows)


def test_subscriptions_are_restored_with_what_each_still_has(copied: Copied) -> None:
    copied.client.create_subscription("a", "s")
    copied.send(b"1", b"2", delay=0)
    copied.snapshot()
    copied.send(b"3", delay=0)
    with copied.client.consume_batches("a", max_messages=3, idle_ms=5_000) as batches:
        for batch in batches:
            batch.ack()
    copied.snapshot()
    of = archived(copied, copied.copy())
    views = of.views()
    assert (views.unnamed.counts.live, views.named[1].engine.counts.live) == (0, 3)
    store = MemoryStore()
    journal = store.open("b", 0)
    assert write(journal, of, views) == 3
    [locators] = views.live_locators()
    found = journal.read(locators, ("payload",)).column(0).to_pylist()
    assert sorted(found) == [b"1", b"2", b"3"]
    views.check()


def test_what_is_retained_is_restored(copied: Copied) -> None:
    copied.client.alter_topic("a", retention_ms=3_600_000)
    copied.send(b"1", b"2", delay=0)
    with copied.client.consume_batches("a", max_messages=2, idle_ms=5_000) as batches:
        for batch in batches:
            batch.ack()
    copied.snapshot()
    copied.send(b"3", delay=0)
    for copy in (copied.copy(), copied.copy(copied.copy())):
        of = archived(copied, copy)
        views = of.views()
        journal = MemoryStore().open("b", 0)
        assert write(journal, of, views) == 3
        [locators] = views.live_locators()
        found = journal.read(locators, ("payload",)).column(0).to_pylist()
        assert sorted(found) == [b"1", b"2", b"3"]
        assert views.unnamed.counts.live == 1
        views.apply(Seek(views.now_ms, 0, 10, 0))
        assert views.unnamed.counts.live == 3
        views.check()
