"""Single messages as bytes and as a record batch."""

from __future__ import annotations

import struct

import pytest

from dejaqueue.client.row_batch import RowBatch
from dejaqueue.client.sending.gather import VARIANTS
from dejaqueue.wire import lane


@pytest.mark.parametrize("dues_ms", [None, [5, 6]])
def test_both_forms_have_the_same_rows(dues_ms: list[int] | None) -> None:
    rows = RowBatch([b"a", b"bc"], dues_ms)
    batch = rows.record_batch()
    frame = lane.encode_send(1, b"address", rows.num_rows, rows.content, has_dues=rows.has_dues)
    sent = lane.decode_send(frame[lane.LENGTH_BYTES :])
    assert batch.column("payload").to_pylist() == sent.payloads == [b"a", b"bc"]
    assert sent.dues_ms == dues_ms
    assert batch.schema == VARIANTS[dues_ms is not None, False].schema
    if dues_ms is not None:
        assert batch.column("due").to_pylist() == dues_ms


def test_what_no_message_can_have_is_found_at_once() -> None:
    with pytest.raises(struct.error):
        RowBatch([b"a"], [1 << 70])
    with pytest.raises(TypeError):
        RowBatch(["text"], None)  # type: ignore[list-item]
