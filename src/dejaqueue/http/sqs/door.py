"""The door of the API of SQS: its path, its signatures, its protocol.

Room: http. Middleware, innermost; `signer` is asked by the entrance, before anybody is let in.
Holds: once there is a key, a request is answered only if one has signed it, or came with it; what
is wrong is told in SQS's words.
See: access/signatures.py; entrance.py; calls.py for what is behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.access.gate import Gate
from dejaqueue.access.roles import Principal
from dejaqueue.access.signatures import ALGORITHM, Signature, SignedRequest
from dejaqueue.errors import BadRequest, DejaQError, InternalError
from dejaqueue.http.auditing import note, note_administers, note_error
from dejaqueue.http.bodies import header, parse_json, read_body
from dejaqueue.http.direct import JsonAnswer
from dejaqueue.http.forwarding import FORWARDED, HOST
from dejaqueue.http.service import Service
from dejaqueue.http.sqs.calls import CALLS
from dejaqueue.http.sqs.names import REGION, ROOT
from dejaqueue.http.sqs.refusals import MEDIA_TYPE, SqsRefusal, refusal
from dejaqueue.http.sqs.state import Operation, Sqs

TARGET = "AmazonSQS."
BODY_BYTES_MAX = 8 << 20
"""A batch of a MiB, of which JSON may write each byte in six."""
REGION_SIGNED = "dejaq.sqs-region"
"""Where in a request's scope the region is that it was signed for."""
OUTCOME = "dejaq.sqs-outcome"
"""Where in a request's scope the error is that its operation has ended with (short_lane.py)."""
_BODY = "dejaq.sqs-body"
"""Where in a request's scope its body is, if that was read to verify a signature."""


def install(app: FastAPI, service: Service) -> None:
    """Serve SQS's operations under ROOT."""
    app.state.sqs = Sqs(service)
    app.add_middleware(Door, sqs=app.state.sqs)


def is_ours(scope: Scope) -> bool:
    """True for a request to this API."""
    path: str = scope["path"]
    return path == ROOT or path.startswith(f"{ROOT}/")


async def signer(
    scope: Scope, receive: Receive, gate: Gate, authorizations: list[str]
) -> tuple[Principal, Receive] | None:
    """Who signed a request; and how to receive it once more. None = nobody signed it.

    Raises:
        Unauthenticated, Unavailable, HTTPException.
    """
    if len(authorizations) != 1 or not authorizations[0].startswith(ALGORITHM):
        return None
    if not gate.keys.required:
        return signer_of(scope, b"", gate, authorizations[0]), receive
    body = scope[_BODY] = await read_body(Request(scope, receive), BODY_BYTES_MAX)
    principal = signer_of(scope, body, gate, authorizations[0])
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return principal, again


def signer_of(scope: Scope, body: bytes, gate: Gate, authorization: str) -> Principal:
    """Who signed a request with this body. Raises Unauthenticated, Unavailable."""
    signature = Signature.of(authorization)
    scope[REGION_SIGNED] = signature.region
    if not gate.keys.required:
        return gate.signer(signature.key_id, lambda _: False)
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    asked = SignedRequest(
        scope["method"],
        raw_path.partition(b"?")[0].decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        _headers(scope["headers"], signature.signed_headers),
        body,
    )
    signature.check(asked, gate.keys.clock.utc_ms())
    return gate.signer(signature.key_id, lambda signing: signature.fits(asked, signing))


def _headers(pairs: Iterable[tuple[bytes, bytes]], names: Sequence[str]) -> dict[str, str]:
    """Headers of these names. A request that another broker has passed on was signed for that
    one's host."""
    headers: dict[str, str] = {}
    wanted = {name.encode() for name in names}
    host, is_passed_on = b"", False
    for raw_name, raw_value in pairs:
        if raw_name in wanted:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        if raw_name == FORWARDED:
            is_passed_on = True
        elif raw_name == HOST:
            host = raw_value
    if is_passed_on and host:
        headers["host"] = host.decode("latin-1")
    return headers


class _Route:
    """What counts requests takes for the route."""

    path = ROOT


class Door:
    """Answers the requests to this API; everything else goes on."""

    def __init__(self, app: ASGIApp, sqs: Sqs) -> None:
        self._app = app
        self._sqs = sqs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http" or not is_ours(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = _Route
        request = Request(scope, receive, send)
        response = await _answer(self._sqs, request)
        await response(scope, receive, send)


class _Done(JsonAnswer):
    """What an operation answers."""

    media_type = MEDIA_TYPE
    kind = (b"content-type", MEDIA_TYPE.encode())


async def _answer(sqs: Sqs, request: Request) -> Response:
    try:
        answer = await _do(sqs, request)
        return _Done(orjson.dumps(answer))
    except DejaQError as error:
        note_error(request.scope, error)
        return refusal(error)
    except HTTPException as error:
        return refusal(SqsRefusal("InvalidParameterValue", str(error.detail)))
    except Exception as wrong:  # noqa: BLE001 - our bug, and somebody waits for an answer
        bug = InternalError(f"{type(wrong).__name__}: {wrong}")
        bug.__cause__ = wrong
        note_error(request.scope, bug)
        return refusal(bug)


async def _do(sqs: Sqs, request: Request) -> dict[str, Any]:
    ended: Exception | None = request.scope.pop(OUTCOME, None)
    if ended is not None:
        raise ended
    target = header(request, b"x-amz-target")
    name = target.removeprefix(TARGET)
    call = CALLS.get(name)
    if request.method != "POST" or not target.startswith(TARGET) or call is None:
        text = f"x-amz-target: {TARGET}NAME of an operation, in a POST of JSON, got: {target[:100]}"
        raise SqsRefusal("UnsupportedOperation", text)
    content: bytes | None = request.scope.get(_BODY)
    if content is None:
        content = await read_body(request, BODY_BYTES_MAX)
    values = parse_json(content or b"{}")
    if not isinstance(values, dict):
        raise BadRequest("body", "a JSON object", values)
    if call.audited:
        note_administers(request)
        note(request, operation=name, topic=_subject(values))
    call.check(values)
    region = request.scope.get(REGION_SIGNED, REGION)
    return await call.function(Operation(sqs, request, values, region))


def _subject(values: dict[str, Any]) -> str:
    """What the audit log says an operation is about."""
    for name in ("QueueName", "QueueUrl", "SourceArn"):
        text = values.get(name)
        if isinstance(text, str):
            return text.rpartition("/")[2].rpartition(":")[2][:255]
    return ""
