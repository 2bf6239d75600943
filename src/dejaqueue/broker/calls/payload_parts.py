"""The calls about streamed payloads.

Any broker of a cluster answers them: it needs the topic's settings and the payload store, and not
the topic itself.

Room: broker. Bytes are base64 in JSON, as in all calls; a part's content follows the JSON.
Holds: a part that is read here has the size that its list says, or the read fails.
See: payloads/streamed.py; docs/wire.md, "Streamed payloads".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.payloads import signed_parts, streamed
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema.payload_parts import LIST_INDEX, part_count
from dejaqueue.schema.vouchers import parse_voucher

SCHEMA: Final = pa.schema([
    pa.field("part", pa.int32(), nullable=False),
    pa.field("content", pa.binary(), nullable=False),
])  # fmt: skip
TEXT_CHARACTERS_MAX: Final = 256 << 10
"""Digests of a payload of 5 GiB are 213 KiB of that."""


def coded(content: bytes) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(content).decode()


def decoded(body: dict[str, Any], field: str) -> bytes:
    """Bytes of a field. Raises BadRequest."""
    text = body.get(field)
    limit = f"base64, of at most {TEXT_CHARACTERS_MAX} characters"
    if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
        raise BadRequest(field, limit, text if text is None else str(text)[:32])
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(field, limit, text[:32]) from None


def whole(body: dict[str, Any], field: str, default: int | None = None) -> int:
    """A whole number of a field. Raises BadRequest."""
    value = body.get(field, default)
    if type(value) is not int:
        raise BadRequest(field, "a whole number", value)
    return value


def _topic(broker: BrokerPort, body: dict[str, Any]) -> Topic:
    broker.check_running()
    name = body.get("topic")
    if not isinstance(name, str):
        raise BadRequest("topic", "the name of a topic", name)
    return broker.topic(name)


def begin(broker: BrokerPort, body: dict[str, Any]) -> dict[str, Any]:
    """Begin an upload. Raises Refused: there is no payload store."""
    topic = _topic(broker, body).name
    once = body.get("once", False)
    if not isinstance(once, bool):
        raise BadRequest("once", "true or false", once)
    owner = broker.payload_owner(topic) if once else ""
    upload = streamed.begin_upload(broker.payloads, topic, owner)
    return {
        "upload": coded(upload),
        "part_bytes": limits.PART_BYTES,
        "direct": broker.payloads.are_direct,
    }


def put(broker: BrokerPort, body: dict[str, Any]) -> dict[str, Any]:
    """Store a part. Raises as streamed.put_part."""
    part = streamed.UploadedPart(whole(body, "index"), body["content"], decoded(body, "digest"))
    topic = _topic(broker, body)
    streamed.put_part(broker.payloads, topic, decoded(body, "upload"), part)
    return {}


def end(broker: BrokerPort, body: dict[str, Any]) -> dict[str, Any]:
    """End an upload. Raises as streamed.end_upload."""
    topic, byte_count = _topic(broker, body), whole(body, "bytes")
    upload, digests = decoded(body, "upload"), decoded(body, "digests")
    voucher = streamed.end_upload(broker.payloads, topic, upload, byte_count, digests)
    return {"voucher": coded(voucher)}


def sign_upload(broker: BrokerPort, body: dict[str, Any]) -> dict[str, Any]:
    """Begin an upload past the broker, or have more parts of one go past it. Raises as
    signed_parts.sign_upload, sign_parts."""
    if "upload" in body:
        text, topic = decoded(body, "upload"), _topic(broker, body)
        more = signed_parts.sign_parts(broker.payloads, topic, text, _places(body))
        return {"upload": body["upload"], "part_bytes": limits.PART_BYTES, **more._asdict()}
    upload, parts = signed_parts.sign_upload(
        broker.payloads, _topic(broker, body), whole(body, "bytes")
    )
    return {"upload": coded(upload), "part_bytes": limits.PART_BYTES, **parts._asdict()}


def _places(body: dict[str, Any]) -> signed_parts.Places:
    end = whole(body, "end") if "end" in body else None
    return signed_parts.Places(whole(body, "first", 0), end)


def sign_payload(broker: BrokerPort, body: dict[str, Any]) -> dict[str, Any]:
    """Where a payload is read past the broker. Raises as signed_parts.sign_payload."""
    voucher, topic = decoded(body, "voucher"), _topic(broker, body)
    found, parts = signed_parts.sign_payload(broker.payloads, topic.name, voucher, _places(body))
    values = {"bytes": found.byte_count, "part_bytes": found.part_bytes}
    return {**values, "digests": coded(found.digests), **parts._asdict()}


def read(broker: BrokerPort, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The asked parts, each as a batch of a row. Raises as streamed.read_parts."""
    topic, voucher = _topic(broker, ticket), decoded(ticket, "voucher")
    count = part_count(parse_voucher(voucher).byte_count)
    first, end_index = whole(ticket, "first", LIST_INDEX), whole(ticket, "end", count)
    if not LIST_INDEX <= first <= end_index <= count:
        raise BadRequest("end", f"first <= end, from {LIST_INDEX} to {count}", end_index)
    indices = range(first, end_index)
    contents = streamed.read_parts(broker.payloads, topic.name, voucher, indices)
    # The first one is read now, so that what is wrong is said before the answer begins.
    begun = list(islice(contents, 1))
    return map(_row, indices, chain(begun, contents))


def _row(index: int, content: bytes) -> pa.RecordBatch:
    """A part as it is sent; its bytes are not copied."""
    offsets = pa.py_buffer(np.array([0, len(content)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(content)])
    return pa.RecordBatch.from_arrays([pa.array([index], pa.int32()), column], schema=SCHEMA)
