"""The suite that every journal backend passes: one test per promise of the contract.

    class TestSegments(JournalConformance):
        def make_store(self, directory): return SegmentStore(directory, segment_bytes=1 << 16)

Room: testing; shipped, for whoever writes a backend. Uses the contract alone, and of pytest only
the fixture `tmp_path`.
Holds: a test names the duty it checks; no test knows what is behind the store.
See: journal/interface.py, the numbered duties; docs/internals/writing-a-journal.md.
"""

# A test's name says what it checks.
# ruff: noqa: D102

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest, DejaQError, Fenced, JournalDamaged, Unavailable
from dejaqueue.journal.interface import (
    DOCUMENTS,
    TEXT_COLUMNS,
    Entry,
    EntryKind,
    Journal,
    JournalStore,
    SnapshotFile,
    TextColumn,
)

Rows = dict[int, dict[str, bytes | None]]
"""What was written, by locator and column."""


def text_column(values: Sequence[bytes]) -> TextColumn:
    """A text column of these values."""
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum([len(value) for value in values])
    return TextColumn(offsets, b"".join(values))


def make_enqueue(random: np.random.Generator, rows: int, payload_bytes_max: int = 200) -> Entry:
    """An entry as an enqueue writes it; some text columns absent, some values empty."""

    def words(size: int) -> TextColumn:
        lengths = random.integers(0, size + 1, rows)
        return text_column([bytes(random.integers(97, 123, n, dtype=np.uint8)) for n in lengths])

    texts = {
        name: words(30) for name in ("key", "group", "tags", "headers") if random.random() < 0.4
    }
    texts["payload"] = text_column(
        [random.bytes(n) for n in random.integers(0, payload_bytes_max + 1, rows)]
    )
    dues_ms = random.integers(0, 1 << 40, rows)
    ints = (dues_ms, random.integers(-5, 5, rows))[: int(random.integers(0, 3))]
    params = tuple(int(value) for value in random.integers(-(1 << 62), 1 << 62, 4))
    extra = random.bytes(int(random.integers(0, 20)))
    return Entry(EntryKind.ENQUEUE, 17, params, rows, ints, texts, extra)  # type: ignore[arg-type]


def make_ack(rows: int) -> Entry:
    """A small entry without text columns."""
    return Entry(EntryKind.ACK, 18, (1, 2, 3, 4), rows, (np.arange(rows, dtype=np.int64),))


def text_values(entry: Entry, name: str) -> list[bytes | None]:
    """The values of a text column; None in every row if the entry does not have it."""
    text = entry.texts.get(name)
    if text is None:
        return [None] * entry.rows
    content, ends = bytes(memoryview(text.data)), text.offsets.tolist()
    return [content[begin:end] for begin, end in pairwise(ends)]


def values_of(entry: Entry) -> dict[str, Any]:
    """Everything that an entry says, comparable."""
    return {
        "kind": entry.kind,
        "now_ms": entry.now_ms,
        "params": entry.params,
        "rows": entry.rows,
        "ints": [column.tolist() for column in entry.ints],
        "texts": {name: text_values(entry, name) for name in entry.texts},
        "extra": bytes(entry.extra),
    }


def rows_of(entry: Entry, position: int) -> Rows:
    """What `read` is to give for an entry, by locator."""
    columns = {name: text_values(entry, name) for name in TEXT_COLUMNS}
    return {
        position << limits.ROW_BITS | row: {name: columns[name][row] for name in TEXT_COLUMNS}
        for row in range(entry.rows)
    }


