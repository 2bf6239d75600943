"""Covers: several requests share what came in one delivery."""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.http.leasing.waiter import Delivered, Taken
from dejaqueue.schema.messages import DELIVERY


def delivered(*payloads: bytes) -> Delivered:
    rows = [
        {"id": number, "due": 5, "attempts": 1, "priority": 7, "payload": payload}
        for number, payload in enumerate(payloads)
    ]
    return Delivered(pa.RecordBatch.from_pylist(rows, DELIVERY), 9_000)


def test_each_request_gets_its_stretch() -> None:
    shared = delivered(b"a", b"b", b"c")
    first, second = Taken(shared, 0, 1), Taken(shared, 1, 2)
    assert first.batch.column("payload").to_pylist() == [b"a"]
    assert second.batch.column("payload").to_pylist() == [b"b", b"c"]
    assert first.lease_end_ms == second.lease_end_ms == 9_000
    assert [one["payload"] for one in second.objects()] == ["b", "c"]


def test_objects_are_made_once_for_each_encoding() -> None:
    shared = delivered(b"a", b"b")
    assert shared.values(pa.RecordBatch.to_pylist) is shared.values(pa.RecordBatch.to_pylist)
    assert [row["id"] for row in Taken(shared, 1, 1).values(pa.RecordBatch.to_pylist)] == [
        shared.batch.column("id")[1].as_py()
    ]
    assert shared.objects(as_base64=False) is shared.objects(as_base64=False)
    assert shared.objects(as_base64=True) is not shared.objects(as_base64=False)
    [row] = Taken(shared, 1, 1).objects(as_base64=True)
    assert row["payload_base64"] == "Yg=="
