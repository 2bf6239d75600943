"""Single messages as bytes and as a record batch."""

from __future__ import annotations

import struct

import pytest

from dejaqueue.client.row_batch import RowBatch
from dejaqueue.client.sending.gather import VARIANTS
from dejaqueue.schema.row_fields import Fields
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


@pytest.mark.parametrize("dues_ms", [None, [5, 6]])
def test_both_forms_have_the_same_fields(dues_ms: list[int] | None) -> None:
    more = (
        ("k", None),
        ("", "g"),
        (7, 32_768),
        (["red", "blue"], None),
        (None, [("n", "v")]),
        (None, 9),
    )
    rows = RowBatch([b"a", b"bc"], dues_ms, more)
    assert rows.has_fields
    batch = rows.record_batch()
    assert batch.schema == VARIANTS[dues_ms is not None, True].schema
    content = lane.encode_send(
        1, b"at", 2, rows.content, has_dues=rows.has_dues, has_fields=rows.has_fields
    )
    sent = lane.decode_send(content[lane.LENGTH_BYTES :])
    assert sent.fields == Fields(
        [b"k", b""], [b"", b"g"], [[b"red", b"blue"], []], [[], [b"n", b"v"]], [7, 32_768], [0, 9]
    )
    assert batch.column("key").to_pylist() == ["k", None]
    assert batch.column("headers").to_pylist() == [None, [("n", "v")]]


def test_fields_that_say_nothing_are_none() -> None:
    rows = RowBatch([b"a"], None, ((None,), ("",), (32_768,), (None,), (None,), (None,)))
    assert not rows.has_fields
    assert rows.content == RowBatch([b"a"], None).content


def test_what_no_message_can_have_is_found_at_once() -> None:
    with pytest.raises(struct.error):
        RowBatch([b"a"], [1 << 70])
    with pytest.raises(TypeError):
        RowBatch(["text"], None)  # type: ignore[list-item]
