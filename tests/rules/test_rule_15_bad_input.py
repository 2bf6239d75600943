"""Rule 15: bad input names the field, the limit and the value, and changes nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.schema.messages import HEADERS, TAGS
from dejaqueue.wire.descriptors import WriteStream
from tests.rules.conftest import MakeBroker

PAYLOAD = pa.array([b"a", b"b"])

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "null due": (
        {"payload": PAYLOAD, "due": pa.array([1_800_000_000_000, None])},
        "due of row 1: a value, got: None",
    ),
    "negative due": (
        {"payload": PAYLOAD, "due": pa.array([1_800_000_000_000, -1])},
        "due of row 1: UTC milliseconds: 0, or from 100000000000 to 253402300799999, got: -1",
    ),
    "due in seconds": (
        {"payload": PAYLOAD, "due": pa.array([0, 1_800_000_000])},
        "(this looks like seconds: multiply by 1000), got: 1800000000",
    ),
    "null payload": ({"payload": pa.array([b"a", None])}, "payload of row 1: a value"),
    "large payload": (
        {"payload": pa.array([b"a", b"x" * 101])},
        "payload of row 1: at most 100 bytes, got: 101",
    ),
    "long key": (
        {"payload": PAYLOAD, "key": pa.array(["k", "x" * 257])},
        "key of row 1: at most 256 bytes, got: 257",
    ),
    "partition out of range": (
        {"payload": PAYLOAD, "partition": pa.array([0, 2], pa.int32())},
        "partition of row 1: from 0 to 0, got: 2",
    ),
    "too many tags": (
        {"payload": PAYLOAD, "tags": pa.array([[], ["t"] * 17], TAGS)},
        "tags of row 1: at most 16, got: 17",
    ),
    "separator in a header": (
        {"payload": PAYLOAD, "headers": pa.array([[("a", "\x1f")], []], HEADERS)},
        "headers: no U+001E or U+001F inside",
    ),
    "no rows": ({"payload": PAYLOAD[:0]}, "rows of the batch: from 1 to 1048576, got: 0"),
}
BAD_SCHEMA: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": ({"payload": PAYLOAD, "colour": PAYLOAD}, "colour: one of payload, due"),
    "wrong type": ({"payload": pa.array([1, 2])}, "type of payload: binary, got: 'int64'"),
    "no payload": ({"due": pa.array([1])}, "payload: a column of this name"),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "-"))
def test_a_bad_batch_is_refused_whole(make_broker: MakeBroker, case: str) -> None:
    columns, text = BAD[case]
    broker = make_broker(max_payload_bytes=100)
    reply = broker.write("enqueue", columns)
    assert isinstance(reply.error, BadRequest)
    assert text in str(reply.error)
    assert broker.consumer().payloads() == []


@pytest.mark.one_broker("a schema goes with its first batch")
@pytest.mark.parametrize("case", BAD_SCHEMA, ids=lambda case: case.replace(" ", "-"))
def test_a_bad_schema_is_refused(make_broker: MakeBroker, case: str) -> None:
    columns, text = BAD_SCHEMA[case]
    with pytest.raises(BadRequest, match=text):
        make_broker().write("enqueue", columns)


def test_too_far_ahead__max_delay(make_broker: MakeBroker) -> None:
    broker = make_broker(max_delay_ms=1_000)
    reply = broker.send([b"a"], [broker.now_ms + 1_001])
    assert isinstance(reply.error, BadRequest)
    assert broker.send([b"a"], [broker.now_ms + 1_000]).error is None


def test_an_unknown_topic(make_broker: MakeBroker) -> None:
    with pytest.raises(TopicUnknown, match="topic: the name of an existing topic, got: 'nope'"):
        make_broker().broker.open_write(WriteStream("nope"))


def test_a_key_with_an_own_partition(make_broker: MakeBroker) -> None:
    columns = {
        "payload": PAYLOAD,
        "key": pa.array(["a", "b"]),
        "partition": pa.array([0, 0], pa.int32()),
    }
    reply = make_broker().write("enqueue", columns)
    assert "not together with key" in str(reply.error)
