"""Rows that a client refuses by itself. What becomes of them: integration/test_bad_rows.py."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client.consuming.holding import rows_of
from dejaqueue.client.consuming.undecodable import delay_ms, sort_out
from dejaqueue.schema.messages import DELIVERY
from dejaqueue.wire.frames import DeliveryHead

BAD = b"\xc3\x28"


def text(contents: list[bytes | None]) -> pa.Array:
    return pa.array(contents, pa.binary()).view(pa.utf8())


def delivery(keys: list[bytes | None], groups: list[bytes | None]) -> pa.RecordBatch:
    rows = len(keys)
    columns = {
        "id": pa.array(range(10, 10 + rows), pa.int64()),
        "due": pa.array([5_000] * rows, pa.int64()),
        "attempts": pa.array([1] * rows, pa.uint16()),
        "key": text(keys),
        "group": text(groups),
        "priority": pa.array([0] * rows, pa.uint16()),
        "payload": pa.array([BAD] * rows, pa.binary()),
    }
    found = [
        columns.get(field.name, pa.nulls(rows, field.type)).cast(field.type, safe=False)
        if field.name not in ("key", "group")
        else columns[field.name]
        for field in DELIVERY
    ]
    return pa.RecordBatch.from_arrays(found, schema=DELIVERY)


def test_rows_are_refused_once_each_by_the_first_field_that_is_wrong() -> None:
    batch = delivery([b"a", BAD, None, BAD], [b"g", b"g", BAD, BAD])
    good, refused = sort_out(batch)
    assert good.column("key").to_pylist() == ["a"]
    assert [(reason.partition(" ")[0], rows.ids.tolist()) for reason, rows in refused] == [
        ("key", [11, 13]),
        ("group", [12]),
    ]


def test_a_payload_is_no_text_and_good_rows_are_not_copied() -> None:
    batch = delivery([b"a", None], [b"g", None])
    assert sort_out(batch) == (batch, [])


@pytest.mark.parametrize(
    ("attempt", "due_ms", "expected_ms"),
    [(1, 0, 1_000), (2, 0, 2_000), (7, 0, 64_000), (65_535, 0, 64_000), (1, 1_900, 1_800)],
)
def test_a_refused_row_waits_longer_each_time_and_until_it_is_due(
    attempt: int, due_ms: int, expected_ms: int
) -> None:
    rows = rows_of(
        np.array([7]), np.array([attempt], dtype=np.uint16), np.array([due_ms], dtype=np.int64)
    )
    head = DeliveryHead(partition=0, rows=1, lease_id=1, lease_end_ms=9_000, broker_us=100_000)
    assert delay_ms(rows, head) == expected_ms
