"""Leases: take messages, and say what became of them.

Room: http. Called most: no framework between request and answer (direct.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access import rules
from dejaqueue.access.roles import Role
from dejaqueue.access.senders import NOBODY
from dejaqueue.errors import BadRequest, Unauthenticated
from dejaqueue.http import answers as shown
from dejaqueue.http import shapes
from dejaqueue.http.bodies import (
    ARROW,
    JSON,
    NDJSON,
    parse_object,
    query_values,
    read_body,
    wanted_kind,
    whole,
    yes_or_no,
)
from dejaqueue.http.direct import DirectRoute, JsonAnswer, json_answer
from dejaqueue.http.flow import Flow, flow_of, has_gone
from dejaqueue.http.gather import Answered, write
from dejaqueue.http.leasing.waiter import Delivered, Taken
from dejaqueue.http.named import settle_batch, settled_rows
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.routes.sending import TRANSACTION
from dejaqueue.http.service import account_of, principal_of, service_of
from dejaqueue.model import RowStatus
from dejaqueue.schema.messages import DELIVERY
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream, check_lease, check_span

router = APIRouter(prefix="/v1/topics/{topic}", tags=["leases"], route_class=DirectRoute)
_LEASE_FIELDS = frozenset(shapes.LeaseRequest.model_fields)
_SETTLE_FIELDS = {
    "ack": frozenset(shapes.AckRequest.model_fields),
    "nack": frozenset(shapes.NackRequest.model_fields),
    "extend": frozenset(shapes.ExtendRequest.model_fields),
}
_HELD = {"messages": [{"id": "140737488355333", "attempt": 1}]}
_LEASED = {
    "messages": [
        {
            "id": "140737488355333",
            "attempt": 1,
            "due": 1_896_082_200_000,
            "priority": 32_768,
            "lease_end_ms": 1_896_082_230_000,
            "payload": "stand up",
        }
    ]
}
_SETTLED = answers(
    shapes.SettledMany,
    {"messages": [{"id": "140737488355333", "status": "OK"}]},
    "What became of each, durably. LEASE_LOST: the lease ended before.",
    404,
    413,
)


@route(
    router,
    "lease",
    openapi_extra=body(shapes.LeaseRequest, {"max": 10, "wait_ms": 20_000}, required=False),
    responses=answers(
        shapes.Leased,
        _LEASED,
        "Messages; none if nothing was there in time.",
        404,
        413,
        more={
            NDJSON: {"schema": {"type": "string"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    ),
)
async def lease(request: Request, topic: TopicName) -> Response:
    """Take messages that are due; they are yours until their lease ends.

    Answered as soon as there is one. Accept chooses between JSON, NDJSON (a message a line) and an
    Arrow stream.
    """
    caller = principal_of(request)
    caller.require(Role.CONSUME, topic)
    query_values(request)
    flow = flow_of(request)
    values = parse_object(await read_body(request), _LEASE_FIELDS)
    rows_max = whole(values, "max", 1, 1, limits.LEASE_ROWS_MAX)
    wait_ms = whole(values, "wait_ms", 0, 0, limits.LEASE_WAIT_MS_MAX)
    as_base64 = _as_base64(values)
    kind = wanted_kind(request, JSON, NDJSON, ARROW)
    auto_ack = yes_or_no(values, "auto_ack")

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    options = lease_options(topic, values)
    taken = await flow.leases.lease(options, rows_max, wait_ms, gone, partial(has_gone, request))
    if taken and wait_ms:
        try:
            service_of(request).gate.check(caller)
        except Unauthenticated:  # the key was revoked while the request waited
            flow.leases.session(options).give_back(taken)
            raise
    if auto_ack and taken:
        taken = await ack_now(flow, topic, taken)
    return _leased(taken, kind, as_base64=as_base64)


def lease_options(topic: str, values: dict[str, Any]) -> ConsumeStream:
    """The consumer that a request asks for. Raises BadRequest.

    Args:
        values: `consumer`, `lease_ms` and the fields of TAGS, where they are given.
    """
    lease_ms = values.get("lease_ms")
    tags = {name: values[name] for name in TAGS if values.get(name) is not None}
    return ConsumeStream(
        topic,
        values.get("consumer") or "",
        0 if lease_ms is None else check_lease(lease_ms),
        batch_rows_max=limits.LEASE_ROWS_MAX,
        holds=False,
        **tags,
    ).check()


TAGS = ("tags_any", "tags_all", "tags_none")
"""Fields that choose messages by their tags."""


def _as_base64(values: dict[str, Any]) -> bool:
    encoding = values.get("encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise BadRequest("encoding", "auto or base64", encoding)
    return bool(encoding == "base64")


async def ack_now(flow: Flow, topic: str, taken: list[Taken]) -> list[Taken]:
    """Ack before answering: those whose lease was lost are left out."""
    rows = [
        pair
        for part in taken
        for pair in zip(
            part.batch.column("id").to_pylist(),
            part.batch.column("attempts").to_pylist(),
            strict=True,
        )
    ]
    answered = await flow.gather(WriteStream(topic, "ack"), NOBODY).put(rows)
    if not any(answered.statuses):
        return taken
    kept, first = [], 0
    for part in taken:
        statuses = answered.statuses[first : first + part.batch.num_rows]
        first += part.batch.num_rows
        mask = pa.array([status == RowStatus.OK for status in statuses])
        batch = part.batch.filter(mask)
        kept.append(Taken(Delivered(batch, part.lease_end_ms), 0, batch.num_rows))
    return kept


def _leased(taken: list[Taken], kind: str, *, as_base64: bool) -> Response:
    if kind == ARROW:
        return _arrow(taken)
    messages = [message for part in taken for message in part.objects(as_base64=as_base64)]
    if kind == JSON:
        return json_answer({"messages": messages})
    lines = [json_answer(message).body for message in messages]
    return Response(b"".join(bytes(line) + b"\n" for line in lines), media_type=NDJSON)


def _arrow(taken: list[Taken]) -> Response:
    schema = DELIVERY.append(pa.field("lease_end_ms", pa.int64(), nullable=False))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for part in taken:
            ends = pa.repeat(pa.scalar(part.lease_end_ms, pa.int64()), part.batch.num_rows)
            writer.write_batch(
                pa.RecordBatch.from_arrays([*part.batch.columns, ends], schema=schema)
            )
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


# --- ack, nack, extend --------------------------------------------------------------------------


@route(
    router,
    "ack",
    openapi_extra=body(shapes.AckRequest, _HELD) | {"parameters": [TRANSACTION]},
    responses=_SETTLED,
)
async def ack(request: Request, topic: TopicName) -> Response:
    """Messages are done: they are never delivered again (rule 6)."""
    principal = principal_of(request)
    principal.require(Role.CONSUME, topic)
    transaction = query_values(request, "transaction").get("transaction", "")
    rules.require_home(principal, transaction)
    values = parse_object(await read_body(request), _SETTLE_FIELDS["ack"])
    return await _settle(request, WriteStream(topic, "ack", transaction=transaction), values)


@route(
    router,
    "nack",
    openapi_extra=body(shapes.NackRequest, {**_HELD, "delay_ms": 5_000, "reason": "mail is down"}),
    responses=_SETTLED,
)
async def nack(request: Request, topic: TopicName) -> Response:
    """Messages could not be done: they are delivered again, or die."""
    principal_of(request).require(Role.CONSUME, topic)
    query_values(request)
    values = parse_object(await read_body(request), _SETTLE_FIELDS["nack"])
    delay_ms = values.get("delay_ms")
    stream = WriteStream(
        topic,
        "nack",
        argument_ms=-1 if delay_ms is None else check_span("delay_ms", delay_ms),
        reason=values.get("reason", ""),
        dead=yes_or_no(values, "dead"),
        released=yes_or_no(values, "released"),
    )
    return await _settle(request, stream.check(), values)


@route(
    router,
    "extend",
    openapi_extra=body(shapes.ExtendRequest, {**_HELD, "lease_ms": 60_000}),
    responses=_SETTLED,
)
async def extend(request: Request, topic: TopicName) -> Response:
    """Messages need more time: their lease ends so long from now."""
    principal_of(request).require(Role.CONSUME, topic)
    query_values(request)
    values = parse_object(await read_body(request), _SETTLE_FIELDS["extend"])
    lease_ms = values.get("lease_ms")
    argument_ms = 0 if lease_ms is None else check_lease(lease_ms)
    stream = WriteStream(topic, "extend", argument_ms=argument_ms)
    return await _settle(request, stream, values)


async def _settle(request: Request, stream: WriteStream, values: dict[str, Any]) -> JsonAnswer:
    rows = settled_rows(values.get("messages"))
    flow = flow_of(request)
    names = [("id", str(message_id)) for message_id, _ in rows]
    if not stream.transaction:
        # Whose it is, is not asked of a settle: those of all callers share batches.
        answered = await flow.gather(stream, NOBODY).put(rows)
        return json_answer({"messages": shown.statuses(names, answered.statuses)})
    sender, account = principal_of(request).sender, account_of(request)
    answered = await write(flow.broker, stream.check(), sender, settle_batch(rows), account=account)
    named = Answered([message_id for message_id, _ in rows], [])
    return json_answer(
        {
            "messages": shown.statuses(names, answered.statuses),
            "participants": shown.participants(stream.topic, named),
        }
    )
