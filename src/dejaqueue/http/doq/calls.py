"""What DOQ's clients call most: enqueue, dequeue, ack. And their lane past the router.

Room: http. Endpoints without the framework between request and answer (refusals.DirectDoqRoute).
Holds: a call gets the same answer by the lane as by the router, and is in the OpenAPI document.
"""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from dejaqueue.access.roles import Role
from dejaqueue.errors import DejaQError
from dejaqueue.http import bodies
from dejaqueue.http.auditing import note, note_error
from dejaqueue.http.direct import JsonAnswer
from dejaqueue.http.doq import shapes
from dejaqueue.http.doq.refusals import DirectDoqRoute, documented
from dejaqueue.http.doq.state import doq_of, message_answer
from dejaqueue.http.openapi import route
from dejaqueue.http.problems import framework_problem, problem
from dejaqueue.http.service import account_of, principal_of

PREFIX = "/API/v1/queues/"
router = APIRouter(prefix="/API/v1/queues/{queue_name}", tags=["DOQ"], route_class=DirectDoqRoute)

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": shapes.DoqNewMessage.model_json_schema()},
        },
    }
}
_ACK = {
    "parameters": [
        {
            "name": "ack",
            "in": "query",
            "required": False,
            "schema": {"type": "boolean", "default": False},
            "description": "True: it is done at once, and never comes back.",
        }
    ]
}
_YES, _NO = ("true", "1", "on", "t", "y", "yes"), ("false", "0", "off", "f", "n", "no")


@route(
    router,
    "doq_enqueue",
    response_model=shapes.DoqMessage,
    responses=documented("enqueue"),
    openapi_extra=_BODY,
)
async def enqueue(request: Request, queue_name: str) -> Response:
    """Put a message into a queue; answered when it is durable."""
    principal = principal_of(request)
    principal.require(Role.PRODUCE, queue_name)
    message = await _message(request)
    account_of(request).take_sent(1, len(message.content), wait=False)
    doq = doq_of(request)
    sender = principal.sender_for(queue_name, Role.PRODUCE)
    row = await doq.messages.enqueue(queue_name, message, sender)
    doq.rates.note(queue_name, "enqueue")
    return message_answer("ENQUEUED", row)


async def _message(request: Request) -> shapes.DoqNewMessage:
    """The body. Raises RequestValidationError, as the framework does."""
    content = await bodies.read_body(request)
    try:
        return shapes.DoqNewMessage.model_validate(bodies.load_json(content))
    except orjson.JSONDecodeError as wrong:
        problem = {"type": "json_invalid", "loc": ("body",), "msg": str(wrong), "input": None}
        raise RequestValidationError([problem]) from None
    except ValidationError as wrong:
        errors = wrong.errors(include_url=False, include_context=False)
        raise RequestValidationError(
            [{**error, "loc": ("body", *error["loc"])} for error in errors]
        ) from None


@route(
    router,
    "doq_dequeue",
    response_model=shapes.DoqMessage,
    responses=documented("dequeue"),
    openapi_extra=_ACK,
)
async def dequeue(request: Request, queue_name: str) -> Response:
    """Take the first message that is due; with `ack=true` it is done at once."""
    principal_of(request).require(Role.CONSUME, queue_name)
    wants_ack = _wants_ack(request)
    note(request, ack=wants_ack)
    doq = doq_of(request)
    row = await doq.messages.dequeue(queue_name, ack=wants_ack)
    doq.rates.note(queue_name, "dequeue")
    if wants_ack:
        doq.rates.note(queue_name, "ack")
    return message_answer("DEQUEUED", row)


def _wants_ack(request: Request) -> bool:
    if not request.scope["query_string"]:
        return False
    text = request.query_params.get("ack", "false").lower()
    if text in _YES or text in _NO:
        return text in _YES
    problem = {
        "type": "bool_parsing",
        "loc": ("query", "ack"),
        "msg": "true or false",
        "input": text,
    }
    raise RequestValidationError([problem])


@route(router, "doq_ack", response_model=shapes.DoqDone, responses=documented("ack"))
async def ack(request: Request, queue_name: str, id: str) -> Response:  # noqa: A002
    """A message is done."""
    principal_of(request).require(Role.CONSUME, queue_name)
    doq = doq_of(request)
    await doq.messages.ack(queue_name, id)
    doq.rates.note(queue_name, "ack")
    return JsonAnswer(orjson.dumps({"status": "ACKNOWLEDGED", "id": id}))


class Lane:
    """Middleware, innermost: takes the calls of this file past the router."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._routes = {
            (method, route.path.removeprefix(router.prefix)): (route, route.get_route_handler())
            for route in router.routes
            if isinstance(route, DirectDoqRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        found = None
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            parts = scope["path"][len(PREFIX) :].split("/")
            named = {"queue_name": parts[0]}
            if len(parts) == 4:
                named["id"], parts[2] = parts[2], "{id}"
            found = self._routes.get((scope["method"], "/" + "/".join(parts[1:])))
        if found is None or not all(named.values()):  # tidy: allow name, because it is a dict's
            await self._app(scope, receive, send)
            return
        route, call = found
        scope["path_params"], scope["route"] = named, route
        request = Request(scope, receive, send)
        try:
            response = await call(request)
        except DejaQError as error:
            note_error(request.scope, error)
            response = problem(error)
        except HTTPException as error:
            response = framework_problem(error)
        await response(scope, receive, send)
