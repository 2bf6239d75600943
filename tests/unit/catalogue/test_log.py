"""Covers: the journal of the catalogue: what is read again, several who write, snapshots, failures.

Not covered: a kill between the steps of making and deleting (tests/unit/broker/topic/
test_deleting.py), crashes of the machine (tests/crash).
"""

from __future__ import annotations

import copy
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue.catalogue import log as log_module
from dejaqueue.catalogue.changes import AlteredTopic, Change, DeletingTopic, MadeTopic, UsedTopic
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.errors import InternalError, JournalDamaged, Refused, TopicUnknown, Unavailable
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.interface import Entry, EntryKind, Journal, JournalStore
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.model import Topic
from tests.patience import PATIENCE_SECONDS, until


def make(log: CatalogueLog, name: str) -> None:
    log.change(lambda: MadeTopic(Topic(name)))


def names(log: CatalogueLog) -> list[str]:
    return sorted(log.state.rows)


def journal_of(log: CatalogueLog) -> Journal:
    journal = log._journal
    assert journal is not None
    return journal


def test_what_was_changed_is_there_again(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    first = CatalogueLog(store)
    make(first, "a")
    make(first, "b")
    first.change(lambda: DeletingTopic("a"))
    first.change(lambda: None)
    assert first.revision == 3
    store.close()
    second = CatalogueLog(SegmentStore(tmp_path))
    assert second.state == first.state
    second._store.close()


def test_who_is_wrong_is_told__and_others_of_the_same_append_go_on() -> None:
    log, begun, go = CatalogueLog(MemoryStore()), threading.Event(), threading.Event()

    def slow() -> Change:
        begun.set()
        assert go.wait(PATIENCE_SECONDS)
        return MadeTopic(Topic("slow"))

    def wrong() -> Change:
        raise TopicUnknown("wrong")

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(log.change, slow)
        assert begun.wait(PATIENCE_SECONDS)
        others = [pool.submit(make, log, f"t{number}") for number in range(5)]
        failing = pool.submit(log.change, wrong)
        while len(log._waiting) < 6:
            assert not first.done()
        go.set()
        for one in (first, *others):
            one.result(PATIENCE_SECONDS)
        with pytest.raises(TopicUnknown):
            failing.result(PATIENCE_SECONDS)
    assert log.revision == 6
    after = [int(entry.after) for entry in heads(log)]
    assert sorted(set(after)) == [0, 1]  # those who came meanwhile went into one append


def heads(log: CatalogueLog) -> list[entry_format.Head]:
    """Of the entries in the active segment."""
    journal = journal_of(log)
    assert isinstance(journal, SegmentJournal)
    found = []
    for segment in journal.log.listed.segments:
        memory = segment.load(journal.log.files)
        offsets = [int(at) << 3 for at in segment.offsets()[: segment.count]]
        found += [entry_format.peek(memory.view, at) for at in offsets]
    return [head for head in found if head is not None]


def test_of_two_who_write_each_plans_upon_what_the_other_wrote() -> None:
    """As two brokers on one server: whoever is late reads, and asks again what to change."""
    records = MemoryRecordStore()
    one, other = (CatalogueLog(RecordJournalStore(records)) for _ in range(2))
    make(one, "a")
    asked: list[list[str]] = []

    def plan() -> Change:
        asked.append(names(other))
        if len(asked) == 1:
            make(one, "quicker")
        return MadeTopic(Topic("b"))

    other.change(plan)
    assert asked == [["a"], ["a", "quicker"]]
    assert names(other) == ["a", "b", "quicker"]
    grown = AlteredTopic(Topic("b", partitions=2))
    one.change(lambda: grown if "b" in one.state.rows else DeletingTopic("a"))
    assert one.state.rows["b"].counts == (1, 2)
    assert names(one) == ["a", "b", "quicker"]


def test_what_others_changed_is_read() -> None:
    records = MemoryRecordStore()
    one, other = (CatalogueLog(RecordJournalStore(records)) for _ in range(2))
    for number in range(3):
        make(one, f"t{number}")
    other.read()
    assert other.state == one.state
    other.read()
    one.read()
    assert other.revision == one.revision == 3


class CountingLock:
    """A lock that says how many came for it."""

    def __init__(self) -> None:
        self.entered = 0
        self._lock, self._guard = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._guard:
            self.entered += 1
        self._lock.acquire()

    def __exit__(self, *failure: object) -> None:
        self._lock.release()


def test_a_read_serves_all_who_asked_before_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, begun, go = CountingLock(), threading.Event(), threading.Event()
    log = CatalogueLog(MemoryStore(), lock)
    follows, lock.entered = 0, 0
    follow = log._follow

    def slow(journal: Journal) -> None:
        nonlocal follows
        follows += 1
        begun.set()
        assert go.wait(PATIENCE_SECONDS)
        follow(journal)

    monkeypatch.setattr(log, "_follow", slow)
    with ThreadPoolExecutor(5) as pool:
        asking = [pool.submit(log.read)]
        assert begun.wait(PATIENCE_SECONDS)
        asking += [pool.submit(log.read) for _ in range(4)]
        while lock.entered < 5:
            assert not asking[0].done()
        go.set()
        for one in asking:
            one.result(PATIENCE_SECONDS)
    assert follows == 2  # the first, and one for all who came while it went on


def test_who_follows_begins_anew_with_a_snapshot_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was behind so far that what it would read is gone."""
    monkeypatch.setattr(log_module, "SNAPSHOT_CHANGES_MIN", 10)
    records = MemoryRecordStore()
    writing, following, late = (CatalogueLog(RecordJournalStore(records)) for _ in range(3))
    for number in range(64):
        make(writing, f"t{number}")
        until(lambda: not writing._is_writing_snapshot)  # which a thread does beside
        following.read()
        assert following.state == writing.state
    until(lambda: len(records.logs[JOURNAL, 0].contents) < 40)  # a thread drops them beside
    assert journal_of(following)._append_index.first_position > 10  # type: ignore[attr-defined]
    late.read()
    assert late.state == writing.state
    make(late, "late")
    writing.read()
    assert names(writing) == names(late)
    written = [name for name in records.objects if "/snapshots/" in name]
    assert len(written) == 2  # those who follow write none beside


def test_a_part_of_an_append_that_nobody_ends_is_passed() -> None:
    """A broker died in an append of several records: whoever changes something next goes on."""
    records = MemoryRecordStore(record_bytes_max=600)
    one, other = (CatalogueLog(RecordJournalStore(records)) for _ in range(2))
    make(one, "a")
    kept = records.logs[JOURNAL, 0]
    append = kept.append

    def dies(after: int, pieces: Sequence[Sequence[Bytes]]) -> None:
        append(after, pieces[:1])
        raise Unavailable("it died", 100)

    kept.append = dies  # type: ignore[assignment, method-assign]
    store = RecordJournalStore(records, patience_seconds=0.01)
    with pytest.raises(Unavailable):
        CatalogueLog(store).change(lambda: MadeTopic(Topic("b" * 800)))
    kept.append = append  # type: ignore[method-assign]
    other.read()
    assert names(other) == ["a"]
    make(other, "c")
    one.read()
    assert names(one) == names(other) == ["a", "c"]


def test_an_older_copy_of_the_journal_is_refused() -> None:
    records, older = MemoryRecordStore(), MemoryRecordStore()
    log = CatalogueLog(RecordJournalStore(records))
    make(log, "a")
    older.logs = {place: copy.copy(kept) for place, kept in records.logs.items()}
    for kept in older.logs.values():
        kept.contents = dict(kept.contents)
    make(log, "b")
    log.close()
    log._store = RecordJournalStore(older)
    with pytest.raises(JournalDamaged, match="ends at change 1, and 2 of them were known"):
        log.read()
    assert names(log) == ["a", "b"]


@pytest.mark.parametrize("kind", ["segments", "records"])
def test_what_a_snapshot_covers_is_not_read_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "SNAPSHOT_CHANGES_MIN", 10)
    records = MemoryRecordStore()

    def open_store() -> JournalStore:
        if kind == "segments":
            return SegmentStore(tmp_path, segment_bytes=1 << 14)
        return RecordJournalStore(records)

    with ThreadPoolExecutor(1) as pool:
        store = open_store()
        log = CatalogueLog(store, snapshot_writer=pool)
        for number in range(400):
            make(log, f"t{number}")
            pool.submit(int).result(PATIENCE_SECONDS)  # a snapshot that was due is written
        found = journal_of(log).latest_snapshot()
        assert found is not None
        assert found.position > 250
        if kind == "segments":
            with pytest.raises(JournalDamaged, match="was given back"):
                list(journal_of(log).scan(0))
        state = log.state
        store.close()
    store = open_store()
    again = CatalogueLog(store)
    assert again.state == state
    make(again, "one more")
    store.close()


def test_a_later_format_is_refused() -> None:
    store = MemoryStore()
    journal = store.open(JOURNAL, 0)
    journal.append([Entry(EntryKind.CATALOGUE, 0, (9, 0, 0, 0), extra=b'{"used":"a"}')], 0, 1)
    journal.close()
    with pytest.raises(Refused, match="topic catalogue has version 9, this is 1"):
        CatalogueLog(store)
    store.open(JOURNAL, 0).close()  # it was let go of


def test_a_damaged_entry_is_refused() -> None:
    store = MemoryStore()
    journal = store.open(JOURNAL, 0)
    journal.append([Entry(EntryKind.CATALOGUE, 0, (1, 0, 0, 0), extra=b'{"used":"a"}')], 0, 1)
    journal.close()
    with pytest.raises(JournalDamaged, match="change 1"):
        CatalogueLog(store)


def test_what_was_torn_is_read_without__and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SegmentStore(tmp_path)
    log = CatalogueLog(store)
    make(log, "a")
    shutil.copytree(tmp_path, tmp_path.with_name("torn"))  # as a crash leaves it: nothing is closed
    store.close()
    [segment] = (tmp_path.with_name("torn") / "topics" / JOURNAL).rglob("*.segment")
    content = bytearray(segment.read_bytes())
    torn_at = content.index(b'{"made"')  # what is behind it was not written
    segment.write_bytes(content[:torn_at].ljust(len(content), b"\0"))
    store = SegmentStore(tmp_path.with_name("torn"))
    torn = CatalogueLog(store)
    assert (names(torn), len(torn.repairs)) == ([], 1)
    assert "the catalogue: " in caplog.text
    store.close()


def test_after_a_server_was_away_the_outcome_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append whose answer was lost may be in: what is planned next knows it."""
    log = CatalogueLog(RecordJournalStore(MemoryRecordStore()))
    make(log, "a")
    journal = journal_of(log)
    append = journal.append

    def lost(entries: list[Entry], after: int, epoch: int) -> int:
        append(entries, after, epoch)
        raise Unavailable("no answer", 100)

    monkeypatch.setattr(journal, "append", lost)
    with pytest.raises(Unavailable, match="no answer"):
        make(log, "b")
    assert names(log) == ["a"]
    log.change(lambda: None if "b" in log.state.rows else MadeTopic(Topic("b")))
    assert (names(log), log.revision) == (["a", "b"], 2)


def test_two_changes_of_one_topic_that_wait_together_are_made_one_after_the_other() -> None:
    """The second is planned again, with the first known: here it finds the topic gone."""
    log, begun, go = CatalogueLog(MemoryStore()), threading.Event(), threading.Event()
    make(log, "a")

    def slow() -> Change:
        begun.set()
        assert go.wait(PATIENCE_SECONDS)
        return MadeTopic(Topic("slow"))

    def used() -> Change:
        if "a" not in log.state.rows:
            raise TopicUnknown("a")
        return UsedTopic("a")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(log.change, slow)
        assert begun.wait(PATIENCE_SECONDS)
        deleting = pool.submit(log.change, lambda: DeletingTopic("a"))
        while len(log._waiting) < 1:
            assert not first.done()
        using = pool.submit(log.change, used)
        while len(log._waiting) < 2:
            assert not first.done()
        go.set()
        deleting.result(PATIENCE_SECONDS)
        with pytest.raises(TopicUnknown):
            using.result(PATIENCE_SECONDS)
    log.close()
    make(log, "b")
    assert names(log) == ["b", "slow"]


def test_what_is_our_fault_is_told_to_who_waits() -> None:
    log = CatalogueLog(MemoryStore())
    with pytest.raises(ZeroDivisionError):
        log.change(lambda: MadeTopic(Topic(str(1 // 0))))
    with pytest.raises(InternalError, match="catalogue: AttributeError"):
        log.change(lambda: MadeTopic("no topic"))  # type: ignore[arg-type]
    make(log, "a")
    assert names(log) == ["a"]


def test_closing_twice_is_fine__and_a_change_opens_it_again() -> None:
    log = CatalogueLog(MemoryStore())
    make(log, "a")
    log.close()
    log.close()
    make(log, "b")
    assert names(log) == ["a", "b"]
