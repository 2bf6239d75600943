"""The suite of journals that several brokers share: on any server that keeps records.

    class TestMine(ServedJournalConformance):
        def make_records(self, directory): return MyRecordStore(…)     through self.proxy

`SharedJournalConformance` is the suite of all journals, and what brokers that share one can show:
owners that race, brokers that append by turns, answers that are lost, large entries, a broker
without a copy, rot.
`ServedJournalConformance` adds what takes a server that can be killed and cut off.

Room: testing; shipped, for whoever writes a backend. Of pytest only the fixture `tmp_path`.
Holds: what was acknowledged is there once; what was not is there at most once.
See: journal/records/journal.py; record_conformance.py for the port below it.
"""

# A test's name says what it checks.
# ruff: noqa: D102

from __future__ import annotations

import threading
from abc import abstractmethod
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import DejaQError, Fenced, JournalDamaged, Unavailable
from dejaqueue.journal.interface import Entry, EntryKind, SnapshotFile
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.altered_records import AlteredRecords, AlteredStore, LentStore
from dejaqueue.testing.cutting_proxy import Cut, CuttingProxy
from dejaqueue.testing.journal_conformance import (
    JournalConformance,
    fill,
    make_ack,
    make_enqueue,
    raised,
    read_rows,
    rows_of,
    text_column,
    values_of,
)


def marked(number: int) -> Entry:
    """A small entry that can be told from others."""
    return Entry(EntryKind.ACK, number, (number, 0, 0, 0))


def marks(journal: RecordJournal) -> list[int]:
    """The marks of a journal's entries, in order; their positions are dense."""
    found = list(journal.scan(0))
    assert [position for position, _, _ in found] == list(range(1, len(found) + 1))
    return [entry.now_ms for _, _, entry in found]


