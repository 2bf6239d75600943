"""Transactions: sends and acks that count together, or never (rule 12).

Room: http. What belongs to one says so by `?transaction=` (sending.py, leases.py).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from dejaqueue.access import rules
from dejaqueue.access.routes import ROUTES
from dejaqueue.access.senders import Requester
from dejaqueue.errors import Unavailable
from dejaqueue.http import shapes
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.parameters import check_names
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1", tags=["transactions"])
Body = Annotated[dict[str, Any], Depends(json_object)]
WAIT_SECONDS = 60
"""How long a request waits for a decision to be durable everywhere."""
_NAME = f"reminders/0/1896082200000-60000-{'0' * 32}"
_DECISION = body(shapes.Decision, {"transaction": _NAME, "participants": ["reminders/0"]})
_DECIDED = answers(shapes.Decided, {}, "It is decided, durably.", 404, 409, 413)


@route(
    router,
    "begin_transaction",
    status_code=201,
    openapi_extra=body(shapes.NewTransaction, {"topic": "reminders"}),
    responses=answers(
        shapes.Transaction,
        {"transaction": _NAME, "until_ms": 1_896_082_260_000},
        "It has begun.",
        404,
        413,
        status=201,
    ),
)
def begin(request: Request, values: Body) -> Response:
    """Begin a transaction: a name to give with sends and acks as `?transaction=`."""
    given = {name: value for name, value in values.items() if value is not None}
    return json_answer(_act(request, "begin_transaction", given), 201)


@route(router, "commit_transaction", openapi_extra=_DECISION, responses=_DECIDED)
def commit(request: Request, values: Body) -> Response:
    """Have everything in it count. 409: it was aborted before, or its time was over."""
    return json_answer(_act(request, "commit_transaction", values))


@route(router, "abort_transaction", openapi_extra=_DECISION, responses=_DECIDED)
def abort(request: Request, values: Body) -> Response:
    """Forget everything in it. 409: it was committed before."""
    return json_answer(_act(request, "abort_transaction", values))


@route(
    router,
    "transactions",
    responses=answers(shapes.Undecided, {"transactions": []}, "The oldest first.", 404),
)
def undecided(request: Request, topic: TopicName) -> Response:
    """Transactions that have something in this topic and are not decided."""
    check_names(request)
    rules.require_any(principal_of(request), rules.LOOKS, topic)
    return json_answer(service_of(request).broker.call("transactions", {"topic": topic}))


def _act(request: Request, action: str, values: dict[str, Any]) -> dict[str, Any]:
    caller = principal_of(request)
    ROUTES[action].rule.require(caller, values)
    asked = service_of(request).broker.ask(action, values, Requester(caller.sender))
    try:
        return asked.result(WAIT_SECONDS)
    except TimeoutError:
        raise Unavailable("the partition is busy", 1_000) from None
