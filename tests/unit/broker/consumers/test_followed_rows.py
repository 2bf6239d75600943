"""Covers: rows that lie elsewhere when they are read: once more, twice, some of them, done;
which columns are read.

Not covered: brokers that copy rows meanwhile (tests/integration/test_copied_rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.consumers.followed_rows import FollowedRows
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import Unavailable
from dejaqueue.journal.interface import TEXT_COLUMNS


class Places:
    """A journal that has payloads at some places, and where the worker says that rows are.

    Args:
        stored: of each place, the payload.
        now: answers of the worker, one after the other, by sequence.
    """

    place = "topic a, partition 0"

    def __init__(self, stored: dict[int, bytes], *now: dict[int, int]) -> None:
        self._stored, self._now = stored, list(now)
        self.asked: list[tuple[list[int], list[str]]] = []

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        self.asked.append((locators.tolist(), list(columns)))
        payloads = [self._stored.get(one) for one in locators.tolist()]
        keys = [None if one is None else f"key of {one.decode()}" for one in payloads]
        known = {"payload": pa.array(payloads, pa.binary()), "key": pa.array(keys, pa.utf8())}
        none = pa.nulls(len(payloads), pa.utf8())
        arrays = [known.get(name, none) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def find(self, sequences: Int64s) -> Int64s:
        now = self._now.pop(0)
        return np.array([now.get(one, -1) for one in sequences.tolist()], dtype=np.int64)

    def rows(self) -> FollowedRows:
        """Three rows, with sequences 7 to 9, that were at 30, 10 and 20."""
        at = np.array([30, 10, 20], dtype=np.int64)
        return FollowedRows(self, np.array([7, 8, 9], dtype=np.int64), at, self.find)


AT = np.array([30, 10, 20], dtype=np.int64)
THERE = {30: b"a", 10: b"b", 20: b"c"}


def payloads(batch: pa.RecordBatch) -> list[bytes | None]:
    found: list[bytes | None] = batch.column("payload").to_pylist()
    return found


def test_rows_that_are_where_they_were_are_read_once() -> None:
    places = Places(THERE)
    assert payloads(places.rows().read(AT, ("key", "payload"))) == [b"a", b"b", b"c"]
    assert places.rows().read(AT, ("key",)).column("key").null_count == 0
    assert len(places.asked) == 2


def test_rows_that_were_copied_are_read_where_they_are__however_often() -> None:
    places = Places({10: b"b", 60: b"a", 70: b"c"}, {7: 40, 9: 70}, {7: 50}, {7: 60})
    found = places.rows().read(AT, ("payload", "key"))
    assert payloads(found) == [b"a", b"b", b"c"]
    assert found.column("key").to_pylist() == ["key of a", "key of b", "key of c"]
    assert [one for one, _ in places.asked] == [[30, 10, 20], [40, 70], [50], [60]]


def test_rows_that_are_done_have_nothing() -> None:
    places = Places({10: b"b", 60: b"a"}, {7: 60})
    assert payloads(places.rows().read(AT, ("payload",))) == [b"a", b"b", None]
    assert payloads(Places({}, {}).rows().read(AT, ("payload",))) == [None, None, None]


def test_whether_a_row_is_there_is_known_by_its_payload_alone() -> None:
    places = Places(THERE)
    found = places.rows().read(AT, ("group",))
    assert found.schema.names == ["group"]
    assert [columns for _, columns in places.asked] == [["group"], ["group", "payload"]]
    places = Places({60: b"a"}, {7: 60})
    assert places.rows().read(AT[:1], ("key",)).column("key").to_pylist() == ["key of a"]


def test_rows_that_are_never_where_they_are_said_to_be_are_no_rows_that_are_done() -> None:
    places = Places({}, *({7: 40} for _ in range(200)))
    with pytest.raises(Unavailable, match="topic a, partition 0: rows are copied quicker"):
        places.rows().read(AT[:1], ("payload",))
