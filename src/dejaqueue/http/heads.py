"""HEAD: what GET would answer, without the body.

Room: http. Middleware around the whole application; uvicorn leaves the body away.
Holds: HEAD changes nothing. DOQ's GET takes a message, and a stream of events many, so these paths
have no HEAD.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

_TOPICS, _DOQ, _EVENT_STREAM = "/v1/topics/", "/API/", "/events"


def takes_messages(path: str) -> bool:
    """True for paths whose GET takes something away, or that stand beside such ones."""
    return path.startswith(_DOQ) or (path.startswith(_TOPICS) and path.endswith(_EVENT_STREAM))


class HeadAsGet:
    """Asks the application for GET where HEAD was asked for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if is_head and not takes_messages(scope["path"]):
            scope = dict(scope, method="GET")  # a copy: the server must know that it was HEAD
        await self._app(scope, receive, send)
