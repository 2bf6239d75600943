"""SEND and its REPLY, byte by byte. Over a connection: tests/unit/http/test_lane.py."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.schema.messages import DELIVERY
from dejaqueue.schema.row_fields import Fields
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Reply

ADDRESS = b"\x07\x00\x00\x00\x01porders"
DUES = st.integers(-(1 << 63), (1 << 63) - 1)


def sent(payloads: list[bytes], dues_ms: list[int] | None) -> bytes:
    content = lane.encode_rows(payloads, dues_ms)
    return lane.encode_send(9, ADDRESS, len(payloads), content, has_dues=dues_ms is not None)


@given(st.lists(st.tuples(st.binary(), DUES), min_size=1), st.booleans())
def test_a_send_comes_back_as_it_was(rows: list[tuple[bytes, int]], has_dues: bool) -> None:
    payloads = [payload for payload, _ in rows]
    dues_ms = [due_ms for _, due_ms in rows] if has_dues else None
    frame = sent(payloads, dues_ms)
    assert lane.length_of(frame, 0) == len(frame) - lane.LENGTH_BYTES
    found = lane.decode_send(frame[lane.LENGTH_BYTES :])
    assert (found.number, found.address) == (9, ADDRESS)
    assert (found.payloads, found.dues_ms) == (payloads, dues_ms)


def some(values: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(values, min_size=rows, max_size=rows)


@st.composite
def rows_with_fields(draw: st.DrawFn) -> tuple[list[bytes], Fields]:
    rows = draw(st.integers(1, 4))
    texts = st.lists(st.binary(max_size=5), max_size=3)
    pairs = st.lists(st.binary(max_size=5), max_size=2).map(lambda names: [*names, *names])
    fields = Fields(
        draw(some(st.binary(max_size=9), rows)),
        draw(some(st.binary(max_size=9), rows)),
        draw(some(texts, rows)),
        draw(some(pairs, rows)),
        draw(some(st.integers(0, 65_535), rows)),
        draw(st.lists(DUES, min_size=rows, max_size=rows)),
    )
    payloads = draw(st.lists(st.binary(max_size=9), min_size=rows, max_size=rows))
    return payloads, fields


def sent_with(payloads: list[bytes], dues_ms: list[int] | None, fields: Fields) -> bytes:
    content = lane.encode_rows(payloads, dues_ms, fields)
    has_dues = dues_ms is not None
    return lane.encode_send(9, ADDRESS, len(payloads), content, has_dues=has_dues, has_fields=True)


@given(rows_with_fields(), st.booleans())
def test_fields_come_back_as_they_were(rows: tuple[list[bytes], Fields], has_dues: bool) -> None:
    payloads, fields = rows
    dues_ms = [5] * len(payloads) if has_dues else None
    frame = sent_with(payloads, dues_ms, fields)
    found = lane.decode_send(frame[lane.LENGTH_BYTES :])
    assert (found.payloads, found.dues_ms, found.fields) == (payloads, dues_ms, fields)


def test_the_bytes_of_fields_are_those_of_the_page() -> None:
    fields = Fields([b"k"], [b"gr"], [[b"red"]], [[b"n", b""]], [7], [8])
    head = struct.pack("<BBHIII", 1, 9, 3, 9, 1, len(ADDRESS))
    texts = b"k" + b"gr" + struct.pack("<I", 3) + b"red" + struct.pack("<I", 1) + b"n" + b"\0" * 4
    numbers = struct.pack("<qIqHIIIII", 5, 63, 8, 7, 1, 2, 7, 9, 2)
    body = head + ADDRESS + numbers + texts + b"ab"
    assert sent_with([b"ab"], [5], fields) == struct.pack("<I", len(body)) + body


def test_no_part_of_a_send_with_fields_is_one() -> None:
    fields = Fields([b"k"] * 2, None, [[b"red"], []], [[], [b"n", b""]], [7] * 2, [8] * 2)
    whole = sent_with([b"abc"] * 2, None, fields)[4:]
    for end in range(len(whole)):
        with pytest.raises(BadRequest):
            lane.decode_send(whole[:end])
    with pytest.raises(BadRequest):
        lane.decode_send(whole + b"x")


@pytest.mark.parametrize("which", [0, 64, (1 << 32) - 1])
def test_fields_that_nobody_knows_are_refused(which: int) -> None:
    frame = struct.pack("<BBHIII", 1, 9, 2, 9, 1, len(ADDRESS)) + ADDRESS
    with pytest.raises(BadRequest, match="fields"):
        lane.decode_send(frame + struct.pack("<II", which, 0))


@pytest.mark.parametrize("texts", [b"\x05\0\0\0ab", b"\x01\0", b"\x01\0\0\0n"])
def test_headers_that_do_not_come_in_pairs_are_refused(texts: bytes) -> None:
    frame = struct.pack("<BBHIII", 1, 9, 2, 9, 1, len(ADDRESS)) + ADDRESS
    with pytest.raises(BadRequest):
        lane.decode_send(frame + struct.pack("<III", 16, len(texts), 0) + texts)


def test_its_bytes_are_those_of_the_page() -> None:
    head = struct.pack("<BBHIII", 1, 9, 1, 9, 1, len(ADDRESS))
    body = head + ADDRESS + struct.pack("<qI", 5, 2) + b"ab"
    assert sent([b"ab"], [5]) == struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dues_ms", [None, [1, 2, 3]])
def test_no_part_of_a_send_is_one(rows: int, dues_ms: list[int] | None) -> None:
    whole = sent([b"abc"] * rows, None if dues_ms is None else dues_ms[:rows])[4:]
    for end in range(len(whole)):
        with pytest.raises(BadRequest):
            lane.decode_send(whole[:end])
    with pytest.raises(BadRequest):
        lane.decode_send(whole + b"x")


@given(st.binary(max_size=64))
def test_garbage_is_refused_and_nothing_else(content: bytes) -> None:
    heads = b"\x01\x09\x00\x00", b"\x01\x09\x02\x00" + bytes(4) + b"\x01" + bytes(3) + bytes(4)
    for frame in (content, *(head + content for head in heads)):
        with suppress(BadRequest):
            assert lane.decode_send(frame).payloads


@pytest.mark.parametrize("rows", [0, 1 << 31])
def test_a_number_of_rows_beyond_the_limit_takes_no_memory(rows: int) -> None:
    frame = struct.pack("<BBHIII", 1, 9, 0, 9, rows, len(ADDRESS)) + ADDRESS
    with pytest.raises(BadRequest, match="rows of the batch"):
        lane.decode_send(frame)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(3, 1, 77),
        Reply(3, 1, -1),
        Reply(3, 1, -1, np.array([5]), np.array([1], np.uint8)),
        Reply(3, 2, error=TopicUnknown("x")),
    ],
)
def test_a_reply_is_the_one_of_other_streams(reply: Reply) -> None:
    content = lane.encode_reply(replace(reply, number=99), 3)
    assert content[4:] == frames.encode(reply)
    assert lane.length_of(content, 0) == len(content) - 4
    found = lane.decode_reply(content[4:])
    assert isinstance(found, Reply)
    assert frames.encode(found) == frames.encode(reply)


def test_a_reply_that_grew_is_understood() -> None:
    found = lane.decode_reply(frames.encode(Reply(3, 1, 77)) + b"more")
    assert found == Reply(3, 1, 77)


def test_what_a_consumer_opens_with_and_gets_comes_back_as_it_was() -> None:
    stream = ConsumeStream("t", tags_any=("a",), batch_rows_max=7)
    opened = lane.encode_open(stream)[lane.LENGTH_BYTES :]
    assert lane.kind_of(opened) == lane.OPEN
    assert lane.decode_open(opened) == stream
    answer = lane.encode_opened(DELIVERY)[lane.LENGTH_BYTES :]
    assert lane.kind_of(answer) == lane.OPENED
    assert lane.decode_opened(answer) == DELIVERY
    rows = pa.record_batch({"payload": [b"a", b"bc"]})
    head = frames.DeliveryHead(1, 1, 2, 3, 4)
    whole = b"".join(lane.encode_delivery(head, rows.slice(1)))
    assert lane.length_of(whole, 0) == len(whole) - lane.LENGTH_BYTES
    assert frames.decode(whole[lane.LENGTH_BYTES :]) == head
    assert lane.decode_rows(whole[lane.LENGTH_BYTES :], rows.schema) == rows.slice(1)


@given(st.binary(max_size=64))
def test_garbage_for_a_consumer_is_refused_and_nothing_else(content: bytes) -> None:
    with suppress(BadRequest):
        lane.decode_open(content)
    with suppress(BadRequest):
        lane.decode_opened(b"\x01\x0b\x00\x00\x00\x00\x00\x00" + content)
    with suppress(BadRequest):
        lane.decode_rows(b"\x00" * frames.DELIVERY_BYTES + content, DELIVERY)
    assert lane.kind_of(content) in range(256)
