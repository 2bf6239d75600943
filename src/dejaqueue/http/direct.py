"""Routes without a framework between request and answer, for what is called most.

Room: http.
Holds: they are in the OpenAPI document as any other; what they take is checked by the house's own
checks, never by models, which would cost more than the call itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

JSON = "application/json"


class DirectRoute(APIRoute):
    """A route whose function takes the request and gives the response."""

    # tidy: allow name, because it is FastAPI's
    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The function itself."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint

        async def answer(request: Request) -> Response:
            return await endpoint(request, **request.path_params)

        return answer


class JsonAnswer(Response):
    """JSON text that is ready to be sent: no encoding, no header that is not needed."""

    media_type = JSON
    kind = (b"content-type", JSON.encode())

    def __init__(self, content: bytes, status_code: int = 200) -> None:
        self.status_code = status_code
        self.background = None
        self.body = content
        self.raw_headers = [
            (b"content-length", b"%d" % len(content)),
            self.kind,
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": self.body})


def json_answer(values: Any, status_code: int = 200) -> JsonAnswer:
    """These values as JSON."""
    return JsonAnswer(orjson.dumps(values), status_code)
