"""Covers: stored rows become deliveries and pages: in order, texts in UTF-8, rows gone left out.

Not covered: the wire (tests/integration), what is stored (tests/unit/broker/partition).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.consumers.gathering import (
    UNREAD_MS,
    PeekState,
    acked_batch,
    delivery_batches,
    peek_batch,
    readable_batches,
    text_of,
)
from dejaqueue.broker.consumers.held_lease import SentRows
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.commands import Lease
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import DejaQError, JournalDamaged, Unavailable
from dejaqueue.journal.interface import TEXT_COLUMNS, Journal
from dejaqueue.schema.messages import DEFAULT_PRIORITY, DELIVERY, PEEK, UNREAD
from tests.unit.broker.cores import Served, sequences


class Stored:
    """A journal that has these columns for each row that is asked for, null where it has none."""

    place = "t/0"

    def __init__(self, columns: dict[str, list[bytes | None]]) -> None:
        self.columns = columns
        self.reads = 0

    def read(self, locators: Int64s, names: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        self.reads += 1
        arrays = []
        for name in names:
            stored = self.columns.get(name)
            values = [None if stored is None else stored[place] for place in locators.tolist()]
            column = pa.array(values, pa.binary())
            arrays.append(
                column
                if name == "payload"
                else pa.Array.from_buffers(pa.utf8(), len(column), column.buffers())
            )
        return pa.RecordBatch.from_arrays(arrays, names=list(names))


def journal_of(columns: dict[str, list[bytes | None]]) -> tuple[Journal, Stored]:
    stored = Stored(columns)
    return stored, stored  # type: ignore[return-value]


def leased(first: int, count: int, **more: object) -> Leased:
    """Rows whose locators are their numbers."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    ones = np.ones(count, dtype=np.uint16)
    return Leased(first, 1_000, numbers, ones, numbers + 100, numbers, **more)  # type: ignore[arg-type]


def pushes(journal: Journal, *leases: Leased, partition: int = 2) -> list[Push]:
    return [Push(partition, journal, one, 1_000) for one in leases]


PAYLOADS: list[bytes | None] = [b"a", b"b", b"c", b"d", b"e"]


def test_dispatches_of_a_partition_are_one_read__and_a_batch_each() -> None:
    journal, stored = journal_of({"payload": PAYLOADS})
    batches = delivery_batches(pushes(journal, leased(3, 2), leased(0, 3)))
    assert stored.reads == 1
    assert [batch.column("payload").to_pylist() for batch in batches] == [
        [b"d", b"e"],
        [b"a", b"b", b"c"],
    ]
    assert batches[0].column("id").to_pylist() == [(2 << 47) | 3, (2 << 47) | 4]
    assert batches[0].column("due").to_pylist() == [103, 104]
    assert all(batch.schema == DELIVERY for batch in batches)


def test_rows_that_are_gone_are_left_out__and_no_others() -> None:
    """The lease ended, and somebody else finished the row before it was sent."""
    journal, _ = journal_of({"payload": [b"a", None, b"c", b"d", b"e"]})
    first, second = delivery_batches(pushes(journal, leased(0, 3), leased(3, 2)))
    assert first.column("payload").to_pylist() == [b"a", b"c"]
    assert first.column("due").to_pylist() == [100, 102]
    assert second.num_rows == 2
    [none] = delivery_batches(pushes(journal, leased(1, 1)))
    assert none.num_rows == 0


def test_what_was_read_early_is_sent_as_it_was() -> None:
    """It is done already: its rows are not in the journal any more."""
    journal, stored = journal_of({"payload": PAYLOADS})
    early = pa.RecordBatch.from_pylist([], DELIVERY)
    push = Push(2, journal, leased(0, 1), 1, is_done=True, kept=[early])
    assert delivery_batches([push]) == [early]
    assert stored.reads == 0


def test_priorities_of_dispatches_without_any_are_the_default() -> None:
    """The first message that has one comes at some time, between two dispatches of a read."""
    journal, _ = journal_of({"payload": PAYLOADS})
    some = leased(2, 2, priorities=np.array([3, 4], dtype=np.uint16))
    first, second = delivery_batches(pushes(journal, leased(0, 2), some))
    assert first.column("priority").to_pylist() == [DEFAULT_PRIORITY] * 2
    assert second.column("priority").to_pylist() == [3, 4]
    [none] = delivery_batches(pushes(journal, leased(0, 2)))
    assert none.column("priority").to_pylist() == [DEFAULT_PRIORITY] * 2