def read_rows(journal: Journal, locators: Sequence[int]) -> list[dict[str, bytes | None]]:
    """What `read` gives, as bytes."""
    batch = journal.read(np.array(locators, dtype=np.int64))
    batch.validate(full=True)
    columns = [batch.column(place).cast(pa.binary()).to_pylist() for place in range(5)]
    return [dict(zip(TEXT_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


def raised(error: type[DejaQError], call: Callable[[], object]) -> DejaQError:
    """The error of a call; a failure if it raises none of this class."""
    try:
        call()
    except error as found:
        return found
    raise AssertionError(f"{error.__name__} was not raised")


def fill(journal: Journal, random: np.random.Generator, entries: int, rows: int = 20) -> Rows:
    """Append enqueues and acks in turn, a few per append; return the rows written."""
    written: Rows = {}
    while entries > 0:
        batch = [
            make_enqueue(random, int(random.integers(1, rows + 1)))
            if random.random() < 0.7
            else make_ack(int(random.integers(0, 5)))
            for _ in range(min(entries, int(random.integers(1, 4))))
        ]
        entries -= len(batch)
        first = journal.tail + 1
        assert journal.append(batch, journal.tail, 1) == first + len(batch) - 1
        for position, entry in enumerate(batch, first):
            if entry.kind is EntryKind.ENQUEUE:
                written |= rows_of(entry, position)
    return written


class JournalConformance(ABC):
    """Inherit, give `make_store`, and pytest runs the suite."""

    durable = True
    """False if what is stored ends with the store."""

    @abstractmethod
    def make_store(self, directory: Path) -> JournalStore:
        """A store; of the same directory, the same content again."""

    def again(self, store: JournalStore, directory: Path) -> JournalStore:
        """The store as it is after a restart."""
        if not self.durable:
            return store
        store.close()
        return self.make_store(directory)

    # --- duties 1, 3, 4: append and scan -------------------------------------------------------

    def test_an_empty_journal(self, tmp_path: Path) -> None:
        journal = self.make_store(tmp_path).open("topic", 0)
        assert journal.tail == 0
        assert list(journal.scan(0)) == []
        assert journal.latest_snapshot() is None
        assert read_rows(journal, [1 << 20, 0]) == [dict.fromkeys(TEXT_COLUMNS)] * 2
        assert read_rows(journal, []) == []

    def test_scan_gives_back_what_was_appended(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(1), self.make_store(tmp_path)
        journal = store.open("topic", 3)
        written = [make_enqueue(random, rows) for rows in (0, 1, 5, 100)]
        written += [Entry(kind, -3, (kind, 0, -1, 1 << 62)) for kind in EntryKind]
        written += [make_ack(7), make_enqueue(random, 3, 300_000)]
        epochs = []
        for place, entry in enumerate(written):
            assert journal.append([entry], place, place // 3) == place + 1
            epochs.append(place // 3)
        journal.close()
        store = self.again(store, tmp_path)
        journal = store.open("topic", 3)
        found = list(journal.scan(0))
        positions = list(range(1, len(written) + 1))
        assert [position for position, _, _ in found] == positions
        assert [epoch for _, epoch, _ in found] == epochs
        assert [values_of(entry) for _, _, entry in found] == [values_of(e) for e in written]
        assert [position for position, _, _ in journal.scan(5)] == positions[5:]
        assert list(journal.scan(journal.tail)) == []

    def test_many_entries_in_one_append(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(2), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        assert journal.append([make_ack(1)] * 700, 0, 1) == 700
        batch = [make_enqueue(random, 40) for _ in range(50)]
        assert journal.append(batch, 700, 1) == 750
        assert journal.tail == 750
        journal.close()
        journal = self.again(store, tmp_path).open("topic", 0)
        assert journal.tail == 750
        entries = [values_of(entry) for _, _, entry in journal.scan(700)]
        assert entries == [values_of(entry) for entry in batch]

    def test_appending_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(3), self.make_store(tmp_path)
        written: Rows = {}
        for _ in range(4):
            journal = store.open("topic", 0)
            written |= fill(journal, random, 30)
            tail = journal.tail
            journal.close()
            store = self.again(store, tmp_path)
        journal = store.open("topic", 0)
        assert journal.tail == tail == 120
        assert read_rows(journal, list(written)) == list(written.values())

    # --- duty 2: fencing -----------------------------------------------------------------------

    def test_an_append_elsewhere_than_at_the_tail_is_fenced(self, tmp_path: Path) -> None:
        journal = self.make_store(tmp_path).open("topic", 0)
        journal.append([make_ack(1), make_ack(2)], 0, 1)
        for after in (0, 1, 3, 1 << 40):
            raised(Fenced, lambda after=after: journal.append([make_ack(9)], after, 2))  # type: ignore[misc]
        assert journal.tail == 2
        assert [entry.rows for _, _, entry in journal.scan(0)] == [1, 2]
        assert journal.append([make_ack(3)], 2, 2) == 3

    # --- duty 12: several who append ------------------------------------------------------------

    def test_who_is_alone_follows_nobody(self, tmp_path: Path) -> None:
        journal = self.make_store(tmp_path).open("topic", 0)
        assert journal.follow() == 0
        journal.append([make_ack(1), make_ack(2)], 0, 1)
        assert journal.follow() == journal.tail == 2
        assert [position for position, _, _ in journal.scan(0)] == [1, 2]

    # --- duty 6: read --------------------------------------------------------------------------

    def test_read_gives_any_rows_in_the_order_asked(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(4), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        written = fill(journal, random, 150)
        for _ in range(2):
            for count in (1, 7, 300):
                asked = random.choice(list(written), count).tolist()
                assert read_rows(journal, asked) == [written[locator] for locator in asked]
            journal.close()
            store = self.again(store, tmp_path)
            journal = store.open("topic", 0)

    def test_read_gives_the_columns_asked(self, tmp_path: Path) -> None:
        journal = self.make_store(tmp_path).open("topic", 0)
        texts = {"payload": text_column([b"a" * 20, b""]), "key": text_column([b"", b"k"])}
        journal.append([Entry(EntryKind.ENQUEUE, 0, rows=2, texts=texts)], 0, 1)
        locators = np.array([1 << 20 | 1, 1 << 20], dtype=np.int64)
        batch = journal.read(locators, ("payload", "tags", "key"))
        assert batch.schema == pa.schema(
            [("payload", pa.binary()), ("tags", pa.utf8()), ("key", pa.utf8())]
        )
        assert batch.to_pydict() == {
            "payload": [b"", b"a" * 20],
            "tags": [None, None],
            "key": ["k", ""],
        }
        raised(BadRequest, lambda: journal.read(locators, ("payload", "due")))

    def test_rows_that_were_never_there_are_null(self, tmp_path: Path) -> None:
        random = np.random.default_rng(5)
        journal = self.make_store(tmp_path).open("topic", 0)
        written = fill(journal, random, 20)
        gone = [0, 5, (1 << 20) | 500, 21 << 20, limits.POSITION_MAX << limits.ROW_BITS]
        real = list(written)[:5]
        nulls: dict[str, bytes | None] = dict.fromkeys(TEXT_COLUMNS)
        for asked in (gone, [*real, *gone], [*gone, *real]):
            assert read_rows(journal, asked) == [written.get(locator, nulls) for locator in asked]

    def test_threads_read_while_the_writer_appends(self, tmp_path: Path) -> None:
        random = np.random.default_rng(6)
        journal = self.make_store(tmp_path).open("topic", 0)
        written = fill(journal, random, 30)
        failures: list[BaseException] = []
        done = threading.Event()

        def reads(seed: int) -> None:
            mine = np.random.default_rng(seed)
            try:
                while not done.is_set():
                    known = dict(written)
                    asked = mine.choice(list(known), 50).tolist()
                    assert read_rows(journal, asked) == [known[locator] for locator in asked]
            except BaseException as failure:  # noqa: BLE001  shown by the test
                failures.append(failure)

        threads = [threading.Thread(target=reads, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for _ in range(12):
            written = written | fill(journal, random, 20)
        done.set()
        for thread in threads:
            thread.join()
        assert not failures, failures

    # --- duty 7: giving room back --------------------------------------------------------------

    def test_dead_entries_give_their_room_back(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(7), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        journal.adopt(iter(()))
        written = fill(journal, random, 600)
        full_bytes = journal.byte_count()
        kept = list(written)[-5:]
        journal.free(np.array(list(written)[:-5], dtype=np.int64))
        assert read_rows(journal, kept) == [written[locator] for locator in kept]
        for position in (journal.tail - 1, journal.tail):
            journal.put_snapshot(position, "{}", [])
            journal.truncate(position)
        fill(journal, random, 3)
        assert journal.byte_count() < full_bytes / 2
        assert read_rows(journal, kept) == [written[locator] for locator in kept]
        journal.close()
        journal = self.again(store, tmp_path).open("topic", 0)
        assert read_rows(journal, kept) == [written[locator] for locator in kept]

    def test_nothing_that_replay_needs_is_given_back(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(8), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        journal.adopt(iter(()))
        written = fill(journal, random, 200)
        journal.put_snapshot(50, "{}", [])
        journal.truncate(50)
        journal.free(np.array(list(written), dtype=np.int64))
        assert [position for position, _, _ in journal.scan(50)] == list(range(51, 201))
        journal.close()
        journal = self.again(store, tmp_path).open("topic", 0)
        assert [position for position, _, _ in journal.scan(50)] == list(range(51, 201))

    def test_adopt_counts_what_is_live(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(9), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        written = fill(journal, random, 600)
        for position in (journal.tail - 1, journal.tail):
            journal.put_snapshot(position, "{}", [])
        full_bytes = journal.byte_count()
        journal.close()
        journal = self.again(store, tmp_path).open("topic", 0)
        live = np.array(list(written)[::120], dtype=np.int64)
        journal.adopt(part for part in np.array_split(live, 3))
        journal.truncate(journal.tail)
        assert read_rows(journal, live.tolist()) == [written[int(one)] for one in live]
        ranges = journal.sparse()
        if ranges is not None:  # a backend without segments has nothing to copy
            assert ranges.dtype == np.int64
            assert ranges.shape[1] == 2
            assert (ranges[:, 0] <= ranges[:, 1]).all()
        journal.free(live)
        journal.truncate(journal.tail)
        fill(journal, random, 3)
        assert journal.byte_count() < full_bytes / 2

    # --- duties 8, 9 ---------------------------------------------------------------------------

    def test_a_closed_journal_is_unavailable(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        journal.append([make_ack(1)], 0, 1)
        journal.close()
        journal.close()
        none = np.zeros(0, dtype=np.int64)
        calls: list[Callable[[], object]] = [
            lambda: journal.append([make_ack(1)], 1, 1),
            lambda: list(journal.scan(0)),
            lambda: journal.read(none),
            lambda: journal.adopt(iter(())),
            lambda: journal.free(none),
            lambda: journal.truncate(1),
            lambda: journal.has_room(1),
            lambda: journal.sparse(),
            lambda: journal.put_snapshot(1, "{}", []),
            lambda: journal.latest_snapshot(),
            lambda: journal.read_snapshot_file("x"),
        ]
        for call in calls:
            raised(Unavailable, call)
        assert store.open("topic", 0).tail == 1

    def test_there_is_room_at_first(self, tmp_path: Path) -> None:
        assert self.make_store(tmp_path).open("topic", 0).has_room(1)

    # --- duty 10: snapshots --------------------------------------------------------------------

    def test_the_newest_snapshot_is_found_with_its_files(self, tmp_path: Path) -> None:
        random, store = np.random.default_rng(10), self.make_store(tmp_path)
        journal = store.open("topic", 0)
        fill(journal, random, 10)
        one, two = random.bytes(50_000), random.bytes(3)
        first = [SnapshotFile("one", one), SnapshotFile("two", memoryview(two))]
        journal.put_snapshot(4, '{"a": 1}', [*first, SnapshotFile("empty", b"")])
        for _ in range(2):
            found = journal.latest_snapshot()
            assert found is not None
            assert (found.position, found.meta) == (4, '{"a": 1}')
            assert sorted(found.files) == ["empty", "one", "two"]
            assert bytes(journal.read_snapshot_file("one")) == one
            assert bytes(journal.read_snapshot_file("empty")) == b""
            journal.close()
            store = self.again(store, tmp_path)
            journal = store.open("topic", 0)
        journal.put_snapshot(9, "second", [SnapshotFile("one", None), SnapshotFile("three", b"3")])
        journal.put_snapshot(10, "third", [SnapshotFile("three", None), SnapshotFile("one", one)])
        journal.close()
        journal = self.again(store, tmp_path).open("topic", 0)
        found = journal.latest_snapshot()
        assert found is not None
        assert (found.position, found.meta, sorted(found.files)) == (10, "third", ["one", "three"])
        assert bytes(journal.read_snapshot_file("one")) == one
        assert bytes(journal.read_snapshot_file("three")) == b"3"
        raised(JournalDamaged, lambda: journal.read_snapshot_file("two"))

    def test_a_snapshot_cannot_name_what_was_never_stored(self, tmp_path: Path) -> None:
        journal = self.make_store(tmp_path).open("topic", 0)
        journal.append([make_ack(1), make_ack(1)], 0, 1)
        journal.put_snapshot(1, "first", [SnapshotFile("one", b"1")])
        wrong = [SnapshotFile("one", None), SnapshotFile("other", None)]
        raised(BadRequest, lambda: journal.put_snapshot(2, "second", wrong))
        found = journal.latest_snapshot()
        assert found is not None
        assert found.meta == "first"

    # --- the store -----------------------------------------------------------------------------

    def test_documents_are_kept(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for name in DOCUMENTS:
            assert store.load_document(name) is None
            for text in ('{"é": 1}', "", "x" * 100_000, f"short {name}"):
                store.store_document(name, text)
                assert store.load_document(name) == text
        store = self.again(store, tmp_path)
        assert [store.load_document(name) for name in DOCUMENTS] == [
            f"short {n}" for n in DOCUMENTS
        ]
        raised(BadRequest, lambda: store.store_document("../elsewhere", "x"))
        raised(BadRequest, lambda: store.load_document(""))

    def test_what_is_made_is_told_until_it_is_dropped(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.made() == []
        for topic in ("d", "a", "b.1", "c"):
            store.make(topic)
        store = self.again(store, tmp_path)
        assert store.made() == ["a", "b.1", "c", "d"]
        store.drop("a")
        store.make("c")
        assert store.made() == ["b.1", "c", "d"]
        journal = store.open("c", 0, only_made=True)
        journal.append([make_ack(3)], 0, 1)
        assert store.made() == ["b.1", "c", "d"]

    def test_partitions_are_apart_and_drop_takes_a_topic(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        names = [("a", 0), ("a", 65_534), ("b", 0), ("x" * limits.TOPIC_NAME_BYTES_MAX, 0)]
        for rows, name in enumerate(names):
            journal = store.open(*name)
            journal.append([make_ack(rows)], 0, 1)
            journal.close()
        store.drop("a")
        store.drop("never was")
        store = self.again(store, tmp_path)
        journals = [store.open(*name) for name in names]
        assert [journal.tail for journal in journals] == [0, 0, 1, 1]
        assert [entry.rows for _, _, entry in journals[2].scan(0)] == [2]

    def test_a_journal_is_open_once(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        raised(Unavailable, lambda: store.open("topic", 0))
        raised(Unavailable, lambda: store.drop("topic"))
        journal.close()
        store.open("topic", 0)

    def test_closing_the_store_closes_its_journals(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        store.close()
        store.close()
        raised(Unavailable, lambda: journal.append([make_ack(1)], 0, 1))
        raised(Unavailable, lambda: store.open("topic", 1))
