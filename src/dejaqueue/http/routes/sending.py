"""Sending: one message, or many as JSON, NDJSON or Arrow.

Room: http. Called most: no framework between request and answer (direct.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import orjson
import pyarrow as pa
from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access import rules
from dejaqueue.access.roles import Principal, Role
from dejaqueue.errors import BadRequest
from dejaqueue.http import answers as shown
from dejaqueue.http import shapes
from dejaqueue.http.arrow_bounds import unpacked_bytes
from dejaqueue.http.bodies import (
    ARROW,
    JSON,
    NDJSON,
    content_kind,
    header,
    parse_json,
    query_values,
    read_body,
)
from dejaqueue.http.columns import lines_batch, send_batch
from dejaqueue.http.direct import DirectRoute, JsonAnswer, json_answer
from dejaqueue.http.flow import flow_of
from dejaqueue.http.gather import Answered, write
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.service import account_of, principal_of
from dejaqueue.http.tracing import carry_context, trace_context_of
from dejaqueue.schema.arrival import check_arrival, check_unpacked
from dejaqueue.schema.checks import check_schema
from dejaqueue.schema.trace_context import batch_with_context
from dejaqueue.wire.descriptors import WriteStream

Parsed = TypeVar("Parsed")
router = APIRouter(prefix="/v1/topics/{topic}", tags=["messages"], route_class=DirectRoute)
OFF_LOOP_BYTES = 32 << 10
"""A larger body is parsed on another thread, so that other requests go on meanwhile."""
BUCKETS = 1 << 12
"""Producers that idempotency keys are spread over: each remembers its last answers."""
KEY_BYTES_MAX = 255
TRANSACTION = {
    "name": "transaction",
    "in": "query",
    "required": False,
    "description": "It counts when this transaction is committed, or never.",
    "schema": {"type": "string"},
}
_ONE = {"payload": "stand up", "due": "2030-01-31T09:30:00Z", "key": "reminder-17"}
_LINES = '{"payload":"stand up","delay_ms":60000}\n{"payload":"sit down","delay_ms":120000}\n'


@route(
    router,
    "send",
    status_code=201,
    openapi_extra=body(
        [shapes.NewMessage, shapes.NewMessages],
        _ONE,
        more={
            NDJSON: {"schema": {"type": "string"}, "example": _LINES},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    )
    | {
        "parameters": [
            TRANSACTION,
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A name of this request, the same when it is repeated: what was "
                "sent once is not sent again, and the first answer is given.",
                "schema": {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX},
            },
        ]
    },
    responses=answers(
        [shapes.Sent, shapes.SentMany],
        {"id": "140737488355333", "status": "OK"},
        "They are durable. Of one message its id; of many (`messages`, NDJSON, Arrow) the status "
        "of each, in order.",
        404,
        409,
        413,
        415,
        status=201,
    ),
)
async def send(request: Request, topic: TopicName) -> Response:
    """Send one message, or many at once; answered when they are durable.

    The body is a message, or `{"messages": [...]}`, or one message a line (application/x-ndjson),
    or an Arrow stream of record batches (application/vnd.apache.arrow.stream).
    """
    principal = principal_of(request)
    principal.require(Role.PRODUCE, topic)
    transaction = query_values(request, "transaction").get("transaction", "")
    rules.require_home(principal, transaction)
    flow = flow_of(request)
    flow.broker.runtime(topic)
    content = await read_body(request)
    kind = content_kind(request)
    stream = WriteStream(topic, transaction=transaction)
    if kind == JSON:
        # How deep it is nested is found out where a payload is made of it (columns.py).
        parse_body = partial(parse_json, load=orjson.loads)
        values = await _off_loop(parse_body, content, byte_count=len(content))
        if type(values) is not dict:
            raise BadRequest("body", "a message, or an object with messages", values)
        if "messages" not in values:
            return await _send_one(request, principal, stream, values, len(content))
        parse: Callable[[], pa.RecordBatch] = partial(_of_messages, values, flow.now_ms())
    elif kind == NDJSON:
        parse = partial(lines_batch, content, flow.now_ms())
    elif kind == ARROW:
        parse = partial(_of_arrow, content)
    else:
        raise HTTPException(415, f"content-type: {JSON}, {NDJSON} or {ARROW}, got: {kind[:100]}")
    batch = await _off_loop(parse, byte_count=len(content))
    if context := trace_context_of(request):
        batch = batch_with_context(batch, context)
    answered = await _write(request, principal, stream, batch)
    return _sent(stream, answered, {"messages": shown.sent(answered)})


def _sent(stream: WriteStream, answered: Answered, values: dict[str, Any]) -> JsonAnswer:
    if stream.transaction:
        values["participants"] = shown.participants(stream.topic, answered)
    return json_answer(values, 201)


async def _send_one(
    request: Request,
    principal: Principal,
    stream: WriteStream,
    message: dict[str, Any],
    byte_count: int,
) -> JsonAnswer:
    """Send a message: with what others send now, unless it needs a batch of its own."""
    if context := trace_context_of(request):
        carry_context(message, context)
    flow = flow_of(request)
    is_apart = "partition" in message or byte_count > OFF_LOOP_BYTES or stream.transaction
    if is_apart or header(request, b"idempotency-key"):
        batch = send_batch([message], flow.now_ms())
        answered = await _write(request, principal, stream, batch)
    else:
        account_of(request).take_sent(1, byte_count, wait=False)
        sender = principal.sender_for(stream.topic, Role.PRODUCE)
        answered = await flow.gather(stream, sender).put([message])
    return _sent(stream, answered, shown.one_sent(answered, str(message.get("key"))))


async def _off_loop(parse: Callable[..., Parsed], *values: Any, byte_count: int) -> Parsed:
    """Parse a large body on another thread, a small one here."""
    if byte_count <= OFF_LOOP_BYTES:
        return parse(*values)
    return await run_in_threadpool(parse, *values)


def _of_messages(values: dict[str, Any], now_ms: int) -> pa.RecordBatch:
    for name in values:
        if name != "messages":
            raise BadRequest(name, "messages alone", values[name])
    if type(values["messages"]) is not list:
        raise BadRequest("messages", "a list of messages", values["messages"])
    return send_batch(values["messages"], now_ms)


def _of_arrow(content: bytes) -> pa.RecordBatch:
    """All batches of an Arrow stream as one."""
    try:
        byte_count = unpacked_bytes(content)
        if byte_count > limits.BODY_BYTES_MAX:
            raise BadRequest("body", f"at most {limits.BODY_BYTES_MAX} bytes unpacked", byte_count)
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
        for batch in table.to_batches():
            check_arrival(batch)
        batches = table.combine_chunks().to_batches()
    except (pa.ArrowException, OSError, ValueError) as wrong:
        raise BadRequest("body", f"an Arrow stream ({wrong})", content[:16]) from None
    if len(batches) != 1:
        raise BadRequest("rows", f"from 1 to {limits.BATCH_ROWS_MAX}", table.num_rows)
    check_schema("enqueue", batches[0].schema)
    check_unpacked(batches[0])
    return batches[0]


async def _write(
    request: Request, principal: Principal, stream: WriteStream, batch: pa.RecordBatch
) -> Answered:
    """Write a batch by itself, as an idempotent producer if the request has a name."""
    broker, account = flow_of(request).broker, account_of(request)
    sender = principal.sender_for(stream.topic, Role.PRODUCE)
    account.take_sent(batch.num_rows, batch.get_total_buffer_size(), wait=False)
    named = header(request, b"idempotency-key")
    if not named:
        return await write(broker, stream.check(), sender, batch, account=account)
    producer, number = producer_of(named)
    stream = replace(stream, producer=producer).check()
    return await write(broker, stream, sender, batch, number, account)


def producer_of(key: str) -> tuple[str, int]:
    """The producer and the batch number that an idempotency key stands for (rule 10); another
    caller's producer of this name is another one.

    Raises:
        BadRequest: the key is too long.
    """
    if len(key) > KEY_BYTES_MAX:
        raise BadRequest("Idempotency-Key", f"at most {KEY_BYTES_MAX} characters", key)
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    number = int.from_bytes(digest, "little")
    return f"http-{number % BUCKETS:032x}", number >> 65