def test_groups_that_changed_since_are_those_of_now() -> None:
    journal, _ = journal_of({"payload": PAYLOADS, "group": [b"old"] * 5})
    now = Words(("", "new"), np.array([1, 0], dtype=np.int32))
    both = [leased(0, 2, groups=now), leased(2, 2, groups=now)]
    batches = delivery_batches(pushes(journal, *both))
    assert [batch.column("group").to_pylist() for batch in batches] == [["new", None]] * 2
    [as_stored] = delivery_batches(pushes(journal, leased(0, 1)))
    assert as_stored.column("group").to_pylist() == ["old"]


def test_tags_and_headers_are_null_where_no_row_has_them() -> None:
    journal, _ = journal_of({"payload": PAYLOADS})
    [batch] = delivery_batches(pushes(journal, leased(0, 2)))
    assert batch.column("tags").to_pylist() == [None, None]
    assert batch.column("headers").to_pylist() == [None, None]


def test_what_was_sent_is_what_is_delivered() -> None:
    """Through a real core and its journal."""
    served = Served()
    served.send([b"a", b"b"], keys=["k", ""])
    now_ms = served.core.now_ms()
    effects = served.core.engine.apply(Lease(now_ms, 99, now_ms, 9, now_ms + 1_000))
    assert effects.leased is not None
    [batch] = delivery_batches([Push(0, served.core.journal, effects.leased, 9)])
    batch.validate(full=True)
    assert batch.column("payload").to_pylist() == [b"a", b"b"]
    assert batch.column("key").to_pylist()[0] == "k"
    assert batch.column("attempts").to_pylist() == [1, 1]


def test_a_page_has_the_state_of_each_row__also_where_some_are_gone() -> None:
    journal, _ = journal_of({"payload": [b"a", None, b"c"]})
    ids, ones = sequences(0, 1, 2), np.ones(3, dtype=np.uint16)
    state = PeekState(["scheduled", "leased", "dead"], [None, "ann", "bob"])
    batch = peek_batch(journal, ids, ids, ones, ids, state)
    assert batch.schema == PEEK
    assert batch.column("state").to_pylist() == ["scheduled", "dead"]
    assert batch.column("consumer").to_pylist() == [None, "bob"]


@pytest.mark.parametrize("names", [("",), ("", "g"), ("g", "")])
def test_no_group_is_null__not_an_empty_text(names: tuple[str, ...]) -> None:
    indices = np.arange(len(names), dtype=np.int32)
    assert text_of(Words(names, indices)).to_pylist() == [name or None for name in names]


def test_rows_that_were_copied_since_they_were_leased_are_read_where_they_are() -> None:
    """One of them twice; what is no more, is no more."""
    stored: list[bytes | None] = [b"a", None, None, None, None, None, b"c", b"b"]
    journal, _ = journal_of({"payload": stored})
    [push, other] = pushes(journal, leased(0, 4), leased(0, 1))
    push.copies.append((sequences(1, 2), sequences(4, 6)))
    push.copies.append((sequences(1), sequences(7)))
    first, second = delivery_batches([push, other])
    assert first.column("payload").to_pylist() == [b"a", b"b", b"c"]
    assert first.column("due").to_pylist() == [100, 101, 102]
    assert second.column("payload").to_pylist() == [b"a"]


def apart(rows: Leased) -> Leased:
    """The same rows, each in an entry of its own."""
    return replace(rows, locators=rows.locators << limits.ROW_BITS)