class SharedJournalConformance(JournalConformance):
    """Inherit, give `make_records`, and pytest runs the suite."""

    patience_seconds = 20.0
    one_store = False
    """True if only one RecordStore of a directory can be open, as a file of SQLite: then owners
    that race share it."""

    @abstractmethod
    def make_records(self, directory: Path) -> RecordStore:
        """A store; of the same directory, the same content again; twice at once, too."""

    def make_store(self, directory: Path) -> RecordJournalStore:
        return RecordJournalStore(
            self.make_records(directory),
            mirror=directory / "mirror",
            segment_bytes=1 << 16,
            patience_seconds=self.patience_seconds,
        )

    def make_altered(self, directory: Path, mirror: str = "mirror") -> RecordJournalStore:
        """A store whose logs fail as a test says."""
        return RecordJournalStore(
            AlteredStore(self.make_records(directory)),
            mirror=directory / mirror,
            patience_seconds=self.patience_seconds,
        )

    @staticmethod
    def altered(store: RecordJournalStore) -> AlteredRecords:
        """The log that was opened last."""
        assert isinstance(store.records, AlteredStore)
        return store.records.logs[-1]

    def rivals(self, directory: Path) -> tuple[RecordJournalStore, RecordJournalStore]:
        """Two brokers' stores of the same content, each with a copy of its own."""
        records = self.make_records(directory)
        other = records if self.one_store else self.make_records(directory)
        return RecordJournalStore(records), RecordJournalStore(other)

    def finish_drops(self, records: RecordStore) -> None:
        """Have deleted what was dropped, where the store does so some time later."""

    # --- owners --------------------------------------------------------------------------------

    def test_an_owner_that_was_overtaken_is_fenced(self, tmp_path: Path) -> None:
        first, second = self.rivals(tmp_path)
        old = first.open("topic", 0)
        old.append([marked(1)], 0, 1)
        new = second.open("topic", 0)
        new.append([marked(2)], 1, 2)
        raised(Fenced, lambda: old.append([marked(3)], 1, 1))
        raised(Fenced, lambda: old.append([marked(4)], 1, 1))
        old.close()
        assert marks(first.open("topic", 0)) == marks(new) == [1, 2]
        first.close()
        second.close()

    def test_of_owners_that_race_one_wins_each_time(self, tmp_path: Path) -> None:
        stores = self.rivals(tmp_path)
        acknowledged: list[int] = []
        failures: list[BaseException] = []

        def own(store: RecordJournalStore, start: int) -> None:
            try:
                journal = store.open("topic", 0)
                for number in range(start, start + 25):
                    while True:
                        try:
                            journal.append([marked(number)], journal.tail, 1)
                        except Fenced:
                            journal.close()
                            journal = store.open("topic", 0)
                        else:
                            acknowledged.append(number)
                            break
                journal.close()
            except BaseException as failure:  # noqa: BLE001  shown by the test
                failures.append(failure)

        threads = [
            threading.Thread(target=own, args=(store, 1_000 * place))
            for place, store in enumerate(stores, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        found = marks(stores[0].open("topic", 0))
        assert sorted(found) == sorted(acknowledged)
        for start in (1_000, 2_000):
            assert [one for one in found if start <= one < start + 999] == list(
                range(start, start + 25)
            )
        for store in stores:
            store.close()

    def test_a_broker_without_a_copy_reads_what_it_never_saw(self, tmp_path: Path) -> None:
        random = np.random.default_rng(21)
        first, second = self.rivals(tmp_path)
        journal = first.open("topic", 0)
        journal.adopt(iter(()))
        written = fill(journal, random, 200)
        position = journal.tail
        journal.put_snapshot(position, '{"a": 1}', [SnapshotFile("part", b"content")])
        written |= fill(journal, random, 20)
        rival = second.open("topic", 0)
        assert [place for place, _, _ in rival.scan(position)] == list(range(201, 221))
        snapshot = rival.latest_snapshot()
        assert snapshot is not None
        assert (snapshot.position, snapshot.meta) == (position, '{"a": 1}')
        assert snapshot.files == ("part",)
        rival.adopt(iter([np.array(list(written), dtype=np.int64)]))
        for count in (1, 50, len(written)):
            asked = random.choice(list(written), count, replace=False).tolist()
            assert read_rows(rival, asked) == [written[locator] for locator in asked]
        assert [place for place, _, _ in rival.scan(0)] == list(range(1, 221))
        first.close()
        second.close()

    # --- several who append by turns -----------------------------------------------------------

    def test_what_others_append_is_followed(self, tmp_path: Path) -> None:
        first, second = self.rivals(tmp_path)
        one, other = first.open("topic", 0), second.open("topic", 0)
        assert (one.follow(), other.follow()) == (0, 0)
        one.append([marked(1), marked(2)], 0, 1)
        raised(Fenced, lambda: other.append([marked(9)], 0, 1))  # it has heard of nothing
        assert other.follow() == 2
        other.append([marked(3)], 2, 1)
        raised(Fenced, lambda: one.append([marked(9)], 2, 1))
        assert one.follow() == one.follow() == 3
        one.append([marked(4)], 3, 1)
        assert other.follow() == 4
        assert marks(one) == marks(other) == [1, 2, 3, 4]
        assert [entry.now_ms for _, _, entry in other.scan(3)] == [4]
        other.put_snapshot(4, '{"a": 1}', [SnapshotFile("part", b"content")])
        other.append([marked(5)], 4, 1)
        one.put_snapshot(4, '{"a": 1}', [])  # others have appended: it is of all, and stays right
        first.close()
        second.close()

    def test_who_follows_appends_as_an_owner_does_when_answers_are_lost(
        self, tmp_path: Path
    ) -> None:
        store = self.make_altered(tmp_path)
        journal = store.open("topic", 0)
        with RecordLogOwner(self, store, tmp_path) as other:
            journal.append([marked(1)], 0, 1)
            for number, failures in enumerate((["before"], ["after"], ["before", "before"]), 2):
                assert other.follow() == journal.tail
                self.altered(store).fail_next = list(failures)
                journal.append([marked(number)], journal.tail, 1)
            assert other.follow() == 4
            other.append([marked(5)], 4, 1)
            self.altered(store).fail_next = ["before"]
            raised(Fenced, lambda: journal.append([marked(9)], 4, 1))
            assert journal.follow() == 5
            assert marks(journal) == marks(other) == [1, 2, 3, 4, 5]
        store.close()

    def test_what_was_dropped_before_it_was_followed_is_told(self, tmp_path: Path) -> None:
        first, second = self.rivals(tmp_path)
        late = second.open("topic", 0)
        journal = first.open("topic", 0)
        for number in range(1, 31):
            journal.append([marked(number)], number - 1, 1)
            if number % 10 == 0:
                journal.put_snapshot(number, "{}", [])
        first.records.open("topic", 0).drop_before(21)  # as `truncate` does, some time later
        self.finish_drops(first.records)
        raised(JournalDamaged, late.follow)
        late.close()
        again = second.open("topic", 0)
        snapshot = again.latest_snapshot()
        assert snapshot is not None
        assert (snapshot.position, again.follow()) == (30, 30)
        first.close()
        second.close()

    def test_of_several_who_follow_one_wins_each_time(self, tmp_path: Path) -> None:
        stores = self.rivals(tmp_path)
        acknowledged: list[int] = []
        failures: list[BaseException] = []

        def take_turns(store: RecordJournalStore, start: int) -> None:
            try:
                journal = store.open("topic", 0)
                for number in range(start, start + 25):
                    while True:
                        try:
                            journal.append([marked(number)], journal.follow(), 1)
                        except Fenced:
                            continue
                        acknowledged.append(number)
                        break
                journal.close()
            except BaseException as failure:  # noqa: BLE001  shown by the test
                failures.append(failure)

        threads = [
            threading.Thread(target=take_turns, args=(store, 1_000 * place))
            for place, store in enumerate(stores, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert sorted(marks(stores[0].open("topic", 0))) == sorted(acknowledged)
        for store in stores:
            store.close()

    # --- the next owner ------------------------------------------------------------------------

    def test_what_was_read_ahead_is_taken_over_with_what_came_since(self, tmp_path: Path) -> None:
        random = np.random.default_rng(23)
        first, second = self.rivals(tmp_path)
        first.make("topic")
        owner = first.open("topic", 0, only_made=True)
        owner.adopt(iter(()))
        written = fill(owner, random, 20)
        owner.put_snapshot(owner.tail, "{}", [])
        written |= fill(owner, random, 5)
        ahead = second.open_ahead("topic", 0)
        assert [position for position, _, _ in ahead.scan(20)] == list(range(21, 26))
        written |= fill(owner, random, 5)  # its owner notices nothing
        assert ahead.follow() == 30
        written |= fill(owner, random, 5)
        owner.close()
        assert ahead.take_over()
        assert [position for position, _, _ in ahead.scan(30)] == list(range(31, 36))
        ahead.adopt(iter([np.array(list(written), dtype=np.int64)]))
        assert read_rows(ahead, list(written)) == list(written.values())
        ahead.append([marked(1)], 35, 2)
        ahead.put_snapshot(36, "{}", [])
        first.open("topic", 0).append([marked(2)], 36, 3)
        raised(Fenced, lambda: ahead.append([marked(9)], 36, 2))
        raised(Fenced, lambda: ahead.put_snapshot(36, "{}", []))  # it has an owner
        first.close()
        second.close()

    def test_what_was_read_ahead_is_not_taken_over_behind_another_snapshot(
        self, tmp_path: Path
    ) -> None:
        first, second = self.rivals(tmp_path)
        first.make("topic")
        owner = first.open("topic", 0, only_made=True)
        owner.append([marked(1)], 0, 1)
        ahead = second.open_ahead("topic", 0)
        owner.put_snapshot(1, "{}", [])  # what is before it may be gone from now on
        owner.append([marked(2)], 1, 1)
        owner.close()
        assert not ahead.take_over()
        ahead.close()
        assert marks(second.open("topic", 0)) == [1, 2]
        first.close()
        second.close()

    # --- sizes ---------------------------------------------------------------------------------

    def test_an_append_larger_than_a_record_is_rejoined(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(22), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        size = 2 * store.records.record_bytes_max + 12_345
        large = Entry(
            EntryKind.ENQUEUE, 1, rows=2, texts={"payload": text_column([random.bytes(size), b""])}
        )
        batch = [make_ack(1), large, make_enqueue(random, 3)]
        journal.append([make_ack(5)], 0, 1)
        journal.append(batch, 1, 1)
        journal.append([make_ack(6)], 4, 1)
        assert store.records.open("topic", 0).last() >= 5
        store.close()
        rival = RecordJournalStore(self.make_records(tmp_path))
        journal = rival.open("topic", 0)
        found = [values_of(entry) for _, _, entry in journal.scan(1)][:3]
        assert found == [values_of(entry) for entry in batch]
        rows = rows_of(large, 3)
        assert read_rows(journal, list(rows)) == list(rows.values())
        rival.close()

    # --- answers that are lost -----------------------------------------------------------------

    def large_append(self, store: RecordJournalStore) -> list[Entry]:
        """Entries that take several records."""
        size = store.records.record_bytes_max
        text = text_column([b"x" * size, b"y" * size])
        return [marked(7), Entry(EntryKind.ENQUEUE, 8, rows=2, texts={"payload": text})]

    @pytest.mark.parametrize(
        "failures",
        [
            ["before"],
            ["after"],
            ["prefix"],
            ["before", "before", "after"],
            ["after", "before", "before"],
            ["before", "after", "before", "after"],
            ["prefix", "before", "after"],
            ["prefix", "before"],
        ],
        ids="-".join,
    )
    @pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
    def test_a_lost_answer_is_found_out(
        self, tmp_path: Path, failures: list[str], large: bool
    ) -> None:
        store = self.make_altered(tmp_path)
        journal = store.open("topic", 0)
        journal.append([marked(1)], 0, 1)
        self.altered(store).fail_next = list(failures)
        entries = self.large_append(store) if large else [marked(7)]
        tail = journal.append(entries, 1, 1)
        assert tail == journal.tail == 1 + len(entries)
        assert journal.append([marked(9)], tail, 1) == tail + 1
        expected = [1, 7, 8, 9] if large else [1, 7, 9]
        assert marks(journal) == expected
        store.close()
        rival = RecordJournalStore(self.make_records(tmp_path))
        assert marks(rival.open("topic", 0)) == expected
        rival.close()

    def test_an_answer_that_is_never_found_out_closes_the_journal(self, tmp_path: Path) -> None:
        for partition, (how, there) in enumerate((("before", [1]), ("after", [1, 2]))):
            self.patience_seconds = 0.1
            store = self.make_altered(tmp_path)
            journal = store.open("topic", partition)
            journal.append([marked(1)], 0, 1)
            self.altered(store).fail_next = [how, *["before"] * 1_000]
            for _ in range(2):
                raised(Unavailable, partial(journal.append, [marked(2)], 1, 1))
            journal.close()
            again = store.open("topic", partition)
            assert marks(again) == there
            again.append([marked(3)], again.tail, 2)
            assert marks(again) == [*there, 3]
            store.close()

    def test_the_rest_of_an_append_that_was_cut_is_void(self, tmp_path: Path) -> None:
        self.patience_seconds = 0.1
        store = self.make_altered(tmp_path)
        journal = store.open("topic", 0)
        journal.append([marked(1)], 0, 1)
        self.altered(store).fail_next = ["prefix", *["before"] * 1_000]
        raised(Unavailable, lambda: journal.append(self.large_append(store), 1, 1))
        journal.close()
        again = store.open("topic", 0)
        assert marks(again) == [1]
        again.append([marked(2)], 1, 2)
        assert marks(again) == [1, 2]
        again.put_snapshot(1, "{}", [])
        store.close()
        rival = RecordJournalStore(self.make_records(tmp_path))
        assert marks(rival.open("topic", 0)) == [1, 2]
        rival.close()

    def test_a_lost_answer_whose_place_another_took_is_fenced(self, tmp_path: Path) -> None:
        store = self.make_altered(tmp_path)
        journal = store.open("topic", 0)
        journal.append([marked(1)], 0, 1)
        altered = self.altered(store)
        with RecordLogOwner(self, store, tmp_path) as other:
            altered.fail_next = ["before"]
            other.append([marked(2)], 1, 2)
            raised(Fenced, lambda: journal.append([marked(3)], 1, 1))
            assert marks(other) == [1, 2]
        store.close()

    # --- rot -----------------------------------------------------------------------------------

    def test_a_record_that_rots_or_is_missing_is_refused_by_its_number(
        self, tmp_path: Path
    ) -> None:
        store = self.make_altered(tmp_path)
        journal = store.open("topic", 0)
        written = fill(journal, np.random.default_rng(23), 30)
        records = dict(self.altered(store).inner.read(1, 100))
        store.close()
        middle = sorted(records)[len(records) // 2]
        content = records[middle]
        flipped = bytearray(content)
        flipped[len(flipped) // 2] ^= 0x10
        for rotten in (bytes(flipped), content[:-8], b"", records[middle - 1], None):
            store = self.make_altered(tmp_path, mirror="other")
            assert isinstance(store.records, AlteredStore)
            opened = store.records.open

            def rots(topic: str, partition: int) -> AlteredRecords:
                log = opened(topic, partition)  # noqa: B023  called within the turn
                log.rotten = {middle: rotten}  # noqa: B023
                return log

            store.records.open = rots  # type: ignore[method-assign]
            damage = raised(JournalDamaged, lambda: store.open("topic", 0))  # noqa: B023
            assert f"topic/0, record {middle}" in str(damage)

            def rots_in_one_place(topic: str, partition: int) -> AlteredRecords:
                log = rots(topic, partition)
                log.whole_replicas = ("another",)
                return log

            store.records.open = rots_in_one_place  # type: ignore[method-assign]
            journal = store.open("topic", 0)
            assert read_rows(journal, list(written)) == list(written.values())
            store.close()

    @pytest.mark.parametrize("has_snapshot", [False, True])
    def test_records_that_are_gone_are_damage_and_no_empty_journal(
        self, tmp_path: Path, has_snapshot: bool
    ) -> None:
        store = self.make_store(tmp_path)
        store.make("t")
        journals = [store.open("t", number, only_made=True) for number in range(2)]
        journals[0].append([marked(1)], 0, 1)
        if has_snapshot:
            journals[0].put_snapshot(1, "", [])
        for journal in journals:
            journal.close()
        store.records.drop("t")  # as by hand: the mark that it was made stays
        store.close()
        store = self.make_store(tmp_path)
        for _ in range(2):  # what the first look made again is not believed either
            raised(JournalDamaged, lambda: store.open("t", 0, only_made=True))
        # Nothing was ever durable in the other.
        journal = store.open("t", 1, only_made=True)
        assert journal.tail == 0
        journal.close()
        store.drop("t")
        store.make("t")
        assert store.open("t", 0, only_made=True).append([marked(1)], 0, 1) == 1

    def test_a_copy_that_is_damaged_or_foreign_is_read_again(self, tmp_path: Path) -> None:
        random = np.random.default_rng(24)
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        written = fill(journal, random, 60)
        store.close()
        files = sorted((tmp_path / "mirror").rglob("*.segment"))
        assert files
        for path in files:
            content = bytearray(path.read_bytes())
            for at in range(200, len(content) - 200, 1_000):
                content[at] ^= 0xFF
            path.write_bytes(content)
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        assert read_rows(journal, list(written)) == list(written.values())
        assert [place for place, _, _ in journal.scan(0)] == list(range(1, 61))
        journal.close()
        # By another broker, which leaves our copy behind.
        RecordJournalStore(store.records).drop("topic")
        journal = store.open("topic", 0)
        written = fill(journal, random, 20)
        journal.close()
        journal = store.open("topic", 0)
        assert read_rows(journal, list(written)) == list(written.values())
        assert [place for place, _, _ in journal.scan(0)] == list(range(1, 21))
        store.close()


class RecordLogOwner:
    """Another broker that owns the partition for a while."""

    def __init__(
        self, suite: SharedJournalConformance, store: RecordJournalStore, directory: Path
    ) -> None:
        assert isinstance(store.records, AlteredStore)
        records = store.records.inner if suite.one_store else suite.make_records(directory)
        self._store = RecordJournalStore(LentStore(records) if suite.one_store else records)

    def __enter__(self) -> RecordJournal:
        return self._store.open("topic", 0)

    def __exit__(self, *_: object) -> None:
        self._store.close()


class ServedJournalConformance(SharedJournalConformance):
    """For a server that can be killed, with a way to it that can be cut."""

    proxy: CuttingProxy
    """The way to the server that `make_records` takes."""

    @abstractmethod
    def kill_server(self) -> None:
        """End the server as a failing machine does."""

    @abstractmethod
    def start_server(self) -> None:
        """Start it again, and return when it answers."""

    @pytest.mark.parametrize("cut", ["answer", "request"])
    def test_a_connection_cut_in_the_middle_of_an_append(self, tmp_path: Path, cut: Cut) -> None:
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        for number in range(1, 11):
            journal.append([marked(number)], number - 1, 1)
        before = store.records.open("topic", 0).last()
        self.proxy.cut_next(cut)
        assert journal.append([marked(11)], 10, 1) == 11
        # It happened: one record more. It did not: a barrier in its place, and then it.
        assert store.records.open("topic", 0).last() == before + (1 if cut == "answer" else 2)
        assert journal.append([marked(12)], 11, 1) == 12
        assert marks(journal) == list(range(1, 13))
        store.close()
        rival = RecordJournalStore(self.make_records(tmp_path))
        assert marks(rival.open("topic", 0)) == list(range(1, 13))
        rival.close()

    def test_a_server_that_restarts_in_the_middle(self, tmp_path: Path) -> None:
        self.patience_seconds = 60.0
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        started = threading.Event()
        failures: list[DejaQError] = []

        def appends() -> None:
            try:
                for number in range(1, 301):
                    journal.append([marked(number)], number - 1, 1)
                    if number == 20:
                        started.set()
            except DejaQError as failure:
                failures.append(failure)
                started.set()

        thread = threading.Thread(target=appends)
        thread.start()
        assert started.wait(60)
        self.kill_server()
        self.start_server()
        thread.join()
        assert not failures, failures
        assert marks(journal) == list(range(1, 301))
        store.close()
        rival = RecordJournalStore(self.make_records(tmp_path))
        assert marks(rival.open("topic", 0)) == list(range(1, 301))
        rival.close()

    def test_a_server_that_is_away_and_comes_back(self, tmp_path: Path) -> None:
        self.patience_seconds = 0.2
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        written = fill(journal, np.random.default_rng(31), 20)
        tail = journal.tail
        self.kill_server()
        try:
            # What is in the copy can still be read; nothing can be written.
            assert read_rows(journal, list(written)) == list(written.values())
            raised(Unavailable, lambda: journal.append([marked(1)], tail, 1))
            raised(Unavailable, lambda: journal.append([marked(1)], tail, 1))
            journal.close()
            raised(Unavailable, lambda: store.open("topic", 0))
        finally:
            self.start_server()
        journal = store.open("topic", 0)
        assert journal.tail == tail
        assert read_rows(journal, list(written)) == list(written.values())
        assert journal.append([marked(2)], tail, 2) == tail + 1
        store.store_document("keys", "there again")
        assert store.load_document("keys") == "there again"
        store.close()
