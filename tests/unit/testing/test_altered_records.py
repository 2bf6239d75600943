"""Covers: a store of records that fails as a test says."""

from __future__ import annotations

import pytest

from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.testing.altered_records import AlteredRecords, AlteredStore, LentStore


def altered(count: int = 2) -> tuple[AlteredRecords, RecordLog]:
    inner = MemoryRecords("t/0")
    inner.append(0, [[b"%d" % number] for number in range(count)])
    return AlteredRecords(inner), inner


def test_a_log_that_is_not_altered_does_what_the_other_one_does() -> None:
    log, inner = altered()
    log.append(2, [[b"x"]])
    assert (log.last(), list(log.read(1, 9))) == (inner.last(), list(inner.read(1, 9)))
    assert log.byte_count() == inner.byte_count()
    log.drop_before(3)
    assert [number for number, _ in inner.read(1, 9)] == [3]


def test_a_lent_store_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, closed = MemoryRecordStore(), []
    monkeypatch.setattr(inner, "close", lambda: closed.append(True))
    LentStore(inner).close()
    assert not closed
    AlteredStore(inner).close()
    assert closed
