"""MessageTable: rows, windows, slabs. Not here: what states mean (test_apply)."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.table import DONE, ROW_BYTES, SCHEDULED, MessageTable, Pages, row_locators


def int64s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_rows_get_the_next_sequences_and_locators() -> None:
    table = MessageTable(TINY)
    assert table.append(int64s(5, 6), 7 << limits.ROW_BITS) == 0
    assert table.append(int64s(9), 8 << limits.ROW_BITS) == 2
    places = table.places(int64s(2, 0))
    assert table.dues_ms[places].tolist() == [9, 5]
    assert table.locators[places].tolist() == [8 << 20, 7 << 20]
    assert table.states[places].tolist() == [SCHEDULED, SCHEDULED]


def test_sequences_outside_the_window_read_as_done() -> None:
    table = MessageTable(TINY, base=16)
    table.append(int64s(1, 2, 3), 0)
    places = table.places(int64s(-1, 0, 15, 16, 18, 19, 1 << 46))
    assert table.states[places].tolist() == [DONE, DONE, DONE, SCHEDULED, SCHEDULED, DONE, DONE]


@pytest.mark.parametrize("layout", [TINY, STANDARD], ids=["tiny", "standard"])
def test_a_full_dead_slab_reads_as_done_and_gives_its_memory_back(layout: object) -> None:
    table = MessageTable(layout)  # type: ignore[arg-type]
    rows = 2 * table.slab_rows + 1
    table.append(np.full(rows, 5), 1 << 20)
    table.finish(np.arange(table.slab_rows))
    assert table.slab_lives[:3].tolist() == [0, table.slab_rows, 1]
    assert not table.dues_ms[: table.slab_rows].any(), "its pages were not dropped"
    assert [first for first, _ in table.live_slabs()] == [table.slab_rows, 2 * table.slab_rows]


def test_a_slab_that_is_not_full_keeps_its_rows_until_it_is() -> None:
    table = MessageTable(TINY)
    table.append(int64s(5, 5, 5), 0)
    table.finish(table.places(int64s(0, 1, 2)))
    table.append(np.full(4, 6), 0)
    assert table.states[table.places(int64s(2, 3, 6))].tolist() == [DONE, SCHEDULED, SCHEDULED]
    table.finish(table.places(int64s(3, 4, 5, 6)))
    assert table.dues_ms[:7].any(), "rows are still to come into this slab"
    table.append(int64s(7, 8), 0)
    table.finish(table.places(int64s(7)))
    assert not table.dues_ms[:8].any()
    assert table.dues_ms[8] == 8


def test_the_window_moves_up_over_a_long_dead_stretch() -> None:
    table = MessageTable(TINY)
    for _ in range(40):
        first = table.append(np.arange(8), 0)
        table.finish(table.places(np.arange(first, first + 8)))
    survivor = table.append(int64s(77), 5)
    assert table.base > 0
    assert table.base % table.slab_rows == 0
    assert table.slab_lives.size < 30
    assert survivor == 320
    assert table.dues_ms[table.places(int64s(survivor))].tolist() == [77]
    assert table.states[table.places(int64s(0, 8, 319))].tolist() == [DONE, DONE, DONE]


@pytest.mark.parametrize("layout", [TINY, STANDARD], ids=["tiny", "standard"])
def test_a_table_that_leaves_the_heap_keeps_every_column(layout: Layout) -> None:
    table = MessageTable(layout)
    for row in range(2 * layout.first_rows):
        table.append(int64s(row), row)
        table.widen(int64s(row), "groups", np.int32(row))  # type: ignore[arg-type]
    more = np.arange(2 * layout.first_rows, 3 * table.slab_rows)
    table.append(more, int(more[0]))
    table.widen(more, "groups", more)
    rows = np.arange(3 * table.slab_rows)
    for name in ("dues_ms", "locators", "groups"):
        assert (getattr(table, name)[: rows.size] == rows).all(), name
    assert (table.states[: rows.size] == SCHEDULED).all()
    assert not table.states[rows.size :].any()


def test_a_table_that_moved_down_has_room_for_its_last_slab() -> None:
    table = MessageTable(STANDARD)
    slabs = STANDARD.rebase_slabs_min + 1
    table.append(np.full(slabs * table.slab_rows, 5), 0)
    table.append(np.arange(1_000), 1 << 40)
    table.finish(np.arange(slabs * table.slab_rows))
    table.append(int64s(77), 5)
    assert table.base == slabs * table.slab_rows
    assert table.dues_ms[:1_001].tolist() == [*range(1_000), 77]


def test_tables_of_few_messages_take_little_address_space() -> None:
    """Each one's maps of a whole slab, untouched, had ended a broker with 8,000 topics."""
    before = int(Path("/proc/self/statm").read_text().split()[5])
    tables = [MessageTable(STANDARD) for _ in range(200)]
    for table in tables:
        table.append(int64s(1, 2, 3), 0)
    taken = (int(Path("/proc/self/statm").read_text().split()[5]) - before) * mmap.PAGESIZE
    assert taken <= 200 * 16_384, f"{taken:,} bytes of address space for 200 tables"


def test_growing_keeps_what_was_written() -> None:
    table = MessageTable(STANDARD)
    for first in range(0, 400_000, 50_000):
        table.append(np.arange(first, first + 50_000), first)
    assert (table.dues_ms[:400_000] == np.arange(400_000)).all()
    assert (table.locators[:400_000] == np.arange(400_000)).all()
    assert not table.states[400_000:].any()


def test_pages_grow_while_somebody_holds_a_view() -> None:
    pages = Pages(8192)
    held = pages.array(np.uint8)
    held[:] = 7
    pages.grow(16_384)
    assert pages.array(np.uint8)[:8192].tolist() == [7] * 8192
    assert not pages.array(np.uint8)[8192:].any()
    assert held[0] == 7


def test_a_row_takes_19_bytes() -> None:
    table = MessageTable(TINY)
    columns = (table.dues_ms, table.states, table.attempts, table.locators)
    assert sum(column.itemsize for column in columns) == ROW_BYTES == 19


def test_locators_are_position_and_row() -> None:
    assert row_locators(3, 2).tolist() == [3 << 20, (3 << 20) + 1]


def test_writes_make_slabs_dirty() -> None:
    table = MessageTable(TINY)
    table.append(np.arange(24), 0)
    table.slab_dirty_mask[:] = False
    table.will_write(int64s(9))
    assert table.slab_dirty_mask[:3].tolist() == [False, True, False]
    table.finish(int64s(0, 17))
    assert table.slab_dirty_mask[:3].tolist() == [True, True, True]
