"""The short lane of SQS's API: signed requests for messages, answered past the framework.

Room: http. See http/short_lane.py for the connection's part.
Holds: what is signed with a key of ours, or with anything where the broker has no key, and does not
administer; nothing else is taken. Each check of the ordinary way (entrance.py, door.py) is made
here too, and what does not pass goes there, to be refused, written down or passed on to another
broker. What was tried and refused is not tried again: the door is told how it ended.
"""

from __future__ import annotations

import time

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from dejaqueue.access.roles import EVERYBODY
from dejaqueue.access.signatures import ALGORITHM
from dejaqueue.errors import DejaQError
from dejaqueue.http.auditing import BEARER, PRINCIPAL, SIGNED
from dejaqueue.http.bodies import load_json
from dejaqueue.http.forwarding import FOLLOWS, FORWARDED
from dejaqueue.http.page_check import PageCheck, what_asks
from dejaqueue.http.requests import RequestCounts
from dejaqueue.http.short_lane import Answering
from dejaqueue.http.sqs.calls import CALLS, Call
from dejaqueue.http.sqs.door import OUTCOME, REGION_SIGNED, TARGET, is_ours, signer_of
from dejaqueue.http.sqs.names import REGION, ROOT
from dejaqueue.http.sqs.refusals import MEDIA_TYPE
from dejaqueue.http.sqs.state import Operation, Sqs

_ALGORITHM = ALGORITHM.encode()
_TARGET = TARGET.encode()
_CALLS = {f"{TARGET}{name}".encode(): call for name, call in CALLS.items() if not call.audited}


class SqsLane:
    """Takes the operations that do not administer.

    Args:
        sqs: what the door's operations share, too.
        pages: keeps out pages of other origins.
        counts: of all requests.
    """

    kind = MEDIA_TYPE.encode()

    def __init__(self, app: FastAPI, sqs: Sqs, pages: PageCheck, counts: RequestCounts) -> None:
        self._app = app
        self._sqs = sqs
        self._gate = sqs.service.gate
        self._pages = pages
        self._counts = counts

    def is_for(self, scope: Scope) -> bool:
        """True for a request to this API that other clients than ours, and brokers, send."""
        return scope["method"] == "POST" and is_ours(scope) and scope["http_version"] == "1.1"

    def begin(self, scope: Scope, body: bytes, receive: Receive) -> Answering | None:
        """See ShortLane."""
        target = b""
        for name, value in scope["headers"]:
            if name == b"x-amz-target":
                target = target or value
            elif name in (FORWARDED, FOLLOWS):
                return None
        call = _CALLS.get(target)
        if call is None:
            return None
        try:
            operation = self._operation(scope, body, receive, call)
        except (DejaQError, HTTPException, ValueError):  # the ordinary way says what it is
            return None
        return None if operation is None else self._do(call, operation)

    def _operation(
        self, scope: Scope, body: bytes, receive: Receive, call: Call
    ) -> Operation | None:
        """What is asked by somebody who may be let in. Raises what the ordinary way does."""
        authorizations, headers = what_asks(scope)
        if len(authorizations) != 1 or not authorizations[0].startswith(ALGORITHM):
            return None
        caller = signer_of(scope, body, self._gate, authorizations[0])
        if caller is EVERYBODY:
            self._pages.check(headers, is_secure=scope["scheme"] == "https", takes=False)
        values = load_json(body)
        if not isinstance(values, dict):
            return None
        call.check(values)
        scope["app"] = self._app
        scope[BEARER], scope[SIGNED], scope[PRINCIPAL] = None, True, caller
        region = scope.get(REGION_SIGNED, REGION)
        return Operation(self._sqs, Request(scope, receive), values, region)

    async def _do(self, call: Call, operation: Operation) -> bytes | None:
        counts, began_ns = self._counts, time.perf_counter_ns()
        counts.open += 1
        try:
            content = orjson.dumps(await call.function(operation))
        except Exception as error:  # noqa: BLE001 - the door answers for it
            operation.request.scope[OUTCOME] = error
            return None
        finally:
            counts.open -= 1
        counts.count("POST", ROOT, 200, (time.perf_counter_ns() - began_ns) // 1_000)
        return content
