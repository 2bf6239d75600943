"""Parcels: how much travels at once, what it is called, what becomes of it where it arrives.

Not covered: the whole way of a letter (tests/rules/test_rule_18_dead_letters.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.letters.parcel import (
    PARCEL_BYTES_MAX,
    RowsDamagedError,
    letter_columns,
    read_rows,
    returned_columns,
)
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import JournalDamaged
from dejaqueue.model import Topic
from tests.unit.broker.parcels import Rows, parcel


def taken(payloads: list[bytes | None], max_payload_bytes: int = 1 << 20) -> list[bytes]:
    journal: Any = Rows(payloads)
    stored = read_rows(parcel(len(payloads), "", max_payload_bytes), journal)
    found: list[bytes] = stored.column("payload").to_pylist()
    return found


def test_small_rows_travel_all_at_once() -> None:
    payloads: list[bytes | None] = [b"%d" % number for number in range(1_000)]
    assert taken(payloads) == payloads


def test_large_rows_travel_few_at_a_time() -> None:
    megabyte = bytes(1 << 20)
    assert len(taken([megabyte] * 100)) == PARCEL_BYTES_MAX >> 20
    mixed: list[bytes | None] = [*[b""] * 50, *[megabyte] * 100]
    assert len(taken(mixed)) == 50 + (PARCEL_BYTES_MAX >> 20)


def test_one_row_travels_however_large() -> None:
    huge = bytes(PARCEL_BYTES_MAX + 1)
    assert len(taken([huge, b"a"], limits.PAYLOAD_BYTES_MAX)) == 1
    assert len(taken([b"a", huge, b"b"], limits.PAYLOAD_BYTES_MAX)) == 1


def test_no_more_is_read_than_memory_should_hold() -> None:
    journal: Any = Rows([bytes(1 << 20)] * 100)
    read_rows(parcel(100), journal)
    assert max(journal.reads) * (1 << 20) <= 4 * PARCEL_BYTES_MAX


def test_rows_that_were_copied_elsewhere_end_the_parcel() -> None:
    assert taken([b"a", b"b", None, b"c"]) == [b"a", b"b"]
    assert taken([None, b"c"]) == []


def test_equal_parcels_have_equal_numbers__and_others_do_not() -> None:
    whole = parcel(10)
    assert whole.number() == parcel(10).number()
    others = [
        whole.first(9),
        replace(whole, deaths_ms=whole.deaths_ms + 1),
        replace(whole, sequences=whole.sequences + 1),
    ]
    assert len({each.number() for each in [whole, *others]}) == 4
    assert 0 <= whole.number() < 1 << 63


def test_a_letter_of_full_headers_keeps_them_all() -> None:
    full = "n\x1f" + "v" * (limits.HEADERS_BYTES_MAX - 2)
    journal: Any = Rows([b"a"], headers=[full], key=["k" * limits.KEY_BYTES_MAX])
    one = parcel(1)
    columns = letter_columns(one, read_rows(one, journal), 7)
    assert columns.headers is not None
    assert columns.headers.to_pylist()[0].startswith(full)
    assert columns.keys is not None
    assert columns.keys.to_pylist() == [f"t:{(2 << limits.SEQUENCE_BITS) + 5}@99"]
    back: Any = Rows([b"a"], headers=columns.headers.to_pylist())
    returned = returned_columns(one, read_rows(one, back), 8)
    assert returned.headers is not None
    assert returned.keys is not None
    assert returned.headers.to_pylist() == [full]
    assert returned.keys.to_pylist() == ["k" * limits.KEY_BYTES_MAX]
    assert returned.dues_ms.tolist() == [8]


def test_the_key_of_a_letter_from_a_topic_with_a_long_name_is_a_key() -> None:
    journal: Any = Rows([b"a"])
    one = replace(parcel(1), topic=Topic("x" * 255))
    keys = letter_columns(one, read_rows(one, journal), 7).keys
    assert keys is not None
    assert len(keys.to_pylist()[0].encode()) <= limits.KEY_BYTES_MAX


class DamagedRows(Rows):
    """Rows of entries of two each, some of which are damaged."""

    place = "t/2"

    def __init__(self, rows: int, *damaged: int) -> None:
        super().__init__([b"%d" % row for row in range(rows)])
        self._damaged = set(damaged)

    def read(self, locators: np.ndarray, columns: tuple[str, ...]) -> pa.RecordBatch:
        entries = locators >> limits.ROW_BITS
        if self._damaged & set(entries.tolist()):
            raise JournalDamaged("/var/lib/x.seg, offset 8: an entry is not what was written")
        return super().read(2 * entries + (locators & 1), columns)


def locators(rows: int) -> Int64s:
    places = np.arange(rows, dtype=np.int64)
    return (places // 2 << limits.ROW_BITS) + places % 2


@pytest.mark.parametrize(("damaged", "taken_rows"), [((3,), 6), ((3, 4), 6), ((9,), 18), ((1,), 2)])
def test_damaged_rows_end_the_parcel(damaged: tuple[int, ...], taken_rows: int) -> None:
    journal: Any = DamagedRows(20, *damaged)
    stored = read_rows(replace(parcel(20), locators=locators(20)), journal)
    assert stored.column("payload").to_pylist() == [b"%d" % row for row in range(taken_rows)]


def test_damaged_rows_at_its_beginning_are_told__without_the_name_of_a_file() -> None:
    for rows, count in ((20, 2), (1, 1)):
        journal: Any = DamagedRows(20, 0, 5)
        with pytest.raises(RowsDamagedError) as told:
            read_rows(replace(parcel(rows), locators=locators(rows)), journal)
        assert told.value.rows == count
        assert str(told.value).startswith("t/2, entry 0: is not what was written")
