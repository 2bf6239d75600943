"""Subscriptions of a topic: make, list, show, change, delete, seek.

Room: http. Settings of the topic, one by one; a subscription is consumed and looked at as
`topic@subscription` where a topic is.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from dejaqueue.access import audit, rules
from dejaqueue.access.calls import ACTIONS
from dejaqueue.errors import TopicUnknown
from dejaqueue.http.auditing import note
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.parameters import selection_of
from dejaqueue.http.service import principal_of, service_of
from dejaqueue.http.subscription_shapes import (
    Seek,
    SeekResult,
    Subscriptions,
    SubscriptionSettings,
    SubscriptionShown,
)
from dejaqueue.topic_names import subscription_name
from dejaqueue.wire.descriptors import check_fields
from dejaqueue.wire.selection import SEEK_FIELDS

router = APIRouter(prefix="/v1/topics/{topic}", tags=["subscriptions"])
Body = Annotated[dict[str, Any], Depends(json_object)]
Name = Annotated[
    str,
    Path(
        description="The subscription's name.",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        examples=["billing"],
    ),
]
SEEK_CALLS_MAX = 32
"""Calls of a broker that one request makes; each is half a million messages."""
_EXAMPLE = {"name": "billing", "order": "due", "start": "new", "lease_ms": 60_000}
_SHOWN = answers(SubscriptionShown, _EXAMPLE, "The subscription.", 404)


@route(
    router,
    "list_subscriptions",
    responses=answers(Subscriptions, {"subscriptions": [_EXAMPLE]}, "The subscriptions.", 404),
)
def list_subscriptions(request: Request, topic: TopicName) -> Response:
    """The named subscriptions of a topic."""
    rules.require_any(principal_of(request), rules.ANY, topic)
    found = service_of(request).broker.topic(topic, newest=True).subscriptions
    shown = [{"name": name, **settings} for name, settings in found.items()]
    return json_answer({"subscriptions": shown})


@route(router, "show_subscription", responses=_SHOWN)
def show_subscription(request: Request, topic: TopicName, subscription: Name) -> Response:
    """The settings that a subscription has of its own."""
    rules.require_any(principal_of(request), rules.ANY, topic)
    found = service_of(request).broker.topic(topic, newest=True).subscriptions
    if subscription not in found:
        raise TopicUnknown(subscription_name(topic, subscription))
    return json_answer({"name": subscription, **found[subscription]})


@route(
    router,
    "put_subscription",
    openapi_extra=body(SubscriptionSettings, {"order": "due", "lease_ms": 60_000}),
    responses=_SHOWN,
)
def put_subscription(
    request: Request, topic: TopicName, subscription: Name, values: Body
) -> Response:
    """Make a subscription, or change settings of one; they hold at once."""
    given = {name: value for name, value in values.items() if value is not None}
    return _alter(request, topic, subscription, given)


@route(
    router,
    "delete_subscription",
    status_code=204,
    response_class=Response,
    responses={
        key: value for key, value in answers(None, None, "", 404, status=204).items() if key != 204
    },
)
def delete_subscription(request: Request, topic: TopicName, subscription: Name) -> Response:
    """End a subscription, with what only it still had."""
    _require_alter(request, topic)
    found = service_of(request).broker.topic(topic, newest=True).subscriptions
    if subscription not in found:
        raise TopicUnknown(subscription_name(topic, subscription))
    _alter(request, topic, subscription, None)
    return Response(status_code=204)


@route(
    router,
    "seek",
    openapi_extra=body(Seek, {"to": "beginning"}),
    responses=answers(
        SeekResult, {"replayed": 1_000, "passed": 0, "is_finished": True}, "What was done.", 404
    ),
)
def seek(request: Request, topic: TopicName, values: Body) -> Response:
    """Have a subscription (`orders@billing`) get what is retained again, from a place on, or pass
    over what is before it; with `where`, of the messages that it selects alone. Many millions take
    more than one call."""
    ACTIONS["seek"].rule.require(principal_of(request), {"topic": topic})
    check_fields(values, ["to", "where"], required=("to",))
    where = values.get("where")
    selected = {} if where is None else selection_of(where, *SEEK_FIELDS)
    place, broker = {"topic": topic, "to": values["to"], **selected}, service_of(request).broker
    replayed, passed, after = 0, 0, None
    for _ in range(SEEK_CALLS_MAX):
        answer = broker.call("seek", place | {"after": after})
        replayed, passed = replayed + answer["replayed"], passed + answer["passed"]
        after = answer["next"]
        if after is None:
            break
    return json_answer({"replayed": replayed, "passed": passed, "is_finished": after is None})


def _require_alter(request: Request, topic: str) -> None:
    """Raise Forbidden before anything is told of the topic."""
    ACTIONS["alter_topic"].rule.require(principal_of(request), {"name": topic})


def _alter(
    request: Request, topic: str, subscription: str, settings: dict[str, Any] | None
) -> Response:
    changes = {"subscriptions": {subscription: settings}}
    _require_alter(request, topic)
    note(request, **audit.facts("alter_topic", changes))
    altered = service_of(request).broker.alter_topic(topic, changes)
    return json_answer({"name": subscription, **altered.subscriptions.get(subscription, {})})
