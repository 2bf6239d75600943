"""Covers: each position is recorded once at most, what is left out leaves a gap, and files end.

Not covered: what a broker records of what happens (tests/rules/test_history.py), the form of a
file (test_encode.py), pieces (test_pieces.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dejaqueue.broker.counting import TopicCounts
from dejaqueue.broker.history import recorder as recording
from dejaqueue.broker.history.history import History
from dejaqueue.broker.history.pieces import HOUR_MS
from dejaqueue.broker.history.recorder import BEHIND, FAILED, GONE, OFF, Recorder
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.effects import Change, Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.model import ChangeKind, Topic
from dejaqueue.settings import HistorySettings
from dejaqueue.testing.virtual_clock import VirtualClock

AT_MS = 10 * HOUR_MS
RECORDED = Topic("t", history=True)


class Fixture:
    """A recorder over a history on a disk, whose own thread is waited for."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.clock = VirtualClock(start_ms=AT_MS)
        self.directory, self.settings = directory, settings
        self.start()

    def start(self) -> None:
        self.history = History(
            self.directory, HistorySettings(**self.settings), self.clock, ThreadPoolExecutor(1)
        )
        self.history.start()
        self.counting = TopicCounts()
        self.recorder = Recorder(self.history, "t", 0, self.counting)

    def restart(self) -> None:
        self.history.close()
        self.start()

    def on(self, position: int = 0) -> None:
        self.recorder.turn(True, position, AT_MS)

    def record(self, position: int, rows: int = 1, at_ms: int = AT_MS, last: int = 0) -> None:
        """An entry at `position` by which so many messages came in."""
        self.recorder.record(position, last or position, [changes(rows, at_ms)])

    def rows(self) -> list[tuple[str, int, str]]:
        """(change, position, reason) of all files, in order of positions."""
        self.recorder.roll().result(10)
        found: list[tuple[str, int, str]] = []
        for path in sorted(self.directory.rglob("*.parquet"), key=lambda one: one.name):
            table = pq.read_table(path, partitioning=None)
            columns = [table[name].to_pylist() for name in ("change", "position", "reason")]
            found += [(str(a), int(b), c or "") for a, b, c in zip(*columns, strict=True)]
        return found

    def positions(self) -> list[int]:
        return [position for _, position, _ in self.rows()]

    def files(self) -> int:
        return len(list(self.directory.rglob("*.parquet")))


def changes(rows: int, at_ms: int = AT_MS) -> EntryChanges:
    numbers = np.arange(rows, dtype=np.int64)
    change = Change(ChangeKind.ENQUEUED, numbers, numbers, None, None, None)
    entry = Entry(EntryKind.ENQUEUE, at_ms, rows=rows)
    return EntryChanges.of(0, entry, Effects(changes=(change,)))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Fixture]:
    made = Fixture(tmp_path / "history")
    yield made
    made.history.close()


def test_nothing_is_recorded_before_it_is_turned_on(one: Fixture) -> None:
    one.record(1)
    one.on(1)
    one.record(2)
    assert [position for change, position, _ in one.rows() if change != "gap"] == [2]


def test_a_position_that_is_read_again_is_recorded_once(one: Fixture) -> None:
    """A replay gives what was recorded before the crash, and more."""
    one.on()
    for position in (1, 2, 2, 1, 3):
        one.record(position)
    assert one.positions() == [1, 2, 3]


def test_what_was_recorded_before_a_restart_is_not_recorded_again(one: Fixture) -> None:
    one.on()
    one.record(1)
    one.record(2)
    one.recorder.roll().result(10)
    one.restart()
    one.recorder.reading(RECORDED, Engine(0), 0)
    for position in (1, 2, 3):
        one.record(position)
    assert one.positions() == [1, 2, 3]


# --- gaps


def test_what_happened_while_it_was_off_is_a_gap_before_the_next_row(one: Fixture) -> None:
    one.on()
    one.record(1)
    one.recorder.turn(False, 1, AT_MS)
    one.record(2)
    one.on(position=4)
    one.record(5)
    assert one.rows() == [("enqueued", 1, ""), ("gap", 4, OFF), ("enqueued", 5, "")]
    assert one.counting.history_missed.value == 0, "it is as its owner wished"


def test_entries_that_the_journal_has_no_more_are_a_gap(one: Fixture) -> None:
    """The snapshot covers what was never recorded."""
    one.recorder.reading(RECORDED, Engine(0), 7)
    one.record(8)
    assert one.rows() == [("gap", 7, GONE), ("enqueued", 8, "")]
    assert one.counting.history_missed.value == 1


def test_a_disk_that_does_not_keep_up_costs_rows__and_says_how_many(tmp_path: Path) -> None:
    one = Fixture(tmp_path / "history", waiting_rows_max=1_000)
    one.on()
    one.record(1)
    real = one.history.waiting_rows
    one.history.waiting_rows = 1_000
    for position in (2, 3):
        one.record(position, rows=10)
    one.history.waiting_rows = real
    one.record(4)
    assert one.rows() == [("enqueued", 1, ""), ("gap", 3, BEHIND), ("enqueued", 4, "")]
    assert one.counting.history_missed.value == 20
    one.history.close()


def test_a_file_that_cannot_be_written_leaves_a_gap__and_the_next_one_is(
    one: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    one.on()
    one.record(1)
    with monkeypatch.context() as patched:
        patched.setattr(recording, "open_parquet", full)
        one.recorder.roll().result(10)
    assert one.files() == 0
    one.record(2)
    assert one.rows() == [("gap", 1, FAILED), ("enqueued", 2, "")]


# --- files


def test_a_file_has_one_hour(one: Fixture) -> None:
    """So that files of an hour can be found, and deleted, as a whole."""
    one.on()
    one.record(1)
    one.record(2, at_ms=AT_MS + HOUR_MS - 1)
    one.record(3, at_ms=AT_MS + HOUR_MS)
    assert one.positions() == [1, 2, 3]
    assert one.files() == 2


def test_a_file_ends_when_it_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "CHUNK_ROWS", 1)
    one = Fixture(tmp_path / "history")
    one.history.settings = one.history.settings.model_copy(update={"roll_bytes": 1})
    one.on()
    for position in (1, 2, 3):
        one.record(position)
    assert one.positions() == [1, 2, 3]
    assert one.files() == 3
    one.history.close()


def test_so_many_rows_are_encoded_together(one: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CHUNK_ROWS", 10)
    one.on()
    submitted: list[object] = []
    submit = one.history.submit

    def noted(run: Callable[[], Any]) -> Future[None]:
        submitted.append(run)
        return submit(run)

    monkeypatch.setattr(one.history, "submit", noted)
    for position in range(1, 10):
        one.record(position)
    assert submitted == []
    one.record(10)
    assert len(submitted) == 1
    assert len(one.positions()) == 10


def test_nothing_to_write_leaves_no_file__but_is_remembered(one: Fixture) -> None:
    """Entries that changed no message: who reads is told that nothing is missing there."""
    one.on()
    one.recorder.record(1, 5, [])
    one.recorder.roll().result(10)
    assert one.files() == 0
    assert one.history.files.recorded("t", 0) == 5


def test_closing_finishes_the_file(one: Fixture) -> None:
    one.on()
    one.record(1)
    one.recorder.closed()
    one.recorder.settle()
    assert one.files() == 1
    assert one.counting.history_recorded.value == 1


def test_memory_that_waited_is_given_back(one: Fixture) -> None:
    one.on()
    one.record(1, rows=100)
    assert one.history.waiting_rows == 100
    one.recorder.roll().result(10)
    assert one.history.waiting_rows == 0
