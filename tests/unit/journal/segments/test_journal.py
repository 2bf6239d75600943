"""Covers: segments come, are counted, grow sparse and go; reading meanwhile.

Not covered: crashes (tests/crash/test_segment_journal.py), what every journal does (conformance).
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import InternalError
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, EntryKind
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments import journal as module
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import (
    Rows,
    fill,
    make_ack,
    make_enqueue,
    read_rows,
    rows_of,
    text_column,
)


def open_journal(segment_bytes: int = 1 << 13) -> SegmentJournal:
    journal = MemoryStore(segment_bytes=segment_bytes).open("topic", 0)
    journal.adopt(iter(()))
    return journal


def cover(journal: SegmentJournal) -> None:
    """Two snapshots of the tail, so that nothing before is replayed."""
    for position in (journal.tail - 1, journal.tail):
        journal.put_snapshot(position, "{}", [])
        journal.truncate(position)


def locators(rows: Rows | list[int]) -> np.ndarray:
    return np.array(list(rows), dtype=np.int64)


def test_an_append_lies_in_one_segment_however_large() -> None:
    journal = open_journal(1 << 12)
    fill(journal, np.random.default_rng(1), 5)
    large = [make_enqueue(np.random.default_rng(2), 40, 2_000) for _ in range(3)]
    first = journal.tail + 1
    journal.append(large, journal.tail, 1)
    segment = journal.log.listed.segments[-1]
    assert (segment.first, segment.count) == (first, 3)
    written = [rows_of(entry, first + place) for place, entry in enumerate(large)]
    for rows in written:
        assert read_rows(journal, list(rows)) == list(rows.values())


def test_segments_grow_to_their_size() -> None:
    journal = MemoryStore(segment_bytes=1 << 22).open("topic", 0)
    texts = {"payload": text_column([bytes(100_000)])}
    entry = Entry(EntryKind.ENQUEUE, 0, rows=1, texts=texts)
    for _ in range(150):
        journal.append([entry], journal.tail, 1)
    # Sealed ones were trimmed to what is in them.
    sizes = [segment.byte_count / (1 << 20) for segment in journal.log.listed.segments]
    assert [round(size + 0.5) for size in sizes[:3]] == [1, 2, 4]
    assert sizes[-1] == 4


def test_live_rows_keep_a_segment_and_only_that() -> None:
    journal = open_journal()
    written = fill(journal, np.random.default_rng(3), 200)
    cover(journal)
    segments = journal.log.listed.segments
    assert len(segments) > 5
    kept = {segments[2].first, segments[4].last}
    live = {locator: row for locator, row in written.items() if locator >> 20 in kept}
    journal.free(locators([locator for locator in written if locator not in live]))
    firsts = [segment.first for segment in journal.log.listed.segments]
    expected = {segments[place].first for place in (2, 4)} | {segments[-1].first}
    with_rows = {locator >> 20 for locator in live}
    assert with_rows <= kept
    assert set(firsts) <= expected
    assert read_rows(journal, list(live)) == list(live.values())
    nulls = dict.fromkeys(TEXT_COLUMNS)
    gone = [locator for locator in written if locator >> 20 <= segments[0].last]
    assert read_rows(journal, gone) == [nulls] * len(gone)


def test_the_active_segment_stays() -> None:
    journal = open_journal()
    rows = fill(journal, np.random.default_rng(4), 3)
    journal.free(locators(rows))
    cover(journal)
    assert len(journal.log.listed.segments) == 1
    assert journal.tail == 3


def test_before_adopt_nothing_is_given_back() -> None:
    store = MemoryStore(segment_bytes=1 << 13)
    journal = store.open("topic", 0)
    written = fill(journal, np.random.default_rng(5), 100)
    cover(journal)
    journal.close()
    journal = store.open("topic", 0)
    journal.truncate(journal.tail)
    assert journal.sparse() is None
    assert read_rows(journal, list(written)) == list(written.values())
    count = len(journal.log.listed.segments)
    journal.adopt(iter([locators(written)[:0]]))
    assert len(journal.log.listed.segments) < count


def test_sparse_names_mostly_dead_segments_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = open_journal()
    written = fill(journal, np.random.default_rng(6), 200)
    assert journal.sparse() is None
    cover(journal)
    assert journal.sparse() is None
    live = locators(written)[::10]
    journal.free(np.setdiff1d(locators(written), live))
    ranges = journal.sparse()
    assert ranges is not None
    sealed = journal.log.listed.segments[:-1]
    assert ranges.tolist() == [[segment.first, segment.last] for segment in sealed]
    monkeypatch.setattr(module, "SPARSE_ROWS_MAX", 8)
    bounded = journal.sparse()
    assert bounded is not None
    assert 1 <= len(bounded) < len(ranges)
    assert bounded.tolist() == ranges.tolist()[: len(bounded)]


def test_copying_forward_empties_sparse_segments() -> None:
    journal = open_journal()
    written = fill(journal, np.random.default_rng(7), 200)
    cover(journal)
    live = locators(written)[::20]
    journal.free(np.setdiff1d(locators(written), live))
    before = journal.byte_count()
    ranges = journal.sparse()
    assert ranges is not None
    old = live[(live >> 20 >= ranges[0, 0]) & (live >> 20 <= ranges[-1, 1])]
    values = read_rows(journal, old.tolist())
    payloads = [row["payload"] or b"" for row in values]
    moved = Entry(
        EntryKind.RELOCATE, 0, rows=len(old), ints=(old,), texts={"payload": text_column(payloads)}
    )
    journal.append([moved], journal.tail, 1)
    journal.free(old)
    assert journal.byte_count() < before / 2
    new = [journal.tail << 20 | row for row in range(len(old))]
    assert [row["payload"] for row in read_rows(journal, new)] == payloads


def test_rows_of_other_entries_do_not_count_as_live() -> None:
    journal = open_journal()
    for _ in range(200):
        journal.append([make_ack(30)], journal.tail, 1)
    cover(journal)
    assert len(journal.log.listed.segments) == 1


def test_rows_freed_twice_are_our_bug_and_no_loss() -> None:
    journal = open_journal()
    written = fill(journal, np.random.default_rng(9), 200)
    first = [one for one in written if one >> 20 <= journal.log.listed.segments[0].last]
    journal.free(locators(first))
    with pytest.raises(InternalError, match="not live"):
        journal.free(locators(first))
    journal = open_journal()
    written = fill(journal, np.random.default_rng(9), 200)
    middle = journal.log.listed.segments[2]
    gone = [one for one in written if middle.first <= one >> 20 <= middle.last]
    kept = [one for one in written if one not in gone]
    journal.free(locators(gone))
    cover(journal)
    assert middle not in journal.log.listed.segments
    live = journal.log.room.live.copy()
    journal.free(locators(gone))  # they would be taken off the segment before
    assert (journal.log.room.live == live).all()
    assert read_rows(journal, kept) == [written[locator] for locator in kept]


def test_a_snapshot_ahead_of_the_tail_is_our_bug() -> None:
    journal = open_journal()
    with pytest.raises(InternalError, match="behind the tail 0"):
        journal.put_snapshot(1, "{}", [])
    with pytest.raises(InternalError, match="no entries"):
        journal.append([], 0, 1)


def test_threads_read_while_segments_come_and_go(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, segment_bytes=1 << 13)
    journal = store.open("topic", 0)
    journal.adopt(iter(()))
    random = np.random.default_rng(8)
    kept = fill(journal, random, 20)
    failures: list[BaseException] = []
    done = threading.Event()
    rounds = [0, 0]

    def reads(seed: int) -> None:
        mine = np.random.default_rng(seed)
        try:
            while not done.is_set():
                asked = mine.choice(list(kept), 100).tolist()
                # Some are being freed meanwhile: null, or what was written.
                asked_gone = mine.integers(1, journal.tail + 1, 100) << 20
                assert read_rows(journal, asked) == [kept[locator] for locator in asked]
                journal.read(asked_gone)
                rounds[seed] += 1
        except BaseException as failure:  # noqa: BLE001  shown by the test
            failures.append(failure)

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        rows = fill(journal, random, 20)
        journal.free(locators(rows))
        cover(journal)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert min(rounds) > 0
    # The first 20 entries are live, and the active segment; all else has gone.
    assert journal.log.listed.segments[0].first == 1
    assert len(journal.log.listed.segments) < 10
    store.close()