class Damaged(Stored):
    """A journal whose rows lie apart, and of which one cannot be read."""

    def read(self, locators: Int64s, names: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        rows = locators >> limits.ROW_BITS
        if 1 in rows.tolist():
            raise JournalDamaged("row 1 is not what was written")
        return super().read(rows, names)


def test_a_row_whose_copy_is_damaged_holds_up_none_that_lay_beside_it() -> None:
    class Copied(Stored):
        def read(self, locators: Int64s, names: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
            if 9 in locators.tolist():
                raise JournalDamaged("the copy is not what was written")
            return super().read(locators, names)

    journal: Any = Copied({"payload": [b"a", None, b"c"]})
    [push] = pushes(journal, leased(0, 3))
    push.copies.append((sequences(1), sequences(9)))
    kept = acked_batch(replace(push, is_done=True), 5_000)
    assert kept.column("payload").to_pylist() == [b"a", b"c"]


def test_damaged_rows_hold_up_no_others() -> None:
    """They go back, to be tried again later."""
    journal: Any = Damaged({"payload": PAYLOADS})
    refused: list[tuple[object, int, list[int], list[int], int]] = []

    def could_not_read(consumer: object, partition: int, rows: Leased, again_ms: int) -> None:
        named = rows.sequences.tolist(), rows.attempts.tolist()
        refused.append((consumer, partition, *named, again_ms))

    noted: list[tuple[int, list[int]]] = []

    def sent_in_part(_who: object, partition: int, _lease_id: int, sent: SentRows) -> None:
        noted.append((partition, sent.sequences.tolist()))

    dispatcher = SimpleNamespace(could_not_read=could_not_read, sent_in_part=sent_in_part)
    consumer: Any = SimpleNamespace(dispatcher=dispatcher)
    parts = leased(3, 2), leased(0, 3), leased(1, 1), leased(2, 1)
    together = [replace(push, consumer=consumer) for push in pushes(journal, *map(apart, parts))]
    batches = readable_batches(together, 5_000)
    payloads = [batch.column("payload").to_pylist() for batch in batches]
    assert payloads == [PAYLOADS[3:5], [PAYLOADS[0], PAYLOADS[2]], [], PAYLOADS[2:3]]
    assert {batch.schema for batch in batches} == {DELIVERY}
    [sequence] = leased(1, 1).sequences.tolist()
    attempt = leased(1, 1).attempts.tolist()
    assert refused == [(consumer, 2, [sequence], attempt, 5_000 + UNREAD_MS)] * 2
    whole = leased(0, 3).sequences.tolist()
    assert noted == [(2, [one for one in whole if one != sequence])]


def test_damaged_rows_that_are_acked_before_they_are_sent_are_left_out() -> None:
    journal: Any = Damaged({"payload": PAYLOADS})
    [push] = pushes(journal, apart(leased(0, 5)))
    kept = acked_batch(replace(push, is_done=True), 5_000)
    assert kept.column("payload").to_pylist() == [b"a", b"c", b"d", b"e"]


def test_what_was_leased_ahead_and_cannot_be_read_does_not_come_early() -> None:
    """Rule 2."""
    again: list[int] = []

    def could_not_read(_who: object, _partition: int, _rows: Leased, again_ms: int) -> None:
        again.append(again_ms)

    consumer: Any = SimpleNamespace(dispatcher=SimpleNamespace(could_not_read=could_not_read))
    journal: Any = Damaged({"payload": PAYLOADS})
    ahead = replace(apart(leased(1, 1)), dues_ms=sequences(5_000 + 3 * UNREAD_MS))
    [push] = pushes(journal, ahead)
    readable_batches([replace(push, consumer=consumer)], 5_000)
    assert again == [5_000 + 3 * UNREAD_MS]


@pytest.mark.parametrize("wrong", [Unavailable("away", 10), JournalDamaged("all of it")])
def test_what_cannot_be_read_at_all_goes_back(wrong: DejaQError) -> None:
    refused: list[int] = []

    class Away(Stored):
        def read(self, locators: Int64s, names: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
            raise wrong

    def could_not_read(_consumer: object, _partition: int, rows: Leased, _again_ms: int) -> None:
        refused.extend(rows.sequences.tolist())

    consumer: Any = SimpleNamespace(dispatcher=SimpleNamespace(could_not_read=could_not_read))
    journal: Any = Away({"payload": PAYLOADS})
    push = replace(pushes(journal, leased(0, 3))[0], consumer=consumer)
    assert [batch.num_rows for batch in readable_batches([push], 5_000)] == [0]
    assert refused == leased(0, 3).sequences.tolist()


def test_a_page_with_damaged_rows_says_so_of_these_alone() -> None:
    stored: list[bytes | None] = [b"a", b"b", None, b"d"]
    journal: Any = Damaged({"payload": stored, "key": [b"ka", b"kb", b"kc", b"kd"]})
    ids, ones = sequences(0, 1, 2, 3), np.ones(4, dtype=np.uint16)
    groups = pa.array(["g0", "g1", "g2", "g3"])
    state, locators = PeekState(["scheduled"] * 4), ids << limits.ROW_BITS
    page = peek_batch(journal, ids, ids, ones, locators, state, None, groups)
    assert page.column("id").to_pylist() == [0, 1, 3]
    assert page.column("payload").to_pylist() == [b"a", None, b"d"]
    assert page.column("key").to_pylist() == ["ka", None, "kd"]
    assert page.column("group").to_pylist() == ["g0", "g1", "g3"]
    told = "t/0, entry 1: is not what was written; the broker's log names the file"
    assert page.column(UNREAD.name).to_pylist() == [None, told, None]
    assert page.schema.names == [*PEEK.names, UNREAD.name]
