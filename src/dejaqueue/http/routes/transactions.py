"""Transactions: sends and acks that count together, or never (rule 12).

Room: http. What belongs to one says so by `?transaction=` (sending.py, leases.py).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from dejaqueue.access import rules
from dejaqueue.broker.browse import answer_of
from dejaqueue.http import shapes
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import TopicName, answers, body
from dejaqueue.http.parameters import check_names
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1", tags=["transactions"])
Body = Annotated[dict[str, Any], Depends(json_object)]
_NAME = f"reminders/0/1896082200000-60000-{'0' * 32}"
_DECISION = body(shapes.Decision, {"transaction": _NAME, "participants": ["reminders/0"]})
_DECIDED = answers(shapes.Decided, {}, "It is decided, durably.", 404, 409, 413)


@router.post(
    "/transactions",
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
    return json_answer(_act(request, "begin_transaction", "/v1/transactions", given), 201)


@router.post("/transactions/commit", openapi_extra=_DECISION, responses=_DECIDED)
def commit(request: Request, values: Body) -> Response:
    """Have everything in it count. 409: it was aborted before, or its time was over."""
    return json_answer(_act(request, "commit_transaction", "/v1/transactions/commit", values))


@router.post("/transactions/abort", openapi_extra=_DECISION, responses=_DECIDED)
def abort(request: Request, values: Body) -> Response:
    """Forget everything in it. 409: it was committed before."""
    return json_answer(_act(request, "abort_transaction", "/v1/transactions/abort", values))


@router.get(
    "/topics/{topic}/transactions",
    responses=answers(shapes.Undecided, {"transactions": []}, "The oldest first.", 404),
)
def undecided(request: Request, topic: TopicName) -> Response:
    """Transactions that have something in this topic and are not decided."""
    check_names(request)
    rules.require_any(principal_of(request), rules.LOOKS, topic)
    transactions = service_of(request).broker.transactions
    return json_answer(answer_of(transactions.act("transactions", {"topic": topic})))


def _act(request: Request, action: str, path: str, values: dict[str, Any]) -> dict[str, Any]:
    caller = principal_of(request)
    rules.HTTP_ROUTES["POST", path].require(caller, values)
    return answer_of(service_of(request).broker.transactions.act(action, values, caller.sender))
