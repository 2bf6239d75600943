"""Looking: messages as they are, counts, histograms, statistics, consumers.

Room: http. Nothing here leases or changes anything.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access import rules
from dejaqueue.access.senders import Requester, Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.http import answers as shown
from dejaqueue.http import shapes
from dejaqueue.http.direct import json_answer
from dejaqueue.http.named import check_id
from dejaqueue.http.openapi import TopicName, answers, route
from dejaqueue.http.parameters import (
    AfterText,
    InstantText,
    Matching,
    check_names,
    from_cursor,
    given,
    instant_ms,
    span_ms,
    to_cursor,
)
from dejaqueue.http.service import principal_of, service_of
from dejaqueue.schema.messages import CARRIED, NEXT
from dejaqueue.wire.selection import SELECTION_FIELDS

router = APIRouter(prefix="/v1", tags=["browsing"])
_MESSAGE = {
    "id": "140737488355333",
    "attempt": 0,
    "due": 1_896_082_200_000,
    "priority": 32_768,
    "state": "scheduled",
    "payload": "stand up",
    "key": "reminder-17",
}
_HISTORY = {
    "history": True,
    "changes": [
        {"at_ms": 1_896_082_100_000, "change": "enqueued", "position": 17, "attempt": 0,
         "due": 1_896_082_200_000, "key": "reminder-17", "priority": 32_768},
        {"at_ms": 1_896_082_200_000, "change": "delivered", "position": 19, "attempt": 1,
         "due": 1_896_082_200_000, "priority": 32_768, "lateness_ms": 0, "consumer": "mailer"},
    ],
    "gaps": [],
    "silent": [],
    "next": None,
}  # fmt: skip


def _broker(request: Request, topic: str) -> Broker:
    rules.require_any(principal_of(request), rules.LOOKS, topic)
    return service_of(request).broker


def _broker_for(request: Request, topic: str) -> tuple[Broker, Sender]:
    """As `_broker`, for calls that may keep to the caller's own messages."""
    caller = principal_of(request)
    rules.require_any(caller, rules.LOOKS, topic, own=True)
    return service_of(request).broker, caller.sender_for(topic, *rules.LOOKS)


@route(
    router,
    "peek",
    responses=answers(shapes.Page, {"messages": [_MESSAGE], "next": None}, "A page.", 404),
)
def peek(
    request: Request,
    topic: TopicName,
    *,
    limit: Annotated[int, Query(ge=0, le=limits.PEEK_ROWS_MAX)] = 100,
    after: AfterText = None,
    id: Annotated[list[str] | None, Query(description="Only these.")] = None,  # noqa: A002
    key: Annotated[list[str] | None, Query(description="Only these.")] = None,
    partition: Annotated[int | None, Query(ge=0)] = None,
    due_from: InstantText = None,
    due_to: InstantText = None,
    matching: Matching,
    encoding: Literal["auto", "base64"] = "auto",
) -> Response:
    """Messages as they are, page by page, without leasing them.

    In a timeline those that wait or are leased come by due time; others by id.
    """
    names = ("limit", "after", "id", "key", "partition", "encoding", *SELECTION_FIELDS)
    check_names(request, *names)
    _, sender = _broker_for(request, topic)
    ids = None if id is None else [check_id(value) for value in id]
    ticket = given(
        topic=topic,
        limit=limit,
        after=from_cursor(after),
        ids=ids,
        keys=key,
        partition=partition,
        due_from=instant_ms(due_from, "due_from"),
        due_to=instant_ms(due_to, "due_to"),
        **matching,
    )
    return json_answer(page_of(request, ticket, sender, as_base64=encoding == "base64"))


def page_of(
    request: Request, ticket: dict[str, Any], sender: Sender, *, as_base64: bool = False
) -> dict[str, Any]:
    """A page of messages as far as the caller may see them, and how to go on."""
    page = _peeked(request, ticket, sender)
    following = (page.schema.metadata or {}).get(NEXT)
    return {
        "messages": shown.messages(page, as_base64=as_base64),
        "next": to_cursor(following and json.loads(following)),
    }


def _peeked(request: Request, ticket: dict[str, Any], sender: Sender) -> pa.RecordBatch:
    service = service_of(request)
    _, [page] = service.broker.read("peek", ticket, Requester(sender))
    reads = service.gate.reads(principal_of(request), ticket["topic"])
    return page if reads else page.select([n for n in page.schema.names if n not in CARRIED])


@route(
    router,
    "get_message",
    responses=answers(shapes.PeekedMessage, _MESSAGE, "The message.", 404),
)
def peek_one(
    request: Request,
    topic: TopicName,
    id: Annotated[str, Path(pattern=r"^[0-9]{1,19}$")],  # noqa: A002
) -> Response:
    """One live message as it is, without leasing it."""
    check_names(request)
    _, sender = _broker_for(request, topic)
    ticket = {"topic": topic, "ids": [check_id(id)]}
    messages = shown.messages(_peeked(request, ticket, sender))
    if not messages:
        raise HTTPException(404, f"no live message has the id {id}")
    return json_answer(messages[0])


