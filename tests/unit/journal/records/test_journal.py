"""Covers: a journal on a server, beyond the suite: few reads, little memory, lost tails."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import Fenced, JournalDamaged, ResourceExhausted, Unavailable
from dejaqueue.journal.interface import EntryKind, SnapshotFile
from dejaqueue.journal.records import append_cache
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.segment import SegmentList
from dejaqueue.testing.journal_conformance import fill, make_ack, make_enqueue, raised, read_rows


class CountedRecords(MemoryRecords):
    """Counts the records that were read; may have no room."""

    reads = 0
    is_full = False

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        found = list(super().read(first, end))
        CountedRecords.reads += len(found)
        return iter(found)

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        if CountedRecords.is_full:
            raise ResourceExhausted("no room")
        super().append(after, records)


class CountedStore(MemoryRecordStore):
    def open(self, topic: str, partition: int) -> MemoryRecords:
        return self.logs.setdefault((topic, partition), CountedRecords(topic))


@pytest.fixture
def records() -> CountedStore:
    CountedRecords.reads, CountedRecords.is_full = 0, False
    return CountedStore()


def test_a_start_reads_only_what_is_behind_the_snapshot(
    records: CountedStore, tmp_path: Path
) -> None:
    store = RecordJournalStore(records, mirror=tmp_path)
    journal = store.open("topic", 0)
    journal.adopt(iter(()))
    written = fill(journal, np.random.default_rng(1), 100)
    journal.put_snapshot(journal.tail, "{}", [])
    written |= fill(journal, np.random.default_rng(2), 6)
    store.close()
    CountedRecords.reads = 0
    store = RecordJournalStore(records, mirror=tmp_path)
    journal = store.open("topic", 0)
    assert journal.tail == 106
    assert 0 < CountedRecords.reads <= 6
    before = CountedRecords.reads
    assert read_rows(journal, list(written)) == list(written.values())
    assert CountedRecords.reads == before, "everything is in the copy"
    store.close()


def test_what_was_read_from_the_server_is_kept_within_bounds(
    records: CountedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_cache, "SEGMENTS_MAX", 3)
    monkeypatch.setattr(append_cache, "RUN_BYTES_MAX", 1)
    store = RecordJournalStore(records, mirror=tmp_path)
    journal = store.open("topic", 0)
    written = fill(journal, np.random.default_rng(1), 60)
    journal.put_snapshot(journal.tail, "{}", [])
    store.close()
    shutil.rmtree(tmp_path)
    store = RecordJournalStore(records, mirror=tmp_path)
    journal = store.open("topic", 0)
    for _ in range(2):
        assert read_rows(journal, list(written)) == list(written.values())
        assert len(journal._append_cache._kept) <= 3
    one = list(written)[-1:]
    read_rows(journal, one)
    before = CountedRecords.reads
    assert read_rows(journal, one) == [written[one[0]]]
    assert CountedRecords.reads == before
    store.close()


def test_a_server_that_lost_what_it_acknowledged_is_refused(
    records: CountedStore, tmp_path: Path
) -> None:
    store = RecordJournalStore(records, mirror=tmp_path)
    journal = store.open("topic", 0)
    for position in range(10):
        journal.append([make_ack(1)], position, 1)
    store.close()
    log = records.logs["topic", 0]
    for number in (9, 10):
        del log.contents[number]
    log._last = 8
    store = RecordJournalStore(records, mirror=tmp_path)
    damage = raised(JournalDamaged, lambda: store.open("topic", 0))
    assert "ends at entry 8" in str(damage)
    store.close()
    shutil.rmtree(tmp_path)
    store = RecordJournalStore(records, mirror=tmp_path)
    assert store.open("topic", 0).tail == 8
    store.close()


def test_a_log_that_ends_before_its_snapshot_is_refused(records: CountedStore) -> None:
    store = RecordJournalStore(records)
    journal = store.open("topic", 0)
    journal.append([make_ack(1)] * 3, 0, 1)
    journal.put_snapshot(3, "{}", [])
    journal.close()
    records.logs.clear()
    assert "record 0" in str(raised(JournalDamaged, lambda: store.open("topic", 0)))
    store.close()


def test_a_snapshot_that_came_meanwhile_is_used(records: CountedStore) -> None:
    """The owner before takes a snapshot and drops records while the next one opens."""
    first, second = RecordJournalStore(records), RecordJournalStore(records)
    old = first.open("topic", 0)
    old.adopt(iter(()))
    old.append([make_ack(1)] * 4, 0, 1)
    opened = records.open

    def late(topic: str, partition: int) -> MemoryRecords:
        log = opened(topic, partition)
        last = log.last

        def last_and_then() -> int:
            found = last()
            log.last = last  # type: ignore[method-assign]
            old.append([make_ack(1)] * 4, 4, 1)
            for position in (6, 7, 8):
                old.put_snapshot(position, str(position), [])
                old.truncate(position)
            first._background.submit(lambda: None).result()
            return found

        log.last = last_and_then  # type: ignore[method-assign]
        return log

    records.open = late  # type: ignore[method-assign]
    new = second.open("topic", 0)
    snapshot = new.latest_snapshot()
    assert snapshot is not None
    assert (new.tail, snapshot.position) == (8, 8)
    assert [entry.kind for _, _, entry in new.scan(8)] == []
    assert new.append([make_ack(1)], 8, 2) == 9
    assert [entry.kind for _, _, entry in new.scan(8)] == [EntryKind.ACK]
    first.close()
    second.close()


def test_producers_wait_after_the_server_had_no_room(records: CountedStore) -> None:
    store = RecordJournalStore(records)
    journal = store.open("topic", 0)
    journal.append([make_ack(1)], 0, 1)
    CountedRecords.is_full = True
    raised(ResourceExhausted, lambda: journal.append([make_ack(1)], 1, 1))
    assert not journal.has_room(1)
    assert journal.tail == 1
    CountedRecords.is_full = False
    for position in range(1, 20):
        journal.append([make_ack(1)], position, 1)
    assert journal.has_room(1)
    store.close()


def test_a_topic_half_dropped_does_not_come_back(records: CountedStore) -> None:
    store = RecordJournalStore(records)
    journal = store.open("topic", 0)
    journal.append([make_ack(1)] * 3, 0, 1)
    journal.put_snapshot(3, "{}", [])
    journal.close()
    records.put_object("dropped/topic", b"")
    records.drop("topic")  # and there it ended
    store = RecordJournalStore(records)
    journal = store.open("topic", 0)
    assert (journal.tail, journal.latest_snapshot()) == (0, None)
    assert records.object_names("") == []
    store.close()


def test_an_owner_that_was_overtaken_takes_no_snapshots(records: CountedStore) -> None:
    first, second = RecordJournalStore(records), RecordJournalStore(records)
    old = first.open("topic", 0)
    old.append([make_ack(1)] * 4, 0, 1)
    old.put_snapshot(1, "first", [SnapshotFile("one", b"1")])
    old.put_snapshot(2, "second", [SnapshotFile("two", b"2")])
    new = second.open("topic", 0)
    new.append([make_ack(1)], 4, 2)
    new.put_snapshot(5, "third", [SnapshotFile("two", None), SnapshotFile("three", b"3")])
    raised(Fenced, lambda: old.put_snapshot(4, "late", [SnapshotFile("late", b"4")]))
    assert [name.rpartition("/")[2] for name in records.object_names("topics/topic/00000/parts/")][
        -2:
    ] == ["three", "two"]
    new.close()
    new = second.open("topic", 0)
    assert bytes(new.read_snapshot_file("two")) == b"2"
    first.close()
    second.close()


def test_rows_that_are_dropped_while_they_are_read_are_null(
    records: CountedStore, tmp_path: Path
) -> None:
    store = RecordJournalStore(records, mirror=tmp_path)
    journal = store.open("topic", 0)
    journal.adopt(iter(()))
    written = fill(journal, np.random.default_rng(1), 20)
    locators = np.array(list(written), dtype=np.int64)
    journal._mirror.discard(np.arange(1, 21, dtype=np.int64))
    segments_with = journal._append_cache.segments_with

    def late(appends: append_cache.Appends) -> SegmentList:
        journal._append_cache.segments_with = segments_with  # type: ignore[method-assign]
        journal.free(locators)
        for position in (19, 20):
            journal.put_snapshot(position, "{}", [])
        journal.truncate(20)
        store._background.submit(lambda: None).result()
        return segments_with(appends)

    journal._append_cache.segments_with = late  # type: ignore[method-assign]
    found = read_rows(journal, list(written)[:3])
    assert all(value is None for row in found for value in row.values())
    store.close()


# --- an owner that was overtaken, where the next one has dropped records ----------------------


class Overtaken(MemoryRecords):
    """After an append arrived, `meanwhile` happens, and its answer is lost."""

    meanwhile: Callable[[], None] | None = None

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        super().append(after, records)
        call, self.meanwhile = self.meanwhile, None
        if call is not None:
            call()
            raise Unavailable("the answer was lost")


class OvertakenStore(MemoryRecordStore):
    def open(self, topic: str, partition: int) -> MemoryRecords:
        return self.logs.setdefault((topic, partition), Overtaken(topic))


def take_over(records: OvertakenStore) -> None:
    """Another owner appends, takes snapshots, and drops what they cover."""
    journal = RecordJournalStore(records).open("topic", 0)
    journal.adopt(iter(()))
    for epoch in (2, 3):
        journal.append([make_ack(epoch)], journal.tail, epoch)
        journal.put_snapshot(journal.tail, "{}", [])
    journal.truncate(journal.tail)
    log = records.logs["topic", 0]
    log.drop_before(log.last())


def test_an_append_that_the_next_owner_dropped_is_unknown() -> None:
    records = OvertakenStore()
    journal = RecordJournalStore(records).open("topic", 0)
    journal.append([make_ack(1)], 0, 1)
    log = records.logs["topic", 0]
    assert isinstance(log, Overtaken)
    log.meanwhile = lambda: take_over(records)
    with pytest.raises(Unavailable, match="another owner wrote record"):
        journal.append([make_ack(1)], 1, 1)


def test_rows_that_the_next_owner_dropped_are_not_damaged_but_fenced() -> None:
    records = OvertakenStore()
    store = RecordJournalStore(records, mirror_bytes_max=1)
    journal = store.open("topic", 0)
    written = fill(journal, np.random.default_rng(1), 40)
    journal._mirror.discard(np.arange(1, journal.tail + 1, dtype=np.int64))
    assert read_rows(journal, [min(written)]) == [written[min(written)]]
    take_over(records)
    with pytest.raises(Fenced):
        read_rows(journal, [max(written)])


def test_rows_that_only_the_server_has_are_not_here__until_they_were_read(
    records: CountedStore,
) -> None:
    store = RecordJournalStore(records)
    journal = store.open("topic", 0)
    written = fill(journal, np.random.default_rng(1), 10)
    asked = np.array(list(written), dtype=np.int64)
    payloads = [row["payload"] for row in written.values()]
    here = journal.read_here(asked, ("payload",))
    assert here is not None
    assert here.column(0).to_pylist() == payloads
    journal.put_snapshot(journal.tail, "{}", [])
    store.close()
    store = RecordJournalStore(records)
    journal = store.open("topic", 0)
    before = CountedRecords.reads
    assert journal.read_here(asked, ("payload",)) is None
    assert CountedRecords.reads == before
    read_rows(journal, list(written))
    here = journal.read_here(asked, ("payload",))
    assert here is not None
    assert here.column(0).to_pylist() == payloads
    store.close()


class SlowRecords(MemoryRecords):
    """Somebody looks when the first record of an append is there, and the rest is not."""

    look: Callable[[], None] | None = None

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        if len(records) < 2:
            super().append(after, records)
            return
        look, self.look = self.look, None
        super().append(after, records[:1])
        if look is not None:
            look()
        super().append(after + 1, records[1:])


class SlowStore(MemoryRecordStore):
    def open(self, topic: str, partition: int) -> MemoryRecords:
        return self.logs.setdefault((topic, partition), SlowRecords(topic))


def test_an_append_that_is_still_coming_in_is_taken_over_as_a_whole() -> None:
    records, seen = SlowStore(4_096), list[RecordJournal]()
    first, second = RecordJournalStore(records), RecordJournalStore(records)
    first.make("topic")
    owner = first.open("topic", 0, only_made=True)
    owner.append([make_ack(1)], 0, 1)
    log = records.logs["topic", 0]
    assert isinstance(log, SlowRecords)
    log.look = lambda: seen.append(second.open_ahead("topic", 0))
    large = make_enqueue(np.random.default_rng(1), 500)
    assert owner.append([large], 1, 1) == 2
    [ahead] = seen
    assert (ahead.tail, log.last() > 3) == (1, True)
    owner.close()
    assert ahead.take_over()
    assert ahead.tail == 2
    assert ahead.append([make_ack(2)], 2, 2) == 3
    first.close()
    second.close()


def test_what_is_read_ahead_gives_nothing_back(records: CountedStore) -> None:
    first, second = RecordJournalStore(records), RecordJournalStore(records)
    first.make("topic")
    owner = first.open("topic", 0, only_made=True)
    owner.adopt(iter(()))
    fill(owner, np.random.default_rng(1), 20)
    for position in (10, 20):
        owner.put_snapshot(position, "{}", [])
    there = sorted(records.logs["topic", 0].contents)
    ahead = second.open_ahead("topic", 0)
    second.press_dead(now_ms=10**12, age_ms=1)
    ahead.follow()
    assert sorted(records.logs["topic", 0].contents) == there
    ahead.close()
    first.close()
    second.close()


def test_of_a_journal_that_was_empty_nothing_is_taken_over(records: CountedStore) -> None:
    first, second = RecordJournalStore(records), RecordJournalStore(records)
    first.make("topic")
    ahead = second.open_ahead("topic", 0)
    assert not ahead.take_over()
    ahead.close()
    owner = second.open("topic", 0, only_made=True)
    assert owner.append([make_ack(1)], 0, 1) == 1
    first.close()
    second.close()
