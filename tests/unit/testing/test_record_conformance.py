"""Covers: the conformance suite finds stores of records that break a duty.

Not covered: the stores that pass it (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pytest

from dejaqueue.errors import DejaQError
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.testing.record_conformance import RecordConformance

Log: TypeAlias = MemoryRecords
Store: TypeAlias = MemoryRecordStore
APPEND, READ, LAST, DROP_BEFORE = Log.append, Log.read, Log.last, Log.drop_before
DROP, PUT, NAMES = Store.drop, Store.put_object, Store.object_names


def _unfenced(self: Log, after: int, records: Sequence[Sequence[Bytes]]) -> None:
    APPEND(self, self.last(), records)


def _in_part(self: Log, after: int, records: Sequence[Sequence[Bytes]]) -> None:
    """Compares one record after the other: of a fenced append some may be there."""
    for place, record in enumerate(records):
        if after + place == self._last:
            APPEND(self, after + place, [record])
    if after + len(records) != self._last:
        APPEND(self, after, records)


def _first_piece(self: Log, after: int, records: Sequence[Sequence[Bytes]]) -> None:
    APPEND(self, after, [pieces[:1] for pieces in records])


def _to_the_end(self: Log, first: int, end: int) -> Iterator[tuple[int, bytes]]:
    return READ(self, first, end + 1)


def _by_what_is_there(self: Log) -> int:
    return max(self.contents, default=0)


def _too_much(self: Log, number: int) -> None:
    DROP_BEFORE(self, number + 1)


def _later(self: Log, number: int) -> None:
    """As a server that deletes by itself, some time later."""


def _by_beginning(self: Store, topic: str) -> None:
    for name in list(self.logs):
        if name[0].startswith(topic[:3]):
            self.logs.pop(name).is_dropped = True


def _kept(self: Store, name: str, content: bytes) -> None:
    self.objects.setdefault(name, bytes(content))


def _unsorted(self: Store, prefix: str) -> list[str]:
    return [name for name in self.objects if prefix in name]


BREACHES: list[tuple[type, str, Callable[..., object], str]] = [
    (Log, "append", _unfenced, "test_an_append_elsewhere_than_behind_the_last_is_fenced"),
    (Log, "append", _unfenced, "test_of_two_owners_that_race_one_gets_each_number"),
    (Log, "append", _in_part, "test_an_append_elsewhere_than_behind_the_last_is_fenced"),
    (Log, "append", _first_piece, "test_records_come_back_as_they_were_appended"),
    (Log, "read", _to_the_end, "test_read_gives_the_range_asked_and_what_is_there"),
    (Log, "last", _by_what_is_there, "test_dropped_records_go_and_the_numbers_stay"),
    (Log, "drop_before", _too_much, "test_dropped_records_go_and_the_numbers_stay"),
    (Log, "drop_before", _later, "test_dropped_records_are_gone_when_that_is_answered"),
    (Store, "drop", _by_beginning, "test_logs_are_apart_and_drop_takes_those_of_a_topic"),
    (Store, "put_object", _kept, "test_objects_are_kept_and_replaced"),
    (Store, "object_names", _unsorted, "test_objects_have_names_and_are_found_by_their_beginning"),
]


class Suite(RecordConformance):
    def __init__(self) -> None:
        self.server = MemoryRecordStore()

    def make_store(self, address: tuple[str, int] | None = None) -> MemoryRecordStore:
        return self.server


Suite.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "method", "breach", "test"), BREACHES, ids=[one[2].__name__ for one in BREACHES]
)
def test_a_breach_is_found(
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    method: str,
    breach: Callable[..., object],
    test: str,
) -> None:
    monkeypatch.setattr(kind, method, breach)
    with pytest.raises((AssertionError, DejaQError)):
        getattr(Suite(), test)()


@pytest.mark.parametrize("test", sorted({one[3] for one in BREACHES}))
# tidy: allow no-assert, because the suite's own test asserts
def test_a_store_that_keeps_its_duties_passes(monkeypatch: pytest.MonkeyPatch, test: str) -> None:
    if "race" in test:
        # In one process two hardly meet: of each two appends one finds the place taken.
        turns = iter(range(10**6))

        def raced(self: Log, after: int, records: Sequence[Sequence[Bytes]]) -> None:
            if next(turns) % 7 == 0 and after == self._last:
                APPEND(self, after, [[b"of a third one"]])
            APPEND(self, after, records)

        monkeypatch.setattr(Log, "append", raced)
    check_duty = getattr(Suite(), test)
    check_duty()
