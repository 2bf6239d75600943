"""Small batches joined into one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.broker.partition.merging import merge
from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.broker.replies import no_reply
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.engine.dictionary import of_runs, to_runs
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_send
from dejaqueue.schema.send_rows import check_rows


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
    assert merged.senders is None


def test_each_row_keeps_its_sender__also_when_others_are_left_out() -> None:
    requests = [request([b"%d" % n] * rows) for n, rows in enumerate((1, 2, 3, 1))]
    requests[0].senders = of_runs([("a", 1)])
    requests[2].senders = of_runs([("b", 1), ("a", 2)])
    requests[3].senders = of_runs([("a", 1)])
    merged = merge(requests)
    assert merged.senders is not None
    assert merged.senders.names == ("a", "", "b")
    assert to_runs(merged.senders) == [("a", 1), ("", 2), ("b", 1), ("a", 3)]
    merged.keep(np.array([2, 3, 6]))
    assert merged.senders.names == ("", "b", "a")  # as a replay finds them
    assert to_runs(merged.senders) == [("", 1), ("b", 1), ("a", 1)]


def test_rows_keep_their_order__columns_that_some_have() -> None:
    merged = merge([request([b"a"]), request([b"b", b"c"], ["k", ""]), request([b"d"])])
    assert merged.starts.tolist() == [0, 1, 3, 4]
    assert merged.columns.payloads.to_pylist() == [b"a", b"b", b"c", b"d"]
    assert merged.columns.keys is not None
    assert merged.key_hashes is not None
    assert merged.columns.keys.to_pylist() == ["", "k", "", ""]
    assert [bool(key_hash) for key_hash in merged.key_hashes] == [False, True, False, False]
    assert merged.columns.payload_bytes == 4
    assert set(merged.texts()) == {"key", "payload"}


NOW_MS = 1_000_000_000_000


def plain(*payloads: bytes) -> EnqueueRequest:
    rows = check_rows(list(payloads), [NOW_MS + row for row in range(len(payloads))], Topic("t"), 5)
    return EnqueueRequest(rows, "", 1, "all", no_reply)


def test_what_never_was_a_column_is_joined_as_columns_are() -> None:
    parts = [[b"a"], [b"", b"ccc"], [b"dd"]]
    merged = merge([plain(*payloads) for payloads in parts])
    usual = merge([request(payloads) for payloads in parts])
    assert merged.starts.tolist() == usual.starts.tolist()
    assert (merged.columns.dues_ms - NOW_MS).tolist() == [0, 0, 1, 0]
    assert merged.columns.payload_bytes == usual.columns.payload_bytes
    assert merged.payload_sizes().tolist() == usual.payload_sizes().tolist() == [1, 0, 3, 2]
    [(name, text)], [(usual_name, usual_text)] = merged.texts().items(), usual.texts().items()
    assert name == usual_name == "payload"
    assert text.offsets.tolist() == usual_text.offsets.tolist()
    assert bytes(text.data) == bytes(usual_text.data)
