"""Small batches joined into one."""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.broker.entries import hash_column, text_column
from dejaqueue.broker.merging import merge
from dejaqueue.broker.requests import EnqueueRequest, no_reply
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_send


def request(payloads: list[bytes], keys: list[str] | None = None) -> EnqueueRequest:
    columns = {"payload": pa.array(payloads)}
    if keys is not None:
        columns["key"] = pa.array(keys)
    checked = check_send(pa.record_batch(columns), Topic("t"), 5)
    hashes = None if checked.keys is None else hash_column(text_column(checked.keys))
    return EnqueueRequest(checked, "", 1, "all", no_reply, hashes)


def test_one_request_is_taken_as_it_is() -> None:
    only = request([b"a", b"b"])
    merged = merge([only])
    assert merged.columns is only.columns
    assert merged.starts.tolist() == [0, 2]


def test_rows_keep_their_order__columns_that_some_have() -> None:
    merged = merge([request([b"a"]), request([b"b", b"c"], ["k", ""]), request([b"d"])])
    assert merged.starts.tolist() == [0, 1, 3, 4]
    assert merged.columns.payloads.to_pylist() == [b"a", b"b", b"c", b"d"]
    assert merged.columns.keys.to_pylist() == ["", "k", "", ""]
    assert [bool(key_hash) for key_hash in merged.key_hashes] == [False, True, False, False]
    assert merged.columns.payload_bytes == 4
    assert set(merged.texts()) == {"key", "payload"}
