"""Dead letters: look, send back, throw away (rule 18).

Room: http.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access import audit, rules
from dejaqueue.access.calls import ACTIONS
from dejaqueue.errors import BadRequest
from dejaqueue.http import shapes
from dejaqueue.http.auditing import note
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.named import check_id
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.parameters import AfterText, check_names, from_cursor, given, to_cursor
from dejaqueue.http.routes.browsing import page_of
from dejaqueue.http.service import principal_of, service_of
from dejaqueue.schema.dead_letters import PREFIX, REASON
from dejaqueue.wire.descriptors import check_fields

router = APIRouter(prefix="/v1/topics/{topic}/dead-letters", tags=["dead letters"])
Body = Annotated[dict[str, Any], Depends(json_object)]
_LETTER = {
    "id": "7",
    "attempt": 0,
    "due": 1_896_082_200_000,
    "priority": 32_768,
    "state": "scheduled",
    "payload": "stand up",
    "death": {"reason": "refused", "attempts": "5", "origin": "reminders"},
}
_MOVED = answers(
    shapes.Redriven, {"moved": 5, "left": 0, "next": None}, "How many, and how to go on.", 404, 413
)


@route(
    router,
    "dead_letters",
    responses=answers(shapes.DeadLetters, {"messages": [_LETTER], "next": None}, "A page.", 404),
)
def list_letters(
    request: Request,
    topic: TopicName,
    *,
    reason: Annotated[str | None, Query(description="Only those that died of this.")] = None,
    group: str | None = None,
    limit: Annotated[int, Query(ge=0, le=limits.PEEK_ROWS_MAX)] = 100,
    after: AfterText = None,
) -> Response:
    """Dead letters as they are; the topic is the dead-letter topic, as `reminders.dead`.

    A page may be shorter than `limit`, or empty, while `next` is not null.
    """
    check_names(request, "reason", "group", "limit", "after")
    caller = principal_of(request)
    rules.require_any(caller, rules.LOOKS, topic)
    ticket = given(
        topic=topic, state="scheduled", group=group, limit=limit, after=from_cursor(after)
    )
    page = page_of(request, ticket, caller.sender)
    letters = [
        message
        for message in page["messages"]
        if reason is None or message.get("headers", {}).get(REASON) == reason
    ]
    return json_answer({"messages": [_shown(letter) for letter in letters], "next": page["next"]})


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    """A letter, with what its headers say of its death apart from its own."""
    headers: dict[str, str] = message.pop("headers", {})
    own = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
    message["death"] = {
        name.removeprefix(PREFIX): value
        for name, value in headers.items()
        if name.startswith(PREFIX)
    }
    return message | ({"headers": own} if own else {})


@route(
    router,
    "redrive",
    openapi_extra=body(shapes.RedriveRequest, {"reason": "mail is down"}, required=False),
    responses=_MOVED,
)
def redrive(request: Request, topic: TopicName, values: Body) -> Response:
    """Send dead letters back to where they came from, or elsewhere.

    A call does a piece of the work: while `next` is not null, give it as `after`.
    """
    check_fields(values, list(shapes.RedriveRequest.model_fields))
    return _move(request, topic, values)


@route(
    router,
    "purge_dead_letters",
    openapi_extra=body(shapes.LetterChoice, {"reason": "expired"}, required=False),
    responses=_MOVED,
)
def purge(request: Request, topic: TopicName, values: Body) -> Response:
    """Throw dead letters away, for good.

    A call does a piece of the work: while `next` is not null, give it as `after`.
    """
    check_fields(values, list(shapes.LetterChoice.model_fields))
    return _move(request, topic, {**values, "drop": True})


def _move(request: Request, topic: str, values: dict[str, Any]) -> Response:
    caller = principal_of(request)
    call = {**values, "topic": topic, "after": from_cursor(values.get("after"))}
    rule = ACTIONS["redrive"].rule
    rule.require(caller, call)
    note(request, **audit.facts("redrive", values))
    ids = values.get("ids")
    if ids is not None:
        if type(ids) is not list:
            raise BadRequest("ids", "a list of ids", ids)
        call["ids"] = [check_id(value, "ids") for value in ids]
    answer = service_of(request).broker.call("redrive", call, rule.requester(caller, call))
    return json_answer(answer | {"next": to_cursor(answer["next"])})
