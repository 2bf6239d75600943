"""Covers: stream descriptors: there and back, and what is refused by name (rule 15)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.wire.descriptors import (
    Address,
    ConsumeStream,
    WriteStream,
    check_span,
    decode,
    decode_address,
    encode,
    encode_address,
)


@pytest.mark.parametrize(
    "stream",
    [
        WriteStream("reminders"),
        WriteStream("reminders", op="nack", acks="leader", argument_ms=500),
        WriteStream("reminders", op="nack", argument_ms=-1, reason="no address", dead=True),
        WriteStream("reminders", op="nack", released=True),
        WriteStream("reminders", producer="billing-1"),
        ConsumeStream("reminders"),
        ConsumeStream("reminders", "worker 1", 60_000, 100, holds=False),
        ConsumeStream("reminders", auto_ack=True, tags_any=("red",), tags_none=("x", "y")),
    ],
)
def test_a_descriptor_survives_the_wire(stream: WriteStream | ConsumeStream) -> None:
    kind: type[Any] = type(stream)
    assert decode(kind, encode(stream)) == stream


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", "a/b"),
        ("topic", 5),
        ("op", "drop"),
        ("acks", "some"),
        ("producer", 7),
        ("producer", "x" * 65),
        ("argument_ms", -1),
        ("argument_ms", 1.5),
        ("argument_ms", True),
        ("reason", "only a nack has one"),
        ("dead", True),
        ("released", True),
        ("colour", "red"),
    ],
)
def test_a_bad_write_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(WriteStream, json.dumps({"topic": "t", field: value}).encode())
    assert caught.value.field.endswith(field) or caught.value.field == "topic.name"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("argument_ms", -2),
        ("argument_ms", -1.0),
        ("reason", None),
        ("reason", "x" * 1_025),
        ("reason", "a\x1eb"),
        ("dead", 1),
        ("released", "yes"),
    ],
)
def test_a_bad_field_of_a_nack_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(WriteStream, json.dumps({"topic": "t", "op": "nack", field: value}).encode())
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("consumer", 7),
        ("consumer", "x" * 256),
        ("lease_ms", 9),
        ("lease_ms", "long"),
        ("batch_rows_max", 0),
        ("batch_rows_max", 8_193),
        ("batch_rows_max", True),
        ("holds", 1),
        ("auto_ack", "yes"),
        ("tags_any", "red"),
        ("tags_all", [""]),
        ("tags_none", ["x" * 65]),
        ("tags_none", ["x"] * 17),
    ],
)
def test_a_bad_consume_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(ConsumeStream, json.dumps({"topic": "t", field: value}).encode())
    assert caught.value.field == field


def test_a_message_does_not_die_of_a_release() -> None:
    with pytest.raises(BadRequest, match="released"):
        WriteStream("t", op="nack", dead=True, released=True).check()


def test_brokers_of_earlier_versions_hear_nothing_of_what_they_do_not_know() -> None:
    assert "released" not in json.loads(encode(WriteStream("t", op="nack")))


@pytest.mark.parametrize("command", [None, b"", b"[]", b"7", b"\xff\xfe", b'{"topic":'])
def test_what_is_no_json_object_is_refused(command: bytes | None) -> None:
    with pytest.raises(BadRequest, match=r"^descriptor\.command: a JSON object"):
        decode(WriteStream, command)


def test_a_descriptor_without_topic_is_refused() -> None:
    with pytest.raises(BadRequest, match="topic: a value"):
        decode(ConsumeStream, b"{}")


def test_a_span_is_returned() -> None:
    assert check_span("delay_ms", 0) == 0


def test_a_stream_without_a_topic_is_known_by_an_empty_one() -> None:
    assert decode(WriteStream, encode(WriteStream(""))) == WriteStream("")
    with pytest.raises(BadRequest, match=r"^(topic|name)"):
        WriteStream("").check()  # of whoever sends to a topic


@pytest.mark.parametrize("field", ["producer", "transaction"])
def test_what_belongs_to_a_topic_is_refused_without_one(field: str) -> None:
    command = json.dumps({"topic": "", field: "t/0/1-2-ab"}).encode()
    with pytest.raises(BadRequest, match=f"^{field}: nothing without a topic"):
        decode(WriteStream, command)


@pytest.mark.parametrize(
    "address", [Address("a"), Address("ü" * 50, "é" * 32, 4_294_967_295), Address("a", "p", 1)]
)
def test_an_address_survives_the_wire(address: Address) -> None:
    assert decode_address(encode_address(address)) == address


@pytest.mark.parametrize("content", [b"", b"1234", b"1234\x05abc", b"1234\x00\xff"])
def test_what_is_no_address_is_refused(content: bytes) -> None:
    with pytest.raises(BadRequest, match="app_metadata"):
        decode_address(content)
