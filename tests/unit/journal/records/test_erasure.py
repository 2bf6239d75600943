"""Covers: what is pressed goes from a log, its copy and its snapshots, and not before it may.

Not here: which rows are erased (tests/unit/broker/shard/test_stored_erasure.py); real servers
(tests/integration/test_erasure_on_servers.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.journal.interface import Erasure, Int64s, Journal
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.journal_conformance import fill, make_ack, make_enqueue, raised, read_rows

NOTHING = np.array([], dtype=np.int64)


class Served:
    """A journal of one partition in memory, with its copy in a directory."""

    def __init__(self, directory: Path) -> None:
        self.records, self.directory = MemoryRecordStore(), directory
        self.asked: list[tuple[str, int]] = []
        self.open()

    def open(self) -> RecordJournal:
        self.store = RecordJournalStore(self.records, mirror=self.directory)
        self.store.ask = self.asked.extend
        self.journal = self.store.open("topic", 0)
        return self.journal

    @property
    def log(self) -> MemoryRecords:
        return self.records.logs["topic", 0]

    def numbers(self) -> list[int]:
        return sorted(self.log.contents)

    def files(self) -> list[Path]:
        """Of the copy."""
        return [path for path in (self.directory / "topics").rglob("*") if path.is_file()]

    def snapshot(self) -> None:
        self.journal.append([make_ack(1)], self.journal.tail, 1)
        self.journal.put_snapshot(self.journal.tail, "{}", [])
        self.journal.truncate(self.journal.tail)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "copy")
    yield made
    made.store.close()


def at(*positions: int) -> Int64s:
    return np.array(positions, dtype=np.int64)


def row(position: int, rows: int = 2) -> Int64s:
    return (position << limits.ROW_BITS) + np.arange(rows, dtype=np.int64)


@contextmanager
def nothing_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two snapshots were taken, and the server is away: nothing before them can be dropped."""

    def away(_: MemoryRecords, number: int) -> None:
        raise Unavailable("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryRecords, "drop_before", away)
        served.snapshot()
        served.snapshot()
        served.store._background.submit(lambda: None).result()
        yield


def send(journal: Journal, count: int) -> None:
    """Entries of two rows, each an append."""
    random = np.random.default_rng(3)
    for _ in range(count):
        journal.append([make_enqueue(random, 2)], journal.tail, 1)


def test_it_is_gone_when_rows_replays_and_snapshots_need_it_no_more(served: Served) -> None:
    journal = served.journal
    send(journal, 6)
    journal.put_snapshot(journal.tail, "of before", [])
    journal.free(row(3))
    planned = journal.plan_erasure(at(3), journal.tail)
    assert planned.units == (3,)
    assert planned.byte_count > 0
    assert not journal.is_pressed
    assert not journal.press(planned)
    assert served.asked == [("topic", 0)]
    assert (journal.is_pressed, journal.is_urgent, journal.is_asked) == (True, True, True)
    assert journal.sparse() is not None
    served.snapshot()
    served.snapshot()
    assert not journal.is_pressed
    assert not journal.press(planned), "two rows before it are live"
    sparse = journal.sparse()
    assert sparse is not None
    assert sparse.tolist() == [[1, 2]]
    before = read_rows(journal, row(4).tolist())
    assert served.files() != []
    journal.free(row(1))
    journal.free(row(2))
    assert not journal.has_rows_pressed
    assert journal.press(planned)
    assert served.numbers()[0] == 4
    assert served.files() == []
    assert read_rows(journal, row(4).tolist()) == before
    send(journal, 1)
    assert journal.press(planned), "again is fine"


def test_what_was_given_back_and_not_dropped_yet_is_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = served.journal
    send(journal, 4)
    journal.free(row(1))
    with nothing_dropped(served, monkeypatch):
        planned = journal.plan_erasure(NOTHING, 4)
        assert planned == Erasure((), 4, 0)
        raised(Unavailable, lambda: journal.press(planned))
    assert served.numbers()[0] == 1
    assert journal.press(planned)
    assert served.numbers()[0] == 2


def test_it_is_found_and_erased_after_a_start__with_no_copy(served: Served) -> None:
    written = fill(served.journal, np.random.default_rng(5), 40)
    served.snapshot()
    served.store.close()
    shutil.rmtree(served.directory)
    journal = served.open()
    live = np.array(sorted(written), dtype=np.int64)
    journal.adopt(iter([live]))
    found = dict(journal.stored(0, journal.tail))
    assert sorted(found) == list(range(1, journal.tail + 1))
    assert sorted(dict(journal.stored(10, 20))) == list(range(11, 21))
    planned = journal.plan_erasure(at(7), journal.tail)
    assert not journal.press(planned)
    last = planned.units[0]
    journal.free(live[live >> limits.ROW_BITS <= last])
    served.snapshot()
    served.snapshot()
    assert journal.press(planned)
    assert min(dict(journal.stored(0, journal.tail))) > last


def test_where_records_lie_beside_others_it_is_refused(served: Served) -> None:
    served.store.close()
    served.records.erases = False
    served.open()
    assert not served.store.erases
    send(served.journal, 2)
    for call in (
        lambda: list(served.journal.stored(0, 2)),
        lambda: served.journal.plan_erasure(at(1), 2),
        lambda: served.journal.press(Erasure((2,), 2, 0)),
    ):
        assert "beside those of other partitions" in str(raised(Refused, call))


def test_an_owner_that_was_overtaken_erases_nothing(served: Served) -> None:
    journal = served.journal
    send(journal, 3)
    for one in (1, 2, 3):
        journal.free(row(one))
    served.snapshot()
    served.snapshot()
    planned = journal.plan_erasure(at(3), 3)
    other = RecordJournalStore(served.records)
    next_one = other.open("topic", 0)
    next_one.append([make_ack(1)], next_one.tail, 2)
    assert "new owner" in str(raised(Unavailable, lambda: journal.press(planned)))
    other.close()


def test_what_has_been_dead_for_long_goes__and_nobody_waits_for_it(served: Served) -> None:
    journal = served.journal
    send(journal, 6)
    journal.press_dead(0, 2_000)
    journal.free(row(3))
    for now_ms in (1_000, 2_000):
        journal.press_dead(now_ms, 2_000)
        assert (journal.is_pressed, served.asked) == (False, [])
    journal.press_dead(3_000, 2_000)
    assert served.asked == [("topic", 0)]
    assert (journal.is_pressed, journal.is_urgent, journal.is_asked) == (True, False, True)
    sparse = journal.sparse()
    assert sparse is not None
    assert sparse.tolist() == [[1, 2]]
    before = read_rows(journal, row(4).tolist())
    journal.free(row(1))
    journal.free(row(2))
    served.snapshot()
    assert journal.is_pressed, "a replay from the older snapshot would need it"
    served.snapshot()
    assert not journal.is_pressed
    journal.press_dead(4_000, 2_000)
    assert served.numbers()[0] == 4
    assert served.files() == []
    assert read_rows(journal, row(4).tolist()) == before
    assert served.asked == [("topic", 0)]


def test_more_snapshots_are_not_asked_for__where_entries_are_kept_for_a_backup(
    served: Served,
) -> None:
    journal = served.journal
    send(journal, 3)
    journal.free(row(2))
    journal.press_dead(0, 2_000)
    assert journal.is_pressed
    journal.free(row(1))
    for _ in range(2):  # a backup has nothing of it yet, so nothing is given back
        journal.append([make_ack(1)], journal.tail, 1)
        journal.put_snapshot(journal.tail, "{}", [])
    assert not journal.is_pressed
    assert served.numbers()[0] == 1
    assert not journal.press(journal.plan_erasure(at(2), 3))
    assert (journal.is_pressed, journal.is_urgent) == (True, True)


def test_what_is_dead_at_a_start_counts_as_dead_for_long(served: Served) -> None:
    send(served.journal, 4)
    served.store.close()
    journal = served.open()
    journal.press_dead(0, 2_000)
    assert not journal.is_pressed, "nobody has said yet what is live"
    journal.adopt(iter([row(1), row(2), row(4)]))
    journal.press_dead(1_000, 2_000)
    assert journal.is_pressed
    sparse = journal.sparse()
    assert sparse is not None
    assert sparse.tolist() == [[1, 2]]


def test_what_died_and_was_given_back_between_two_looks_leaves_no_copy(served: Served) -> None:
    journal = served.journal
    send(journal, 4)
    journal.press_dead(0, 2_000)
    journal.free(row(1))
    served.snapshot()
    served.snapshot()
    served.store._background.submit(lambda: None).result()
    assert served.numbers()[0] == 2
    assert served.files() != [], "one file has what lives as well"
    for now_ms in (1_000, 2_000, 3_000):
        journal.press_dead(now_ms, 2_000)
    assert served.files() == []
    assert served.asked == []


def test_a_server_that_is_away_is_asked_again_at_the_next_look(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = served.journal
    send(journal, 4)
    journal.press_dead(0, 2_000)
    journal.free(row(1))
    with nothing_dropped(served, monkeypatch):
        raised(Unavailable, lambda: journal.press_dead(1_000, 2_000))
        caplog.clear()
        served.store.press_dead(2_000, 2_000)
        assert "topic/0 stays: the server is away" in caplog.text
    assert served.numbers()[0] == 1
    served.store.press_dead(3_000, 2_000)
    assert served.numbers()[0] == 2
