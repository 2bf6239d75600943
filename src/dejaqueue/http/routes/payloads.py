"""Payloads that are streamed: a request's body into the payload store, and a part of one out of it.

Room: http. A few parts of a payload are held, however large it is; the store is asked on other
threads.
Holds: each part that leaves was compared with its hash, and an answer that cannot go on breaks off:
nobody takes half a payload for a whole one. Any broker of a cluster answers; nothing is passed on.
See: broker/calls/payload_parts.py; docs/guides/large-payloads.md.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from dejaqueue import limits
from dejaqueue.access import rules
from dejaqueue.access.roles import Role
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest
from dejaqueue.http.bodies import query_values
from dejaqueue.http.direct import DirectRoute, json_answer
from dejaqueue.http.openapi import TopicName, answers, route
from dejaqueue.http.payload_ranges import asked_range, slices_of
from dejaqueue.http.payload_shapes import UploadedPayload
from dejaqueue.http.service import account_of, principal_of, service_of
from dejaqueue.schema.payload_parts import LIST_INDEX, PartList, check_part, decode_part_list
from dejaqueue.schema.vouchers import parse_voucher

router = APIRouter(prefix="/v1/topics/{topic}", tags=["messages"], route_class=DirectRoute)
BYTES = "application/octet-stream"
_BODY = {"requestBody": {"required": True, "content": {BYTES: {"schema": {
    "type": "string", "format": "binary"}}}}}  # fmt: skip
_VOUCHER = {
    "name": "voucher",
    "in": "query",
    "required": True,
    "description": "What the message has as `payload_base64`.",
    "schema": {"type": "string"},
}


@route(
    router,
    "upload_payload",
    status_code=201,
    openapi_extra=_BODY,
    responses=answers(
        UploadedPayload,
        {"payload_base64": "/4sdbqRekMP30htYBQ==", "payload_bytes": 5_368_709_120},
        "It is stored; `payload_base64` is to be sent in a message within six hours.",
        404,
        409,
        status=201,
    ),
)
async def upload_payload(request: Request, topic: TopicName) -> Response:
    """The body is the payload, of up to the topic's `max_payload_bytes`, in chunks or with its
    length. Nothing of it is kept if the request breaks off."""
    principal_of(request).require(Role.PRODUCE, topic)
    query_values(request)
    broker, account = service_of(request).broker, account_of(request)
    named = {"topic": topic}
    begun = await run_in_threadpool(broker.call, "begin_payload", named)
    named["upload"] = begun["upload"]
    digests: list[bytes] = []
    byte_count = 0
    storing: asyncio.Task[bytes] | None = None
    try:
        async for content in _parts(request):
            await run_in_threadpool(account.take_sent, 0, len(content))
            if storing is not None:
                digests.append(await storing)
            index = byte_count // limits.PART_BYTES
            store = partial(_store, broker, {**named, "index": index, "content": content})
            storing = asyncio.create_task(run_in_threadpool(store))  # while the next one comes
            byte_count += len(content)
        if storing is not None:
            digests.append(await storing)
    finally:
        if storing is not None:
            await asyncio.wait([storing])
    ended = await run_in_threadpool(
        broker.call,
        "end_payload",
        named | {"bytes": byte_count, "digests": _coded(b"".join(digests))},
    )
    return json_answer({"payload_base64": ended["voucher"], "payload_bytes": byte_count}, 201)


def _coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _store(broker: Broker, body: dict[str, Any]) -> bytes:
    """Store a part; its SHA-256."""
    digest = hashlib.sha256(body["content"]).digest()
    broker.call("put_payload_part", body | {"digest": _coded(digest)})
    return digest


def _read(broker: Broker, ticket: dict[str, Any], index: int) -> bytes:
    """A part, or with LIST_INDEX the list."""
    _, [batch] = broker.read("payload", ticket | {"first": index, "end": index + 1})
    content: bytes = batch.column(1)[0].as_py()
    return content


def _checked(broker: Broker, ticket: dict[str, Any], parts: PartList, index: int) -> bytes:
    """A part that is what was sent. Raises JournalDamaged."""
    content = _read(broker, ticket, index)
    check_part(parts, index, content)
    return content


async def _parts(request: Request) -> AsyncIterator[bytearray]:
    """The body in parts. Raises BadRequest: it broke off."""
    held = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("body", "a whole one", "one that breaks off")
        view = memoryview(message.get("body", b""))
        while view:
            room = limits.PART_BYTES - len(held)
            held += view[:room]
            view = view[room:]
            if len(held) == limits.PART_BYTES:
                yield held
                held = bytearray()
        if not message.get("more_body", False):
            break
    if held:
        yield held


@route(
    router,
    "read_payload",
    openapi_extra={"parameters": [_VOUCHER]},
    responses={
        **answers(None, None, "", 404, 409),
        200: {"description": "The payload.", "content": {BYTES: {}}},
        206: {"description": "The range of it that was asked for.", "content": {BYTES: {}}},
        416: {"description": "The range is none of it."},
    },
)
async def read_payload(request: Request, topic: TopicName) -> Response:
    """Whole, or by `Range: bytes=first-last` a part of it. It is there until its message is done,
    and for a minute more."""
    rules.require_any(principal_of(request), (Role.CONSUME, Role.MANAGE), topic)
    text = query_values(request, "voucher").get("voucher", "")
    try:
        voucher = base64.b64decode(text.replace(" ", "+"), validate=True)
    except ValueError:
        raise BadRequest("voucher", "base64", text[:32]) from None
    broker = service_of(request).broker
    byte_count = parse_voucher(voucher).byte_count
    name = parse_voucher(voucher).topic
    if name != topic.partition("@")[0]:
        raise BadRequest("voucher", f"one of topic {topic}", name)
    first, end = asked_range(request.headers.get("range", ""), byte_count)
    headers = {"accept-ranges": "bytes", "content-length": str(max(0, end - first))}
    if first >= end:
        return Response(None, 416, {"content-range": f"bytes */{byte_count}"})
    status = 200
    if (first, end) != (0, byte_count):
        status, headers["content-range"] = 206, f"bytes {first}-{end - 1}/{byte_count}"
    ticket = {"topic": name, "voucher": _coded(voucher)}
    content = await run_in_threadpool(_read, broker, ticket, LIST_INDEX)
    parts = decode_part_list(content, parse_voucher(voucher).digest)

    async def pieces() -> AsyncIterator[bytes]:
        for index, wanted in slices_of(parts, first, end):
            piece = await run_in_threadpool(_checked, broker, ticket, parts, index)
            yield piece[wanted]

    return StreamingResponse(pieces(), status, headers, BYTES)
