"""Changing: move and cancel what waits, by id, by key or by filter (rule 9).

Room: http.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from dejaqueue.access.roles import Role
from dejaqueue.access.senders import Requester, Sender
from dejaqueue.http import answers as shown
from dejaqueue.http import shapes
from dejaqueue.http.auditing import note_administers
from dejaqueue.http.bodies import json_object, yes_or_no
from dejaqueue.http.direct import json_answer
from dejaqueue.http.flow import flow_of
from dejaqueue.http.gather import write
from dejaqueue.http.named import named_batch
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.parameters import from_cursor, instant_ms, selection_of, to_cursor
from dejaqueue.http.service import principal_of, service_of
from dejaqueue.wire.descriptors import WriteStream, check_fields

router = APIRouter(prefix="/v1/topics/{topic}", tags=["changing"])
CHANGES = ("due", "delay_ms", "by_ms", "priority", "group")
_WHERE_CHANGES = ("due", "by_ms", "window_from", "window_to", "set_priority", "set_group")
_INSTANTS = ("due", "window_from", "window_to")
_WHERE_MORE = ("dry_run", "after")
_ANSWER = answers(
    shapes.ChangedMany,
    {"messages": [{"id": "140737488355333", "status": "OK"}]},
    "The status of each; or how many, and how to go on.",
    404,
    413,
)


@route(
    router,
    "move",
    openapi_extra=body(
        shapes.MoveRequest, {"messages": [{"key": "reminder-17", "due": "2030-02-01T09:30:00Z"}]}
    ),
    responses=_ANSWER,
)
async def move(request: Request, topic: TopicName) -> Response:
    """Give messages another due time, priority or group. What is leased is LEASED, and stays.

    By filter a call does a piece of the work: while `next` is not null, give it as `after`.
    """
    values, sender = await _permitted(request, topic)
    if "where" not in values:
        return await _by_name(request, topic, values, sender, "move", *CHANGES)
    return await _by_filter(request, topic, values, sender, "move", *_WHERE_CHANGES)


@route(
    router,
    "cancel",
    openapi_extra=body(shapes.CancelRequest, {"messages": [{"id": "140737488355333"}]}),
    responses=_ANSWER,
)
async def cancel(request: Request, topic: TopicName) -> Response:
    """Cancel messages: they are never delivered. What is leased is LEASED, and stays.

    By filter a call does a piece of the work: while `next` is not null, give it as `after`.
    """
    values, sender = await _permitted(request, topic)
    if "where" not in values:
        return await _by_name(request, topic, values, sender, "cancel")
    return await _by_filter(request, topic, values, sender, "cancel")


async def _permitted(request: Request, topic: str) -> tuple[dict[str, Any], Sender]:
    """The body, if the caller may do it, by name a producer, by filter a manager; and whose
    messages it is about."""
    caller = principal_of(request)
    values = await json_object(request)
    if "where" in values:
        note_administers(request)
    role = Role.MANAGE if "where" in values else Role.PRODUCE
    caller.require(role, topic, own=True)
    return values, caller.sender_for(topic, role)


async def _by_name(
    request: Request, topic: str, values: dict[str, Any], sender: Sender, op: str, *changes: str
) -> Response:
    flow = flow_of(request)
    flow.broker.runtime(topic)
    check_fields(values, ["messages"], required=("messages",))
    batch = named_batch(values["messages"], flow.now_ms(), *changes)
    answered = await write(flow.broker, WriteStream(topic, op), sender, batch)
    by = "id" if "id" in batch.schema.names else "key"
    names = [(by, str(value)) for value in batch.column(by).to_pylist()]
    return json_answer({"messages": shown.statuses(names, answered.statuses)})


async def _by_filter(
    request: Request, topic: str, values: dict[str, Any], sender: Sender, op: str, *changes: str
) -> Response:
    check_fields(values, ["where", *changes, *_WHERE_MORE])
    selected = selection_of(values["where"], *shapes.Filter.model_fields)
    changed = {name: values[name] for name in changes if values.get(name) is not None}
    for name in changed.keys() & set(_INSTANTS):
        changed[name] = instant_ms(changed[name], name)
    call = {
        **selected,
        **changed,
        "topic": topic,
        "dry_run": yes_or_no(values, "dry_run"),
        "after": from_cursor(values.get("after")),
    }
    act = service_of(request).broker.call
    answer = await run_in_threadpool(act, f"{op}_where", call, Requester(sender))
    return json_answer({"count": answer["count"], "next": to_cursor(answer["next"])})