@route(
    router,
    "message_history",
    responses=answers(shapes.MessageHistory, _HISTORY, "What was recorded.", 404),
)
def message_history(
    request: Request,
    topic: TopicName,
    id: Annotated[str, Path(pattern=r"^[0-9]{1,19}$")],  # noqa: A002
    after: Annotated[
        int | None, Query(ge=0, description="The `next` of the answer before.")
    ] = None,
) -> Response:
    """What happened to a message, and when: also to one that is done.

    It is recorded where the topic's setting `history` is on; nothing of it is an error where it
    is off, or was.
    """
    check_names(request, "after")
    values = given(topic=topic, id=check_id(id), after=after)
    return json_answer(_broker(request, topic).call("message_history", values))


@route(
    router,
    "counts",
    responses=answers(
        shapes.Counts,
        {"rows": [{"state": "scheduled", "count": 3}], "next": None},
        "Counts, most first.",
        404,
    ),
)
def counts(
    request: Request,
    topic: TopicName,
    *,
    by: Literal["state", "group", "tag"] = "state",
    limit: Annotated[int, Query(ge=1, le=limits.COUNTS_ROWS_MAX)] = 100,
    after: AfterText = None,
) -> Response:
    """How many live messages there are by state, group or tag. Costs nothing for each message."""
    check_names(request, "by", "limit", "after")
    values = given(topic=topic, by=by, limit=limit, after=from_cursor(after))
    broker, sender = _broker_for(request, topic)
    page = broker.call("counts", values, Requester(sender))
    return json_answer(page | {"next": to_cursor(page["next"])})


@route(
    router,
    "histogram",
    responses=answers(
        shapes.Histogram,
        {"due_from": 1_896_082_200_000, "bucket_ms": 60_000, "counts": [3, 0, 5], "error_max": 0},
        "Counts, a bucket each.",
        404,
    ),
)
def histogram(
    request: Request,
    topic: TopicName,
    *,
    due_from: Annotated[str, Query(description="UTC milliseconds, or ISO 8601 with a zone.")],
    due_to: Annotated[str, Query(description="As due_from.")],
    bucket_ms: Annotated[int, Query(ge=1, le=limits.INSTANT_MS_MAX)],
    exact: bool = True,
    matching: Matching,
) -> Response:
    """How many messages are due in each stretch of time from due_from to due_to."""
    check_names(request, "bucket_ms", "exact", *SELECTION_FIELDS)
    values = given(
        topic=topic,
        due_from=instant_ms(due_from, "due_from"),
        due_to=instant_ms(due_to, "due_to"),
        bucket_ms=bucket_ms,
        exact=exact,
        **matching,
    )
    broker, sender = _broker_for(request, topic)
    return json_answer(broker.call("histogram", values, Requester(sender)))


@route(
    router,
    "due",
    responses=answers(
        shapes.DueCount,
        {
            "topic": "reminders",
            "within_ms": 60_000,
            "due": 12_000,
            "ready": 0,
            "scheduled": 12_000,
            "leased": 40,
            "error_max": 3,
        },
        "Numbers.",
        404,
    ),
)
def due(
    request: Request,
    topic: TopicName,
    *,
    within: Annotated[
        str, Query(description="A length of time: `60s`, `5m`; `0` = what is due already.")
    ] = "60s",
) -> Response:
    """How many messages are ready or fall due within a time, for whoever scales consumers.

    Costs the same however many there are: an order index tells.
    """
    check_names(request, "within")
    values = {"topic": topic, "within_ms": span_ms(within, "within")}
    return json_answer(_broker(request, topic).call("due", values))


@route(router, "stats", responses=answers(shapes.Stats, {"uptime_ms": 5, "topics": {}}, "Numbers."))
def stats(request: Request) -> Response:
    """Numbers of the broker and of every topic, also of those that other brokers serve."""
    check_names(request)
    _broker(request, "")
    return json_answer(service_of(request).stats(request))


@route(
    router,
    "topic_stats",
    responses=answers(shapes.Stats, {"topic": "reminders", "scheduled": 3}, "Numbers.", 404),
)
def topic_stats(request: Request, topic: TopicName) -> Response:
    """Numbers of a topic and of each of its partitions."""
    check_names(request)
    return json_answer(_broker(request, topic).call("stats", {"topic": topic}))


@route(
    router,
    "consumers",
    responses=answers(
        shapes.Consumers,
        {"consumers": [{"consumer": "mailer", "credit": 10, "delivered": 5}]},
        "Consumers. Requests that lease over HTTP with equal options are one.",
        404,
    ),
)
def consumers(request: Request, topic: TopicName) -> Response:
    """Who consumes the topic now."""
    check_names(request)
    consumers = _broker(request, topic).consumers(topic)
    return json_answer({"consumers": consumers})


@route(
    router,
    "assignments",
    responses=answers(
        shapes.Assignments,
        {"topic": "reminders", "assignment": "shared", "partitions": [], "standby": []},
        "Assignments.",
        404,
    ),
)
def assignments(request: Request, topic: TopicName) -> Response:
    """Which consumer has which partition of an exclusive topic."""
    check_names(request)
    return json_answer(_broker(request, topic).call("assignments", {"name": topic}))
