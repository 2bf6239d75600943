"""What an SQS message is as a row: attributes, digests, headers, and back."""

from __future__ import annotations

import base64
import hashlib
import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.http.sqs.rows import (
    DRAWN,
    SQS,
    Wanted,
    attributes_of,
    batch_of,
    digest_of,
    message_of,
    new_id,
    row_of,
    rows_of,
    sending_of,
    sequence_number,
    wanted_of,
)

TEXTS = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cn"]), min_size=1)


def sent(**more: Any) -> dict[str, Any]:
    return {"MessageBody": "body", **more}


def string(text: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": text}


def received(values: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    """A message as it comes, of one as it was sent."""
    sending = sending_of(values)
    row = {
        "id": 5,
        "attempts": 2,
        "due": 1_000,
        "group": sending.group or None,
        "headers": sending.headers("shop", 900),
        "payload": sending.body,
    }
    return message_of("q", row, wanted, {"SequenceNumber": sequence_number(5)})


@given(TEXTS.filter(lambda text: len(text) < 100), st.binary(min_size=1, max_size=200))
def test_attributes_come_back_as_they_were_sent(text: str, content: bytes) -> None:
    value = base64.b64encode(content).decode()
    attributes = {
        "text": string(text),
        "number": string("-1.5e3", "Number.float"),
        "bytes": {"DataType": "Binary.png", "BinaryValue": value},
    }
    try:
        found = received(sent(MessageAttributes=attributes), Wanted(prefixes=("",)))
    except SqsRefusal as refused:
        assert "XML" in str(refused)
        return
    assert found["MessageAttributes"] == attributes
    assert found["MD5OfMessageAttributes"] == digest_of(attributes_of(attributes))
    assert found["Body"] == "body"


def test_the_digest_is_of_names_types_and_values__by_name() -> None:
    """As SQS's guide describes it."""

    def part(text: bytes) -> bytes:
        return struct.pack(">I", len(text)) + text

    content = base64.b64encode(b"\0\1").decode()
    attributes = {"b": {"DataType": "Binary", "BinaryValue": content}, "a": string("ü")}
    wanted = part(b"a") + part(b"String") + b"\1" + part("ü".encode())
    wanted += part(b"b") + part(b"Binary") + b"\2" + part(b"\0\1")
    found = digest_of(attributes_of(attributes))
    assert found == hashlib.md5(wanted, usedforsecurity=False).hexdigest()


def test_only_what_is_asked_for_comes() -> None:
    attributes = {"a.b": string("1"), "a.c": string("2"), "d": string("3")}
    values = sent(MessageAttributes=attributes, MessageGroupId="g")
    wanted = wanted_of({"MessageAttributeNames": ["a.*"], "AttributeNames": ["SentTimestamp"]})
    found = received(values, wanted)
    assert sorted(found["MessageAttributes"]) == ["a.b", "a.c"]
    assert found["Attributes"] == {"SentTimestamp": "900"}
    found = received(values, wanted_of({"MessageSystemAttributeNames": ["All"]}))
    assert "MessageAttributes" not in found
    assert found["Attributes"] == {
        "SenderId": "shop",
        "SentTimestamp": "900",
        "ApproximateReceiveCount": "2",
        "MessageGroupId": "g",
        "SequenceNumber": "00000000000000000005",
    }
    assert "Attributes" not in received(values, wanted_of({}))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"MessageBody": ""}, "MessageBody: a text"),
        ({"MessageBody": 5}, "MessageBody: a text"),
        ({"MessageBody": "\ufffe"}, "XML's characters"),
        (sent(DelaySeconds=-1), "DelaySeconds"),
        (sent(DelaySeconds=True), "DelaySeconds"),
        (sent(MessageGroupId="a b"), "MessageGroupId"),
        (sent(MessageGroupId=""), "MessageGroupId"),
        (sent(MessageAttributes={str(n): string("x") for n in range(11)}), "at most 10"),
        (sent(MessageAttributes={"AWS.a": string("x")}), "name of an attribute"),
        (sent(MessageAttributes={SQS: string("x")}), "name of an attribute"),
        (sent(MessageAttributes={"a": string("x", "Date")}), "DataType"),
        (sent(MessageAttributes={"a": string("x", "Number")}), "a number"),
        (sent(MessageAttributes={"a": string("")}), "not empty"),
        (sent(MessageAttributes={"a": {"DataType": "Binary", "BinaryValue": "%"}}), "base64"),
        (sent(MessageAttributes={"a": {"DataType": "String", "StringListValues": ["x"]}}), "lists"),
        (sent(MessageAttributes={"a": 5}), "an object"),
        (sent(MessageSystemAttributes={"a": string("x")}), "AWSTraceHeader"),
        (sent(MessageSystemAttributes={"AWSTraceHeader": string("1", "Number")}), "String"),
    ],
)
def test_what_sqs_refuses_is_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(SqsRefusal, match=told):
        sending_of(values)


def test_attributes_that_do_not_fit_are_refused() -> None:
    sending = sending_of(sent(MessageAttributes={"a": string("x" * 4_000)}))
    with pytest.raises(SqsRefusal, match="MessageAttributes: at most"):
        sending.headers("", 0)


def test_rows_become_a_batch__and_a_batch_rows() -> None:
    """Of a slice, too, as requests share what came together."""
    attributes = {"a": string("1"), "b": string("2")}
    plain = row_of(sending_of(sent()), "shop", 5)
    full = row_of(sending_of(sent(MessageAttributes=attributes, DelaySeconds=2)), "", 5)
    grouped = row_of(sending_of(sent(MessageGroupId="g")), "", 5)
    assert batch_of([plain]).schema.names == ["payload", "headers"]
    batch = batch_of([plain, full, grouped])
    assert batch.column("due").to_pylist() == [5, 2_005, 5]
    assert batch.column("group").to_pylist() == ["", "", "g"]
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {"id": pa.array([1, 2, 3]), "attempts": pa.array([1, 1, 1])}
    found = rows_of(pa.RecordBatch.from_pydict(columns).slice(1))
    assert [row["id"] for row in found] == [2, 3]
    assert found[0]["headers"] == full.headers
    assert list(found[1]["headers"]) == [SQS]
    assert (found[0]["payload"], found[1]["group"]) == (b"body", "g")


def test_ids_are_of_chance__in_the_form_of_uuids() -> None:
    found = [new_id() for _ in range(2 * DRAWN + 1)]
    assert len(set(found)) == len(found)
    for text in found:
        assert (str(uuid.UUID(text)), uuid.UUID(text).version) == (text, 4)
