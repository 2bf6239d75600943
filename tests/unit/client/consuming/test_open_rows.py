"""Covers: which deliveries are open, and that those that are settled are not kept."""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.client.consuming.holding import Holder, Lease
from dejaqueue.client.consuming.open_rows import SPARE, OpenRows
from dejaqueue.wire.frames import DeliveryHead
from tests.answers import listed
from tests.unit.client.fake_transport import delivery_batch


def came(rows: OpenRows, first_id: int, *, generation: int = 1) -> Lease:
    head = DeliveryHead(0, 2, first_id, 30_000, 0)
    batch = delivery_batch([5, 6], first_id)
    lease = Holder().add(head, batch, generation)
    rows.add(lease, batch)
    return lease


def test_what_is_open_is_left__with_attempts_and_due_times() -> None:
    rows = OpenRows()
    came(rows, 10)
    came(rows, 20).rows_open = 0
    came(rows, 30).rows_open = 1
    left = rows.left()
    assert left is not None
    assert listed(left.ids) == [10, 11, 30, 31]
    assert listed(left.attempts) == [1] * 4
    assert listed(left.dues_ms) == [5, 6, 5, 6]


def test_what_came_by_streams_before_can_be_told_apart() -> None:
    rows = OpenRows()
    came(rows, 10, generation=1)
    came(rows, 20, generation=2)
    left = rows.left(before=2)
    assert left is not None
    assert listed(left.ids) == [10, 11]
    assert rows.left(before=1) is None


def test_what_is_settled_is_forgotten__and_what_is_open_is_not() -> None:
    rows = OpenRows()
    kept = came(rows, 0)
    for number in range(10 * SPARE):
        came(rows, 2 + 2 * number).rows_open = 0
        assert len(rows) <= SPARE + 4
    left = rows.left()
    assert left is not None
    assert listed(left.ids) == [0, 1]
    assert kept.rows_open == 2


def test_no_batch_is_kept_alive() -> None:
    before = pa.total_allocated_bytes()
    rows = OpenRows()
    for number in range(8):
        head = DeliveryHead(0, 1, number, 30_000, 0)
        batch = delivery_batch([5], number)
        payload = pa.array([b"x" * 1_000_000], pa.binary())
        batch = batch.set_column(batch.schema.names.index("payload"), "payload", payload)
        rows.add(Holder().add(head, batch, 1), batch)
    del batch, payload
    assert pa.total_allocated_bytes() - before < 1_000_000
