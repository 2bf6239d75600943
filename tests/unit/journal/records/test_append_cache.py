"""Covers: what is read from the server is asked for once, in few reads, and kept within bounds.

Not covered: with a journal around it (test_journal.py); what is read is checked (test_reading.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.records import append_cache
from dejaqueue.journal.records.append_cache import AppendCache
from dejaqueue.journal.records.append_index import ROW, ReadCursor
from dejaqueue.journal.records.memory import MemoryRecords
from dejaqueue.journal.records.mirror import segment_at
from dejaqueue.journal.records.reading import CheckedRecords, WholeAppend
from tests.unit.journal.records.chains import Chain

Appends = npt.NDArray[Any]


class Asked(MemoryRecords):
    """Notes the ranges that were read."""

    def __init__(self, chain: Chain) -> None:
        super().__init__("t/0")
        self.contents = dict(chain.contents)
        self.ranges: list[tuple[int, int]] = []

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        self.ranges.append((first, end))
        return super().read(first, end)


@pytest.fixture
def chain() -> Chain:
    """Six appends of two entries each, in records 1 to 6, entries 1 to 12."""
    chain = Chain()
    for _ in range(6):
        chain.append([1, 1])
    return chain


def rows_of(chain: Chain) -> Appends:
    """The append index of a chain."""
    records = CheckedRecords(Asked(chain), "t/0")
    rows, before = [], ReadCursor()
    for one in records.appends(ReadCursor(), chain.stand.number - 1):
        assert isinstance(one, WholeAppend)
        facts = (len(one.body), one.readable_bytes, one.rows, len(one.entries), one.parts)
        rows.append((one.position, one.number, one.chain_before, before.entry_chain, *facts))
        before = one.after
    return np.array(rows, dtype=ROW)


def cache_of(chain: Chain, bytes_max: int = 1 << 20) -> tuple[AppendCache, Asked]:
    log = Asked(chain)
    return AppendCache(CheckedRecords(log, "t/0"), bytes_max), log


def positions_in(cache: AppendCache, appends: Appends) -> list[int]:
    """Of these appends the first positions that a segment was given for."""
    listed = cache.segments_with(appends)
    found = []
    for position in appends["position"].tolist():
        segment = segment_at(listed, position)
        if segment is not None and position < segment.first + segment.count:
            found.append(position)
    return found


def test_appends_that_lie_side_by_side_are_one_read(chain: Chain) -> None:
    cache, log = cache_of(chain)
    assert positions_in(cache, rows_of(chain)[1:4]) == [3, 5, 7]
    assert log.ranges == [(2, 5)]


def test_appends_that_lie_apart_are_read_apart(chain: Chain) -> None:
    """What lies between them may be gone from the server."""
    cache, log = cache_of(chain)
    appends = rows_of(chain)[[0, 1, 4]]
    for number in (3, 4):
        del log.contents[number]
    assert positions_in(cache, appends) == [1, 3, 9]
    assert log.ranges == [(1, 3), (5, 6)]


def test_what_is_here_is_not_asked_for_again(chain: Chain) -> None:
    cache, log = cache_of(chain)
    appends = rows_of(chain)
    positions_in(cache, appends[:3])
    assert positions_in(cache, appends[1:5]) == [3, 5, 7, 9]
    assert log.ranges == [(1, 4), (4, 6)]
    assert cache.record_count == 5


def test_one_read_has_a_most_of_bytes(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    appends = rows_of(chain)
    two = int(appends["byte_count"][:2].sum())
    monkeypatch.setattr(append_cache, "RUN_BYTES_MAX", two)
    cache, log = cache_of(chain)
    assert positions_in(cache, appends[:5]) == [1, 3, 5, 7, 9]
    assert log.ranges == [(1, 3), (3, 5), (5, 6)]


def test_an_append_larger_than_a_read_is_read_alone(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_cache, "RUN_BYTES_MAX", 1)
    cache, log = cache_of(chain)
    assert positions_in(cache, rows_of(chain)[:2]) == [1, 3]
    assert log.ranges == [(1, 2), (2, 3)]


def test_the_oldest_go_first_when_there_are_too_many(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_cache, "SEGMENTS_MAX", 2)
    cache, log = cache_of(chain)
    appends = rows_of(chain)
    for place in (0, 2, 4):
        positions_in(cache, appends[[place]])
    log.ranges.clear()
    for place in (2, 4):
        positions_in(cache, appends[[place]])
    assert log.ranges == [], "the two that were asked for last are here"
    positions_in(cache, appends[[0]])
    assert log.ranges == [(1, 2)]


def test_bytes_are_bounded__but_who_asks_for_more_gets_all_of_it(chain: Chain) -> None:
    """A gather of many rows needs its segments at once; they go when it is done."""
    cache, log = cache_of(chain, bytes_max=1)
    appends = rows_of(chain)
    assert positions_in(cache, appends) == [1, 3, 5, 7, 9, 11]
    log.ranges.clear()
    assert positions_in(cache, appends[:1]) == [1]
    assert log.ranges == [(1, 2)], "nothing was kept"


def test_a_segment_has_the_entries_as_they_were_written(chain: Chain) -> None:
    cache, _ = cache_of(chain)
    listed = cache.segments_with(rows_of(chain)[:2])
    segment = segment_at(listed, 1)
    assert segment is not None
    assert (segment.first, segment.count) == (1, 4)
    view = segment.memory().view
    starts = [int(offset) << 3 for offset in segment.offsets()[: segment.count]]
    body = b"".join(
        bytes(one.body)
        for one in CheckedRecords(Asked(chain), "t/0").appends(ReadCursor(), 2)
        if isinstance(one, WholeAppend)
    )
    assert bytes(view[starts[0] : starts[0] + len(body)]) == body


def test_what_is_not_the_append_known_here_is_refused(chain: Chain) -> None:
    """The record is whole, but of another append than the index says: the log was made anew."""
    appends = rows_of(chain)[:1].copy()
    appends["entries"] = 3
    cache, _ = cache_of(chain)
    with pytest.raises(JournalDamaged, match=r"t/0, record 1: is not the one known here"):
        cache.segments_with(appends)
