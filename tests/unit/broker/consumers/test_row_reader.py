"""Covers: stored rows read past damage, entry by entry, and texts that are none.

Not covered: real damage (tests/integration/test_damaged_rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.consumers.row_reader import NoRows, read_in_parts, read_stored
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError, EncryptionKeyMissing, JournalDamaged, Unavailable
from dejaqueue.journal.interface import TEXT_COLUMNS


class Entries:
    """Rows in entries, some of which are damaged.

    Attributes:
        reads: how many rows each read was to read.
    """

    def __init__(self, entries: Sequence[int], *bad: int, error: DejaQError | None = None) -> None:
        self.entries, self._bad = np.array(entries, dtype=np.int64), bad
        self._error = error or JournalDamaged("it is not what was written")
        self.reads: list[int] = []

    def read(self, rows: slice) -> str:
        self.reads.append(rows.stop - rows.start)
        if np.isin(self.entries[rows], self._bad).any():
            raise self._error
        return f"{rows.start}-{rows.stop}"

    def parts(self) -> list[str]:
        return read_in_parts(
            self.entries, self.read, lambda rows, _: f"lost {rows.start}-{rows.stop}"
        )


def test_what_is_whole_is_one_read() -> None:
    rows = Entries([1, 1, 2, 3])
    assert rows.parts() == ["0-4"]
    assert Entries([]).parts() == ["0-0"]


def test_damaged_rows_are_told_apart_from_those_beside_them__in_their_order() -> None:
    assert Entries([1, 2, 3, 4], 3).parts() == ["0-2", "lost 2-3", "3-4"]
    assert Entries([1, 2, 3, 4], 1, 4).parts() == ["lost 0-1", "1-2", "2-3", "lost 3-4"]
    assert Entries([1, 2], 1, 2).parts() == ["lost 0-1", "lost 1-2"]


def test_an_entry_is_damaged_as_a_whole__and_so_is_not_divided() -> None:
    rows = Entries([1] * 10_000 + [2], 1)
    lost = [one for one in rows.parts() if one.startswith("lost")]
    assert len(lost) < 20
    assert len(rows.reads) < 50
    assert Entries([7] * 10_000, 7).parts() == ["lost 0-10000"]


def test_a_key_that_is_missing_is_damage__and_nothing_else_is() -> None:
    keyless = Entries([1, 2], 2, error=EncryptionKeyMissing("key 3 is not there"))
    assert keyless.parts() == ["0-1", "lost 1-2"]
    with pytest.raises(Unavailable):
        Entries([1, 2], 2, error=Unavailable("away", 1)).parts()


def test_who_wants_no_part_is_told_of_the_first_entry_that_is_damaged() -> None:
    rows = Entries([1, 2, 3, 4, 5], 4, 5)

    def lost(rows: slice, damage: DejaQError) -> str:
        raise damage

    with pytest.raises(JournalDamaged):
        read_in_parts(rows.entries, rows.read, lost)
    assert rows.reads == [5, 2, 3, 1, 2, 1]


class Damaged:
    """A journal of which nothing can be read."""

    place = "t/0"

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        raise JournalDamaged(f"segment, offset {locators[0]}")


def test_who_reads_is_told_the_entry__and_the_log_the_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = np.array([9 << limits.ROW_BITS, (9 << limits.ROW_BITS) + 1])
    with pytest.raises(JournalDamaged) as caught:
        read_stored(Damaged(), rows)
    told = "t/0, entry 9: is not what was written; the broker's log names the file"
    assert caught.value.told() == told
    assert f"t/0, entry 9: segment, offset {9 << limits.ROW_BITS}" in caplog.text
    with pytest.raises(JournalDamaged) as caught:
        read_stored(Damaged(), np.array([9, 12]) << limits.ROW_BITS)
    assert caught.value.told().startswith("t/0, one of the entries 9 to 12: ")


class Texts:
    """A journal whose texts are none."""

    place = "t/0"

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        contents = pa.array([b"a\xffb"], pa.binary())
        text = pa.Array.from_buffers(pa.utf8(), 1, contents.buffers())
        arrays = [contents if name == "payload" else text for name in columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def test_texts_that_are_no_utf8_leave_mended__payloads_as_they_are() -> None:
    """Everybody who reads the rows beside them would fail on them, for ever."""
    batch = read_stored(Texts(), np.array([0]))
    assert batch.column("key").to_pylist() == ["a\ufffdb"]
    assert batch.column("payload").to_pylist() == [b"a\xffb"]


def test_of_no_row_is_anything_read() -> None:
    batch = NoRows().read(np.array([5, 6]), ("key", "payload"))
    assert batch.to_pylist() == [{"key": None, "payload": None}] * 2
    assert batch.schema.field("payload").type == pa.binary()
