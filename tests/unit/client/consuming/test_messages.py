"""Messages as users see them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.client.consuming.holding import Lease, Slice
from dejaqueue.client.consuming.messages import BatchFields, MessageColumns, MessageFields
from tests.unit.client.fake_transport import delivery_batch

CORE: Any = None


def slice_of(batch: pa.RecordBatch) -> Slice:
    lease = Lease(0, 1, batch.num_rows, 30_000, 60_000, 1)
    return Slice(
        lease,
        batch,
        batch.column("id").to_numpy(),
        batch.column("due").to_numpy(),
        batch.column("attempts").to_numpy(),
    )


def test_fields() -> None:
    columns = MessageColumns(CORE, slice_of(delivery_batch([1_000, 2_500], 40, 3)))
    message = MessageFields(columns, 1, 17)
    assert (message.id, message.due_ms, message.attempt, message.lateness_us) == (41, 2_500, 3, 17)
    assert message.due == datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC)
    assert (message.payload, message.key, message.group) == (b"payload-1", "key-1", "")
    assert (message.priority, message.tags, message.headers) == (7, ("blue",), {"trace": "1"})
    assert "id=41" in repr(message)


def test_one_row_alone() -> None:
    columns = MessageColumns(CORE, slice_of(delivery_batch([1, 2, 3])))
    row = MessageFields(columns, 2, 0)._row()
    assert (row.ids.tolist(), row.attempts.tolist(), row.is_whole) == ([2], [1], False)
    alone = slice_of(delivery_batch([1]))
    assert MessageFields(MessageColumns(CORE, alone), 0, 0)._row() is alone


def test_columns_that_were_not_sent_have_defaults() -> None:
    batch = delivery_batch([1]).select(["id", "due", "attempts"])
    message = MessageFields(MessageColumns(CORE, slice_of(batch)), 0, 0)
    assert (message.payload, message.key, message.priority) == (b"", None, 32_768)
    assert (message.tags, message.headers) == ((), {})


def test_batches() -> None:
    rows = slice_of(delivery_batch([1, 2]))
    batch = BatchFields(CORE, None, rows, np.array([5, 6]))
    assert len(batch) == 2
    assert batch.batch.num_rows == 2
    assert "2 messages" in repr(batch)
