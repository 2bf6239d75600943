"""Sending: one message, or many as JSON, NDJSON or Arrow.

Room: http. Called most: no framework between request and answer (direct.py).
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access.roles import Principal, Role
from dejaqueue.errors import BadRequest
from dejaqueue.http import answers as shown
from dejaqueue.http import shapes
from dejaqueue.http.bodies import ARROW, JSON, NDJSON, content_kind, header, parse_json, read_body
from dejaqueue.http.columns import parse_lines, send_batch
from dejaqueue.http.direct import DirectRoute, JsonAnswer, json_answer
from dejaqueue.http.flow import flow_of
from dejaqueue.http.gather import Answered, write
from dejaqueue.http.openapi import TopicName, answers, body
from dejaqueue.http.service import principal_of
from dejaqueue.wire.descriptors import WriteStream

router = APIRouter(prefix="/v1/topics/{topic}", tags=["messages"], route_class=DirectRoute)
OFF_LOOP_BYTES = 32 << 10
"""A larger body is parsed on another thread, so that other requests go on meanwhile."""
BUCKETS = 1 << 12
"""Producers that idempotency keys are spread over: each remembers its last answers."""
KEY_BYTES_MAX = 255
_ONE = {"payload": "stand up", "due": "2030-01-31T09:30:00Z", "key": "reminder-17"}
_LINES = '{"payload":"stand up","delay_ms":60000}\n{"payload":"sit down","delay_ms":120000}\n'


@router.post(
    "/messages",
    status_code=201,
    openapi_extra=body(
        shapes.NewMessage,
        _ONE,
        more={
            NDJSON: {"schema": {"type": "string"}, "example": _LINES},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    )
    | {
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A name of this request, the same when it is repeated: what was "
                "sent once is not sent again, and the first answer is given.",
                "schema": {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX},
            }
        ]
    },
    responses=answers(
        shapes.Sent,
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
    flow = flow_of(request)
    flow.broker.runtime(topic)
    content = await read_body(request)
    kind = content_kind(request)
    named = header(request, b"idempotency-key")
    if kind == JSON:
        values = parse_json(content)
        if type(values) is not dict:
            raise BadRequest("body", "a message, or an object with messages", values)
        if "messages" not in values:
            if not named and "partition" not in values and len(content) <= OFF_LOOP_BYTES:
                answered = await flow.gather(WriteStream(topic)).put([values])
            else:
                now_ms = flow.broker.clock.now_ms()
                answered = await _write(request, principal, topic, send_batch([values], now_ms))
            return json_answer(shown.one_sent(answered, str(values.get("key"))), 201)
    batch = await _batch_of(request, kind, content)
    return _many(await _write(request, principal, topic, batch))


def _many(answered: Answered) -> JsonAnswer:
    return json_answer({"messages": shown.sent(answered)}, 201)


async def _batch_of(request: Request, kind: str, content: bytes) -> pa.RecordBatch:
    now_ms = flow_of(request).broker.clock.now_ms()
    parse = _PARSERS.get(kind)
    if parse is None:
        raise HTTPException(415, f"content-type: {', '.join(_PARSERS)}, got: {kind[:100]}")
    if len(content) <= OFF_LOOP_BYTES:
        return parse(content, now_ms)
    return await run_in_threadpool(parse, content, now_ms)


def _of_json(content: bytes, now_ms: int) -> pa.RecordBatch:
    values = parse_json(content)
    for name in values:
        if name != "messages":
            raise BadRequest(name, "messages alone", values[name])
    if type(values["messages"]) is not list:
        raise BadRequest("messages", "a list of messages", values["messages"])
    return send_batch(values["messages"], now_ms)


def _of_lines(content: bytes, now_ms: int) -> pa.RecordBatch:
    return send_batch(parse_lines(content), now_ms)


def _of_arrow(content: bytes, _now_ms: int) -> pa.RecordBatch:
    """All batches of an Arrow stream as one."""
    try:
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
        table.validate(full=True)
        batches = table.combine_chunks().to_batches()
    except (pa.ArrowException, OSError, ValueError) as wrong:
        raise BadRequest("body", f"an Arrow stream ({wrong})", content[:16]) from None
    if len(batches) != 1:
        raise BadRequest("rows", f"from 1 to {limits.BATCH_ROWS_MAX}", table.num_rows)
    return batches[0]


_PARSERS = {JSON: _of_json, NDJSON: _of_lines, ARROW: _of_arrow}


async def _write(
    request: Request, principal: Principal, topic: str, batch: pa.RecordBatch
) -> Answered:
    """Write a batch by itself, as an idempotent producer if the request has a name."""
    broker = flow_of(request).broker
    named = header(request, b"idempotency-key")
    if not named:
        return await write(broker, WriteStream(topic), batch)
    producer, number = producer_of(principal.name, named)
    return await write(broker, WriteStream(topic, producer=producer), batch, number)


def producer_of(caller: str, key: str) -> tuple[str, int]:
    """The producer and the batch number that an idempotency key stands for (rule 10).

    Args:
        caller: whose key it is; another's does not meet it.

    Raises:
        BadRequest: the key is too long.
    """
    if len(key) > KEY_BYTES_MAX:
        raise BadRequest("Idempotency-Key", f"at most {KEY_BYTES_MAX} characters", key)
    digest = hashlib.blake2b(f"{caller}\n{key}".encode(), digest_size=16).digest()
    number = int.from_bytes(digest, "little")
    return f"http-{number % BUCKETS:032x}", number >> 65
