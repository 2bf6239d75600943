"""Topics: make, list, show, change, pause, empty, delete.

Room: http.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from dejaqueue.access import audit, rules
from dejaqueue.access.calls import ACTIONS
from dejaqueue.access.roles import Role
from dejaqueue.errors import BadRequest
from dejaqueue.http import shapes
from dejaqueue.http.auditing import note
from dejaqueue.http.bodies import json_object, yes_or_no
from dejaqueue.http.direct import json_answer
from dejaqueue.http.erasure_shapes import EraseRequest, ErasureReport
from dejaqueue.http.named import check_id
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.parameters import from_cursor, selection_of, to_cursor
from dejaqueue.http.service import principal_of, service_of
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import check_fields
from dejaqueue.wire.selection import SEEK_FIELDS

router = APIRouter(prefix="/v1/topics", tags=["topics"])
Body = Annotated[dict[str, Any], Depends(json_object)]
PURGE_CALLS_MAX = 64
"""Pieces of work of one purge; a caller that wants more comes again."""
_EXAMPLE = Topic("reminders").to_dict()
_SHOWN = answers(shapes.TopicShown, _EXAMPLE, "The topic.", 404)


@route(
    router,
    "create_topic",
    status_code=201,
    openapi_extra=body(shapes.NewTopic, {"name": "reminders", "lease_ms": 30_000}),
    responses=answers(shapes.TopicShown, _EXAMPLE, "It was made.", 409, status=201),
)
def create_topic(request: Request, values: Body) -> Response:
    """Make a topic. What is not given keeps its default."""
    exist_ok = yes_or_no(values, "exist_ok")
    note(request, topic=str(values.get("name")))
    ACTIONS["create_topic"].rule.require(principal_of(request), values)
    settings = {key: value for key, value in _given(values).items() if key != "exist_ok"}
    made = service_of(request).broker.create_topic(Topic.from_dict(settings), exist_ok=exist_ok)
    return json_answer(made.to_dict(), 201)


@route(
    router, "list_topics", responses=answers(shapes.Topics, {"topics": [_EXAMPLE]}, "The topics.")
)
def list_topics(request: Request) -> Response:
    """Every topic that the caller may see, by name."""
    principal = principal_of(request)
    shown = [
        topic.to_dict()
        for topic in service_of(request).broker.topics()
        if principal.sees(topic.name)
    ]
    return json_answer({"topics": shown})


@route(router, "describe_topic", responses=_SHOWN)
def show_topic(request: Request, topic: TopicName) -> Response:
    """The settings of a topic."""
    rules.require_any(principal_of(request), rules.ANY, topic)
    return json_answer(service_of(request).broker.topic(topic, newest=True).to_dict())


@route(
    router,
    "alter_topic",
    openapi_extra=body(shapes.TopicSettings, {"lease_ms": 60_000, "max_attempts": 5}),
    responses=answers(shapes.TopicShown, _EXAMPLE, "The topic as it is now.", 404),
)
def alter_topic(request: Request, topic: TopicName, values: Body) -> Response:
    """Change settings; they hold at once."""
    ACTIONS["alter_topic"].rule.require(principal_of(request), {**values, "name": topic})
    note(request, **audit.facts("alter_topic", values))
    return json_answer(service_of(request).broker.alter_topic(topic, _given(values)).to_dict())


@route(
    router,
    "delete_topic",
    status_code=204,
    response_class=Response,
    responses={
        key: value for key, value in answers(None, None, "", 404, status=204).items() if key != 204
    },
)
def delete_topic(request: Request, topic: TopicName) -> Response:
    """Delete a topic and all its messages."""
    principal_of(request).require(Role.MANAGE, topic)
    service_of(request).broker.delete_topic(topic)
    return Response(status_code=204)


@route(router, "pause_topic", responses=_SHOWN)
def pause_topic(request: Request, topic: TopicName) -> Response:
    """Hand nothing out from now on; producers go on."""
    return _set_paused(request, topic, paused=True)


@route(router, "resume_topic", responses=_SHOWN)
def resume_topic(request: Request, topic: TopicName) -> Response:
    """Hand messages out again."""
    return _set_paused(request, topic, paused=False)


def _set_paused(request: Request, topic: str, *, paused: bool) -> Response:
    principal_of(request).require(Role.MANAGE, topic)
    broker = service_of(request).broker
    return json_answer(broker.alter_topic(topic, {"paused": paused}).to_dict())


@route(
    router,
    "purge_topic",
    responses=answers(
        shapes.Purged, {"cancelled": 1_000, "is_finished": True}, "What was cancelled.", 404
    ),
)
def purge_topic(request: Request, topic: TopicName) -> Response:
    """Cancel every message that is not leased. Many millions take more than one call."""
    principal_of(request).require(Role.MANAGE, topic)
    broker = service_of(request).broker
    cancelled, after = 0, None
    for _ in range(PURGE_CALLS_MAX):
        answer = broker.call("cancel_where", {"topic": topic, "after": after})
        cancelled += answer["count"]
        after = answer["next"]
        if after is None:
            break
    return json_answer({"cancelled": cancelled, "is_finished": after is None})


@route(
    router,
    "erase",
    openapi_extra=body(EraseRequest, {"keys": ["alice@example.org"]}),
    responses=answers(
        ErasureReport,
        {
            "found": 2, "ended": 1, "held": 0, "segments": 1, "bytes": 1_048_576, "payloads": 0,
            "changes": 3, "next": None, "took_ms": 1_300, "letters": ["reminders.dead"],
            "backups": [], "unread": [], "silent": [], "left": [],
        },
        "What was erased so far.",
        404,
    ),
)  # fmt: skip
def erase(request: Request, topic: TopicName, values: Body) -> Response:
    """End messages, and have every byte of them deleted; of those that are done, too.

    A call does a piece of the work, and waits for a few seconds: while `next` is not null, give it
    as `after`, with the same keys, ids or filter. Dead letters are messages of the topics that
    `letters` names: erase them there, with this topic as `origin`.
    """
    ACTIONS["erase"].rule.require(principal_of(request), {"topic": topic})
    check_fields(values, ["keys", "ids", "where", "origin", "after"])
    where = values.get("where")
    call = {name: values[name] for name in ("keys", "origin") if values.get(name) is not None}
    call |= {} if where is None else selection_of(where, *SEEK_FIELDS)
    ids = values.get("ids")
    if ids is not None:
        if type(ids) is not list:
            raise BadRequest("ids", "a list of ids", ids)
        call["ids"] = [check_id(value, "ids") for value in ids]
    note(request, **audit.facts("erase", call))
    after = from_cursor(values.get("after"))
    answer = service_of(request).broker.call("erase", call | {"topic": topic, "after": after})
    note(request, **audit.facts_of_answer("erase", answer))
    return json_answer(answer | {"next": to_cursor(answer["next"])})


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that are given; null counts as not given."""
    if "" in values:
        raise BadRequest("topic", "names of settings", "")
    return {name: value for name, value in values.items() if value is not None}
