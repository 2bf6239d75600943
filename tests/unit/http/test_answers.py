"""Messages and statuses as JSON values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.errors import DuplicateKey
from dejaqueue.http import answers
from dejaqueue.http.gather import Answered
from dejaqueue.model import RowStatus
from dejaqueue.schema.messages import DELIVERY, UNREAD


def batch(*payloads: bytes, **columns: pa.Array) -> pa.RecordBatch:
    rows = len(payloads)
    values = {
        "id": pa.array(range(rows), pa.int64()),
        "due": pa.array([7] * rows, pa.int64()),
        "attempts": pa.array([1] * rows, pa.uint16()),
        "priority": pa.array([3] * rows, pa.uint16()),
        "payload": pa.array(payloads, pa.binary()),
        **columns,
    }
    whole = [values.get(field.name, pa.nulls(rows, field.type)) for field in DELIVERY]
    return pa.RecordBatch.from_arrays(whole, schema=DELIVERY)


def test_a_message_shows_what_it_has() -> None:
    plain = {"attempt": 1, "due": 7, "priority": 3, "lease_end_ms": 9}
    full = batch(
        b"a",
        "é".encode(),
        key=pa.array([None, "k"], pa.utf8()),
        tags=pa.array([["x"], None], pa.list_(pa.utf8())),
        headers=pa.array([None, [("h", "v")]], pa.map_(pa.utf8(), pa.utf8())),
    )
    assert answers.messages(full, lease_end_ms=9) == [
        {"id": "0", **plain, "payload": "a", "tags": ["x"]},
        {"id": "1", **plain, "payload": "é", "key": "k", "headers": {"h": "v"}},
    ]
    assert answers.messages(batch()) == []


def test_bytes_that_are_no_text_are_base64() -> None:
    first, second = answers.messages(batch(b"a", b"\xff"))
    assert (first["payload"], second["payload_base64"]) == ("a", "/w==")
    assert "payload" not in second
    first, second = answers.messages(batch(b"a", b""), as_base64=True)
    assert (first["payload_base64"], second["payload_base64"]) == ("YQ==", "")


@pytest.mark.parametrize("other", [b"a", b"\xff"])
def test_a_payload_that_cannot_be_read_is_left_out__and_why_is_said(other: bytes) -> None:
    whole = batch(other, b"")
    payloads = pa.array([other, None], pa.binary())
    place = DELIVERY.get_field_index("payload")
    page = whole.set_column(place, pa.field("payload", pa.binary()), payloads)
    page = page.append_column(UNREAD, pa.array([None, "it is missing"], UNREAD.type))
    first, second = answers.messages(page)
    assert "unread" not in first
    assert second["unread"] == "it is missing"
    assert not {"payload", "payload_base64"} & set(second)


def test_statuses_have_names() -> None:
    answered = Answered([5, -1, 6], [RowStatus.OK, RowStatus.DUPLICATE, RowStatus.KEPT])
    assert answers.sent(answered) == [
        {"id": "5", "status": "OK"},
        {"id": None, "status": "DUPLICATE"},
        {"id": "6", "status": "KEPT"},
    ]
    assert answers.sent(Answered([1, 2], [0, 0]))[1] == {"id": "2", "status": "OK"}
    assert answers.statuses([("key", "a")], [RowStatus.LEASED]) == [
        {"key": "a", "status": "LEASED"}
    ]


def test_a_duplicate_alone_is_an_error() -> None:
    assert answers.one_sent(Answered([5], [RowStatus.KEPT]), "k") == {"id": "5", "status": "KEPT"}
    with pytest.raises(DuplicateKey) as refused:
        answers.one_sent(Answered([5], [RowStatus.DUPLICATE]), "k")
    assert refused.value.id == 5
